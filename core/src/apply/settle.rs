//! What workers report: verdicts and heartbeats.

use super::work::Work;
use crate::limits::STOP_GRACE;
use crate::store::{Batch, Doc, DocWrite, Heartbeat, JobRefused, LeaseExtended, Settle};
use crate::{Attempt, Event, Millis, StateName, Step, Verdict, transition};

/// A verdict on a run.
pub(super) fn settle(work: &mut Work, command: &Settle) -> Result<StateName, JobRefused> {
    let Settle { token, verdict } = command;
    let slot = work.find(token.job)?;
    let held = work.job_at(slot).ok_or(JobRefused::NotFound(token.job))?;
    let event = Event::Settle { epoch: token.epoch, verdict };
    let job = match transition(held, event, work.now)? {
        Step::Repeated(answer) => return Ok(answer),
        Step::Moved(job) => job,
    };
    let attempt = Attempt::settled(held, verdict, work.now);
    let state = work.put_at(slot, job).state.name();
    if let Verdict::Complete { result: Some(text) } = verdict {
        let text = text.clone();
        work.changes.docs.push(DocWrite { job: token.job, doc: Doc::Result, text });
    }
    keep(work, attempt);
    Ok(state)
}

/// A heartbeat of a run.
pub(super) fn heartbeat(
    work: &mut Work,
    batch: &Batch,
    command: &Heartbeat,
) -> Result<LeaseExtended, JobRefused> {
    let Heartbeat { token, extend, progress } = command;
    let slot = work.find(token.job)?;
    let held = work.job_at(slot).ok_or(JobRefused::NotFound(token.job))?;
    let own = held.lease().is_some_and(|lease| batch.own.as_ref() == Some(&lease.worker));
    // After a clock step only the current reading can be trusted.
    let trusted_since = if work.clock_stepped { Some(work.now) } else { batch.clock.trusted_since };
    let event = Event::Heartbeat {
        epoch: token.epoch,
        extend: *extend,
        stop_grace: if own { STOP_GRACE } else { Millis::ZERO },
        trusted_since,
    };
    let Step::Moved(job) = transition(held, event, work.now)? else {
        return Err(JobRefused::NotFound(token.job));
    };
    let Some(lease) = work.put_at(slot, job).lease().cloned() else {
        return Err(JobRefused::NotFound(token.job));
    };
    work.touch_worker(&lease.worker);
    if let Some(text) = progress.clone() {
        work.note_progress(token.job, text);
    }
    Ok(LeaseExtended { until: lease.until })
}

/// Keeps the record of an attempt that did not complete, and drops what is too old beside it.
pub(super) fn keep(work: &mut Work, attempt: Option<Attempt>) {
    let Some(attempt) = attempt else { return };
    let changes = &mut work.changes;
    changes.errors.extend(attempt.error.clone().map(|error| (attempt.job, error)));
    changes.dropped_attempts.extend(attempt.drops_up_to().map(|epoch| (attempt.job, epoch)));
    changes.attempts.push(attempt);
}
