//! Calls of the store: made by a machine, done by the store after a while, answered after another.
//! A crash may come before, in, or after each; and each may fail in every way.

use windlass_core::machine::StoreCall;
use windlass_core::store::{Batch, Cause, CommitError, Outcomes, StoreError};
use windlass_core::{BatchId, Now, ProcessId};
use windlass_store_memory::Fault as Injected;

use super::World;
use super::event::Event;
use super::process::Up;
use crate::disk::Executed;
use crate::faults::Fault;
use crate::invariants::{Made, Seen};
use crate::ledger::{Commit, Deed, Said, tell};

/// A call of the store that is under way.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one per process, and most are commits")]
pub(super) enum Call {
    /// Asked, not done yet.
    Asked(StoreCall),
    /// A commit that was made, or not, when the clocks read this.
    Committed { batch: Batch, executed: Executed, read: Now },
    /// Looked for.
    Looked(BatchId, Result<bool, StoreError>),
    /// Opened anew.
    Reopened(Result<(), StoreError>),
    /// Checked for changes.
    Checked(Result<bool, StoreError>),
}

/// Who makes a commit.
#[derive(Debug, Clone, Copy)]
struct By {
    process: ProcessId,
    step_seen: Option<u64>,
    barren: u32,
}

/// Commits of one process that come closer together than this follow each other at once.
const AT_ONCE: u64 = 500;

impl Up {
    /// Counts reaping commits in a row that write nothing.
    fn note_barren(&mut self, now: u64, batch: &Batch, out: Option<&Outcomes>) {
        let barren = batch.reap.is_some() && out.is_some_and(|out| !out.wrote);
        let at_once = now - self.barren.1 < AT_ONCE;
        let before = if at_once { self.barren.0 } else { 0 };
        self.barren = (if barren { before + 1 } else { 0 }, now);
    }
}

impl World {
    /// Takes a call from a machine, if it has one to make.
    pub(super) fn take_call(&mut self, at: usize) -> bool {
        if self.processes[at].up.as_ref().is_none_or(|up| up.call.is_some()) {
            return false;
        }
        let Some(now) = self.read_clocks(at) else { return false };
        let Some(up) = self.processes[at].up.as_mut() else { return false };
        let Some(call) = up.machine.poll_store(now) else { return false };
        let boot = up.boot;
        if let StoreCall::Commit(batch) = &call {
            up.made_with = up.sight;
            let phase = up.machine.phase();
            let (alive, ended) = (&up.alive, &up.ended);
            let seen = Seen::Made(Made { phase, batch, alive, ended });
            if self.violation.is_none() {
                self.violation = crate::invariants::first_violation(&self.ledger, &seen);
            }
        }
        self.trace.note(&call_numbers(at, &call), || format!("p{at} calls: {}", words(&call)));
        if let Some(up) = self.processes[at].up.as_mut() {
            up.call = Some(Call::Asked(call));
            up.called = Some(self.now);
        }
        let wait = self.call_time();
        self.after(wait, Event::Execute(at, boot));
        true
    }

    /// How long it takes until the store does what it is asked.
    fn call_time(&mut self) -> u64 {
        let usual = self.work.below(self.options.commit_ms + 1);
        if self.strikes(Fault::StuckCommit, self.options.rate / 8) {
            return usual + self.luck.range(10_000, 40_000);
        }
        if self.strikes(Fault::SlowCommit, self.options.rate) {
            return usual + self.luck.range(200, 4_000);
        }
        usual
    }

    /// The store does what a process has asked for.
    pub(super) fn execute(&mut self, at: usize, boot: u64) {
        let Some(up) = self.up(at, boot) else { return };
        let Some(Call::Asked(call)) = up.call.take() else { return };
        if self.strikes(Fault::CrashBeforeCommit, self.options.rate / 4) {
            return self.crash(at);
        }
        let done = match call {
            StoreCall::Commit(batch) => {
                let Some(done) = self.commit(at, batch) else { return };
                done
            }
            StoreCall::Look(batch) => Call::Looked(batch, self.look(at, batch)),
            StoreCall::Reopen => Call::Reopened(self.reopen(at)),
            StoreCall::Check => Call::Checked(self.check(at)),
        };
        if self.strikes(Fault::CrashAfterCommit, self.options.rate / 8) {
            return self.crash(at);
        }
        let Some(up) = self.up(at, boot) else { return };
        up.call = Some(done);
        let wait = self.work.below(3);
        self.after(wait, Event::Answer(at, boot));
    }

    /// Makes a commit; nothing if the process went with it.
    pub(super) fn commit(&mut self, at: usize, batch: Batch) -> Option<Call> {
        let up = self.processes[at].up.as_mut()?;
        let now = up.clock.now(&self.wall, self.now);
        // The batch says what the store's clock should read, and the commit compares the two.
        up.made_with.read(now, self.now);
        let step_seen = up.made_with.step_seen;
        let crashes = self.strikes(Fault::CrashInCommit, self.options.rate / 8);
        if crashes && self.luck.chance(500) {
            self.crash(at);
            return None;
        }
        let fault = if crashes { None } else { self.draw_fault(&batch) };
        let up = self.processes[at].up.as_mut()?;
        let executed = self.disk.commit(&mut up.handle, now.wall, &batch, fault);
        if batch.claims.iter().any(|claim| !claim.takers.is_empty()) || executed.result.is_err() {
            up.hungry_since = None;
        }
        up.note_barren(self.now, &batch, executed.outcomes());
        let by = By { process: ProcessId(up.boot), step_seen, barren: up.barren.0 };
        if let Some(outcomes) = executed.outcomes() {
            self.observe(by, &batch, outcomes);
        }
        self.note_result(at, &executed);
        if crashes {
            self.crash(at);
            return None;
        }
        Some(Call::Committed { batch, executed, read: now })
    }

    /// How this commit fails, if it does.
    fn draw_fault(&mut self, batch: &Batch) -> Option<Injected> {
        if self.full_until > self.now {
            let grows = !batch.enqueues.is_empty() || !batch.claims.is_empty();
            return (grows || self.luck.chance(500)).then_some(Injected::Full);
        }
        let faults = [
            (Fault::NotCommitted, Injected::NotCommitted, 1),
            (Fault::UnknownCommitted, Injected::UnknownCommitted, 1),
            (Fault::UnknownNotCommitted, Injected::UnknownNotCommitted, 1),
            (Fault::FatalCommitted, Injected::FatalCommitted, 2),
            (Fault::FatalNotCommitted, Injected::FatalNotCommitted, 2),
            (Fault::FatalBefore, Injected::FatalBefore, 2),
            (Fault::Corrupt, Injected::Corrupt, 10),
        ];
        faults.into_iter().find_map(|(fault, injected, seldom)| {
            self.strikes(fault, self.options.rate / seldom).then_some(injected)
        })
    }

    fn look(&mut self, at: usize, batch: BatchId) -> Result<bool, StoreError> {
        if self.strikes(Fault::LookFails, 200) {
            let cause = Cause::new("injected fault");
            let busy = self.luck.chance(500);
            return Err(if busy { StoreError::Busy(cause) } else { StoreError::Fatal(cause) });
        }
        match self.processes[at].up.as_mut() {
            Some(up) => up.handle.look(batch),
            None => Err(StoreError::Busy(Cause::new("nobody asks"))),
        }
    }

    fn reopen(&mut self, at: usize) -> Result<(), StoreError> {
        if self.strikes(Fault::ReopenFails, 300) {
            return Err(StoreError::Fatal(Cause::new("injected fault")));
        }
        match self.processes[at].up.as_mut() {
            Some(up) => up.handle.reopen(),
            None => Err(StoreError::Busy(Cause::new("nobody asks"))),
        }
    }

    fn check(&mut self, at: usize) -> Result<bool, StoreError> {
        match self.processes[at].up.as_mut() {
            Some(up) => self.disk.changed(&mut up.handle),
            None => Err(StoreError::Busy(Cause::new("nobody asks"))),
        }
    }

    /// A process hears from the store.
    pub(super) fn answer(&mut self, at: usize, boot: u64) {
        let now = self.now;
        let Some(up) = self.up(at, boot) else { return };
        if up.suspended_until > now {
            let left = up.suspended_until - now;
            return self.after(left, Event::Answer(at, boot));
        }
        let Some(clock) = self.read_clocks(at) else { return };
        let Some(up) = self.up(at, boot) else { return };
        up.called = None;
        match up.call.take() {
            None | Some(Call::Asked(_)) => return,
            Some(Call::Committed { batch, executed, read }) => {
                match &executed.result {
                    Ok(_) => up.sight.begin(read),
                    Err(CommitError::Fatal { .. }) => up.poisoned = true,
                    Err(_) => {}
                }
                up.machine.handle_committed(clock, batch, executed.result);
            }
            Some(Call::Looked(batch, result)) => {
                up.poisoned |= matches!(result, Err(StoreError::Fatal(_)));
                up.machine.handle_looked(clock, batch, result);
            }
            Some(Call::Reopened(result)) => {
                up.poisoned &= result.is_err();
                up.machine.handle_reopened(clock, result);
            }
            Some(Call::Checked(result)) => {
                if let Err(StoreError::Corrupt(cause)) = &result {
                    let what = cause.to_string();
                    self.fail("I13 no silent stop", what);
                    return;
                }
                up.machine.handle_checked(clock, result);
            }
        }
        self.drive(at);
    }

    /// Takes a commit that took place into the ledger, and checks it.
    fn observe(&mut self, by: By, batch: &Batch, out: &Outcomes) {
        self.coverage.commits += 1;
        let stories = tell(&self.ledger, batch, out, |ids| self.disk.jobs(ids));
        let queues = self.disk.queues();
        let commit = Commit {
            at: self.now,
            process: by.process,
            step_seen: by.step_seen,
            barren: by.barren,
            batch,
            out,
            stories,
            queues,
        };
        self.cover(&commit);
        self.see(&Seen::Commit(&commit));
        self.ledger.take_in(&commit);
        self.see(&Seen::Noted(&commit));
        self.since_audit += 1;
        if self.since_audit >= self.options.audit_every {
            self.audit();
        }
    }

    /// Notes the legal moves of a commit, and writes down all of them.
    fn cover(&mut self, commit: &Commit<'_>) {
        for result in commit.out.enqueues.iter().flatten().filter(|receipt| receipt.duplicate) {
            let id = result.id;
            self.coverage.edge("duplicate enqueue");
            self.trace.note(&[8, id.get()], || format!("  #{id} again, a duplicate"));
        }
        for story in &commit.stories {
            for deed in &story.deeds {
                if let Some(edge) = edge(story, deed) {
                    self.coverage.edge(edge);
                }
                let id = story.id;
                let epoch = story.row().map_or(0, |job| job.epoch.get());
                let numbers = [9, id.get(), epoch, deed_number(deed)];
                self.trace.note(&numbers, || format!("  #{id}.{epoch} {deed:?}"));
            }
        }
    }

    fn note_result(&mut self, at: usize, executed: &Executed) {
        let (number, words) = match &executed.result {
            Ok(_) => (0, "committed"),
            Err(CommitError::NotCommitted(_)) => (1, "not committed"),
            Err(CommitError::Full(_)) => (2, "no space"),
            Err(CommitError::Unknown { .. }) => (3, "unknown"),
            Err(CommitError::Fatal { .. }) => (4, "the store failed"),
            Err(CommitError::Corrupt(_)) => (5, "corrupt"),
        };
        let applied = executed.applied;
        self.trace.note(&[10, at as u64, number, u64::from(applied)], || {
            format!("p{at}: {words}{}", if applied { "" } else { ", did not take place" })
        });
    }
}

fn edge(story: &crate::ledger::Story, deed: &Deed) -> Option<&'static str> {
    use windlass_core::StateName::{Cancelled, Done, Failed, Processing, Queued};
    Some(match deed {
        Deed::Enqueued => {
            let due = story.row().is_none_or(|job| job.run_at <= job.created_at);
            if due { "enqueue ready" } else { "enqueue scheduled" }
        }
        Deed::Settled { said: Said::Complete, .. } => "complete",
        Deed::Settled { said: Said::Fail, to: Failed, .. } => "fail, attempts used up",
        Deed::Settled { said: Said::Fail, .. } => "fail, tried again",
        Deed::Settled { said: Said::FailForGood, .. } => "fail for good",
        Deed::Settled { said: Said::Snooze, .. } => "snooze",
        Deed::Settled { said: Said::Release, .. } => "release",
        Deed::Repeated { .. } => "verdict repeated",
        Deed::Beaten { .. } => "heartbeat",
        Deed::Cancelled { from: Queued } => "cancel waiting",
        Deed::Cancelled { from: Processing } => "cancel running",
        Deed::CancelledAgain => "cancel again",
        Deed::Replayed { from: Failed } => "replay failed",
        Deed::Replayed { from: Cancelled } => "replay cancelled",
        Deed::Reaped { to: Failed } => "expire, attempts used up",
        Deed::Reaped { .. } => "expire, tried again",
        Deed::Renewed => "lease counts anew",
        Deed::FellDue => "fall due",
        Deed::Removed { from: Done } => "remove done",
        Deed::Removed { from: Failed } => "remove failed",
        Deed::Removed { from: Cancelled } => "remove cancelled",
        Deed::Claimed { .. } => "claim",
        Deed::Cancelled { .. }
        | Deed::Replayed { .. }
        | Deed::Removed { .. }
        | Deed::Unexplained { .. } => return None,
    })
}

fn deed_number(deed: &Deed) -> u64 {
    match deed {
        Deed::Enqueued => 1,
        Deed::Settled { said, to, .. } => 10 + 8 * (*said as u64) + (*to as u64),
        Deed::Repeated { .. } => 2,
        Deed::Beaten { .. } => 3,
        Deed::Cancelled { .. } => 4,
        Deed::CancelledAgain => 5,
        Deed::Replayed { .. } => 6,
        Deed::Reaped { to } => 100 + (*to as u64),
        Deed::Renewed => 7,
        Deed::FellDue => 8,
        Deed::Removed { .. } => 9,
        Deed::Claimed { epoch, .. } => 1_000 + epoch.get(),
        Deed::Unexplained { .. } => 99,
    }
}

fn call_numbers(at: usize, call: &StoreCall) -> [u64; 4] {
    match call {
        StoreCall::Commit(batch) => [11, at as u64, batch.id.seq, batch.len() as u64],
        StoreCall::Look(batch) => [12, at as u64, batch.seq, 0],
        StoreCall::Reopen => [13, at as u64, 0, 0],
        StoreCall::Check => [14, at as u64, 0, 0],
    }
}

fn words(call: &StoreCall) -> String {
    let batch = match call {
        StoreCall::Commit(batch) => batch,
        StoreCall::Look(batch) => return format!("was batch {} committed?", batch.seq),
        StoreCall::Reopen => return "open the store anew".into(),
        StoreCall::Check => return "has somebody written?".into(),
    };
    let mut parts = vec![format!("commit {}", batch.id.seq)];
    for settle in &batch.settles {
        parts.push(format!("#{} {:?}", settle.token, Said::of(&settle.verdict)));
    }
    parts.extend(batch.beats.iter().map(|beat| format!("beat #{}", beat.token)));
    parts.extend(batch.admin.iter().map(|command| format!("{command:?}")));
    parts.extend(batch.enqueues.iter().map(|new| format!("enqueue {:?}", new.payload)));
    parts.extend(batch.reap.map(|reap| format!("{reap:?}")));
    parts.extend(batch.promote.map(|limit| format!("promote {limit}")));
    parts.extend(batch.purge.map(|_| "purge".to_owned()));
    for claim in &batch.claims {
        let takers = claim.takers.iter().map(|taker| format!("{}×{}", taker.worker, taker.max));
        parts.push(format!("claim for {}", takers.collect::<Vec<_>>().join(", ")));
    }
    parts.join(" | ")
}
