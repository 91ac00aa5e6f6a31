//! Reports of workers: only a report of the latest lease's holder counts, once.

use windlass_core::store::{Batch, Heartbeat, JobRefused, LeaseExtended, Settle};
use windlass_core::{
    Attempt, AttemptOutcome, Delay, Epoch, Excerpt, Failure, FailureKind, Rejected, StaleReason,
    StateName, Verdict, Wall,
};

use super::job::{ModelJob, Word};
use super::sweep::STEP_MS;
use super::{Chosen, Model, ModelWorker, backoff, stale};

/// Attempts kept of one job: those of its newest claims.
const KEPT: u64 = 32;

impl Model {
    pub(super) fn settle(
        &mut self,
        now: Wall,
        settle: &Settle,
        chosen: Chosen<'_>,
    ) -> Result<StateName, JobRefused> {
        let at = self.at(settle.token.job)?;
        let job = &self.jobs[at];
        if settle.token.epoch.get() != job.epoch {
            self.note("a report with an old or invented token is refused");
            return Err(stale(&self.jobs[at], settle.token));
        }
        let word = word(&settle.verdict);
        if job.state != StateName::Processing {
            return match job.spoken {
                Some((first, answer)) if first == word => {
                    self.note("a repeated report gets the first answer");
                    Ok(answer)
                }
                Some(_) => {
                    self.note("another verdict on a used token is refused");
                    Err(stale(&self.jobs[at], settle.token))
                }
                None => {
                    self.note("a report on a lease that was taken away is refused");
                    Err(stale(&self.jobs[at], settle.token))
                }
            };
        }
        let was = job.clone();
        match &settle.verdict {
            Verdict::Complete { result } => {
                self.note("complete");
                self.did_run(&was, now).done += 1;
                self.jobs[at].finish(now, StateName::Done);
                if result.is_some() {
                    self.jobs[at].result.clone_from(result);
                }
            }
            Verdict::Fail(failure) => self.fail(now, at, failure, chosen),
            Verdict::Snooze { delay } => {
                self.note("snooze");
                self.did(&was.queue).snoozed += 1;
                self.give_back(at, now, now.plus(delay.millis()));
            }
            Verdict::Release => {
                self.note("release");
                self.did(&was.queue).released += 1;
                self.give_back(at, now, was.run_at.min(now));
                self.remember(ended(&was, AttemptOutcome::Released, now));
            }
        }
        let answer = self.jobs[at].state;
        self.jobs[at].spoken = Some((word, answer));
        self.stir(&was, at);
        Ok(answer)
    }

    fn fail(&mut self, now: Wall, at: usize, failure: &Failure, chosen: Chosen<'_>) {
        let was = self.jobs[at].clone();
        if !failure.retryable {
            self.note("a permanent failure is dead-lettered at once");
            self.did_run(&was, now).failed += 1;
            self.jobs[at].finish(now, StateName::Failed);
        } else if was.is_used_up() {
            self.note("the last failure is dead-lettered");
            self.did_run(&was, now).failed += 1;
            self.jobs[at].finish(now, StateName::Failed);
        } else {
            self.note("a failure is tried again");
            self.did_run(&was, now).retried += 1;
            let run_at = self.retry_at(now, &was, failure.retry_in, chosen);
            self.jobs[at].requeue(now, run_at);
        }
        self.jobs[at].last_error = Some(failure.error.clone());
        let outcome = match failure.kind {
            FailureKind::Failed => AttemptOutcome::Failed,
            FailureKind::TimedOut => AttemptOutcome::TimedOut,
            FailureKind::Panicked => AttemptOutcome::Panicked,
        };
        self.remember(Attempt {
            error: Some(failure.error.clone()),
            exit_code: failure.exit_code,
            stdout: failure.stdout.clone(),
            stderr: failure.stderr.clone(),
            ..ended(&was, outcome, now)
        });
    }

    /// When to try again: as the worker asked, or where the store chose within the bounds.
    fn retry_at(
        &mut self,
        now: Wall,
        job: &ModelJob,
        asked: Option<Delay>,
        chosen: Chosen<'_>,
    ) -> Wall {
        if let Some(delay) = asked {
            self.note("a worker says when to try again");
            return now.plus(delay.millis());
        }
        let (shortest, longest) = backoff::bounds(&job.retry, job.attempts);
        let earliest = now.get().saturating_add_unsigned(shortest);
        let latest = now.get().saturating_add_unsigned(longest);
        let run_at = chosen.retry_at(job.id).unwrap_or(Wall::new(earliest));
        if !(earliest..=latest).contains(&run_at.get()) {
            self.complaints.push(format!(
                "job {} failed attempt {} at {now}: it is due at {run_at}, not in \
                 {earliest}..={latest}",
                job.id, job.attempts
            ));
        }
        run_at
    }

    fn give_back(&mut self, at: usize, now: Wall, run_at: Wall) {
        self.jobs[at].requeue(now, run_at);
        self.jobs[at].attempts -= 1;
    }

    pub(super) fn heartbeat(
        &mut self,
        now: Wall,
        heartbeat: &Heartbeat,
        batch: &Batch,
    ) -> Result<LeaseExtended, JobRefused> {
        let at = self.at(heartbeat.token.job)?;
        let job = &mut self.jobs[at];
        if job.state != StateName::Processing || heartbeat.token.epoch.get() != job.epoch {
            self.note("a heartbeat on a lost lease is refused");
            return Err(stale(&self.jobs[at], heartbeat.token));
        }
        let off = batch.clock.expected.map_or(0, |expected| expected.get().abs_diff(now.get()));
        let stepped = off > STEP_MS;
        let trusted_since = if stepped { Some(now) } else { batch.clock.trusted_since };
        let end = job.lease_ends_at(now, batch.own.as_ref(), trusted_since);
        if end.is_some_and(|end| end <= now) {
            let (state, epoch) = (job.state, Epoch::new(job.epoch));
            self.note("a heartbeat after the timeout of the attempt is refused");
            let reason = StaleReason::TimedOut;
            return Err(Rejected::Stale { reason, state, epoch }.into());
        }
        job.lease_length = heartbeat.extend.or(job.lease_length);
        let length = job.lease_length.expect("a running job has a lease");
        let until = now.plus(length.millis());
        let mut until = end.map_or(until, |end| end.min(until));
        // It never moves back, unless a clock that was set back since has written it.
        if job.updated_at.get() - now.get() <= STEP_MS.cast_signed() {
            until = until.max(job.lease_until.expect("a running job has a lease"));
        }
        job.lease_until = Some(until);
        job.updated_at = now;
        if heartbeat.progress.is_some() {
            job.progress.clone_from(&heartbeat.progress);
        }
        let holder = job.worker.clone();
        for ModelWorker { worker, last: seen, .. } in &mut self.workers {
            if Some(&worker.id) == holder.as_ref() {
                *seen = now;
            }
        }
        self.note("heartbeat");
        Ok(LeaseExtended { until })
    }

    /// A lease that ran out: the attempt is charged, the worker named in the reason.
    pub(super) fn expire(&mut self, now: Wall, at: usize, timed_out: bool, chosen: Chosen<'_>) {
        let was = self.jobs[at].clone();
        if timed_out {
            self.note("an attempt that ran longer than its timeout has failed");
            self.did_run(&was, now);
        } else {
            self.did(&was.queue).expired += 1;
        }
        if was.is_used_up() {
            self.note("a lease that ran out with the last attempt is dead-lettered");
            self.did(&was.queue).failed += 1;
            self.jobs[at].finish(now, StateName::Failed);
        } else {
            self.note("a lease that ran out is tried again");
            self.did(&was.queue).retried += 1;
            let run_at = if timed_out { self.retry_at(now, &was, None, chosen) } else { now };
            self.jobs[at].requeue(now, run_at);
        }
        let answer = self.jobs[at].state;
        self.jobs[at].spoken = timed_out.then_some((Word::TimedOut, answer));
        let outcome = if timed_out { AttemptOutcome::TimedOut } else { AttemptOutcome::Expired };
        let ended = ended(&was, outcome, now);
        let stored = chosen.attempt(was.id, Epoch::new(was.epoch));
        let error = stored.and_then(|attempt| attempt.error.clone());
        let named = |error: &Excerpt| error.as_str().contains(ended.worker.as_str());
        if !error.as_ref().is_some_and(named) {
            let id = was.id;
            self.complaints
                .push(format!("job {id} expired, its reason names no worker: {error:?}"));
        }
        self.jobs[at].last_error.clone_from(&error);
        self.remember(Attempt { error, ..ended });
        self.stir(&was, at);
    }

    fn remember(&mut self, attempt: Attempt) {
        let (job, epoch) = (attempt.job, attempt.epoch.get());
        self.attempts.push(attempt);
        self.attempts.retain(|old| old.job != job || old.epoch.get() + KEPT > epoch);
    }
}

fn ended(held: &ModelJob, outcome: AttemptOutcome, now: Wall) -> Attempt {
    Attempt {
        job: held.id,
        epoch: Epoch::new(held.epoch),
        worker: held.worker.clone().expect("a running job has a worker"),
        started_at: held.started_at.expect("a running job was started"),
        ended_at: now,
        outcome,
        error: None,
        exit_code: None,
        stdout: None,
        stderr: None,
    }
}

fn word(verdict: &Verdict) -> Word {
    match verdict {
        Verdict::Complete { .. } => Word::Complete,
        Verdict::Fail(failure) if failure.retryable => Word::FailRetryable,
        Verdict::Fail(_) => Word::FailPermanent,
        Verdict::Snooze { .. } => Word::Snooze,
        Verdict::Release => Word::Release,
    }
}
