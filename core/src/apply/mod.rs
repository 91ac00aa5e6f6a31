//! Applies a batch to what is stored: the only place where commands meet stored jobs.
//!
//! A conversation of plain data. [`Apply::new`] says what the batch needs to know, the store
//! answers, [`Apply::answer`] decides every command in order on a working set in memory and says
//! what to write, each changed row once. A refused command changes nothing and does not spoil the
//! others.

mod admin;
mod bulk;
mod claim;
mod enqueue;
mod figures;
mod groups;
mod import;
mod settle;
mod sweep;
mod work;

use alloc::boxed::Box;
use core::mem;

use self::bulk::BulkWork;
use self::claim::Claims;
use self::figures::FigureWork;
use self::groups::GroupWork;
use self::sweep::Found;
use self::work::Work;
use crate::store::{Answers, BadAnswer, Batch, Changes, Outcomes, Questions};

/// One batch on its way through a store.
///
/// A store's commit is a loop around it:
///
/// ```
/// use windlass_core::store::{Answers, BadAnswer, Batch, Changes, Outcomes, Questions};
/// use windlass_core::{Apply, ApplyStep};
///
/// fn commit(
///     batch: &Batch,
///     find: impl Fn(&Questions) -> Answers,
///     write: impl FnOnce(Changes),
/// ) -> Result<Outcomes, BadAnswer> {
///     let (mut apply, mut questions) = Apply::new(batch);
///     let changes = loop {
///         match apply.answer(find(&questions))? {
///             ApplyStep::Ask(more) => questions = more,
///             ApplyStep::Write(changes) => break changes,
///         }
///     };
///     if !changes.is_empty() {
///         write(changes);
///     }
///     Ok(apply.finish())
/// }
/// ```
///
/// In the usual case there is one `Questions` and one `Changes`. Further rounds are asked for:
///
/// * once for the keys of jobs that may be removed and the rows that figures are folded into;
/// * for each claim, where candidates turn out not to be claimable: the batch or an earlier claim
///   took them, or their queue was closed or reached its limit;
/// * for each claim, once for queues that the batch opened, and once for the payloads of jobs that
///   it made ready, again where a queue reached its limit meanwhile;
/// * once or twice for error groups, if a job became a dead letter or no longer is one, or if
///   groups are to be removed.
///
/// The work is proportional to the batch and to what it touches, never to what is stored.
#[derive(Debug)]
pub struct Apply<'b> {
    batch: &'b Batch,
    asked: Questions,
    phase: Phase,
    work: Work,
    claims: Claims,
    figures: FigureWork,
    groups: GroupWork,
    bulk: BulkWork,
    out: Outcomes,
}

/// How far a batch has come.
#[derive(Debug)]
enum Phase {
    /// The first answers are awaited.
    Start,
    /// The keys of jobs that may be removed are awaited, and the rows that figures are folded into.
    More(Box<Found>),
    /// Everything is decided but claims.
    Claiming,
    /// The error groups of jobs that became dead letters, or no longer are, are awaited.
    Grouping,
    /// Claims and groups too; only the changes are left to be made.
    Decided,
}

/// The next step of a store's loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Answer these as well, in the same transaction.
    Ask(Questions),
    /// Write this, commit, and call [`Apply::finish`]. If there is nothing in it, there is nothing
    /// to commit.
    Write(Changes),
}

impl<'b> Apply<'b> {
    /// Begins to apply a batch.
    pub fn new(batch: &'b Batch) -> (Self, Questions) {
        let asked = Questions::of(batch);
        asked.assert_valid();
        let apply = Self {
            batch,
            asked: asked.clone(),
            phase: Phase::Start,
            work: Work::new(batch),
            claims: Claims::new(batch),
            figures: FigureWork::default(),
            groups: GroupWork::new(batch),
            bulk: BulkWork::default(),
            out: Outcomes::default(),
        };
        (apply, asked)
    }

    /// Takes in what the store answered to the last questions.
    pub fn answer(&mut self, mut answers: Answers) -> Result<Step, BadAnswer> {
        answers.check(&self.asked)?;
        self.out.skipped |= answers.skipped;
        let asked = mem::take(&mut self.asked);
        self.work.take_in(&asked, &mut answers)?;
        self.figures.take_in(&asked, &mut answers)?;
        self.groups.take_in(&asked, &mut answers);
        self.bulk.take_in(&asked, &mut answers)?;
        match mem::replace(&mut self.phase, Phase::Claiming) {
            Phase::Start => {
                let found = Found::new(&mut self.work, self.batch, &mut answers)?;
                self.claims.start(&mut self.work, answers.candidates)?;
                let keys = found.keys_to_load(&self.work, self.batch);
                let figures = self.figures.to_load();
                if !keys.is_empty() || !figures.is_empty() {
                    self.phase = Phase::More(Box::new(found));
                    return Ok(self.ask(Questions { keys, figures, ..Questions::default() }));
                }
                self.decide(found);
            }
            Phase::More(found) => self.decide(*found),
            Phase::Claiming => self.claims.refill(&mut self.work, answers.candidates)?,
            Phase::Grouping => return Ok(self.group_or_write()),
            Phase::Decided => return Err(BadAnswer("nothing was asked".into())),
        }
        if let Some(questions) = self.claims.run(&mut self.work, self.batch) {
            return Ok(self.ask(questions));
        }
        Ok(self.group_or_write())
    }

    /// Asks for error groups, as long as there are any to load; then everything is decided.
    fn group_or_write(&mut self) -> Step {
        if let Some(questions) = self.groups.to_load(&self.work) {
            self.phase = Phase::Grouping;
            return self.ask(questions);
        }
        self.phase = Phase::Decided;
        Step::Write(self.gather())
    }

    /// The outcomes of the batch; they hold once the changes are committed.
    pub fn finish(self) -> Outcomes {
        self.out
    }

    fn ask(&mut self, questions: Questions) -> Step {
        questions.assert_valid();
        self.asked = questions.clone();
        Step::Ask(questions)
    }

    /// Decides everything but claims.
    fn decide(&mut self, found: Found) {
        let Self { batch, work, figures, bulk, out, .. } = self;
        let Found { expired, due, finished, dead, orphans, silent, empty_queues } = found;
        out.settles = batch.settles.iter().map(|command| settle::settle(work, command)).collect();
        out.heartbeats = batch
            .heartbeats
            .iter()
            .map(|command| settle::heartbeat(work, batch, command))
            .collect();
        let mut dead = dead.into_iter();
        let admin = batch.admin.iter().map(|command| admin::admin(work, bulk, command, &mut dead));
        out.admin = admin.collect();
        batch.bulk.iter().for_each(|step| bulk.step(work, step));
        out.enqueues = enqueue::enqueue(work, &batch.enqueues, &batch.policy);
        if let Some(rows) = &batch.import {
            import::import(work, rows);
        }
        if let Some(reap) = batch.reap {
            let (reaped, expiry) = sweep::reap(work, batch, reap, expired);
            (out.reaped, out.next_expiry) = (Some(reaped), expiry);
        }
        out.promoted =
            batch.promote.map(|limit| sweep::promote(work, limit, due, &mut out.next_due));
        out.purged = batch.purge.map(|purge| sweep::purge(work, &purge, finished, orphans, silent));
        if let Some(purged) = &mut out.purged {
            purged.more |= figures.has_more();
        }
        out.queues_swept = batch.queue_sweep.as_ref().map(|_| sweep::queues(work, empty_queues));
        figures.decide(batch);
    }

    /// The changes, once everything is decided.
    fn gather(&mut self) -> Changes {
        let Self { batch, work, claims, figures, groups, bulk, out, .. } = self;
        // Before rows are answered: it says which groups their dead letters are in.
        groups.decide(work);
        out.now = work.now;
        out.next_open = claims.next_open(work, batch);
        out.claims = claims.take();
        enqueue::echo(work, &batch.enqueues, &mut out.enqueues);
        figures.gather(&mut work.changes);
        groups.gather(&mut work.changes);
        (out.next_bulk, out.bulk_lost) = (bulk.next(work.now), bulk.lost);
        bulk.gather(&mut work.changes);
        let changes = work.gather(batch.id, out);
        changes.assert_valid();
        changes
    }
}
