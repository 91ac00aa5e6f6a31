//! Everything a store holds, in one canonical form, and the check that it agrees with itself.
//!
//! Counters and keys are derived data: recomputed here from the rows, they must come out equal.
//! Two stores that did the same dump the same text.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::{JobDetail, Marker, WorkerRow};
use crate::{
    Attempt, Counts, Job, JobId, KeyRecord, Kind, QueueName, QueueRow, Rank, SettingKey,
    SettingValue, State, StateName,
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
        section(f, "marker", &self.markers)
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
    let mut found = Vec::new();
    let jobs: BTreeMap<JobId, &Job> = dump.jobs.iter().map(|row| (row.job.id, &row.job)).collect();
    let mut say = |text: String| found.push(Disagreement(text));
    for row in &dump.jobs {
        check_job(&row.job, dump.next_id, &mut say);
        check_derived(row, &mut say);
    }
    check_failures(dump, &mut say);
    check_counts(dump, &mut say);
    check_keys(dump, &jobs, &mut say);
    for attempt in &dump.attempts {
        if !jobs.contains_key(&attempt.job) {
            say(format!("an attempt of job {} is kept, but there is no such job", attempt.job));
        }
    }
    found
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
    let (id, rank) = (job.id, Rank::of(job));
    if job.rank != rank {
        say(format!("job {id} is ranked {:?}, not {rank:?}", job.rank));
    }
    let (kept, bytes) = (job.payload_bytes, payload.bytes());
    if kept != bytes {
        say(format!("job {id} has a payload of {bytes} bytes, its row says {kept}"));
    }
}

fn check_failures(dump: &Dump, say: &mut impl FnMut(String)) {
    for row in &dump.jobs {
        if row.job.state.name() == StateName::Failed && row.last_error.is_none() {
            say(format!("job {} failed without a reason", row.job.id));
        }
    }
}

fn check_counts(dump: &Dump, say: &mut impl FnMut(String)) {
    let mut counted: BTreeMap<(&QueueName, &Kind), Counts> = BTreeMap::new();
    for row in &dump.jobs {
        let counts = counted.entry((&row.job.queue, &row.job.kind)).or_default();
        counts.add(row.job.state.view());
    }
    for row in &dump.queues {
        for (kind, kept) in &row.kinds {
            let actual = counted.remove(&(&row.queue.name, kind)).unwrap_or_default();
            if actual != *kept {
                let queue = &row.queue.name;
                say(format!("queue {queue} kind {kind}: counters {kept:?}, rows {actual:?}"));
            }
        }
    }
    for ((queue, kind), actual) in counted {
        say(format!("queue {queue} kind {kind}: no counters, rows {actual:?}"));
    }
}

fn check_keys(dump: &Dump, jobs: &BTreeMap<JobId, &Job>, say: &mut impl FnMut(String)) {
    let mut keys = BTreeMap::new();
    for record in &dump.keys {
        let (key, id) = (&record.key, record.job);
        keys.insert(key, id);
        match jobs.get(&id) {
            None if record.orphan_until.is_none() => {
                say(format!("key {key} names job {id}, which does not exist"));
            }
            Some(_) if record.orphan_until.is_some() => {
                say(format!("key {key} is marked as orphaned, but job {id} exists"));
            }
            Some(job) if job.idempotency_key.as_ref() != Some(key) => {
                say(format!("key {key} names job {id}, which does not carry it"));
            }
            _ => {}
        }
    }
    for job in jobs.values().filter(|job| !job.state.name().is_finished()) {
        let Some(key) = &job.idempotency_key else { continue };
        // A replayed job may find its key taken by a later one; until then the key is its own.
        if job.generation == 0 && keys.get(key) != Some(&job.id) {
            say(format!("job {} carries key {key}, which does not name it", job.id));
        }
    }
}
