//! What a store answers, and the check that it fits the questions.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use thiserror::Error;

use super::{BulkAsk, BulkRow, Cursor, DeadPage, FigurePage, FigureRow, Questions, Want};
use crate::{
    Excerpt, GroupId, GroupRow, IdempotencyKey, Job, JobId, KeyRecord, Payload, Queue, QueueName,
    Rank, SettingValue, Usage, View, Wall,
};

/// The answers to [`Questions`], field by field, from the state before the batch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answers {
    /// The store's clock, read after all rows were held; never behind an instant of such a row
    /// unless the clock was set back.
    pub now: Wall,
    /// All bulk actions, by id, if they were asked for.
    pub bulk: Vec<BulkRow>,
    /// The jobs in the order of the question; `None` where there is none.
    pub jobs: Vec<Option<Job>>,
    /// The keys in the order of the question.
    pub keys: Vec<Option<KeyFound>>,
    /// The queues that were named, where they exist, and the queue of every job in these answers;
    /// each once, in any order. A queue that was answered earlier need not be repeated.
    pub queues: Vec<QueueFound>,
    /// How many queues the store holds; only needed if one that was named does not exist, or if
    /// some are asked with their counts: those may be deleted and made again.
    pub queue_count: usize,
    /// The kinds in the order of the question.
    pub kinds: Vec<KindFound>,
    /// In the order of the question: whether the worker was asked to stop; `None` for an unknown
    /// one.
    pub workers: Vec<Option<bool>>,
    /// The values of the settings in the order of the question; `None` where one is not set.
    pub settings: Vec<Option<SettingValue>>,
    /// Scheduled jobs that are due.
    pub due: JobPage,
    /// Leased jobs.
    pub expired: JobPage,
    /// Finished jobs, in the order of the question.
    pub finished: Vec<JobPage>,
    /// Dead-lettered jobs, in the order of the question.
    pub dead: Vec<DeadFound>,
    /// Keys whose window has ended.
    pub orphans: Vec<IdempotencyKey>,
    /// Whether something was silent for that long.
    pub silent: bool,
    /// The error groups in the order of the question; `None` where there is none.
    pub groups: Vec<Option<GroupRow>>,
    /// The number of error groups in the store; needed only if one that was asked for is missing.
    pub group_count: usize,
    /// Error groups that may be removed.
    pub idle_groups: Vec<GroupId>,
    /// Queues without jobs.
    pub empty_queues: EmptyQueues,
    /// The data of the rows of figures in the order of the question; `None` where there is none.
    pub figures: Vec<Option<Vec<u8>>>,
    /// Old rows of figures, in the order of the question.
    pub old_figures: Vec<Vec<FigureRow>>,
    /// Candidates, in the order of the question.
    pub candidates: Vec<Candidates>,
    /// The payloads, in the order of the question.
    pub payloads: Vec<Payload>,
    /// New ids: growing, never given out before, gaps allowed.
    pub ids: Vec<JobId>,
    /// Whether found rows were left out because another transaction holds them.
    pub skipped: bool,
}

/// The queues without jobs of a page of queues.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EmptyQueues {
    /// The queues, by name.
    pub queues: Vec<Queue>,
    /// The last queue of the page, if the page was full.
    pub next: Option<QueueName>,
}

/// A key, and the job it names if that still exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFound {
    /// The stored key.
    pub record: KeyRecord,
    /// `None` if the job was deleted or purged.
    pub job: Option<Job>,
}

/// A queue. One with a [limit](Queue::is_limited) comes with what counts against it, and is held:
/// no other transaction changes that before this one ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueFound {
    /// Its row, with its settings.
    pub queue: Queue,
    /// What counts against its limits. `None` if it has none and was not asked to be counted.
    pub usage: Option<Box<Usage>>,
}

/// Whether a queue has jobs of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KindFound {
    /// The queue has jobs of the kind, or had some.
    Known,
    /// The kind is new to the queue.
    New {
        /// The number of other kinds of jobs in it.
        others: usize,
    },
}

/// A page of jobs that a sweep asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobPage {
    /// At most the limit of the question, in its order.
    pub jobs: Vec<Job>,
    /// The instant of the first job of this view behind the page, due or not.
    pub next: Option<Wall>,
}

/// A page of the dead-letter queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeadFound {
    /// The jobs of this queue and kind.
    pub jobs: Vec<DeadJob>,
    /// Where the store stopped, if there may be more.
    pub next: Option<Cursor>,
}

/// A dead-lettered job with its last error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadJob {
    /// Row of the dead letter.
    pub job: Job,
    /// The error of its last attempt; `None` if none is stored.
    pub error: Option<Excerpt>,
}

/// The best-ranked ready jobs of a demand, by rank.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Candidates {
    /// Best rank first.
    pub jobs: Vec<Candidate>,
    /// The payload length of the next one, which was left out for want of room; zero if the store
    /// did not look whether there is one; `None` if there is none.
    pub next_bytes: Option<u32>,
    /// The earliest instant at which to look again at those that were left out because of a rate.
    pub opens: Option<Wall>,
}

/// A ready job with its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// A ready job, held for this transaction.
    pub job: Job,
    /// As enqueued; only what is claimed needs it.
    pub payload: Payload,
}

/// A store answered something that does not fit the question: what is stored cannot be trusted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the store returned an invalid answer: {0}")]
pub struct BadAnswer(pub String);

impl Answers {
    /// The queues that belong into `queues`: those that were named, and that of every job found;
    /// sorted, each once.
    pub fn queues_needed<'a>(&'a self, asked: &'a Questions) -> Vec<&'a QueueName> {
        let mut names: Vec<&QueueName> = asked.queues.iter().collect();
        for job in self.jobs_found() {
            // Most batches are of one queue.
            if !names.last().is_some_and(|last| last.same(&job.queue)) {
                names.push(&job.queue);
            }
        }
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Every job in these answers.
    pub fn jobs_found(&self) -> impl Iterator<Item = &Job> {
        let keyed = self.keys.iter().flatten().filter_map(|found| found.job.as_ref());
        let swept = self.finished.iter().chain([&self.due, &self.expired]);
        let dead = self.dead.iter().flat_map(|page| &page.jobs).map(|dead| &dead.job);
        let candidates = self.candidates.iter().flat_map(|found| &found.jobs);
        let named = self.jobs.iter().flatten().chain(keyed);
        let found = swept.flat_map(|page| &page.jobs).chain(dead);
        named.chain(found).chain(candidates.map(|candidate| &candidate.job))
    }

    /// Checks that this fits what was asked.
    pub(crate) fn check(&self, asked: &Questions) -> Result<(), BadAnswer> {
        length("jobs", asked.jobs.len(), self.jobs.len())?;
        length("keys", asked.keys.len(), self.keys.len())?;
        length("kinds", asked.kinds.len(), self.kinds.len())?;
        length("workers", asked.workers.len(), self.workers.len())?;
        length("settings", asked.settings.len(), self.settings.len())?;
        length("pages of finished jobs", asked.finished.len(), self.finished.len())?;
        length("pages of dead letters", asked.dead.len(), self.dead.len())?;
        length("error groups", asked.groups.len(), self.groups.len())?;
        for (id, row) in asked.groups.iter().zip(&self.groups) {
            ensure(row.as_ref().is_none_or(|row| row.id == *id), || format!("not group {id}"))?;
        }
        length("rows of figures", asked.figures.len(), self.figures.len())?;
        length("pages of figures", asked.old_figures.len(), self.old_figures.len())?;
        length("lists of candidates", asked.wants.len(), self.candidates.len())?;
        length("payloads", asked.payloads.len(), self.payloads.len())?;
        for (id, job) in asked.jobs.iter().zip(&self.jobs) {
            ensure(job.as_ref().is_none_or(|job| job.id == *id), || format!("not job {id}"))?;
        }
        for (key, found) in asked.keys.iter().zip(&self.keys) {
            check_key(key, found.as_ref())?;
        }
        check_page(View::Scheduled, None, asked.due.unwrap_or(0), &self.due)?;
        let (after, limit) = asked.expired.map_or((None, 0), |page| (page.after, page.limit));
        check_page(View::Processing, after, limit, &self.expired)?;
        for (page, found) in asked.finished.iter().zip(&self.finished) {
            check_page(page.view, None, page.limit, found)?;
        }
        for (page, found) in asked.dead.iter().zip(&self.dead) {
            check_dead(page, found)?;
        }
        for (page, found) in asked.old_figures.iter().zip(&self.old_figures) {
            check_figures(*page, found, self.now)?;
        }
        for QueueFound { queue, usage } in &self.queues {
            let counted = usage.is_some()
                || !queue.is_limited() && asked.counted.binary_search(&queue.name).is_err();
            ensure(counted, || format!("queue {} is limited, but not counted", queue.name))?;
        }
        self.check_found(asked)?;
        for (want, found) in asked.wants.iter().zip(&self.candidates) {
            check_candidates(want, found)?;
        }
        let enough = self.ids.len() >= asked.ids && (asked.ids > 0 || self.ids.is_empty());
        let ids = enough && self.ids.is_sorted_by(|a, b| a < b);
        ensure(ids, || format!("{} ids asked for, not as many growing ones given", asked.ids))
    }

    /// Checks the rows that were found but are no jobs: none that was not asked for, each once.
    fn check_found(&self, asked: &Questions) -> Result<(), BadAnswer> {
        let known = self.bulk.is_empty() || asked.bulk != BulkAsk::No;
        let known = known && self.bulk.is_sorted_by(|a, b| a.id < b.id);
        ensure(known, || "not the bulk actions that were asked for".into())?;
        let orphans = asked.orphans.unwrap_or(0);
        ensure(self.orphans.len() <= orphans, || "more keys than were asked for".into())?;
        let idle = asked.idle_groups.map_or(0, |page| page.limit);
        let fits = self.idle_groups.len() <= idle;
        ensure(fits, || "more idle error groups than were asked for".into())?;
        let silent = asked.silent.is_some() || !self.silent;
        ensure(silent, || "something silent that was not asked for".into())?;
        let (after, limit) = match &asked.empty_queues {
            Some(page) => (page.after.as_ref(), page.limit),
            None => (None, 0),
        };
        let names = || self.empty_queues.queues.iter().map(|queue| Some(&queue.name));
        let fits = names().len() <= limit && core::iter::once(after).chain(names()).is_sorted();
        ensure(fits, || "not the empty queues that were asked for".into())
    }
}

fn check_key(key: &IdempotencyKey, found: Option<&KeyFound>) -> Result<(), BadAnswer> {
    let Some(KeyFound { record, job }) = found else { return Ok(()) };
    let fits = record.key == *key && job.as_ref().is_none_or(|job| job.id == record.job);
    ensure(fits, || format!("not key {key}, or not the job it names"))
}

/// Checks a page of jobs of a view behind a place: each once, by the instant of the view, then by
/// id.
fn check_page(
    view: View,
    mut after: Option<Cursor>,
    limit: usize,
    page: &JobPage,
) -> Result<(), BadAnswer> {
    ensure(page.jobs.len() <= limit, || format!("more {view} jobs than were asked for"))?;
    for job in &page.jobs {
        let key = job.index_key();
        let place = Cursor { at: key.at, id: job.id };
        let fits = key.view == view && after.is_none_or(|after| after < place);
        ensure(fits, || format!("job {} does not belong there in a page of {view} jobs", job.id))?;
        after = Some(place);
    }
    Ok(())
}

fn check_dead(asked: &DeadPage, found: &DeadFound) -> Result<(), BadAnswer> {
    let fits = |dead: &DeadJob| {
        let DeadJob { job, .. } = dead;
        job.state.view() == View::Failed
            && asked.queue.as_ref().is_none_or(|queue| *queue == job.queue)
            && asked.kind.as_ref().is_none_or(|kind| *kind == job.kind)
            && asked.group.is_none_or(|group| job.state.group() == Some(group))
    };
    ensure(found.jobs.len() <= asked.limit, || "more dead letters than were asked for".into())?;
    let place = |dead: &DeadJob| Cursor { at: dead.job.index_key().at, id: dead.job.id };
    let ordered = found.jobs.is_sorted_by(|a, b| place(a) > place(b));
    let fits = ordered && found.jobs.iter().all(fits);
    ensure(fits, || "not the dead letters that were asked for, newest first".into())
}

fn check_figures(asked: FigurePage, found: &[FigureRow], now: Wall) -> Result<(), BadAnswer> {
    let fits = |row: &FigureRow| row.key.span == asked.span && row.key.slot <= now.minus(asked.age);
    ensure(found.len() <= asked.limit, || "more figures than were asked for".into())?;
    let fits = found.iter().all(fits) && found.is_sorted_by(|a, b| a.key < b.key);
    ensure(fits, || "not the figures that were asked for".into())
}

fn check_candidates(want: &Want, found: &Candidates) -> Result<(), BadAnswer> {
    ensure(found.jobs.len() <= want.limit, || "more candidates than were asked for".into())?;
    let missing = found.jobs.is_empty() && found.next_bytes.is_some();
    ensure(!missing, || "there are candidates, but none was given".into())?;
    let mut after: Option<Rank> = want.after;
    let mut latest: Option<&Job> = None;
    for Candidate { job, payload } in &found.jobs {
        let ready = job.state.view() == View::Queued && job.payload_bytes == payload.bytes();
        let ranked = after.is_none_or(|after| after < job.rank) && job.rank.id == job.id;
        // Most candidates are of one queue and kind.
        let same = |last: &Job| last.queue.same(&job.queue) && last.kind.same(&job.kind);
        let wanted = latest.is_some_and(same)
            || want.demand.wants(&job.queue, &job.kind)
                && want.closed.binary_search(&job.queue).is_err()
                && !want.closes(&job.queue, &job.kind);
        ensure(ready && ranked && wanted, || format!("job {} is no candidate here", job.id))?;
        (after, latest) = (Some(job.rank), Some(job));
    }
    Ok(())
}

fn length(what: &str, asked: usize, answered: usize) -> Result<(), BadAnswer> {
    ensure(asked == answered, || format!("{asked} {what} asked for, {answered} answered"))
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), BadAnswer> {
    if holds { Ok(()) } else { Err(BadAnswer(what())) }
}
