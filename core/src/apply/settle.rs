//! What workers report: verdicts and heartbeats.

use super::work::Work;
use crate::store::{Beat, Beaten, Doc, DocWrite, JobRefused, Settle, Tx};
use crate::{Attempt, Event, StateName, Step, Verdict, transition};

/// A verdict on a run.
pub(super) fn settle<T: Tx>(
    work: &mut Work<'_, T>,
    command: &Settle,
) -> Result<StateName, JobRefused> {
    let Settle { token, verdict } = command;
    let spot = work.find(token.job)?;
    let held = work.job_at(spot).ok_or(JobRefused::NotFound(token.job))?;
    let event = Event::Settle { epoch: token.epoch, verdict };
    let job = match transition(held, event, work.now)? {
        Step::Repeated(answer) => return Ok(answer),
        Step::Moved(job) => job,
    };
    let attempt = Attempt::settled(held, verdict, work.now);
    let state = work.put_at(spot, job).state.name();
    if let Verdict::Complete { result: Some(text) } = verdict {
        let text = text.clone();
        work.changes.docs.push(DocWrite { job: token.job, doc: Doc::Result, text });
    }
    remember(work, attempt);
    Ok(state)
}

/// A heartbeat of a run.
pub(super) fn beat<T: Tx>(work: &mut Work<'_, T>, command: &Beat) -> Result<Beaten, JobRefused> {
    let Beat { token, extend, progress } = command;
    let event = Event::Heartbeat { epoch: token.epoch, extend: *extend };
    let step = transition(work.job(token.job)?, event, work.now)?;
    let Step::Moved(job) = step else { return Err(JobRefused::NotFound(token.job)) };
    let Some(lease) = work.put(job).lease().cloned() else {
        return Err(JobRefused::NotFound(token.job));
    };
    work.hear_worker(&lease.worker);
    if let Some(text) = progress.clone() {
        work.note_progress(token.job, text);
    }
    Ok(Beaten { until: lease.until })
}

/// Keeps what is to be remembered of an attempt that did not end well.
pub(super) fn remember<T: Tx>(work: &mut Work<'_, T>, attempt: Option<Attempt>) {
    let Some(attempt) = attempt else { return };
    if let Some(error) = &attempt.error {
        work.changes.errors.push((attempt.job, error.clone()));
    }
    work.changes.attempts.push(attempt);
}
