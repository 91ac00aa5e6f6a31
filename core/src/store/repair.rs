//! What a store puts in place of data that was lost, when it is repaired. Every store follows the
//! same rules, so that two stores with the same rows are repaired alike.

use crate::{Excerpt, Fingerprint, IdempotencyKey, Job, KeyRecord};

/// What is left of a key. `named` is the job that its record names, if it exists. A record without
/// a job stays while it is an orphan; one whose job does not carry the key goes.
pub fn repaired_key(record: KeyRecord, named: Option<&Job>) -> Option<KeyRecord> {
    match named {
        None => record.orphan_until.is_some().then_some(record),
        Some(job) => {
            let carried = job.idempotency_key.as_ref() == Some(&record.key);
            carried.then_some(KeyRecord { orphan_until: None, ..record })
        }
    }
}

/// The record of a key that was lost, given a job and the record of its key as it is after
/// [`repaired_key`]. Of several live jobs the newest owns the key, in whatever order they come. The
/// request is unknown: a repetition of it is a conflict.
pub fn restored_key(job: &Job, record: Option<&KeyRecord>) -> Option<KeyRecord> {
    let key: &IdempotencyKey = job.idempotency_key.as_ref()?;
    let owned = record.is_some_and(|record| record.request != UNKNOWN || record.job >= job.id);
    if owned || job.state.name().is_finished() {
        return None;
    }
    let (key, job, created_at) = (key.clone(), job.id, job.created_at);
    Some(KeyRecord { key, job, request: UNKNOWN, created_at, orphan_until: None })
}

/// The last error of a dead letter whose error was lost.
pub fn lost_error() -> Excerpt {
    Excerpt::stored("the error was lost", false)
}

/// The fingerprint of a request that is not known any more.
const UNKNOWN: Fingerprint = Fingerprint(0);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{JobId, Kind, NewJob, Payload, Policy, QueueSettings, State, Wall};

    fn job(id: u64, key: &str) -> Job {
        let new = NewJob::new(Kind::default(), Payload::null());
        let terms = new.terms(&QueueSettings::default(), &Policy::default());
        let id = JobId::new(id).unwrap();
        let mut job = new.stored(id, terms, Wall::new(1), Wall::new(1));
        job.idempotency_key = Some(IdempotencyKey::new(key).unwrap());
        job
    }

    fn record(of: &Job, request: u128, orphan_until: Option<Wall>) -> KeyRecord {
        let (key, created_at) = (of.idempotency_key.clone().unwrap(), of.created_at);
        KeyRecord { key, job: of.id, request: Fingerprint(request), created_at, orphan_until }
    }

    #[test]
    fn a_record_stays_with_the_job_that_carries_its_key_or_as_an_orphan() {
        let (one, other) = (job(1, "a"), job(2, "b"));
        let (kept, orphan) = (record(&one, 7, None), record(&one, 7, Some(Wall::new(9))));
        assert_eq!(repaired_key(kept.clone(), Some(&one)), Some(kept.clone()));
        assert_eq!(repaired_key(orphan.clone(), Some(&one)), Some(kept.clone()));
        assert_eq!(repaired_key(orphan.clone(), None), Some(orphan));
        assert_eq!(repaired_key(kept.clone(), None), None);
        assert_eq!(repaired_key(kept, Some(&other)), None, "it carries another key");
    }

    #[test]
    fn the_newest_live_job_owns_a_key_that_was_lost_and_no_job_takes_one_that_was_not() {
        let (older, newer) = (job(1, "a"), job(2, "a"));
        for order in [[&older, &newer], [&newer, &older]] {
            let mut kept: Option<KeyRecord> = None;
            for job in order {
                kept = restored_key(job, kept.as_ref()).or(kept);
            }
            assert_eq!(kept, Some(record(&newer, 0, None)));
        }
        assert_eq!(restored_key(&newer, Some(&record(&older, 7, None))), None);
        let ended = Job { state: State::Done { finished_at: Wall::new(2) }, ..newer };
        assert_eq!(restored_key(&ended, None), None);
    }
}
