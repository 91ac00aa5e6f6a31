//! New jobs: idempotency first, then the limits of the queue, then the row.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::work::Work;
use crate::{
    EnqueueRefused, Fingerprint, IdempotencyKey, KeyRecord, KeyRuling, NewJob, Policy,
    QueueSettings, Receipt,
};

type Answer = Result<Receipt, EnqueueRefused>;

/// Enqueues each job, or says why not.
pub(super) fn enqueue(work: &mut Work, new_jobs: &[NewJob], policy: &Policy) -> Vec<Answer> {
    new_jobs.iter().map(|new| one(work, new, policy)).collect()
}

fn one(work: &mut Work, new: &NewJob, policy: &Policy) -> Answer {
    let defaults = QueueSettings::default();
    let queue = work.queue(&new.queue);
    let terms = new.terms(queue.map_or(&defaults, |work| &work.queue.settings), policy);
    let request = new.fingerprint(&terms);
    let keyed = new.idempotency.as_ref().map(|idem| &idem.key).zip(request);
    if let Some((key, request)) = keyed
        && let Some(answer) = known(work, key, request, policy)
    {
        if answer.is_ok() {
            work.note_duplicate(&new.queue);
        }
        return answer;
    }
    let run_at = new.run_at(work.now)?;
    room(work, new)?;
    let id = work.next_id();
    work.insert(new.stored(id, terms, run_at, work.now), new.payload.clone());
    if let Some((key, request)) = keyed {
        let (key, created_at) = (key.clone(), work.now);
        let record =
            KeyRecord { key: key.clone(), job: id, request, created_at, orphan_until: None };
        work.put_key(key, Some(record));
    }
    Ok(Receipt::new(id, false))
}

/// Puts the rows that are asked for into the receipts, as they will be written: nothing changes
/// them after this. A row that was not asked for is not copied.
pub(super) fn echo(work: &Work, new_jobs: &[NewJob], answers: &mut [Answer]) {
    for (new, answer) in new_jobs.iter().zip(answers) {
        if let (true, Ok(receipt)) = (new.echo, answer) {
            receipt.row = work.job(receipt.id).ok().cloned().map(Box::new);
        }
    }
}

/// The answer of an earlier request with this key, if it still counts.
fn known(
    work: &Work,
    key: &IdempotencyKey,
    request: Fingerprint,
    policy: &Policy,
) -> Option<Answer> {
    let record = work.key(key)?;
    let job = work.job(record.job).ok();
    match record.rule(job, request, policy.idempotency_window, work.now) {
        KeyRuling::Free => None,
        KeyRuling::Duplicate(id) => Some(Ok(Receipt::new(id, true))),
        KeyRuling::Conflict(existing) => {
            Some(Err(EnqueueRefused::IdempotencyConflict { existing }))
        }
    }
}

/// Whether the queue takes one more job; it is made if it is new.
fn room(work: &mut Work, new: &NewJob) -> Result<(), EnqueueRefused> {
    work.ensure_queue(&new.queue)?;
    let queue = work.queue(&new.queue);
    if let Some(limit) = queue.and_then(|work| work.queue.full(work.counts.waiting())) {
        return Err(EnqueueRefused::QueueFull { queue: new.queue.clone(), limit });
    }
    if !work.ensure_kind(&new.queue, &new.kind) {
        return Err(EnqueueRefused::TooManyKinds { queue: new.queue.clone() });
    }
    Ok(())
}
