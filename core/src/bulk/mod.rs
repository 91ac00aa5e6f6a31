//! Bulk actions: one order for many jobs, carried out page by page.
//!
//! A bulk action is a row. A step takes jobs and moves the row's cursor in one commit, so that a
//! process which is killed neither loses nor repeats any. Any process that has found the next
//! page ([`plan`]) may commit it: a step names the revision of the row that it was planned for, and
//! does nothing if another one came before.
//!
//! The rules are here: which jobs it takes, how many at once, when it holds, when it is over. What
//! happens to a job is decided by [`transition`](crate::transition()).

mod bytes;
mod pace;
mod plan;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use thiserror::Error;

use crate::limits::{BULK_LIVE, CANARY_CHECK, PAGE_ROWS};
use crate::search::Search;
use crate::store::{Cursor, Filter};
use crate::{BulkId, Job, JobId, Millis, StateName, Wall};

pub use bytes::BadBulk;
pub use pace::Pace;
pub use plan::{Step, plan};

/// The command for each job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Run failed or cancelled jobs again.
    Retry,
    /// Cancel jobs that wait or run.
    Cancel,
    /// Delete finished jobs.
    Delete,
}

impl Action {
    /// All three, in the order of their codes.
    pub const ALL: [Self; 3] = [Self::Retry, Self::Cancel, Self::Delete];

    /// The name used in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Cancel => "cancel",
            Self::Delete => "delete",
        }
    }

    /// Whether a job in this state allows it.
    pub fn suits(self, state: StateName) -> bool {
        match self {
            Self::Retry => matches!(state, StateName::Failed | StateName::Cancelled),
            Self::Cancel => !state.is_finished(),
            Self::Delete => state.is_finished(),
        }
    }
}

/// The jobs of a bulk action: a filter, or ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Jobs by id; sorted, each once, at most [`BULK_NAMED`](crate::limits::BULK_NAMED).
    Jobs(Vec<JobId>),
    /// All jobs that match a list's filter.
    Filter(Filter),
    /// All jobs that match a search: those of a list that also fit further conditions.
    Search(Box<Search>),
}

impl Target {
    /// What is searched for; `None` if the jobs are named.
    pub fn search(&self) -> Option<Search> {
        match self {
            Self::Jobs(_) => None,
            Self::Filter(filter) => Some(Search::from(filter.clone())),
            Self::Search(search) => Some((**search).clone()),
        }
    }

    /// The filter of the list; `None` if the jobs are named.
    fn filter(&self) -> Option<&Filter> {
        match self {
            Self::Jobs(_) => None,
            Self::Filter(filter) => Some(filter),
            Self::Search(search) => Some(&search.filter),
        }
    }
}

/// A part of the jobs that goes first: the others wait for its verdicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Canary {
    /// Number of jobs, at most [`BULK_NAMED`](crate::limits::BULK_NAMED).
    pub count: u32,
    /// The action is held once more than this number of them failed.
    pub max_failed: u32,
}

/// What a caller has ordered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// Retry, cancel or delete.
    pub action: Action,
    /// The jobs it is done to.
    pub target: Target,
    /// Name of the token that ordered it; empty where no tokens are configured.
    pub by: String,
    /// Number of matching jobs when it was ordered, as far as they were counted.
    pub of: u64,
    /// It ends after this number of jobs; `None` for all.
    pub most: Option<u64>,
    /// Limit on the jobs per period; `None` for as fast as possible.
    pub pace: Option<Pace>,
    /// The jobs that go first; `None` for other actions than retries.
    pub canary: Option<Canary>,
}

/// How far a bulk action has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BulkState {
    /// The canary's jobs are being released, or have not all ended.
    Canary,
    /// Too many jobs of the canary failed: an operator has to continue or stop it.
    Held,
    /// Each page takes further jobs.
    Running,
    /// No job is left to take.
    Done,
    /// An operator stopped it.
    Stopped,
}

impl BulkState {
    /// All of them, in the order of their codes.
    pub const ALL: [Self; 5] = [Self::Canary, Self::Held, Self::Running, Self::Done, Self::Stopped];

    /// The name used in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Canary => "canary",
            Self::Held => "held",
            Self::Running => "running",
            Self::Done => "done",
            Self::Stopped => "stopped",
        }
    }

    /// Whether nothing more comes of it.
    pub fn is_ended(self) -> bool {
        matches!(self, Self::Done | Self::Stopped)
    }
}

/// A bulk action as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bulk {
    /// Given when it was started.
    pub id: BulkId,
    /// Grows with each change.
    pub revision: u64,
    /// The order.
    pub terms: Terms,
    /// When it was started. Jobs that came, or ended, later are not part of it.
    pub as_of: Wall,
    /// How far it has come.
    pub state: BulkState,
    /// Jobs that were retried, cancelled or deleted.
    pub done: u64,
    /// Jobs whose state did not allow it, or that were gone.
    pub refused: u64,
    /// The place of the last job that was taken.
    pub cursor: Option<Cursor>,
    /// Whether jobs were taken since the list was last begun.
    pub took: bool,
    /// How the jobs of the canary ended so far.
    pub verdicts: Verdicts,
    /// When it was done or stopped; `None` while it goes on.
    pub ended_at: Option<Wall>,
}

/// How the jobs of the canary ended so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdicts {
    /// Those that ended well, or were cancelled.
    pub passed: u32,
    /// Those that failed, or are gone.
    pub failed: u32,
    /// Those that have not ended, by id.
    pub waiting: Vec<JobId>,
}

impl Verdicts {
    /// Number of canary jobs that were retried so far.
    pub fn released(&self) -> u32 {
        let waiting = u32::try_from(self.waiting.len()).unwrap_or(u32::MAX);
        self.passed.saturating_add(self.failed).saturating_add(waiting)
    }
}

/// Why a bulk action was not started or continued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BulkRefused {
    /// The action does not exist, or ended long ago and was removed.
    #[error("there is no bulk action {0}; actions that ended long ago are removed")]
    NotFound(BulkId),
    /// Only a held action can be continued.
    #[error("the bulk action is {}, only one that is held can be continued", .0.as_str())]
    NotHeld(BulkState),
    /// It is done or stopped.
    #[error("the bulk action is {} already", .0.as_str())]
    Ended(BulkState),
    /// The limit of actions that have not ended is reached.
    #[error("there are {BULK_LIVE} bulk actions that have not ended; stop one, or wait")]
    TooMany,
}

impl Bulk {
    /// A bulk action that begins now.
    pub fn begin(id: BulkId, terms: Terms, now: Wall) -> Self {
        let state = if terms.canary.is_some() { BulkState::Canary } else { BulkState::Running };
        let mut terms = terms;
        terms.pace = terms.pace.map(|pace| Pace::new(pace.per_s, now));
        Self {
            id,
            revision: 1,
            terms,
            as_of: now,
            state,
            done: 0,
            refused: 0,
            cursor: None,
            took: false,
            verdicts: Verdicts::default(),
            ended_at: None,
        }
    }

    /// Whether it takes jobs, or waits for its canary.
    pub fn is_live(&self) -> bool {
        matches!(self.state, BulkState::Canary | BulkState::Running)
    }

    /// Goes on although too many of the canary failed.
    pub fn resume(&mut self, now: Wall) -> Result<(), BulkRefused> {
        match self.state {
            BulkState::Held => {
                self.state = BulkState::Running;
                self.verdicts.waiting.clear();
                self.terms.pace = self.terms.pace.map(|pace| Pace::new(pace.per_s, now));
                Ok(())
            }
            state => Err(BulkRefused::NotHeld(state)),
        }
    }

    /// Ends it.
    pub fn stop(&mut self, now: Wall) -> Result<(), BulkRefused> {
        if self.state.is_ended() {
            return Err(BulkRefused::Ended(self.state));
        }
        self.end(BulkState::Stopped, now);
        Ok(())
    }

    /// When its next step is due; `None` if it takes none.
    pub fn next_step(&self, now: Wall) -> Option<Wall> {
        if !self.is_live() {
            return None;
        }
        if self.awaits_verdicts() {
            return Some(next_check(now));
        }
        Some(self.terms.pace.map_or(now, |pace| pace.next(now)))
    }

    /// Whether its whole canary is released, so that only the verdicts are still missing.
    pub fn awaits_verdicts(&self) -> bool {
        self.state == BulkState::Canary && self.canary_left() == Some(0)
    }

    /// The number of jobs it may take now, under its pace, canary and maximum; a page at most.
    pub fn room(&self, now: Wall) -> usize {
        if !self.is_live() {
            return 0;
        }
        let page = PAGE_ROWS as u64;
        let paced = self.terms.pace.map_or(page, |pace| pace.room(now));
        let canary = self.canary_left().map_or(page, u64::from);
        let most = self.terms.most.map_or(page, |most| most.saturating_sub(self.taken()));
        usize::try_from(page.min(paced).min(canary).min(most)).unwrap_or(PAGE_ROWS)
    }

    /// The number of its jobs that are done or refused.
    pub fn taken(&self) -> u64 {
        self.done.saturating_add(self.refused)
    }

    /// Whether it has taken as many as it may take in all.
    pub fn is_complete(&self) -> bool {
        self.terms.most.is_some_and(|most| self.taken() >= most)
    }

    /// Whether it names its jobs one by one.
    pub fn names_jobs(&self) -> bool {
        matches!(self.terms.target, Target::Jobs(_))
    }

    /// The number of jobs of the canary still to be released; `None` once the rest may go.
    fn canary_left(&self) -> Option<u32> {
        let canary = self.terms.canary.filter(|_| self.state == BulkState::Canary)?;
        Some(canary.count.saturating_sub(self.verdicts.released()))
    }

    /// Whether this job is part of it, by its row as it is now. Conditions on documents are
    /// checked when a step is planned: of a finished job they do not change. A job of the canary
    /// that has not been judged is not taken again, also if it ended before the action began by a
    /// clock that was set back.
    pub fn wants(&self, job: &Job) -> bool {
        let matches = match &self.terms.target {
            Target::Jobs(ids) => return ids.binary_search(&job.id).is_ok(),
            Target::Filter(filter) => filter.includes(job),
            Target::Search(search) => search.includes(job),
        };
        matches
            && self.terms.action.suits(job.state.name())
            && self.verdicts.waiting.binary_search(&job.id).is_err()
            && job.finished_at().unwrap_or(job.created_at) <= self.as_of
    }

    /// Notes that the pace counts from now on, where its clock was set back.
    pub fn note_clock(&mut self, now: Wall) -> bool {
        self.terms.pace.as_mut().is_some_and(|pace| pace.note_clock(now))
    }

    /// Takes in that these jobs were taken, the last of them at `cursor`.
    pub fn take(&mut self, done: &[JobId], refused: usize, cursor: Option<Cursor>, now: Wall) {
        self.done = self.done.saturating_add(done.len() as u64);
        self.refused = self.refused.saturating_add(refused as u64);
        self.took |= !done.is_empty();
        self.cursor = cursor.or(self.cursor);
        if let Some(pace) = &mut self.terms.pace {
            pace.take(done.len() as u64, now);
        }
        if self.state == BulkState::Canary {
            self.verdicts.waiting.extend_from_slice(done);
            self.verdicts.waiting.sort_unstable();
        }
        if self.is_complete() {
            self.reach_end(now);
        }
    }

    /// Takes in that its list has no more jobs. Waiting and running jobs move within their list:
    /// it is begun again until nothing is found in it.
    pub fn end_of_list(&mut self, now: Wall) {
        let view = self.terms.target.filter().and_then(|filter| filter.view);
        let moves = view.is_some_and(|view| !view.state().is_finished());
        if moves && self.took {
            (self.cursor, self.took) = (None, false);
        } else {
            self.reach_end(now);
        }
    }

    /// There is nothing more to take: it ends, with the verdicts of its canary if it has one.
    fn reach_end(&mut self, now: Wall) {
        match &mut self.terms.canary {
            Some(canary) if self.state == BulkState::Canary && self.done > 0 => {
                canary.count = self.verdicts.released();
            }
            _ => self.end(BulkState::Done, now),
        }
    }

    /// Looks at the jobs of its canary that have not ended: the state of each, if it exists.
    /// Returns whether something has changed.
    pub fn judge(&mut self, state: impl Fn(JobId) -> Option<StateName>) -> bool {
        let Some(canary) = self.terms.canary else { return false };
        let before = self.verdicts.waiting.len();
        let Verdicts { passed, failed, waiting } = &mut self.verdicts;
        waiting.retain(|id| match state(*id) {
            Some(StateName::Queued | StateName::Processing) => true,
            Some(StateName::Done | StateName::Cancelled) => {
                *passed = passed.saturating_add(1);
                false
            }
            Some(StateName::Failed) | None => {
                *failed = failed.saturating_add(1);
                false
            }
        });
        if self.verdicts.failed > canary.max_failed {
            self.state = BulkState::Held;
        } else if self.verdicts.waiting.is_empty() && self.canary_left() == Some(0) {
            self.state = BulkState::Running;
        }
        self.verdicts.waiting.len() < before || self.state != BulkState::Canary
    }

    fn end(&mut self, state: BulkState, now: Wall) {
        (self.state, self.ended_at) = (state, Some(now));
        self.verdicts.waiting.clear();
    }
}

/// The next instant at which all processes look at a canary.
fn next_check(now: Wall) -> Wall {
    let every = CANARY_CHECK.get().cast_signed();
    let left = every - now.get().rem_euclid(every);
    now.plus(Millis::new(left.unsigned_abs()))
}

#[cfg(test)]
mod tests;
