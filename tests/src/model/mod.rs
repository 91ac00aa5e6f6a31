//! A second, naive statement of what Windlass promises, to hold every store against.
//!
//! Written from the promises and the API, not from the code: a flat list of jobs, linear scans,
//! whole requests compared. It uses the plain data of the core for commands and answers, and none
//! of its rules. What is random (jitter) it bounds, and then takes from the store.

mod admin;
mod backoff;
mod bulk;
mod claim;
mod enqueue;
pub(crate) mod figures;
mod flow;
mod groups;
mod job;
mod report;
mod sweep;

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::bulk::Bulk;
use windlass_core::store::{
    AdminDone, Batch, Change, Dump, FigureKey, JobRefused, Marker, Next, Outcomes, TooManyQueues,
    Worker, WorkerRow,
};
use windlass_core::{
    Attempt, Counted, Counts, Epoch, FigureSet, Figures, Fingerprint, JobId, KeyRecord, LeaseToken,
    Policy, Queue, QueueName, QueueRow, Rejected, SettingKey, SettingValue, StaleReason, StateName,
    Wall,
};

use self::enqueue::ModelKey;
use self::flow::ModelTat;
use self::groups::ModelGroup;
use self::job::{ModelJob, Word};

/// Every rule of the model, by the name under which its use is counted.
pub const RULES: &[&str] = &[
    "a bulk action comes to its end",
    "a bulk action goes on after its canary",
    "a bulk action holds when its canary fails",
    "a bulk action leaves out what came later",
    "a bulk replay stops at its limit",
    "a claim finds less than it asked for",
    "a failure is tried again",
    "a finished job is not cancelled",
    "a full page of due jobs says there may be more",
    "a full queue takes no job",
    "a full reap page says where to go on",
    "a heartbeat on a lost lease is refused",
    "a claim that a rate keeps from jobs says when to look again",
    "a job of a queue with aging is ranked by how long it has waited",
    "a kind at its limit waits",
    "a start counts against a rate",
    "a job that came alive in the batch is not purged",
    "a job whose lease runs is not reaped",
    "a job that was settled in the batch is not reaped",
    "a job too far ahead is refused",
    "a key is free again after its window",
    "a heartbeat after the timeout of the attempt is refused",
    "a lease ends with the timeout of its attempt",
    "a lease is held for its length after a clock step",
    "a lease of a dead worker is taken back at once",
    "an attempt that ran longer than its timeout has failed",
    "a lease that ran out is tried again",
    "a lease written by a clock that was set back counts from now on",
    "a lease that ran out with the last attempt is dead-lettered",
    "a paused or full queue lets nothing start",
    "a queue that holds nothing vanishes",
    "a queue with jobs is not deleted",
    "a receipt shows the job as the batch left it",
    "a permanent failure is dead-lettered at once",
    "a repeated report gets the first answer",
    "a repeated request finds its job",
    "a report on a lease that was taken away is refused",
    "a report with an old or invented token is refused",
    "a stepped clock reaps nothing",
    "a worker says when to try again",
    "a worker is asked to stop",
    "a worker that is not there is not asked to stop",
    "an empty queue with settings stays",
    "another request with a known key is a conflict",
    "another verdict on a used token is refused",
    "bulk discard",
    "bulk replay",
    "cancel a cancelled job again",
    "cancel a running job",
    "cancel a waiting job",
    "claim",
    "complete",
    "delete a finished job",
    "delete an empty queue",
    "enqueue",
    "enqueue for later",
    "fall due",
    "figures are folded",
    "a dead letter joins an error group",
    "a dead letter leaves its error group",
    "an error group without room joins that of its kind",
    "an error group long without dead letters is removed",
    "remove the key of a job purged long ago",
    "heartbeat",
    "one queue too many is not made",
    "only a failed or cancelled job is replayed",
    "only a finished job is deleted",
    "purge",
    "release",
    "replay a cancelled job",
    "replay a failed job",
    "snooze",
    "settings changed since they were read",
    "setting changed since it was read",
    "start a bulk action",
    "stop a bulk action",
    "the last failure is dead-lettered",
];

/// Everything a store should hold.
#[derive(Debug, Clone, Default)]
pub struct Model {
    jobs: Vec<ModelJob>,
    tats: Vec<ModelTat>,
    /// The jobs as they were before the batch: what pages are made of.
    before: Vec<ModelJob>,
    queues: Vec<Queue>,
    /// The names of queues before the batch.
    queues_before: Vec<QueueName>,
    keys: Vec<ModelKey>,
    /// The keys as they were before the batch.
    keys_before: Vec<ModelKey>,
    attempts: Vec<Attempt>,
    workers: Vec<ModelWorker>,
    settings: Vec<(SettingKey, SettingValue)>,
    markers: Vec<Marker>,
    figures: BTreeMap<FigureKey, FigureSet>,
    groups: Vec<ModelGroup>,
    bulk: Vec<Bulk>,
    /// What the batch did to jobs, by queue.
    did: BTreeMap<QueueName, Figures>,
    last_id: u64,
    must_stir: BTreeSet<QueueName>,
    may_stir: BTreeSet<QueueName>,
    complaints: Vec<String>,
    notes: BTreeMap<&'static str, u64>,
}

/// A worker, when it was first and last seen, and whether it was asked to stop.
#[derive(Debug, Clone)]
struct ModelWorker {
    worker: Worker,
    first: Wall,
    last: Wall,
    stopping: bool,
}

/// What the store made of a batch: the model reads the instants from it that it only bounds.
#[derive(Debug, Clone, Copy)]
pub struct Chosen<'a> {
    /// The outcomes that the store returned.
    pub outcomes: &'a Outcomes,
    /// Every row of the store after the batch.
    pub after: &'a Dump,
}

/// What should have come of a batch.
#[derive(Debug, Clone)]
pub struct Expected {
    /// The answers. `wrote` and `ready_queues` are left as they are in a new value: see the others.
    pub outcomes: Outcomes,
    /// Queues that have to be reported as ready.
    pub must_stir: BTreeSet<QueueName>,
    /// Queues that may be among them.
    pub may_stir: BTreeSet<QueueName>,
    /// What the store chose outside of its bounds.
    pub complaints: Vec<String>,
}

impl Model {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs a batch, section by section.
    pub fn run(&mut self, now: Wall, batch: &Batch, chosen: Chosen<'_>) -> Expected {
        self.before = self.jobs.clone();
        self.keys_before = self.keys.clone();
        self.queues_before = self.queues.iter().map(|queue| queue.name.clone()).collect();
        self.did.clear();
        let mut out = Outcomes { now, ..Outcomes::default() };
        out.settles = batch.settles.iter().map(|s| self.settle(now, s, chosen)).collect();
        out.heartbeats = batch
            .heartbeats
            .iter()
            .map(|heartbeat| self.heartbeat(now, heartbeat, batch))
            .collect();
        out.admin = batch.admin.iter().map(|a| self.admin(now, a, &batch.policy)).collect();
        batch.bulk.iter().for_each(|step| self.step_bulk(now, step, &batch.policy));
        out.enqueues = batch.enqueues.iter().map(|n| self.enqueue(now, n, &batch.policy)).collect();
        out.reaped = batch.reap.map(|reap| self.reap(now, &reap, batch, chosen));
        out.promoted = batch.promote.map(|limit| self.promote(now, limit));
        out.purged = batch.purge.map(|purge| self.purge(now, &purge, &batch.policy));
        out.queues_swept = batch.queue_sweep.as_ref().map(|sweep| self.sweep_queues(sweep));
        let more = self.keep_figures(now, batch);
        out.claims =
            batch.claims.iter().map(|claim| self.claim(now, claim, batch.own.as_ref())).collect();
        self.note_full_kinds();
        self.check_next_open(now, batch, &out.claims, chosen.outcomes);
        self.group(now, batch);
        self.echo(&batch.enqueues, &mut out.enqueues);
        out.next_due = self.next_due(batch);
        out.next_expiry = self.next_expiry(batch);
        out.next_bulk = self.next_bulk(now, batch);
        out.changes = self.changes();
        let did = std::mem::take(&mut self.did).into_iter();
        let did = did.filter(|(_, figures)| !figures.is_empty());
        out.figures = did.map(|(queue, figures)| (queue, Box::new(figures))).collect();
        if let (Some(purge), Some(purged)) = (&batch.purge, &mut out.purged) {
            purged.next = self.next_purge(&purge.retention);
            purged.more |= more;
        }
        if chosen.outcomes.wrote {
            self.markers.retain(|marker| marker.batch.process != batch.id.process);
            self.markers.push(Marker { batch: batch.id, at: now });
        }
        Expected {
            outcomes: out,
            must_stir: std::mem::take(&mut self.must_stir),
            may_stir: std::mem::take(&mut self.may_stir),
            complaints: std::mem::take(&mut self.complaints),
        }
    }

    /// How often each rule of the model was used.
    pub fn notes(&self) -> &BTreeMap<&'static str, u64> {
        &self.notes
    }

    /// What the store should hold. The fingerprints of requests are the store's own business.
    pub fn dump(&self) -> Dump {
        let mut queues: Vec<QueueRow> = self.queues.iter().map(|q| self.queue_row(q)).collect();
        queues.sort_by(|a, b| a.queue.name.cmp(&b.queue.name));
        let mut keys: Vec<KeyRecord> = self.keys.iter().map(ModelKey::row).collect();
        keys.sort_by(|a, b| a.key.cmp(&b.key));
        let mut attempts = self.attempts.clone();
        attempts.sort_by_key(|attempt| (attempt.job, attempt.epoch));
        let mut settings = self.settings.clone();
        settings.sort();
        let mut markers = self.markers.clone();
        markers.sort_by_key(|marker| marker.batch.process);
        Dump {
            next_id: JobId::new(self.last_id + 1).expect("few jobs are made"),
            jobs: self.jobs.iter().map(ModelJob::row).collect(),
            queues,
            keys,
            attempts,
            workers: self.worker_rows(),
            settings,
            markers,
            figures: self.figure_rows(),
            groups: self.group_rows(),
            bulk: self.bulk_rows(),
        }
    }

    /// The store's dump, with what the model does not know taken out.
    pub fn without_fingerprints(mut dump: Dump) -> Dump {
        for record in &mut dump.keys {
            record.request = Fingerprint(0);
        }
        dump
    }

    fn queue_row(&self, queue: &Queue) -> QueueRow {
        let mut kinds = BTreeMap::new();
        for job in self.jobs.iter().filter(|job| job.queue == queue.name) {
            let counts: &mut Counts = kinds.entry(job.kind.clone()).or_default();
            let retrying = job.state == StateName::Queued && job.attempts > 0;
            counts.add(Counted { view: job.view(), retrying });
        }
        let tats = self.tats_of(&queue.name);
        QueueRow { queue: queue.clone(), kinds: kinds.into_iter().collect(), tats }
    }

    fn worker_rows(&self) -> Vec<WorkerRow> {
        let rows = self.workers.iter().map(|known| {
            let ModelWorker { worker, first, last, stopping } = known.clone();
            let held = self.jobs.iter().filter(|job| job.worker.as_ref() == Some(&worker.id));
            let running = held.map(|job| job.id).collect();
            WorkerRow { worker, started_at: first, last_seen: last, stopping, running }
        });
        let mut rows: Vec<WorkerRow> = rows.collect();
        rows.sort_by(|a, b| a.worker.id.cmp(&b.worker.id));
        rows
    }

    fn next_due(&self, batch: &Batch) -> Next {
        let at = |job: &ModelJob| job.is_scheduled().then_some(job.run_at);
        if batch.promote.is_some() {
            Next::Known(self.jobs.iter().filter_map(at).min())
        } else {
            Next::Written(self.new_instants(at).min())
        }
    }

    fn next_expiry(&self, batch: &Batch) -> Next {
        if batch.reap.is_some() {
            Next::Known(self.jobs.iter().filter_map(|job| job.lease_until).min())
        } else {
            Next::Written(self.new_instants(|job| job.lease_until).min())
        }
    }

    /// The instants of jobs that have another one than before the batch.
    fn new_instants(&self, at: impl Fn(&ModelJob) -> Option<Wall>) -> impl Iterator<Item = Wall> {
        self.jobs.iter().filter_map(move |job| {
            let before = self.before.iter().find(|before| before.id == job.id);
            at(job).filter(|_| before.and_then(&at) != at(job))
        })
    }

    /// Jobs that came, went, or are in another state or with another holder than before the batch.
    fn changes(&self) -> Vec<Change> {
        let mut ids: Vec<JobId> = self.before.iter().chain(&self.jobs).map(|job| job.id).collect();
        ids.sort();
        ids.dedup();
        let change = |id: JobId| {
            let was = self.before.iter().find(|job| job.id == id);
            let is = self.jobs.iter().find(|job| job.id == id);
            let place = |job: &ModelJob| (job.state, job.epoch);
            let job = is.or(was).filter(|_| was.map(place) != is.map(place))?;
            Some(Change {
                id,
                queue: job.queue.clone(),
                kind: job.kind.clone(),
                from: was.map(|job| job.state),
                to: is.map(|job| job.state),
                run_at: job.run_at,
                started_at: job.started_at,
                given_back: was.zip(is).is_some_and(|(was, is)| {
                    let claims = is.epoch - was.epoch;
                    was.state == StateName::Processing
                        && u64::from(is.attempts) < u64::from(was.attempts) + claims
                }),
            })
        };
        ids.into_iter().filter_map(change).collect()
    }

    // What the parts share.

    fn note(&mut self, what: &'static str) {
        debug_assert!(RULES.contains(&what), "{what:?} is missing in RULES");
        *self.notes.entry(what).or_default() += 1;
    }

    fn at(&self, id: JobId) -> Result<usize, JobRefused> {
        self.jobs.iter().position(|job| job.id == id).ok_or(JobRefused::NotFound(id))
    }

    fn has_queue(&self, name: &QueueName) -> bool {
        self.queues.iter().any(|queue| queue.name == *name)
    }

    /// A queue that would be one too many is not made, but for the default one.
    fn room_for_queue(&mut self, name: &QueueName, policy: &Policy) -> Result<(), TooManyQueues> {
        let limit = policy.max_queues;
        let there = self.has_queue(name) || name.as_str() == "default";
        if there || self.queues.len() < limit {
            return Ok(());
        }
        self.note("one queue too many is not made");
        Err(TooManyQueues { limit })
    }

    fn queue(&mut self, name: &QueueName) -> &mut Queue {
        if !self.has_queue(name) {
            self.queues.push(Queue::new(name.clone()));
        }
        let found = self.queues.iter_mut().find(|queue| queue.name == *name);
        found.expect("it was made above")
    }

    /// Notes what the move of a job means for those who wait: it can be claimed itself, or it has
    /// made room under a limit.
    fn stir(&mut self, was: &ModelJob, at: usize) {
        let is = &self.jobs[at];
        let name = is.queue.clone();
        let ready = is.is_ready() && !was.is_ready();
        let left = was.state == StateName::Processing && is.state != StateName::Processing;
        let view = is.view();
        if view != was.view() && is.state == StateName::Queued {
            self.place(at);
        }
        let settings = &self.queue(&name).settings;
        let limited = settings.concurrency.is_some() || settings.flow.limits_starts();
        if ready || left && limited {
            self.must_stir.insert(name.clone());
        }
        self.may_stir.insert(name);
    }
}

impl Chosen<'_> {
    /// When this job, which failed in the batch, was to be tried again: as an operator's cancel in
    /// the same batch saw it, or as it is stored.
    fn retry_at(&self, id: JobId) -> Option<Wall> {
        let admin = self.outcomes.admin.iter().find_map(|answer| match answer {
            Ok(AdminDone::Job(job)) if job.id == id => Some(job.run_at),
            _ => None,
        });
        let stored = self.after.jobs.iter().find(|row| row.job.id == id);
        admin.or(stored.map(|row| row.job.run_at))
    }

    fn attempt(&self, id: JobId, epoch: Epoch) -> Option<&Attempt> {
        self.after.attempts.iter().find(|one| (one.job, one.epoch) == (id, epoch))
    }
}

fn stale(job: &ModelJob, token: LeaseToken) -> JobRefused {
    let reason = if token.epoch.get() != job.epoch {
        StaleReason::Expired
    } else if job.spoken.is_some_and(|(word, _)| word == Word::TimedOut) {
        StaleReason::TimedOut
    } else if job.spoken.is_some() {
        StaleReason::Settled
    } else if job.state == StateName::Cancelled {
        StaleReason::Cancelled
    } else {
        StaleReason::Expired
    };
    let (state, epoch) = (job.state, Epoch::new(job.epoch));
    JobRefused::Rejected(Rejected::Stale { reason, state, epoch })
}
