//! A job of the model: one flat row, every field always there.

use windlass_core::store::JobDetail;
use windlass_core::{
    Epoch, Excerpt, GroupId, IdempotencyKey, Job, JobId, JobTimeout, Kind, LastVerdict, Lease,
    LeaseLength, MaxRetries, Millis, Payload, Priority, QueueName, Rank, RetryPolicy, State,
    StateName, View, Wall, WorkerId,
};

#[derive(Debug, Clone)]
pub(super) struct ModelJob {
    pub(super) id: JobId,
    pub(super) queue: QueueName,
    pub(super) kind: Kind,
    pub(super) payload: Payload,
    pub(super) priority: Priority,
    /// Class, and the instant that it counts as due: the least goes first.
    pub(super) rank: (i16, Wall),
    pub(super) state: StateName,
    /// Has fallen due, while it is queued.
    pub(super) due: bool,
    pub(super) attempts: u32,
    pub(super) max_retries: MaxRetries,
    pub(super) epoch: u64,
    pub(super) generation: u32,
    pub(super) run_at: Wall,
    pub(super) timeout: Option<JobTimeout>,
    pub(super) visibility_timeout: LeaseLength,
    pub(super) retry: RetryPolicy,
    pub(super) key: Option<IdempotencyKey>,
    pub(super) worker: Option<WorkerId>,
    pub(super) lease_until: Option<Wall>,
    pub(super) lease_length: Option<LeaseLength>,
    pub(super) created_at: Wall,
    pub(super) updated_at: Wall,
    pub(super) started_at: Option<Wall>,
    pub(super) finished_at: Option<Wall>,
    pub(super) last_error: Option<Excerpt>,
    /// The group of its last error, while it is a dead letter.
    pub(super) group: GroupId,
    pub(super) result: Option<Payload>,
    pub(super) progress: Option<Payload>,
    /// The verdict of its latest token and the answer it got, until it is claimed again.
    pub(super) spoken: Option<(Word, StateName)>,
}

/// Verdicts, as far as a repetition has to agree with the first report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    Complete,
    FailRetryable,
    FailPermanent,
    Snooze,
    Release,
    /// None: its timeout was over.
    TimedOut,
}

/// How long an attempt that its own process stops keeps its lease beyond its timeout.
const STOPPING_MS: u64 = 30_000;

impl ModelJob {
    /// When its present attempt has run for its timeout, if it has one; the wall clock is trusted
    /// since an instant, if it was stepped.
    pub(super) fn times_out_at(&self, now: Wall, trusted_since: Option<Wall>) -> Option<Wall> {
        let mut began = self.started_at?;
        if let Some(since) = trusted_since {
            began = began.max(since);
        }
        Some(began.min(now).plus(self.timeout?.millis()))
    }

    /// The same, with the time that its holder has to stop it.
    pub(super) fn lease_ends_at(
        &self,
        now: Wall,
        own: Option<&WorkerId>,
        trusted_since: Option<Wall>,
    ) -> Option<Wall> {
        let grace = if self.worker.as_ref() == own { STOPPING_MS } else { 0 };
        Some(self.times_out_at(now, trusted_since)?.plus(Millis::new(grace)))
    }

    pub(super) fn is_ready(&self) -> bool {
        self.state == StateName::Queued && self.due
    }

    pub(super) fn is_leased(&self) -> bool {
        self.state == StateName::Processing
    }

    pub(super) fn is_scheduled(&self) -> bool {
        self.state == StateName::Queued && !self.due
    }

    pub(super) fn is_finished(&self) -> bool {
        matches!(self.state, StateName::Done | StateName::Failed | StateName::Cancelled)
    }

    /// Whether it was run as often as it may be: the first time, and then each retry.
    pub(super) fn is_used_up(&self) -> bool {
        self.attempts > self.max_retries.get()
    }

    pub(super) fn view(&self) -> View {
        match self.state {
            StateName::Queued if self.due => View::Queued,
            StateName::Queued => View::Scheduled,
            StateName::Processing => View::Processing,
            StateName::Done => View::Done,
            StateName::Failed => View::Failed,
            StateName::Cancelled => View::Cancelled,
        }
    }

    /// Waits again, from this instant on.
    pub(super) fn requeue(&mut self, now: Wall, run_at: Wall) {
        self.drop_lease(now);
        self.state = StateName::Queued;
        self.run_at = run_at;
        self.due = run_at <= now;
        self.finished_at = None;
    }

    pub(super) fn finish(&mut self, now: Wall, state: StateName) {
        self.drop_lease(now);
        self.state = state;
        self.finished_at = Some(now);
    }

    fn drop_lease(&mut self, now: Wall) {
        self.worker = None;
        self.lease_until = None;
        self.lease_length = None;
        self.updated_at = now;
    }

    pub(super) fn row(&self) -> JobDetail {
        JobDetail {
            job: self.job(),
            payload: self.payload.clone(),
            result: self.result.clone(),
            progress: self.progress.clone(),
            last_error: self.last_error.clone(),
        }
    }

    pub(super) fn job(&self) -> Job {
        Job {
            id: self.id,
            queue: self.queue.clone(),
            kind: self.kind.clone(),
            priority: self.priority,
            rank: Rank { class: self.rank.0, turn: 0, due: self.rank.1, id: self.id },
            state: self.core_state(),
            attempts: self.attempts,
            max_retries: self.max_retries,
            epoch: Epoch::new(self.epoch),
            generation: self.generation,
            run_at: self.run_at,
            timeout: self.timeout,
            visibility_timeout: self.visibility_timeout,
            retry: self.retry,
            idempotency_key: self.key.clone(),
            payload_bytes: self.payload.bytes(),
            created_at: self.created_at,
            updated_at: self.updated_at,
            started_at: self.started_at,
        }
    }

    fn core_state(&self) -> State {
        let last_verdict = self.spoken.map(last_verdict);
        let finished_at = self.finished_at.unwrap_or(Wall::MAX);
        match self.state {
            StateName::Queued => State::Queued { ready: self.due, last_verdict },
            StateName::Processing => State::Processing(Lease {
                worker: self.worker.clone().expect("a running job has a worker"),
                until: self.lease_until.expect("a running job has a lease"),
                length: self.lease_length.expect("a running job has a lease"),
            }),
            StateName::Done => State::Done { finished_at },
            StateName::Failed => State::Failed { finished_at, last_verdict, group: self.group },
            StateName::Cancelled => State::Cancelled { finished_at, last_verdict },
        }
    }
}

fn last_verdict((word, answer): (Word, StateName)) -> LastVerdict {
    match (word, answer) {
        (Word::Complete, _) => LastVerdict::Completed,
        (Word::FailRetryable, StateName::Failed) => LastVerdict::Exhausted,
        (Word::FailRetryable, _) => LastVerdict::Retried,
        (Word::FailPermanent, _) => LastVerdict::Permanent,
        (Word::Snooze, _) => LastVerdict::Snoozed,
        (Word::Release, _) => LastVerdict::Released,
        (Word::TimedOut, _) => LastVerdict::TimedOut,
    }
}
