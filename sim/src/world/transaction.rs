//! Interleaved commits: each reads, writes and commits in separate events, so that steps of other
//! processes come between them. The store's own clock is the world's wall clock.

use windlass_core::store::{Answers, Batch, Cause, Changes, CommitError, Outcomes, Questions};
use windlass_core::{Apply, ApplyStep, Now, ProcessId, Wall};
use windlass_store_memory::{Asked, MOST_TRIES, Transaction};

use super::World;
use super::call::{By, Call};
use super::event::Event;
use crate::disk::Executed;
use crate::faults::Fault;
use crate::invariants::{Answered, Seen};
use crate::ledger::{Decided, IdleReaps};

/// The store ends a transaction without a statement for this long, in ms.
pub(super) const IDLE_TRANSACTION: u64 = 3_000;
/// A transaction older than this, in ms, is slow: others wait for its locks.
const SLOW_TRANSACTION: u64 = 200;
/// The longest pause before a lock is tried again, in ms.
const LONGEST_WAIT: u64 = 50;

/// An interleaved commit.
#[derive(Debug)]
pub(super) struct OpenCommit {
    batch: Batch,
    process: ProcessId,
    /// None if it has not begun, or was ended by the store.
    transaction: Option<Transaction>,
    /// Every answer so far: `Apply` is run again with them for the next step.
    answers: Vec<Answers>,
    next: Next,
    tries: u32,
    waits: u64,
    began: u64,
    stepped: u64,
    /// Number of commits at its first answer.
    seen: u64,
    /// When it got its first answer, and when it read its instant, in true time.
    asked: u64,
    read: u64,
    /// When everything but its claims was decided, reaping included.
    decided: Option<Decided>,
    /// Readings of its process's clocks with the last answer.
    clock: Option<Now>,
}

/// The next step of a commit.
#[derive(Debug)]
enum Next {
    Ask(Box<Questions>),
    Write(Box<(Changes, Outcomes)>),
    Commit(Box<Outcomes>),
}

/// A transaction whose process no longer waits for it, with its COMMIT sent.
#[derive(Debug)]
pub(super) struct DetachedCommit {
    open: OpenCommit,
    outcomes: Outcomes,
    by: By,
    lands: bool,
}

impl OpenCommit {
    fn new(batch: Batch, process: ProcessId, now: u64) -> Self {
        let next = Next::Ask(Box::new(Apply::new(&batch).1));
        Self {
            batch,
            process,
            transaction: None,
            answers: Vec::new(),
            next,
            tries: 0,
            waits: 0,
            began: now,
            stepped: now,
            seen: 0,
            asked: now,
            read: now,
            decided: None,
            clock: None,
        }
    }

    /// Number of its batch.
    pub(super) fn seq(&self) -> u64 {
        self.batch.id.seq
    }

    /// Adds an answer, and returns the next step.
    fn take_in(&mut self, answers: Answers) {
        self.answers.push(answers);
        let (mut apply, _) = Apply::new(&self.batch);
        for answers in &self.answers {
            match apply.answer(answers.clone()) {
                Ok(ApplyStep::Ask(more)) => self.next = Next::Ask(Box::new(more)),
                Ok(ApplyStep::Write(changes)) => {
                    self.next = Next::Write(Box::new((changes, apply.finish())));
                    return;
                }
                Err(bad) => panic!("{bad}"),
            }
        }
    }

    /// Whether everything but claims is decided. Before that, only the keys of jobs to be removed
    /// and figures are asked for.
    fn is_decided(&self) -> bool {
        let more = |asked: &Questions| !asked.keys.is_empty() || !asked.figures.is_empty();
        !matches!(&self.next, Next::Ask(asked) if more(asked))
    }

    /// The instant of its decisions: the latest reading of the store's clock.
    fn wall(&self) -> Wall {
        self.answers.iter().map(|answers| answers.now).max().unwrap_or_default()
    }

    fn by(&self) -> By {
        let skipped = self.transaction.as_ref().map(|open| open.skipped().to_vec());
        let now = |answers: Option<&Answers>| answers.map_or(Wall::default(), |one| one.now);
        By {
            process: self.process,
            spread: now(self.answers.last()).since(now(self.answers.first())),
            decided: self.decided.unwrap_or_default(),
            idle_reaps: IdleReaps::default(),
            seen: self.seen,
            asked: self.asked,
            read: self.read,
            skipped: skipped.unwrap_or_default(),
        }
    }
}

impl World {
    /// Begins an interleaved commit.
    pub(super) fn begin_commit(&mut self, at: usize, boot: u64, batch: Batch) {
        let open = OpenCommit::new(batch, ProcessId(boot), self.now);
        let Some(up) = self.up(at, boot) else { return };
        up.call = Some(Call::Open(Box::new(open)));
        self.step(at, boot);
    }

    /// Whether some transaction is slow.
    pub(super) fn has_slow_transaction(&self) -> bool {
        let slow = |open: &OpenCommit| self.now - open.began > SLOW_TRANSACTION;
        let up = self.processes.iter().filter_map(|process| process.up.as_ref());
        let open = |call: &Call| matches!(call, Call::Open(open) if slow(open));
        !self.detached.is_empty()
            || !self.foreign.is_empty()
            || up.filter_map(|up| up.call.as_ref()).any(open)
    }

    /// Whether some commit has waited long for a lock.
    pub(super) fn has_waiting_commit(&self) -> bool {
        let waits = |open: &OpenCommit| open.waits > 0 && self.now - open.began > SLOW_TRANSACTION;
        let up = self.processes.iter().filter_map(|process| process.up.as_ref());
        let calls = up.filter_map(|up| up.call.as_ref());
        calls.into_iter().any(|call| matches!(call, Call::Open(open) if waits(open)))
    }

    /// Executes the next step of a transaction.
    pub(super) fn step(&mut self, at: usize, boot: u64) {
        let now = self.now;
        let Some(up) = self.up(at, boot) else { return };
        if up.suspended_until > now {
            let left = up.suspended_until - now;
            return self.after(left, Event::Step(at, boot));
        }
        let mut open = match up.call.take() {
            Some(Call::Open(open)) => *open,
            other => {
                up.call = other;
                return;
            }
        };
        open.stepped = now;
        if self.strikes(Fault::CrashInTransaction, self.options.rate / 4) {
            self.abandon(open);
            return self.crash(at);
        }
        if open.transaction.is_none() && !open.answers.is_empty() {
            return self.start_over(at, boot, open, "ended by the store");
        }
        match std::mem::replace(&mut open.next, Next::Ask(Box::default())) {
            Next::Ask(asked) => self.ask(at, boot, open, *asked),
            Next::Write(decided) => {
                let (changes, outcomes) = *decided;
                let staged = open.transaction.as_mut().map(|open| open.write(changes));
                if staged != Some(Ok(())) {
                    self.coverage.contention("conflict retried");
                    return self.start_over(at, boot, open, "conflict");
                }
                open.next = Next::Commit(Box::new(outcomes));
                self.go_on(at, boot, open);
            }
            Next::Commit(outcomes) => self.commit_open(at, boot, open, *outcomes),
        }
    }

    /// Schedules the next step of a commit.
    fn go_on(&mut self, at: usize, boot: u64, open: OpenCommit) {
        let mut wait = self.work.below(self.options.commit_ms / 2 + 2);
        if self.strikes(Fault::SlowTransaction, self.options.rate / 2) {
            wait += self.luck.range(200, 4_000);
        }
        self.plan_step(at, boot, open, wait);
    }

    fn plan_step(&mut self, at: usize, boot: u64, open: OpenCommit, wait: u64) {
        let Some(up) = self.up(at, boot) else { return };
        up.call = Some(Call::Open(Box::new(open)));
        self.after(wait, Event::Step(at, boot));
    }

    fn ask(&mut self, at: usize, boot: u64, mut open: OpenCommit, asked: Questions) {
        let wall = Wall::new(self.wall.read(self.now));
        let true_now = self.now;
        let Some(up) = self.processes[at].up.as_mut() else { return };
        let clock = up.clock.now(&self.wall, true_now);
        // The batch says what the store's clock should read, and the commit compares the two.
        let (step_detector, made) = up.made_with;
        let step_seen = step_detector.step_seen_by_commit(made, clock.wall, true_now);
        if open.transaction.is_none() {
            open.transaction = up.handle.begin(open.process);
        }
        let Some(transaction) = open.transaction.as_mut() else { return };
        let skipped = transaction.skipped().len();
        match transaction.ask(&asked, wall) {
            Asked::Wait if self.strikes(Fault::DeadlockVictim, self.options.rate) => {
                self.coverage.contention("deadlock victim");
                self.start_over(at, boot, open, "deadlock");
            }
            Asked::Wait => {
                self.coverage.contention("lock wait");
                self.note_step(at, 1, "waits for a lock");
                open.waits += 1;
                open.next = Next::Ask(Box::new(asked));
                let wait = 1 + self.work.below((2 * open.waits).min(LONGEST_WAIT));
                self.plan_step(at, boot, open, wait);
            }
            Asked::Deadlock => {
                self.coverage.contention("deadlock victim");
                self.start_over(at, boot, open, "deadlock");
            }
            Asked::Conflict => {
                self.coverage.contention("conflict retried");
                self.start_over(at, boot, open, "conflict");
            }
            Asked::Answers(answers) => {
                if transaction.skipped().len() > skipped {
                    self.coverage.contention("skipped row");
                }
                if open.answers.is_empty() {
                    (open.asked, open.seen) = (true_now, self.ledger.commits);
                }
                open.clock = Some(clock);
                // The batch keeps the latest instant if the clock is set back meanwhile.
                if open.answers.iter().all(|earlier| earlier.now <= answers.now) {
                    open.read = true_now;
                }
                self.note_step(at, 2, "is answered");
                let set_back = self.wall.set_back;
                self.see(&Seen::Answered(Answered { answers: &answers, set_back }));
                open.take_in(answers);
                if open.is_decided() {
                    let wall = open.wall();
                    open.decided.get_or_insert(Decided { at: true_now, wall, step_seen });
                }
                match open.next {
                    // Nothing to commit: it is over at once.
                    Next::Write(decided) if decided.0.is_empty() => {
                        open.next = Next::Ask(Box::default());
                        self.commit_open(at, boot, open, decided.1);
                    }
                    _ => self.go_on(at, boot, open),
                }
            }
        }
    }

    /// Rolls back and starts again with new answers, up to the limit of tries.
    fn start_over(&mut self, at: usize, boot: u64, mut open: OpenCommit, why: &'static str) {
        self.note_step(at, 3, why);
        open.transaction = None;
        open.answers.clear();
        open.decided = None;
        open.tries += 1;
        open.waits = 0;
        if open.tries >= MOST_TRIES {
            let cause = Cause::new("other transactions changed the same rows each time");
            let executed =
                Executed { result: Err(CommitError::NotCommitted(cause)), applied: false };
            return self.report_result(at, boot, open, executed);
        }
        open.next = Next::Ask(Box::new(Apply::new(&open.batch).1));
        open.began = self.now;
        let wait = 1 + self.work.below(10);
        self.plan_step(at, boot, open, wait);
    }

    /// Commits a transaction: it takes place, fails, or takes place late.
    fn commit_open(&mut self, at: usize, boot: u64, mut open: OpenCommit, outcomes: Outcomes) {
        let crashes = self.strikes(Fault::CrashInCommit, self.options.rate / 8);
        if crashes && self.luck.chance(500) {
            return self.crash(at);
        }
        let fault = if crashes { None } else { self.draw_fault(&open.batch) };
        let late = !crashes && fault.is_none() && outcomes.wrote;
        if late && self.strikes(Fault::LateCommit, self.options.rate) {
            let batch = open.batch.clone();
            let unknown = Box::new(outcomes.clone());
            let bare = OpenCommit { clock: open.clock, ..OpenCommit::new(batch, open.process, 0) };
            self.leave(open, outcomes);
            let cause = Cause::new("injected fault: the answer to COMMIT is lost");
            let result = Err(CommitError::Unknown { cause, outcomes: unknown });
            return self.report_result(at, boot, bare, Executed { result, applied: false });
        }
        let Some(up) = self.processes[at].up.as_mut() else { return };
        let by = open.by();
        let Some(transaction) = open.transaction.take() else { return };
        let Ok(executed) = up.handle.finish(transaction, outcomes, fault) else {
            self.coverage.contention("conflict retried");
            return self.start_over(at, boot, open, "conflict");
        };
        self.executed(at, by, &open.batch, &executed);
        if crashes {
            return self.crash(at);
        }
        self.answer_commit(at, boot, open, executed);
    }

    fn report_result(&mut self, at: usize, boot: u64, open: OpenCommit, executed: Executed) {
        let by = open.by();
        self.executed(at, by, &open.batch, &executed);
        self.answer_commit(at, boot, open, executed);
    }

    fn answer_commit(&mut self, at: usize, boot: u64, open: OpenCommit, executed: Executed) {
        let Some(up) = self.processes[at].up.as_ref() else { return };
        let read = open.clock.unwrap_or_else(|| up.clock.now(&self.wall, self.now));
        self.done(at, boot, Call::Committed { batch: open.batch, executed, read });
    }

    /// The process of a transaction is gone. It is rolled back, unless its COMMIT is on the way.
    pub(super) fn abandon(&mut self, open: OpenCommit) {
        let Next::Commit(outcomes) = &open.next else { return };
        let late = self.healed.is_none() && self.options.faults.has(Fault::LateCommit);
        if late && self.luck.chance(500) {
            let outcomes = Outcomes::clone(outcomes);
            self.leave(open, outcomes);
        }
    }

    /// Detaches a transaction: it is committed or rolled back after a while.
    fn leave(&mut self, open: OpenCommit, outcomes: Outcomes) {
        let by = open.by();
        let lands = self.luck.chance(700);
        let number = self.next_transaction;
        self.next_transaction += 1;
        self.detached.insert(number, DetachedCommit { open, outcomes, by, lands });
        let wait = self.luck.range(20, 6_000);
        self.after(wait, Event::Land(number));
    }

    /// Commits or rolls back a detached transaction.
    pub(super) fn land(&mut self, number: u64) {
        let Some(DetachedCommit { mut open, outcomes, by, lands }) = self.detached.remove(&number)
        else {
            return;
        };
        let Some(transaction) = open.transaction.take() else { return };
        let took_place = lands && transaction.commit(true).is_ok();
        let (process, seq) = (open.process.0, open.seq());
        self.trace.note(&[25, process, seq, u64::from(took_place)], || {
            let how = if took_place { "lands late" } else { "is rolled back" };
            format!("commit {seq} of boot {process} {how}")
        });
        if took_place {
            self.coverage.contention("late commit");
            self.observe(by, &open.batch, &outcomes);
        }
    }

    /// Ends the transaction of a process that has been suspended for long.
    pub(super) fn cut_off(&mut self, at: usize, boot: u64, seq: u64) {
        let now = self.now;
        let Some(up) = self.up(at, boot) else { return };
        let Some(Call::Open(open)) = up.call.as_mut() else { return };
        let idle = open.seq() == seq && now - open.stepped >= IDLE_TRANSACTION;
        if idle && open.transaction.take().is_some() {
            self.note_step(at, 4, "is suspended: the store ends its transaction");
        }
    }

    fn note_step(&mut self, at: usize, number: u64, words: &'static str) {
        self.trace.note(&[24, at as u64, number], || format!("p{at} {words}"));
    }
}
