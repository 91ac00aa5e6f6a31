//! Everything a store holds, in one canonical form, and the check that it agrees with itself.
//!
//! Counters and keys are derived data: recomputed here from the rows, they must come out equal.
//! Two stores that did the same dump the same text.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::{BulkRow, FigureRow, JobDetail, Marker, WorkerRow};
use crate::{
    Attempt, Counts, GroupId, GroupRow, IdempotencyKey, Job, JobId, KeyRecord, Kind, QueueName,
    QueueRow, Rank, SettingKey, SettingValue, State, StateName,
};

/// Everything a store holds, each part in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dump {
    /// The id the next new job gets.
    pub next_id: JobId,
    /// Jobs with their documents, by id.
    pub jobs: Vec<JobDetail>,
    /// Queues with their counters, by name; kinds without jobs left out.
    pub queues: Vec<QueueRow>,
    /// Keys, by key.
    pub keys: Vec<KeyRecord>,
    /// Attempts, by job and epoch.
    pub attempts: Vec<Attempt>,
    /// Workers, by id.
    pub workers: Vec<WorkerRow>,
    /// Settings, by name.
    pub settings: Vec<(SettingKey, SettingValue)>,
    /// Commit markers, by process.
    pub markers: Vec<Marker>,
    /// Rows of figures, by key.
    pub figures: Vec<FigureRow>,
    /// Error groups, by id.
    pub groups: Vec<GroupRow>,
    /// Bulk actions, by id.
    pub bulk: Vec<BulkRow>,
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "next id {}", self.next_id)?;
        section(f, "job", &self.jobs)?;
        section(f, "queue", &self.queues)?;
        section(f, "key", &self.keys)?;
        section(f, "attempt", &self.attempts)?;
        section(f, "worker", &self.workers)?;
        section(f, "setting", &self.settings)?;
        section(f, "marker", &self.markers)?;
        section(f, "figures", &self.figures)?;
        section(f, "error group", &self.groups)?;
        section(f, "bulk", &self.bulk)
    }
}

fn section<T: fmt::Debug>(f: &mut fmt::Formatter<'_>, name: &str, rows: &[T]) -> fmt::Result {
    rows.iter().try_for_each(|row| writeln!(f, "{name} {row:?}"))
}

/// Something in a store that contradicts something else in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disagreement(pub String);

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Recomputes derived data from the rows and lists everything that disagrees. Empty is good.
pub fn audit(dump: &Dump) -> Vec<Disagreement> {
    let jobs: BTreeMap<JobId, &Job> = dump.jobs.iter().map(|row| (row.job.id, &row.job)).collect();
    let keys: BTreeMap<&IdempotencyKey, JobId> =
        dump.keys.iter().map(|record| (&record.key, record.job)).collect();
    let mut audit = Audit::new(dump.next_id);
    for row in &dump.jobs {
        let key = row.job.idempotency_key.as_ref();
        audit.job(row, key.and_then(|key| keys.get(key).copied()));
    }
    for record in &dump.keys {
        audit.key(record, jobs.get(&record.job).copied());
    }
    for attempt in &dump.attempts {
        audit.attempt(attempt.job, jobs.contains_key(&attempt.job));
    }
    dump.figures.iter().for_each(|row| audit.figures(row));
    dump.groups.iter().for_each(|row| audit.group(row));
    dump.bulk.iter().for_each(|row| audit.bulk(row));
    audit.finish(&dump.queues)
}

/// Most disagreements that are listed one by one.
const MOST_LISTED: usize = 1_000;

/// The same check, row by row: its memory grows with the number of queues and kinds, not with the
/// number of jobs. A store shows it every job, key, attempt and row of figures of one snapshot, in
/// any order.
#[derive(Debug)]
pub struct Audit {
    next_id: JobId,
    counted: BTreeMap<QueueName, BTreeMap<Kind, Counts>>,
    /// The dead letters of each group, by queue, with their kind.
    dead: BTreeMap<GroupId, (Kind, BTreeMap<QueueName, u64>)>,
    groups: Vec<GroupRow>,
    found: Vec<Disagreement>,
    /// Number of disagreements that are not listed.
    unlisted: u64,
}

impl Audit {
    /// A check of a store whose next new job gets this id.
    pub fn new(next_id: JobId) -> Self {
        Self {
            next_id,
            counted: BTreeMap::new(),
            dead: BTreeMap::new(),
            groups: Vec::new(),
            found: Vec::new(),
            unlisted: 0,
        }
    }

    /// Adds something that the store itself has found.
    pub fn say(&mut self, text: String) {
        if self.found.len() < MOST_LISTED {
            self.found.push(Disagreement(text));
        } else {
            self.unlisted += 1;
        }
    }

    /// Checks a job. `key_names` is the job that the record of its idempotency key names.
    pub fn job(&mut self, row: &JobDetail, key_names: Option<JobId>) {
        let job = &row.job;
        let mut found = Vec::new();
        check_job(job, self.next_id, &mut |text| found.push(text));
        check_derived(row, &mut |text| found.push(text));
        if job.state.name() == StateName::Failed && row.last_error.is_none() {
            found.push(format!("job {} failed without a reason", job.id));
        }
        // A replayed job may find its key taken by a later one; until then the key is its own.
        let must_own = !job.state.name().is_finished() && job.generation == 0;
        if let Some(key) = job.idempotency_key.as_ref().filter(|_| must_own)
            && key_names != Some(job.id)
        {
            found.push(format!("job {} carries key {key}, which does not name it", job.id));
        }
        for text in found {
            self.say(text);
        }
        self.count(job);
        if let Some(group) = job.state.group() {
            self.note_dead(job, group);
        }
    }

    fn count(&mut self, job: &Job) {
        if !self.counted.contains_key(&job.queue) {
            self.counted.insert(job.queue.clone(), BTreeMap::new());
        }
        let Some(kinds) = self.counted.get_mut(&job.queue) else { return };
        if !kinds.contains_key(&job.kind) {
            kinds.insert(job.kind.clone(), Counts::default());
        }
        if let Some(counts) = kinds.get_mut(&job.kind) {
            counts.add(job.into());
        }
    }

    /// Takes in an error group, which is compared with the jobs at the end.
    pub fn group(&mut self, row: &GroupRow) {
        self.groups.push(row.clone());
    }

    fn note_dead(&mut self, job: &Job, group: GroupId) {
        let empty = || (job.kind.clone(), BTreeMap::new());
        let (kind, queues) = self.dead.entry(group).or_insert_with(empty);
        *queues.entry(job.queue.clone()).or_default() += 1;
        if *kind != job.kind {
            let (job, other) = (job.id, kind.clone());
            self.say(format!("job {job} is of error group {group}, whose kind is {other}"));
        }
    }

    fn compare_groups(&mut self) {
        let mut dead = core::mem::take(&mut self.dead);
        for row in core::mem::take(&mut self.groups) {
            let id = row.id;
            let (kind, queues) = dead.remove(&id).unwrap_or((row.kind.clone(), BTreeMap::new()));
            if kind != row.kind {
                self.say(format!("error group {id} is of kind {}, its jobs of {kind}", row.kind));
            }
            let live: u64 = queues.values().sum();
            if live != row.live || !row.queues.agrees_with(&queues) {
                let kept = (row.live, row.queues);
                self.say(format!("error group {id}: counters {kept:?}, jobs {queues:?}"));
            }
        }
        for (id, (_, queues)) in dead {
            self.say(format!("error group {id}: no counters, jobs {queues:?}"));
        }
    }

    /// Checks a key. `job` is the job that it names, if it exists.
    pub fn key(&mut self, record: &KeyRecord, job: Option<&Job>) {
        let (key, id) = (&record.key, record.job);
        match job {
            None if record.orphan_until.is_none() => {
                self.say(format!("key {key} names job {id}, which does not exist"));
            }
            Some(_) if record.orphan_until.is_some() => {
                self.say(format!("key {key} is marked as orphaned, but job {id} exists"));
            }
            Some(job) if job.idempotency_key.as_ref() != Some(key) => {
                self.say(format!("key {key} names job {id}, which does not carry it"));
            }
            _ => {}
        }
    }

    /// Checks an attempt of a job, which exists or does not.
    pub fn attempt(&mut self, job: JobId, exists: bool) {
        if !exists {
            self.say(format!("an attempt of job {job} is kept, but there is no such job"));
        }
    }

    /// Checks a row of figures.
    pub fn figures(&mut self, row: &FigureRow) {
        if let Some(problem) = row.problem() {
            self.say(problem);
        }
    }

    /// Checks a bulk action.
    pub fn bulk(&mut self, row: &BulkRow) {
        if let Some(problem) = row.problem() {
            self.say(problem);
        }
    }

    /// Compares the counters of all queues with the jobs that were shown, and lists everything that
    /// disagrees.
    pub fn finish(mut self, queues: &[QueueRow]) -> Vec<Disagreement> {
        let mut counted = core::mem::take(&mut self.counted);
        for row in queues {
            let queue = &row.queue.name;
            let mut kinds = counted.remove(queue).unwrap_or_default();
            for (kind, kept) in &row.kinds {
                let actual = kinds.remove(kind).unwrap_or_default();
                if actual != *kept {
                    self.say(format!(
                        "queue {queue} kind {kind}: counters {kept:?}, rows {actual:?}"
                    ));
                }
            }
            if !kinds.is_empty() {
                counted.insert(queue.clone(), kinds);
            }
        }
        for (queue, kinds) in counted {
            for (kind, actual) in kinds {
                self.say(format!("queue {queue} kind {kind}: no counters, rows {actual:?}"));
            }
        }
        self.compare_groups();
        if self.unlisted > 0 {
            self.found.push(Disagreement(format!("{} more disagreements", self.unlisted)));
        }
        self.found
    }
}

fn check_job(job: &Job, next_id: JobId, say: &mut impl FnMut(String)) {
    let id = job.id;
    if id >= next_id {
        say(format!("job {id} exists, but the next id is {next_id}"));
    }
    if job.attempts > job.max_retries.attempts() {
        say(format!("job {id} was attempted {} times, more than it may be", job.attempts));
    }
    if u64::from(job.attempts) > job.epoch.get() {
        say(format!("job {id} has {} attempts at epoch {}", job.attempts, job.epoch));
    }
    match &job.state {
        State::Processing(_) if job.attempts == 0 || job.started_at.is_none() => {
            say(format!("job {id} is leased but was never claimed"));
        }
        State::Queued { .. } if !job.has_attempts_left() => {
            say(format!("job {id} waits, but its attempts are used up"));
        }
        _ => {}
    }
}

/// What is kept in the row although it follows from something else.
fn check_derived(row: &JobDetail, say: &mut impl FnMut(String)) {
    let JobDetail { job, payload, .. } = row;
    let id = job.id;
    if !job.rank.fits(job) {
        say(format!("job {id} is ranked {:?}, not {:?}", job.rank, Rank::of(job)));
    }
    let (kept, bytes) = (job.payload_bytes, payload.bytes());
    if kept != bytes {
        say(format!("job {id} has a payload of {bytes} bytes, its row says {kept}"));
    }
}
