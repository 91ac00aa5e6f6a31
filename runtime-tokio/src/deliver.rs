//! The delivery task: it takes what the writer hands out and wakes whom it concerns, from inside
//! the runtime, where waking is cheap.

use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use windlass_core::machine::{Input, Run};

use crate::context::{Attempt, RunningJob};
use crate::handler::Handlers;
use crate::lifecycle::AT_ONCE;
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
                // Those that leave must not leave before what was claimed for them is in line.
                shared.put_in_line(&mut runs);
                pool::resize(shared, &handlers, workers);
            } else {
                shared.deliver_one(out, &mut runs);
            }
        }
        shared.put_in_line(&mut runs);
    }
}

impl Shared {
    fn put_in_line(&self, runs: &mut Vec<RunningJob>) {
        if !runs.is_empty() && !self.slots.put(runs) {
            // Nobody works any more: what is dropped here is given back.
            runs.clear();
        }
    }

    fn deliver_one(self: &Arc<Self>, out: Out, runs: &mut Vec<RunningJob>) {
        match out {
            Out::Answer(ticket, answer) => self.answer(&ticket, Response::Answer(answer)),
            Out::Run(run) => runs.push(self.begin(run)),
            Out::Stop(token, reason) => {
                let attempt = lock(&self.attempts).get(&token).and_then(Weak::upgrade);
                if let Some(attempt) = attempt {
                    attempt.stop(reason);
                }
            }
            Out::Changed(jobs, queues) => {
                self.untold.fetch_sub(jobs.len(), Ordering::Relaxed);
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

    /// Makes an attempt of a claimed job, which can be stopped from now on.
    fn begin(self: &Arc<Self>, run: Run) -> RunningJob {
        let attempt = Arc::new(Attempt::new(run.job, run.payload, Arc::clone(self)));
        let mut attempts = lock(&self.attempts);
        // Attempts that have ended are swept out when they are the greater part.
        if attempts.len() > 2 * self.workers.load(Ordering::Relaxed) {
            attempts.retain(|_, attempt| attempt.strong_count() > 0);
        }
        attempts.insert(attempt.token(), Arc::downgrade(&attempt));
        drop(attempts);
        RunningJob::new(attempt)
    }
}

/// What happens when the task ends: by itself, or because its runtime is dropped.
struct Leave {
    shared: Arc<Shared>,
}

impl Drop for Leave {
    fn drop(&mut self) {
        let shared = &self.shared;
        for out in shared.outbox.leave() {
            match out {
                Out::Answer(ticket, answer) => shared.answer(&ticket, Response::Answer(answer)),
                Out::Run(run) => shared.input(Input::Stopped { token: run.job.token() }),
                Out::Stop(..) | Out::Changed(..) | Out::News | Out::Lost | Out::Slots(_) => {}
            }
        }
        shared.watchers.close();
        shared.events.close();
        if shared.ended.borrow().is_some() {
            shared.slots.close();
        } else {
            // The runtime is gone: nothing can run here any more.
            drop(shared.slots.abandon());
            shared.mailbox.close_gate(Mail::Input(AT_ONCE));
        }
    }
}
