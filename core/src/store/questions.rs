//! What [`Apply`](crate::Apply) asks a store before it decides on a batch: plain data, everything
//! at once.

use alloc::vec::Vec;

use super::{
    Admin, Batch, BulkAsk, ClaimFor, Cursor, DeadFilter, FigureKey, FigurePage, Purge, QueueSweep,
    Reap,
};
use crate::limits::{CLAIM_BYTES, FIGURE_PAGE, GROUP_KEPT, PAGE_ROWS, SILENT_KEPT};
use crate::{
    Demand, Gate, GroupId, IdempotencyKey, InUse, Job, JobId, Kind, Millis, Queue, QueueName, Rank,
    SettingKey, Span, View, Wall, WorkerId,
};

/// Everything a batch needs to know of the store. [`Answers`](super::Answers) has a field for
/// each of these, in the same order.
///
/// **Named rows** (`jobs`, `keys`, `queues`, `settings`, `figures`) are held until the transaction
/// ends, also where there is none, so that no other transaction changes or makes them meanwhile. A
/// store that locks rows one by one takes them in the order of the fields and of the lists, which
/// are sorted.
/// A queue that is [`changed`](Self::changed), limited or missing is held alone; others may be
/// shared. The queue of every candidate is held as well, or a claim could commit after a pause.
///
/// **Found rows** (all others) are held too. One that another transaction holds is left out; the
/// store then has [`Store::news`](super::Store::news) say that others wrote.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Questions {
    /// The bulk actions.
    pub bulk: BulkAsk,
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
    /// These settings; sorted, each once. All that the batch sets are asked for, so that none comes
    /// between the comparison and the write of another batch.
    pub settings: Vec<SettingKey>,
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
    /// These error groups; sorted, each once. They are asked for last, when it is known which jobs
    /// became dead letters and which no longer are.
    pub groups: Vec<GroupId>,
    /// Error groups that have no dead letters and whose last one failed long ago.
    pub idle_groups: Option<IdleGroups>,
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
    /// Leases behind this place in the order of expiry; `None` for all.
    pub after: Option<Cursor>,
    /// At most this many.
    pub limit: usize,
}

/// A page of finished jobs by (`finished_at`, id).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FinishedPage {
    /// Done, failed or cancelled.
    pub view: View,
    /// Those that finished at least this long before the store's clock.
    pub age: Millis,
    /// At most this many.
    pub limit: usize,
}

/// A page of the dead-letter queue, newest failure first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadPage {
    /// Only dead letters of this queue.
    pub queue: Option<QueueName>,
    /// Only dead letters of this kind.
    pub kind: Option<Kind>,
    /// Those of this error group. A store seeks these, and looks at no others.
    pub group: Option<GroupId>,
    /// Only dead letters behind this place of the list.
    pub after: Option<Cursor>,
    /// Maximum number of rows to look at, those of other queues and kinds included.
    pub limit: usize,
}

/// Error groups that may be removed: not held, and looked at again before they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleGroups {
    /// Those idle for at least this long before the store's clock.
    pub age: Millis,
    /// At most this many.
    pub limit: usize,
}

/// Candidates for a claim: the best-ranked ready jobs of all queues and kinds of a demand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    /// Queues and kinds to claim from.
    pub demand: Demand,
    /// None of these queues; sorted. A store leaves out others whose
    /// [gate](crate::Queue::gate_of) was not open before the batch.
    pub closed: Vec<QueueName>,
    /// None of these kinds in these queues; sorted.
    pub closed_kinds: Vec<(QueueName, Kind)>,
    /// These queues whatever their gate was before the batch, which has opened it; sorted.
    pub opened: Vec<QueueName>,
    /// Only those behind this rank.
    pub after: Option<Rank>,
    /// At most this many.
    pub limit: usize,
    /// As many as have payloads of this many bytes together, but always the first.
    pub bytes: usize,
}

impl Want {
    /// Whether the ready jobs of this queue and kind are candidates at `now`. `in_use` tells what
    /// counts against their limits; it is called only if the answer depends on it.
    pub fn admits<E>(
        &self,
        queue: &Queue,
        kind: &Kind,
        now: Wall,
        in_use: impl FnOnce() -> Result<InUse, E>,
    ) -> Result<Admits, E> {
        let among = |names: &[QueueName]| names.binary_search(&queue.name).is_ok();
        if !self.demand.wants(&queue.name, kind)
            || among(&self.closed)
            || self.closes(&queue.name, kind)
        {
            return Ok(Admits::No);
        }
        if among(&self.opened) {
            return Ok(Admits::Yes);
        }
        let in_use = if queue.settings.limits_starts() { in_use()? } else { InUse::default() };
        Ok(match queue.gate_of(kind, &in_use, now) {
            Gate::Open => Admits::Yes,
            Gate::RateLimited { .. } => Admits::Later(queue.look_again_at(kind, &in_use, now)),
            Gate::Paused | Gate::Full | Gate::KindFull => Admits::No,
        })
    }

    /// Whether this kind of this queue is among the closed kinds.
    pub(crate) fn closes(&self, queue: &QueueName, kind: &Kind) -> bool {
        let place = |(of, closed): &(QueueName, Kind)| of.cmp(queue).then_with(|| closed.cmp(kind));
        self.closed_kinds.binary_search_by(place).is_ok()
    }
}

/// Whether the ready jobs of a queue and kind are candidates for a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admits {
    /// Nothing keeps them from starting.
    Yes,
    /// They are not wanted, or a pause or a limit keeps them waiting.
    No,
    /// A rate keeps them waiting, which is to be looked at again at this instant.
    Later(Wall),
}

impl Questions {
    /// The first questions of a batch: everything its commands name, and a page for each sweep.
    pub(crate) fn of(batch: &Batch) -> Self {
        let keyed = batch.enqueues.iter().filter_map(|new| new.idempotency.as_ref());
        let (kinds, changed) = (kinds(batch), changed(batch));
        Self {
            bulk: bulk(batch),
            jobs: jobs(batch),
            keys: sorted(keyed.map(|idem| idem.key.clone()).collect()),
            queues: queues(&changed, &kinds),
            counted: counted(batch),
            changed,
            kinds,
            workers: workers(batch),
            settings: settings(batch),
            due: batch.promote,
            expired: batch.reap.as_ref().map(expired),
            finished: batch.purge.as_ref().map(finished).unwrap_or_default(),
            dead: batch.admin.iter().filter_map(dead).collect(),
            orphans: batch.purge.map(|purge| purge.limit),
            silent: batch.purge.map(|_| SILENT_KEPT),
            groups: Vec::new(),
            idle_groups: batch.purge.map(|_| IdleGroups { age: GROUP_KEPT, limit: PAGE_ROWS }),
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
        assert!(self.settings.is_sorted_by(|a, b| a < b), "settings are asked for in order");
        assert!(self.groups.is_sorted_by(|a, b| a < b), "groups are asked for in order, each once");
        assert!(self.figures.is_sorted_by(|a, b| a < b), "figures are asked for in order");
        assert!(self.counted.is_sorted_by(|a, b| a < b), "queues are counted in order, each once");
        assert!(self.changed.is_sorted_by(|a, b| a < b), "queues are changed in order, each once");
        let finished = |page: &FinishedPage| page.view.state().is_finished();
        assert!(self.finished.iter().all(finished), "only finished jobs grow old");
        self.wants.iter().for_each(Want::assert_valid);
        assert!(are_distinct(&self.payloads), "a payload is asked for once");
        assert!(self.limits().all(|limit| limit > 0), "a page has room for at least one row");
    }

    /// The limit of each page, but for those that also say what comes behind them: such a page may
    /// be asked for that alone.
    fn limits(&self) -> impl Iterator<Item = usize> {
        let groups = self.idle_groups.map(|page| page.limit);
        let queues = self.empty_queues.as_ref().map(|page| page.limit);
        let dead = self.dead.iter().map(|page| page.limit);
        let figures = self.old_figures.iter().map(|page| page.limit);
        groups.into_iter().chain(queues).chain(dead).chain(figures)
    }
}

impl Want {
    fn assert_valid(&self) {
        assert!(self.limit > 0, "a claim asks for at least one job");
        assert!(self.closed.is_sorted_by(|a, b| a < b), "closed queues are in order, each once");
        let kinds = &self.closed_kinds;
        assert!(kinds.is_sorted_by(|a, b| a < b), "closed kinds are in order, each once");
        assert!(self.opened.is_sorted_by(|a, b| a < b), "opened queues are in order, each once");
    }

    /// The candidates for a claim; `None` if it takes none.
    pub(crate) fn of(claim: &ClaimFor) -> Option<Self> {
        let limit = claim.takers.iter().map(|taker| taker.max).sum();
        let want = Self {
            demand: claim.demand.clone(),
            closed: Vec::new(),
            closed_kinds: Vec::new(),
            opened: Vec::new(),
            after: None,
            limit,
            bytes: CLAIM_BYTES,
        };
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
    ids.extend(batch.bulk.iter().flat_map(|step| &step.jobs).map(|place| place.id));
    sorted(ids)
}

/// A process that looks for ended leases also learns of bulk actions that no process carries out.
fn bulk(batch: &Batch) -> BulkAsk {
    let ordered = batch.admin.iter().any(|command| {
        matches!(command, Admin::StartBulk(_) | Admin::ContinueBulk(_) | Admin::StopBulk(_))
    });
    if ordered || !batch.bulk.is_empty() {
        BulkAsk::Hold
    } else if batch.reap.is_some() {
        BulkAsk::Look
    } else {
        BulkAsk::No
    }
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
    for row in batch.import.iter().flat_map(|rows| &rows.jobs) {
        let Job { queue, kind, .. } = &row.job;
        if !kinds.last().is_some_and(|(last, of)| last.same(queue) && of.same(kind)) {
            kinds.push((queue.clone(), kind.clone()));
        }
    }
    sorted(kinds)
}

/// The queues that operators change, or that are imported.
fn changed(batch: &Batch) -> Vec<QueueName> {
    let changed = batch.admin.iter().filter_map(|command| match command {
        Admin::Pause { name, .. }
        | Admin::Resume(name)
        | Admin::SetQueue { name, .. }
        | Admin::DeleteQueue(name) => Some(name.clone()),
        _ => None,
    });
    let imported = batch.import.iter().flat_map(|rows| &rows.queues);
    sorted(changed.chain(imported.map(|queue| queue.name.clone())).collect())
}

fn queues(changed: &[QueueName], kinds: &[(QueueName, Kind)]) -> Vec<QueueName> {
    sorted(kinds.iter().map(|(queue, _)| queue).chain(changed).cloned().collect())
}

/// The queues that may get a limit by this batch, or may be deleted.
fn counted(batch: &Batch) -> Vec<QueueName> {
    let limited = batch.admin.iter().filter_map(|command| match command {
        Admin::SetQueue { name, settings, .. } if settings.is_limited() => Some(name.clone()),
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

fn settings(batch: &Batch) -> Vec<SettingKey> {
    let named = batch.admin.iter().filter_map(|command| match command {
        Admin::SetSetting { key, .. } => Some(key.clone()),
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
    let DeadFilter { queue, kind, group, .. } = filter.clone();
    Some(DeadPage { queue, kind, group, after: *after, limit: PAGE_ROWS })
}

/// Whether each is there once. A list that grows, as most do, needs no copy.
fn are_distinct(ids: &[JobId]) -> bool {
    ids.is_sorted_by(|a, b| a < b) || sorted(ids.to_vec()).len() == ids.len()
}

/// Sorts, and drops what is there twice.
pub(crate) fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort_unstable();
    list.dedup();
    list
}
