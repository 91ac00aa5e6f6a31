//! What [`Apply`](crate::Apply) asks a store before it decides on a batch: plain data, everything
//! at once.

use alloc::vec::Vec;

use super::{Admin, Batch, ClaimFor, Cursor, FigureKey, FigurePage, Purge, QueueSweep, Reap};
use crate::limits::{CLAIM_BYTES, FIGURE_PAGE, PAGE_ROWS, SILENT_KEPT};
use crate::{Demand, IdempotencyKey, JobId, Kind, Millis, QueueName, Rank, Span, View, WorkerId};

/// Everything a batch needs to know of the store. [`Answers`](super::Answers) has a field for
/// each of these, in the same order.
///
/// **Named rows** (`jobs`, `keys`, `queues`, `figures`) are held until the transaction ends, also
/// where there is none, so that no other transaction changes or makes them meanwhile. A store that
/// locks rows one by one takes them in the order of the fields and of the lists, which are sorted.
/// A queue that is [`changed`](Self::changed), limited or missing is held alone; others may be
/// shared. The queue of every candidate is held as well, or a claim could commit after a pause.
///
/// **Found rows** (all others) are held too. One that another transaction holds is left out; the
/// store then has [`Store::news`](super::Store::news) say that others wrote.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Questions {
    /// These jobs; sorted, each once.
    pub jobs: Vec<JobId>,
    /// These keys, each with the job it names; sorted, each once.
    pub keys: Vec<IdempotencyKey>,
    /// These queues; sorted, each once.
    pub queues: Vec<QueueName>,
    /// Those of `queues` that are to be counted although they may have no limit yet; sorted.
    pub counted: Vec<QueueName>,
    /// Those of `queues` that the batch changes; sorted.
    pub changed: Vec<QueueName>,
    /// Whether these queues have jobs of these kinds; sorted, each once.
    pub kinds: Vec<(QueueName, Kind)>,
    /// Whether these workers were asked to stop; sorted, each once.
    pub workers: Vec<WorkerId>,
    /// Scheduled jobs that are due by the store's clock: up to this many, by (`run_at`, id).
    pub due: Option<usize>,
    /// Leased jobs whose lease has ended.
    pub expired: Option<ExpiredPage>,
    /// Finished jobs past their age.
    pub finished: Vec<FinishedPage>,
    /// Dead-lettered jobs.
    pub dead: Vec<DeadPage>,
    /// Keys whose job is gone and whose window has ended by the store's clock: up to this many, by
    /// the end of the window, then by key.
    pub orphans: Option<usize>,
    /// Whether a marker of a process, or a row of a worker, is older than this.
    pub silent: Option<Millis>,
    /// Those of a page of queues, by name, that have no jobs. They are held alone.
    pub empty_queues: Option<QueueSweep>,
    /// These rows of figures; sorted, each once.
    pub figures: Vec<FigureKey>,
    /// Rows of figures that are old enough to be folded or removed.
    pub old_figures: Vec<FigurePage>,
    /// Candidates for claims; each is answered by itself, so a job may be in several answers.
    pub wants: Vec<Want>,
    /// The payloads of these jobs, which exist; each once. Asked for jobs that this batch itself
    /// makes ready.
    pub payloads: Vec<JobId>,
    /// This many new job ids.
    pub ids: usize,
}

/// A page of leased jobs by (`lease_until`, id).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpiredPage {
    /// Those whose lease has not ended by the store's clock as well.
    pub all: bool,
    /// Those behind this place.
    pub after: Option<Cursor>,
    /// At most this many.
    pub limit: usize,
}

/// A page of finished jobs by (`finished_at`, id).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FinishedPage {
    /// Those in this view.
    pub view: View,
    /// Those that finished at least this long before the store's clock.
    pub age: Millis,
    /// At most this many.
    pub limit: usize,
}

/// A page of the dead-letter queue, newest failure first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadPage {
    /// Those of this queue.
    pub queue: Option<QueueName>,
    /// Those of this kind.
    pub kind: Option<Kind>,
    /// Those behind this place.
    pub after: Option<Cursor>,
    /// How many rows to look at, those of other queues and kinds included.
    pub limit: usize,
}

/// Candidates for a claim: the best-ranked ready jobs of all queues and kinds of a demand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    /// Which jobs.
    pub demand: Demand,
    /// None of these queues; sorted. A store may leave out others whose
    /// [gate](crate::Queue::gate) was not open before the batch.
    pub closed: Vec<QueueName>,
    /// These queues whatever their gate was before the batch, which has opened it; sorted.
    pub opened: Vec<QueueName>,
    /// Only those behind this rank.
    pub after: Option<Rank>,
    /// At most this many.
    pub limit: usize,
    /// As many as have payloads of this many bytes together, but always the first.
    pub bytes: usize,
}

impl Questions {
    /// The first questions of a batch: everything its commands name, and a page for each sweep.
    pub(crate) fn of(batch: &Batch) -> Self {
        let keyed = batch.enqueues.iter().filter_map(|new| new.idempotency.as_ref());
        let (kinds, changed) = (kinds(batch), changed(batch));
        Self {
            jobs: jobs(batch),
            keys: sorted(keyed.map(|idem| idem.key.clone()).collect()),
            queues: queues(&changed, &kinds),
            counted: counted(batch),
            changed,
            kinds,
            workers: workers(batch),
            due: batch.promote,
            expired: batch.reap.as_ref().map(expired),
            finished: batch.purge.as_ref().map(finished).unwrap_or_default(),
            dead: batch.admin.iter().filter_map(dead).collect(),
            orphans: batch.purge.map(|purge| purge.limit),
            silent: batch.purge.map(|_| SILENT_KEPT),
            empty_queues: batch.queue_sweep.clone(),
            figures: figures(batch),
            old_figures: batch.purge.map(|_| old_figures()).unwrap_or_default(),
            wants: batch.claims.iter().filter_map(Want::of).collect(),
            payloads: Vec::new(),
            ids: batch.enqueues.len(),
        }
    }

    /// Whether nothing is asked.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Panics if core asks for something that makes no sense: a bug that must not reach a store.
    pub(crate) fn assert_valid(&self) {
        assert!(self.jobs.is_sorted_by(|a, b| a < b), "jobs are asked for in order, each once");
        assert!(self.keys.is_sorted_by(|a, b| a < b), "keys are asked for in order, each once");
        assert!(self.queues.is_sorted_by(|a, b| a < b), "queues are asked for in order, each once");
        let named = |name: &QueueName| self.queues.binary_search(name).is_ok();
        assert!(self.counted.iter().all(named), "a queue that is counted is asked for");
        assert!(self.changed.iter().all(named), "a queue that is changed is asked for");
        assert!(self.kinds.is_sorted_by(|a, b| a < b), "kinds are asked for in order, each once");
        assert!(self.workers.is_sorted_by(|a, b| a < b), "workers are asked for in order");
        assert!(self.figures.is_sorted_by(|a, b| a < b), "figures are asked for in order");
        assert!(self.wants.iter().all(|want| want.limit > 0), "a claim asks for at least one job");
        let finished = |page: &FinishedPage| page.view.state().is_finished();
        assert!(self.finished.iter().all(finished), "only finished jobs grow old");
    }
}

impl Want {
    /// The candidates for a claim; `None` if it takes none.
    pub(crate) fn of(claim: &ClaimFor) -> Option<Self> {
        let limit = claim.takers.iter().map(|taker| taker.max).sum();
        let (closed, opened) = (Vec::new(), Vec::new());
        let demand = claim.demand.clone();
        let want = Self { demand, closed, opened, after: None, limit, bytes: CLAIM_BYTES };
        (limit > 0).then_some(want)
    }
}

fn jobs(batch: &Batch) -> Vec<JobId> {
    let mut ids = Vec::with_capacity(batch.settles.len() + batch.heartbeats.len());
    ids.extend(batch.settles.iter().map(|command| command.token.job));
    ids.extend(batch.heartbeats.iter().map(|command| command.token.job));
    ids.extend(batch.admin.iter().filter_map(|command| match command {
        Admin::Cancel(id) | Admin::Replay(id) | Admin::Delete(id) => Some(*id),
        _ => None,
    }));
    sorted(ids)
}

fn kinds(batch: &Batch) -> Vec<(QueueName, Kind)> {
    let mut kinds: Vec<(QueueName, Kind)> = Vec::new();
    for new in &batch.enqueues {
        // Most batches are of one queue and kind.
        let same =
            |(queue, kind): &(QueueName, Kind)| queue.same(&new.queue) && kind.same(&new.kind);
        if !kinds.last().is_some_and(same) {
            kinds.push((new.queue.clone(), new.kind.clone()));
        }
    }
    sorted(kinds)
}

/// The queues that operators change.
fn changed(batch: &Batch) -> Vec<QueueName> {
    let changed = batch.admin.iter().filter_map(|command| match command {
        Admin::Pause(name)
        | Admin::Resume(name)
        | Admin::SetQueue(name, _)
        | Admin::DeleteQueue(name) => Some(name.clone()),
        _ => None,
    });
    sorted(changed.collect())
}

fn queues(changed: &[QueueName], kinds: &[(QueueName, Kind)]) -> Vec<QueueName> {
    sorted(kinds.iter().map(|(queue, _)| queue).chain(changed).cloned().collect())
}

/// The queues that may get a limit by this batch, or may be deleted.
fn counted(batch: &Batch) -> Vec<QueueName> {
    let limited = batch.admin.iter().filter_map(|command| match command {
        Admin::SetQueue(name, settings) if settings.is_limited() => Some(name.clone()),
        Admin::DeleteQueue(name) => Some(name.clone()),
        _ => None,
    });
    sorted(limited.collect())
}

fn workers(batch: &Batch) -> Vec<WorkerId> {
    let named = batch.admin.iter().filter_map(|command| match command {
        Admin::SeeWorker(worker) => Some(worker.id.clone()),
        Admin::StopWorker(id) | Admin::LookAtWorker(id) => Some(id.clone()),
        _ => None,
    });
    sorted(named.collect())
}

fn expired(reap: &Reap) -> ExpiredPage {
    ExpiredPage { all: reap.all, after: reap.after, limit: reap.limit }
}

fn finished(purge: &Purge) -> Vec<FinishedPage> {
    let page = |(view, age)| FinishedPage { view, age, limit: purge.limit };
    purge.retention.ages().map(page).collect()
}

fn figures(batch: &Batch) -> Vec<FigureKey> {
    sorted(
        batch.figures.iter().map(|added| FigureKey::live(batch.id.process, added.slot)).collect(),
    )
}

fn old_figures() -> Vec<FigurePage> {
    let page = |span: Span| Some(FigurePage { span, age: span.age()?, limit: FIGURE_PAGE });
    Span::ALL.into_iter().filter_map(page).collect()
}

fn dead(command: &Admin) -> Option<DeadPage> {
    let (Admin::ReplayDead { filter, after, .. } | Admin::DiscardDead { filter, after, .. }) =
        command
    else {
        return None;
    };
    let (queue, kind) = (filter.queue.clone(), filter.kind.clone());
    Some(DeadPage { queue, kind, after: *after, limit: PAGE_ROWS })
}

/// Sorts, and drops what is there twice.
pub(crate) fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort_unstable();
    list.dedup();
    list
}
