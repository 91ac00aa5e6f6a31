//! New jobs: idempotency first, then the limits of the queue, then the row.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::work::Work;
use crate::store::Tx;
use crate::{
    EnqueueRefused, Fingerprint, IdempotencyKey, JobId, KeyRecord, KeyRuling, NewJob, Policy,
    QueueSettings, Receipt,
};

type Answer = Result<Receipt, EnqueueRefused>;

/// Enqueues each job, or says why not.
pub(super) fn enqueue<T: Tx>(
    work: &mut Work<'_, T>,
    new_jobs: &[NewJob],
    policy: &Policy,
) -> Result<Vec<Answer>, T::Error> {
    new_jobs.iter().map(|new| one(work, new, policy)).collect()
}

fn one<T: Tx>(work: &mut Work<'_, T>, new: &NewJob, policy: &Policy) -> Result<Answer, T::Error> {
    let defaults = QueueSettings::default();
    let queue = work.queue(&new.queue);
    let terms = new.terms(queue.map_or(&defaults, |work| &work.queue.settings), policy);
    let request = new.fingerprint(&terms);
    let keyed = new.idempotency.as_ref().map(|idem| &idem.key).zip(request);
    if let Some((key, request)) = keyed
        && let Some(answer) = known(work, key, request, policy)
    {
        return Ok(answer);
    }
    let run_at = match new.run_at(work.now) {
        Ok(run_at) => run_at,
        Err(refused) => return Ok(Err(refused)),
    };
    if let Err(refused) = room(work, new)? {
        return Ok(Err(refused));
    }
    let id = work.next_id()?;
    let job = new.stored(id, terms, run_at, work.now);
    work.insert(job, new.payload.clone());
    if let Some((key, request)) = keyed {
        note_key(work, key, id, request);
    }
    Ok(Ok(Receipt::new(id, false)))
}

/// Puts the rows that are asked for into the receipts, as they will be written: nothing changes
/// them after this. A row that nobody asked for is not copied.
pub(super) fn echo<T: Tx>(work: &Work<'_, T>, new_jobs: &[NewJob], answers: &mut [Answer]) {
    for (new, answer) in new_jobs.iter().zip(answers) {
        if let (true, Ok(receipt)) = (new.echo, answer) {
            receipt.row = work.job(receipt.id).ok().cloned().map(Box::new);
        }
    }
}

/// The answer of an earlier request with this key, if it still counts.
fn known<T: Tx>(
    work: &Work<'_, T>,
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
fn room<T: Tx>(
    work: &mut Work<'_, T>,
    new: &NewJob,
) -> Result<Result<(), EnqueueRefused>, T::Error> {
    if work.ensure_queue(&new.queue)?.is_err() {
        return Ok(Err(EnqueueRefused::TooManyQueues));
    }
    let Some(queue) = work.queue(&new.queue) else { return Ok(Ok(())) };
    if let Some(limit) = queue.queue.full(queue.total.waiting()) {
        return Ok(Err(EnqueueRefused::QueueFull { queue: new.queue.clone(), limit }));
    }
    if !queue.has_room_for(&new.kind) {
        return Ok(Err(EnqueueRefused::TooManyKinds { queue: new.queue.clone() }));
    }
    Ok(Ok(()))
}

fn note_key<T: Tx>(work: &mut Work<'_, T>, key: &IdempotencyKey, job: JobId, request: Fingerprint) {
    let created_at = work.now;
    let record = KeyRecord { key: key.clone(), job, request, created_at, orphan_until: None };
    work.put_key(key.clone(), Some(record));
}
