//! The writer thread, the only owner of the store and the machine. Each turn drains the mailbox,
//! feeds the machine, makes at most one call of the store and sends the effects to the delivery
//! task. Between turns it sleeps until mail arrives or a timer is due. It decides nothing but how
//! long to wait for more mail before a commit (`group_commit.rs`).

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use windlass_core::Now;
use windlass_core::machine::{Answer, Effect, Health, Input, Machine, Phase, StoreCall};
use windlass_core::store::{Cause, Store};

use crate::error::Unserved;
use crate::group_commit::GroupCommit;
use crate::lifecycle::Report;
use crate::metrics::WriterFigures;
use crate::shared::{Mail, Out, Response, Shared, Ticket};
use crate::sync::{Weight, lock};

/// Changes that may wait in the outbox. Beyond this, watchers only learn that something changed.
const MAX_UNDELIVERED_CHANGES: usize = 65_536;

pub(crate) struct Writer<S> {
    store: S,
    machine: Machine,
    shared: Arc<Shared>,
    mail: Vec<Mail>,
    out: Vec<Out>,
    /// Callers that wait for `Mail::Idle`, each with its `all`.
    idle: Vec<(Arc<Ticket>, bool)>,
    health: Health,
    figures: WriterFigures,
    group_commit: GroupCommit,
}

/// Runs the writer until it stops or panics, then answers every caller that still waits.
pub(crate) fn run<S>(store: S, machine: Machine, shared: &Arc<Shared>)
where
    S: Store,
    S::Reader: Send + 'static,
{
    let (mail, out, idle) = (Vec::new(), Vec::new(), Vec::new());
    let figures = WriterFigures { workers: machine.slots(), ..WriterFigures::default() };
    let health = Health::Good;
    let mut writer = Writer {
        store,
        machine,
        shared: Arc::clone(shared),
        mail,
        out,
        idle,
        health,
        figures,
        group_commit: GroupCommit::default(),
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| writer.run()));
    let cause = outcome.err().map(|panic| Cause::new(&panic_text(panic.as_ref())));
    let mut report = Report::of(writer.machine.shutdown_report(), cause.clone());
    if let Some(cause) = cause {
        report.left = writer.machine.leases().collect();
        shared.record_panic(cause);
    }
    let mut left = mem::take(&mut writer.mail);
    left.extend(writer.idle.drain(..).map(|(ticket, all)| Mail::Idle { ticket, all }));
    if !shared.outbox.send(&mut writer.out) {
        writer.undelivered();
    }
    // Close the readers before the writer: the last connection cleans up the files, which a reader
    // cannot. Close the store before callers learn that the runtime has ended, so that they can
    // open it again. A panic of the store's drop must not keep them waiting.
    shared.readers.close();
    let _ = catch_unwind(AssertUnwindSafe(|| drop(writer)));
    shared.close(left, report);
}

impl<S> Writer<S>
where
    S: Store,
    S::Reader: Send + 'static,
{
    fn run(&mut self) {
        loop {
            let called = self.turn();
            if self.machine.phase() == Phase::Stopped {
                return;
            }
            if called {
                self.wait();
            } else {
                self.sleep();
            }
        }
    }

    /// Waits for the callers that were just answered, so that their next requests share a commit.
    fn wait(&mut self) {
        let Some(wait) = self.group_commit.wait() else { return };
        let clock = &self.shared.clock;
        let began = clock.micros();
        if wait.awake {
            self.shared.mailbox.spin_until(wait.mail);
        }
        let mail = self.shared.mailbox.sleep_until(wait.mail, wait.at_most);
        let took = clock.micros().saturating_sub(began);
        self.group_commit.record_wait(mail, Duration::from_micros(took));
    }

    /// One turn: mail, at most one call of the store, effects. Returns whether there was a call.
    fn turn(&mut self) -> bool {
        let waiting = self.machine.waiting_jobs();
        let bytes = waiting.iter().map(|new| new.payload.as_str().len()).sum();
        let held = Weight { items: waiting.len(), bytes };
        self.shared.mailbox.drain(&mut self.mail, held);
        let now = self.shared.clock.now();
        self.handle_mail(now);
        let call = self.machine.poll_store(now);
        let called = call.is_some();
        self.send_effects();
        if let Some(call) = call {
            self.call_store(call, now);
            self.group_commit.begin_answers(self.shared.mailbox.len());
            self.send_effects();
        }
        called
    }

    /// Sleeps until mail arrives or a timer of the machine is due.
    fn sleep(&mut self) {
        let wakeup = self.machine.poll_timeout();
        let now = self.shared.clock.now().mono;
        if wakeup.is_some_and(|wakeup| wakeup.at <= now) {
            return;
        }
        if !self.idle.is_empty() {
            let busy = self.machine.leases().next().is_some();
            for (ticket, _) in self.idle.extract_if(.., |(_, all)| !(*all && busy)) {
                self.shared.answer(&ticket, Response::Idle);
            }
        }
        let wait = wakeup.and_then(|wakeup| self.shared.clock.wait(wakeup.at));
        self.shared.mailbox.sleep(wait);
    }

    fn handle_mail(&mut self, now: Now) {
        let shared = Arc::clone(&self.shared);
        let mut tickets = lock(&shared.tickets);
        // Popped one by one: if the machine panics, the others can still be answered.
        self.mail.reverse();
        while let Some(piece) = self.mail.pop() {
            match piece {
                Mail::Request(request, ticket) => {
                    let id = tickets.add(ticket);
                    self.machine.handle(now, Input::Request(id, request));
                }
                Mail::Input(input) => {
                    if input == Input::Changed {
                        shared.hinted.store(false, Ordering::SeqCst);
                    }
                    self.machine.handle(now, input);
                }
                Mail::Gone(ticket) => {
                    if let Some(id) = tickets.number_of(&ticket) {
                        self.machine.handle(now, Input::Gone(id));
                    }
                }
                Mail::Idle { ticket, all } => self.idle.push((ticket, all)),
            }
        }
    }

    fn call_store(&mut self, call: StoreCall, now: Now) {
        let clock = Arc::clone(&self.shared.clock);
        self.shared.store_call.begin(now.mono.get());
        match call {
            StoreCall::Commit(batch) => {
                self.figures.batch.record(batch.len() as u64);
                let started = clock.micros();
                let result = self.store.commit(now.wall, &batch);
                let took = clock.micros().saturating_sub(started);
                self.figures.commit.record(took);
                if result.is_ok() {
                    self.group_commit.committed(batch.len(), Duration::from_micros(took));
                }
                self.machine.handle_committed(clock.now(), batch, result);
            }
            StoreCall::WasCommitted(batch) => {
                let result = self.store.was_committed(batch);
                self.machine.handle_was_committed(clock.now(), batch, result);
            }
            StoreCall::Reopen => {
                let result = self.store.reopen();
                if result.is_ok() {
                    self.shared.readers.renew(&self.store);
                }
                self.machine.handle_reopened(clock.now(), result);
            }
            StoreCall::News(held) => {
                let result = self.store.news(&held);
                if result.as_ref().is_ok_and(|news| news.wrote) {
                    self.out.push(Out::News);
                }
                self.machine.handle_news(clock.now(), result);
            }
            StoreCall::Bulk => {
                let result = self.store.plan_bulk();
                self.machine.handle_bulk(clock.now(), result);
            }
        }
        self.shared.durability.set(self.store.durability());
        self.shared.store_call.end();
        self.note_health();
    }

    fn note_health(&mut self) {
        let health = self.machine.health();
        if health == self.health {
            return;
        }
        match &health {
            Health::Good => tracing::info!("the store works again"),
            Health::Retrying(cause) => tracing::warn!(%cause, "the store failed; trying again"),
            Health::Reopening(cause) => tracing::error!(%cause, "the store failed; reopening it"),
            Health::Lost(cause) => {
                tracing::error!(%cause, "the store is lost");
                self.out.push(Out::Lost);
            }
        }
        lock(&self.shared.health).clone_from(&health);
        if let Health::Lost(cause) = &health {
            self.shared.lost.send_replace(Some(cause.clone()));
        }
        self.health = health;
    }

    /// Sends all effects of the machine to the delivery task, with one wake-up.
    fn send_effects(&mut self) {
        let shared = Arc::clone(&self.shared);
        let mut tickets = None;
        while let Some(effect) = self.machine.poll_effect() {
            match effect {
                Effect::Reply { request, answer } => {
                    self.figures.refusals.note(&answer);
                    if let Answer::Jobs(runs) = &answer {
                        for run in runs {
                            self.figures.claimed(&run.job);
                        }
                    }
                    let tickets = tickets.get_or_insert_with(|| lock(&shared.tickets));
                    if let Some(ticket) = tickets.take(request) {
                        self.group_commit.answered();
                        self.out.push(Out::Answer(ticket, answer));
                    }
                }
                Effect::Run { run, stop_at } => {
                    self.figures.claimed(&run.job);
                    self.out.push(Out::Run(run, stop_at));
                    self.group_commit.answered();
                }
                // Sent at once, not behind what is delivered; unless the run is among that.
                Effect::Extended { token, stop_at } => match shared.attempt(token) {
                    Some(attempt) => attempt.extended(stop_at),
                    None => self.out.push(Out::Extended(token, stop_at)),
                },
                Effect::Stop { token, reason } => self.out.push(Out::Stop(token, reason)),
                Effect::Changed { jobs, queues } if self.shared.is_watched() => {
                    let undelivered_changes = &self.shared.undelivered_changes;
                    if undelivered_changes.fetch_add(jobs.len(), Ordering::Relaxed)
                        < MAX_UNDELIVERED_CHANGES
                    {
                        self.out.push(Out::Changed(jobs, queues));
                    } else {
                        undelivered_changes.fetch_sub(jobs.len(), Ordering::Relaxed);
                        self.out.push(Out::News);
                    }
                }
                Effect::Changed { .. } => {}
                Effect::StopAsked => {
                    tracing::info!("this worker was asked to stop");
                    self.shared.stop_asked.send_replace(true);
                }
            }
        }
        drop(tickets);
        // After the runs that were claimed for the previous number of workers.
        if self.machine.slots() != self.figures.workers {
            self.out.push(Out::Slots(self.machine.slots()));
        }
        self.publish();
        if !self.out.is_empty() && !self.shared.outbox.send(&mut self.out) {
            self.undelivered();
        }
    }

    fn publish(&mut self) {
        self.figures.dispatcher = *self.machine.stats();
        self.figures.running = self.machine.running();
        self.figures.workers = self.machine.slots();
        self.figures.draining = self.machine.phase() != Phase::Running;
        *lock(&self.shared.writer_figures) = self.figures;
    }

    /// The tokio runtime is gone and its workers with it: gives claimed jobs back. The delivery
    /// task has already sent the request to stop.
    fn undelivered(&mut self) {
        let now = self.shared.clock.now();
        for out in mem::take(&mut self.out) {
            match out {
                Out::Answer(ticket, answer) => {
                    self.shared.answer(&ticket, Response::Answer(answer));
                }
                Out::Run(run, _) => {
                    let (token, reason) = (run.job.token(), None);
                    self.machine.handle(now, Input::Stopped { token, reason });
                }
                Out::Extended(..)
                | Out::Stop(..)
                | Out::Changed(..)
                | Out::News
                | Out::Lost
                | Out::Slots(_) => {}
            }
        }
    }
}

impl Shared {
    /// Whether a caller waits for a job or an event stream is open.
    fn is_watched(&self) -> bool {
        self.watchers.any() || self.events.any()
    }

    /// Records why the writer panicked, and stops running handlers, whose leases are no longer
    /// extended.
    fn record_panic(&self, cause: Cause) {
        tracing::error!(%cause, "the writer thread panicked");
        let _ = self.died.set(cause.clone());
        self.lost.send_replace(Some(cause));
        self.stop_attempts(windlass_core::machine::StopReason::LeaseLost, |_| true);
    }

    /// Answers every caller that still waits, and announces the end.
    fn close(&self, mut left: Vec<Mail>, report: Report) {
        left.append(&mut self.mailbox.close());
        self.store_call.end();
        let unserved = match self.died.get() {
            Some(cause) => Unserved::Died(cause.clone()),
            None => Unserved::Stopped,
        };
        let asked = left.into_iter().filter_map(|mail| match mail {
            Mail::Request(_, ticket) | Mail::Idle { ticket, .. } => Some(ticket),
            Mail::Input(_) | Mail::Gone(_) => None,
        });
        let stopped = Response::Unserved;
        for ticket in asked {
            self.answer(&ticket, stopped(unserved.clone()));
        }
        let known = lock(&self.tickets).take_all();
        for ticket in known {
            self.answer(&ticket, stopped(unserved.clone()));
        }
        self.outbox.finish();
        self.ended.send_replace(Some(report));
    }
}

/// The message of a panic. The caller drops the payload, which may panic again.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "panic without a message".into())
}

/// How long a shutdown waits for the writer beyond the time that the machine may take.
pub(crate) const SHUTDOWN_SLACK: Duration = Duration::from_millis(250);
