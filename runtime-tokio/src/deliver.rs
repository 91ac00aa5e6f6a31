//! The delivery task: takes the writer's output and passes it to callers, workers and watchers.
//! It runs inside the tokio runtime, where waking another task is cheaper than from the writer
//! thread.

use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use windlass_core::machine::{Input, Run};
use windlass_core::{LeaseToken, Mono};

use crate::context::{Attempt, RunningJob};
use crate::handler::Handlers;
use crate::lifecycle::STOP_NOW;
use crate::pool;
use crate::shared::{Mail, Out, Response, Shared};
use crate::sync::lock;

/// Delivers until the writer has finished.
pub(crate) async fn deliver(shared: Arc<Shared>, handlers: Arc<Handlers>) {
    let leave = Leave { shared };
    let shared = &leave.shared;
    let (mut batch, mut runs) = (Vec::new(), Vec::new());
    while poll_fn(|cx| shared.outbox.poll_take(cx, &mut batch)).await {
        for out in batch.drain(..) {
            if let Out::Slots(workers) = out {
                // A worker may leave only once the runs claimed for it are queued.
                shared.queue_runs(&mut runs);
                pool::resize(shared, &handlers, workers);
            } else {
                shared.deliver_one(out, &mut runs);
            }
        }
        shared.queue_runs(&mut runs);
    }
}

impl Shared {
    fn queue_runs(&self, runs: &mut Vec<RunningJob>) {
        if !runs.is_empty() && !self.slots.put(runs) {
            // The workers are gone: dropping the runs gives the jobs back.
            runs.clear();
        }
    }

    fn deliver_one(self: &Arc<Self>, out: Out, runs: &mut Vec<RunningJob>) {
        match out {
            Out::Answer(ticket, answer) => self.answer(&ticket, Response::Answer(answer)),
            Out::Run(run, stop_at) => runs.push(self.start_attempt(run, stop_at)),
            Out::Extended(token, stop_at) => {
                if let Some(attempt) = self.attempt(token) {
                    attempt.extended(stop_at);
                }
            }
            Out::Stop(token, reason) => {
                if let Some(attempt) = self.attempt(token) {
                    attempt.stop(reason);
                }
            }
            Out::Changed(jobs, queues) => {
                self.undelivered_changes.fetch_sub(jobs.len(), Ordering::Relaxed);
                self.watchers.changed(&jobs);
                self.events.changed(jobs, queues);
            }
            Out::News => {
                self.watchers.news();
                self.events.news();
            }
            Out::Lost => self.watchers.close(),
            Out::Slots(_) => {}
        }
    }

    /// The attempt with this token, if it was handed to a worker and has not ended.
    pub(crate) fn attempt(&self, token: LeaseToken) -> Option<Arc<Attempt>> {
        lock(&self.attempts).get(&token).and_then(Weak::upgrade)
    }

    /// Registers a claimed job as an attempt, which can be stopped from now on.
    fn start_attempt(self: &Arc<Self>, run: Run, stop_at: Mono) -> RunningJob {
        let attempt = Arc::new(Attempt::new(run.job, run.payload, stop_at, Arc::clone(self)));
        let mut attempts = lock(&self.attempts);
        // Remove ended attempts once they are more than half of the map.
        if attempts.len() > 2 * self.workers.load(Ordering::Relaxed) {
            attempts.retain(|_, attempt| attempt.strong_count() > 0);
        }
        attempts.insert(attempt.token(), Arc::downgrade(&attempt));
        drop(attempts);
        self.lease_timer.plan(attempt.must_stop_at());
        RunningJob::new(attempt)
    }
}

/// Cleans up when the task ends: after the writer has finished, or because the tokio runtime is
/// dropped.
struct Leave {
    shared: Arc<Shared>,
}

impl Drop for Leave {
    fn drop(&mut self) {
        let shared = &self.shared;
        for out in shared.outbox.leave() {
            match out {
                Out::Answer(ticket, answer) => shared.answer(&ticket, Response::Answer(answer)),
                Out::Run(run, _) => {
                    let (token, reason) = (run.job.token(), None);
                    shared.input(Input::Stopped { token, reason });
                }
                Out::Extended(..)
                | Out::Stop(..)
                | Out::Changed(..)
                | Out::News
                | Out::Lost
                | Out::Slots(_) => {}
            }
        }
        shared.watchers.close();
        shared.events.close();
        if shared.ended.borrow().is_some() {
            shared.slots.close();
        } else {
            // The tokio runtime is gone: nothing can run in this process any more.
            drop(shared.slots.abandon());
            shared.mailbox.close_gate(Mail::Input(STOP_NOW));
        }
    }
}
