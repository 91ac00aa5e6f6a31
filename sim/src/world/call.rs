//! Calls of the store: requested by a machine, executed after a delay, answered after another. A
//! process may crash before, in, or after each; and each may fail in every way.

use windlass_core::bulk::Step;
use windlass_core::machine::StoreCall;
use windlass_core::store::{Batch, Cause, CommitError, News, Outcomes, StoreError};
use windlass_core::{BatchId, JobId, LeaseToken, Millis, Now, ProcessId};
use windlass_store_memory::Fault as Injected;

use super::World;
use super::event::Event;
use super::process::Up;
use super::transaction::OpenCommit;
use crate::disk::Executed;
use crate::faults::Fault;
use crate::invariants::{Made, Seen};
use crate::ledger::{Commit, Decided, IdleReaps, JobEvent, VerdictKind, derive};

/// A call of the store that has not been answered.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one per process, and most are commits")]
pub(super) enum Call {
    /// Not executed yet.
    Asked(StoreCall),
    /// A commit that is interleaved with others.
    Open(Box<OpenCommit>),
    /// A commit was executed, with success or not, when the clocks read this.
    Committed { batch: Batch, executed: Executed, read: Now },
    /// Whether a batch was committed.
    WasCommitted(BatchId, Result<bool, StoreError>),
    /// The result of reopening the store.
    Reopened(Result<(), StoreError>),
    /// Changes by other processes.
    News(Result<News, StoreError>),
    /// The next steps of bulk actions.
    Bulk(Result<Vec<Step>, StoreError>),
}

/// Process that makes a commit, and what it has seen.
#[derive(Debug, Clone)]
pub(super) struct By {
    pub(super) process: ProcessId,
    pub(super) decided: Decided,
    pub(super) idle_reaps: IdleReaps,
    /// Number of commits at its first answer.
    pub(super) seen: u64,
    /// When it got its first answer, and when it read its instant, in true time.
    pub(super) asked: u64,
    pub(super) read: u64,
    /// Time between the first and the last reading of the clock.
    pub(super) spread: Millis,
    /// Jobs that it skipped because other transactions held them.
    pub(super) skipped: Vec<JobId>,
}

/// Commits of one process closer together than this, in ms, count as consecutive. It is less than
/// any change check, after which a process reaps if others have written.
const AT_ONCE: u64 = 95;

impl Up {
    /// Counts reaping commits in a row that write nothing, while there are this number of leases.
    pub(super) fn note_idle_reap(
        &mut self,
        now: u64,
        batch: &Batch,
        out: Option<&Outcomes>,
        leases: usize,
    ) {
        // Skipped rows are tried again with each change check: that is no loop.
        let idle = |out: &Outcomes| !out.wrote && !out.skipped;
        let idle_reaps = batch.reap.is_some() && out.is_some_and(idle);
        let (before, at) = self.idle_reaps;
        let before = if idle_reaps && now - at < AT_ONCE { before } else { IdleReaps::default() };
        let (commits, leases) = (before.commits + u32::from(idle_reaps), before.leases.max(leases));
        self.idle_reaps = (IdleReaps { commits, leases }, now);
    }
}

impl World {
    /// Takes the next call from a machine, if there is one.
    pub(super) fn take_call(&mut self, at: usize) -> bool {
        if self.processes[at].up.as_ref().is_none_or(|up| up.call.is_some()) {
            return false;
        }
        let Some(now) = self.read_clocks(at) else { return false };
        let Some(up) = self.processes[at].up.as_mut() else { return false };
        let Some(call) = up.machine.poll_store(now) else { return false };
        let boot = up.boot;
        if let StoreCall::Commit(batch) = &call {
            up.made_with = (up.step_detector, now.wall);
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

    /// Draws the delay until the store executes a call.
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

    /// Executes the call of a process.
    pub(super) fn execute(&mut self, at: usize, boot: u64) {
        let Some(up) = self.up(at, boot) else { return };
        let Some(Call::Asked(call)) = up.call.take() else { return };
        if self.strikes(Fault::CrashBeforeCommit, self.options.rate / 4) {
            return self.crash(at);
        }
        let done = match call {
            StoreCall::Commit(batch) if self.options.interleaved => {
                return self.begin_commit(at, boot, batch);
            }
            StoreCall::Commit(batch) => {
                let Some(done) = self.commit(at, batch) else { return };
                done
            }
            StoreCall::WasCommitted(batch) => {
                Call::WasCommitted(batch, self.was_committed(at, batch))
            }
            StoreCall::Reopen => Call::Reopened(self.reopen(at)),
            StoreCall::News(held) => Call::News(self.news(at, &held)),
            StoreCall::Bulk => Call::Bulk(self.plan_bulk()),
        };
        self.done(at, boot, done);
    }

    /// Keeps the result of a call; the process gets it after a delay.
    pub(super) fn done(&mut self, at: usize, boot: u64, done: Call) {
        if self.strikes(Fault::CrashAfterCommit, self.options.rate / 8) {
            return self.crash(at);
        }
        let Some(up) = self.up(at, boot) else { return };
        up.call = Some(done);
        let wait = self.work.below(3);
        self.after(wait, Event::Answer(at, boot));
    }

    /// Makes a commit; `None` if the process crashed with it.
    pub(super) fn commit(&mut self, at: usize, batch: Batch) -> Option<Call> {
        let up = self.processes[at].up.as_mut()?;
        let now = up.clock.now(&self.wall, self.now);
        let (step_detector, made) = up.made_with;
        let step_seen = step_detector.step_seen_by_commit(made, now.wall, self.now);
        let crashes = self.strikes(Fault::CrashInCommit, self.options.rate / 8);
        if crashes && self.luck.chance(500) {
            self.crash(at);
            return None;
        }
        let fault = if crashes { None } else { self.draw_fault(&batch) };
        let up = self.processes[at].up.as_mut()?;
        let executed = self.disk.commit(&mut up.handle, now.wall, &batch, fault);
        let process = ProcessId(up.boot);
        let (asked, read, skipped) = (self.now, self.now, Vec::new());
        let spread = Millis::default();
        let seen = self.ledger.commits;
        let by = By {
            process,
            decided: Decided { at: self.now, wall: now.wall, step_seen },
            idle_reaps: IdleReaps::default(),
            seen,
            asked,
            read,
            spread,
            skipped,
        };
        self.executed(at, by, &batch, &executed);
        if crashes {
            self.crash(at);
            return None;
        }
        Some(Call::Committed { batch, executed, read: now })
    }

    /// Records the outcome of a commit.
    pub(super) fn executed(&mut self, at: usize, mut by: By, batch: &Batch, executed: &Executed) {
        let Some(up) = self.processes[at].up.as_mut() else { return };
        if batch.claims.iter().any(|claim| !claim.takers.is_empty()) || executed.result.is_err() {
            up.claimable_since = None;
        }
        up.note_idle_reap(self.now, batch, executed.outcomes(), self.ledger.leases());
        by.idle_reaps = up.idle_reaps.0;
        if let Some(outcomes) = executed.outcomes() {
            self.observe(by, batch, outcomes);
        }
        self.note_result(at, executed);
    }

    /// Draws the fault of this commit, if it has one.
    pub(super) fn draw_fault(&mut self, batch: &Batch) -> Option<Injected> {
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

    fn was_committed(&mut self, at: usize, batch: BatchId) -> Result<bool, StoreError> {
        if self.strikes(Fault::WasCommittedFails, 200) {
            let cause = Cause::new("injected fault");
            let busy = self.luck.chance(500);
            return Err(if busy { StoreError::Busy(cause) } else { StoreError::Fatal(cause) });
        }
        let Some(up) = self.processes[at].up.as_mut() else {
            return Err(StoreError::Busy(Cause::new("no answer is wanted")));
        };
        let answer = up.handle.was_committed(batch);
        if let Err(StoreError::Busy(_)) = &answer {
            self.coverage.contention("was_committed waited");
        }
        answer
    }

    fn reopen(&mut self, at: usize) -> Result<(), StoreError> {
        if self.strikes(Fault::ReopenFails, 300) {
            return Err(StoreError::Fatal(Cause::new("injected fault")));
        }
        match self.processes[at].up.as_mut() {
            Some(up) => up.handle.reopen(),
            None => Err(StoreError::Busy(Cause::new("no answer is wanted"))),
        }
    }

    fn news(&mut self, at: usize, held: &[LeaseToken]) -> Result<News, StoreError> {
        match self.processes[at].up.as_mut() {
            Some(up) => self.disk.news(&mut up.handle, held),
            None => Err(StoreError::Busy(Cause::new("no answer is wanted"))),
        }
    }

    fn plan_bulk(&mut self) -> Result<Vec<Step>, StoreError> {
        let busy = || StoreError::Busy(Cause::new("it cannot be read"));
        self.disk.plan_bulk().ok_or_else(busy)
    }

    /// Passes the result of a call to its process.
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
            None | Some(Call::Asked(_) | Call::Open(_)) => return,
            Some(Call::Committed { batch, executed, read }) => {
                match &executed.result {
                    Ok(_) => up.step_detector.begin(read),
                    Err(CommitError::Fatal { .. }) => up.poisoned = true,
                    Err(_) => {}
                }
                up.machine.handle_committed(clock, batch, executed.result);
            }
            Some(Call::WasCommitted(batch, result)) => {
                up.poisoned |= matches!(result, Err(StoreError::Fatal(_)));
                up.machine.handle_was_committed(clock, batch, result);
            }
            Some(Call::Reopened(result)) => {
                up.poisoned &= result.is_err();
                up.machine.handle_reopened(clock, result);
            }
            Some(Call::News(result)) => {
                if let Err(StoreError::Corrupt(cause)) = &result {
                    let what = cause.to_string();
                    self.fail("I13 no silent stop", what);
                    return;
                }
                up.machine.handle_news(clock, result);
            }
            Some(Call::Bulk(result)) => up.machine.handle_bulk(clock, result),
        }
        self.drive(at);
    }

    /// Adds a successful commit to the ledger and checks the invariants.
    pub(super) fn observe(&mut self, by: By, batch: &Batch, out: &Outcomes) {
        self.coverage.commits += 1;
        // Where processes use their own clocks, any of them may be behind another.
        let set_back = if self.options.interleaved { self.wall.set_back } else { Some(self.now) };
        let stories = derive(&self.ledger, batch, out, |ids| self.disk.jobs(ids));
        let queues = self.disk.queues();
        let commit = Commit {
            at: self.now,
            process: by.process,
            decided: by.decided,
            idle_reaps: by.idle_reaps,
            number: self.ledger.commits + 1,
            seen: by.seen,
            asked: by.asked,
            read: by.read,
            spread: by.spread,
            skipped: by.skipped,
            set_back,
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

    /// Counts the legal moves of a commit, and adds them to the trace.
    fn cover(&mut self, commit: &Commit<'_>) {
        for result in commit.out.enqueues.iter().flatten().filter(|receipt| receipt.duplicate) {
            let id = result.id;
            self.coverage.edge("duplicate enqueue");
            self.trace.note(&[8, id.get()], || format!("  #{id} again, a duplicate"));
        }
        for story in &commit.stories {
            for event in &story.events {
                if let Some(edge) = edge(story, event) {
                    self.coverage.edge(edge);
                }
                let id = story.id;
                let epoch = story.row().map_or(0, |job| job.epoch.get());
                let numbers = [9, id.get(), epoch, event_number(event)];
                self.trace.note(&numbers, || format!("  #{id}.{epoch} {event:?}"));
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

fn edge(story: &crate::ledger::Story, event: &JobEvent) -> Option<&'static str> {
    use windlass_core::StateName::{Cancelled, Done, Failed, Processing, Queued};
    Some(match event {
        JobEvent::Enqueued => {
            let due = story.row().is_none_or(|job| job.run_at <= job.created_at);
            if due { "enqueue ready" } else { "enqueue scheduled" }
        }
        JobEvent::Settled { verdict: VerdictKind::Complete, .. } => "complete",
        JobEvent::Settled { verdict: VerdictKind::Fail, to: Failed, .. } => {
            "fail, attempts used up"
        }
        JobEvent::Settled { verdict: VerdictKind::Fail, .. } => "fail, tried again",
        JobEvent::Settled { verdict: VerdictKind::FailForGood, .. } => "fail for good",
        JobEvent::Settled { verdict: VerdictKind::Snooze, .. } => "snooze",
        JobEvent::Settled { verdict: VerdictKind::Release, .. } => "release",
        JobEvent::Repeated { .. } => "verdict repeated",
        JobEvent::LeaseExtended { .. } => "heartbeat",
        JobEvent::Cancelled { from: Queued } => "cancel waiting",
        JobEvent::Cancelled { from: Processing } => "cancel running",
        JobEvent::CancelledAgain => "cancel again",
        JobEvent::Replayed { from: Failed } => "replay failed",
        JobEvent::Replayed { from: Cancelled } => "replay cancelled",
        JobEvent::Reaped { to: Failed } => "expire, attempts used up",
        JobEvent::Reaped { .. } => "expire, tried again",
        JobEvent::Renewed => "lease counts again",
        JobEvent::FellDue => "fall due",
        JobEvent::Removed { from: Done } => "remove done",
        JobEvent::Removed { from: Failed } => "remove failed",
        JobEvent::Removed { from: Cancelled } => "remove cancelled",
        JobEvent::Claimed { .. } => "claim",
        JobEvent::Cancelled { .. }
        | JobEvent::Replayed { .. }
        | JobEvent::Removed { .. }
        | JobEvent::Unexplained { .. } => return None,
    })
}

fn event_number(event: &JobEvent) -> u64 {
    match event {
        JobEvent::Enqueued => 1,
        JobEvent::Settled { verdict, to, .. } => 10 + 8 * (*verdict as u64) + (*to as u64),
        JobEvent::Repeated { .. } => 2,
        JobEvent::LeaseExtended { .. } => 3,
        JobEvent::Cancelled { .. } => 4,
        JobEvent::CancelledAgain => 5,
        JobEvent::Replayed { .. } => 6,
        JobEvent::Reaped { to } => 100 + (*to as u64),
        JobEvent::Renewed => 7,
        JobEvent::FellDue => 8,
        JobEvent::Removed { .. } => 9,
        JobEvent::Claimed { epoch, .. } => 1_000 + epoch.get(),
        JobEvent::Unexplained { .. } => 99,
    }
}

fn call_numbers(at: usize, call: &StoreCall) -> [u64; 4] {
    match call {
        StoreCall::Commit(batch) => [11, at as u64, batch.id.seq, batch.len() as u64],
        StoreCall::WasCommitted(batch) => [12, at as u64, batch.seq, 0],
        StoreCall::Reopen => [13, at as u64, 0, 0],
        StoreCall::News(held) => [14, at as u64, held.len() as u64, 0],
        StoreCall::Bulk => [15, at as u64, 0, 0],
    }
}

fn words(call: &StoreCall) -> String {
    let batch = match call {
        StoreCall::Commit(batch) => batch,
        StoreCall::WasCommitted(batch) => return format!("was batch {} committed?", batch.seq),
        StoreCall::Reopen => return "reopen the store".into(),
        StoreCall::News(_) => return "news?".into(),
        StoreCall::Bulk => return "what is next of the bulk actions?".into(),
    };
    let mut parts = vec![format!("commit {}", batch.id.seq)];
    for settle in &batch.settles {
        parts.push(format!("#{} {:?}", settle.token, VerdictKind::of(&settle.verdict)));
    }
    parts
        .extend(batch.heartbeats.iter().map(|heartbeat| format!("heartbeat #{}", heartbeat.token)));
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
