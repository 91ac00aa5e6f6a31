//! A job that somebody wants to enqueue, and what it becomes once defaults are filled in.

use alloc::boxed::Box;

use thiserror::Error;

use crate::limits::{KINDS_PER_QUEUE, MAX_AHEAD, QUEUES};
use crate::{
    Delay, Epoch, Fingerprint, FingerprintBuilder, Idempotency, Job, JobId, JobTimeout, Kind,
    LeaseLength, MaxQueued, MaxRetries, Millis, Payload, Priority, QueueName, QueueSettings, Rank,
    RetryPolicy, State, Strategy, Wall,
};

/// A job to enqueue. What is not set is filled in from the queue's settings, then the [`Policy`].
///
/// ```
/// use windlass_core::{Delay, Kind, NewJob, Payload, Priority, When};
/// let mut job = NewJob::new(Kind::new("email")?, Payload::new(r#"{"to":"a@b"}"#)?);
/// job.priority = Priority::new(10)?;
/// job.when = When::After(Delay::new(60_000)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJob {
    /// The queue to stand in.
    pub queue: QueueName,
    /// What to run.
    pub kind: Kind,
    /// With what.
    pub payload: Payload,
    /// Higher runs first.
    pub priority: Priority,
    /// When to run it.
    pub when: When,
    /// How often to run it again after a failure.
    pub max_retries: Option<MaxRetries>,
    /// How long one attempt may run.
    pub timeout: Option<JobTimeout>,
    /// How long a lease lasts without a heartbeat.
    pub visibility_timeout: Option<LeaseLength>,
    /// How long to wait between attempts.
    pub retry: Option<RetryPolicy>,
    /// The client's own name for this request.
    pub idempotency: Option<Idempotency>,
    /// Whether the [`Receipt`] is to carry the row; it costs a copy, and is no part of the job.
    pub echo: bool,
}

/// When a job is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// At once.
    Now,
    /// This long after it was stored.
    After(Delay),
    /// At this instant; at once if it has passed.
    At(Wall),
}

/// What holds for jobs that do not say, in queues that do not say either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Retries after a failure.
    pub max_retries: MaxRetries,
    /// How long one attempt may run; for as long as it likes if not set.
    pub timeout: Option<JobTimeout>,
    /// How long a lease lasts without a heartbeat.
    pub visibility_timeout: LeaseLength,
    /// How long to wait between attempts.
    pub retry: RetryPolicy,
    /// How long an idempotency key is remembered from the creation of its job.
    pub idempotency_window: Millis,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_retries: MaxRetries::DEFAULT,
            timeout: None,
            visibility_timeout: LeaseLength::DEFAULT,
            retry: RetryPolicy::default(),
            idempotency_window: Millis::hours(24),
        }
    }
}

/// The options of a job after defaults are filled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Retries after a failure.
    pub max_retries: MaxRetries,
    /// How long one attempt may run.
    pub timeout: Option<JobTimeout>,
    /// How long a lease lasts without a heartbeat.
    pub visibility_timeout: LeaseLength,
    /// How long to wait between attempts.
    pub retry: RetryPolicy,
}

/// An accepted enqueue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The job.
    pub id: JobId,
    /// Whether an earlier request with the same key had made it.
    pub duplicate: bool,
    /// Its row as it was committed, if [`NewJob::echo`] asked for it and it is there.
    pub row: Option<Box<Job>>,
}

impl Receipt {
    /// A receipt without the row.
    pub fn new(id: JobId, duplicate: bool) -> Self {
        Self { id, duplicate, row: None }
    }
}

/// Why a job was not enqueued.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EnqueueRefused {
    /// The queue holds as many waiting jobs as it may.
    #[error(
        "queue {queue} is full: it holds {} waiting jobs; try again later, or raise its max_queued",
        limit.get()
    )]
    QueueFull {
        /// Which.
        queue: QueueName,
        /// How many it holds.
        limit: MaxQueued,
    },
    /// Another request was made with the same key.
    #[error(
        "this idempotency key was used by a different request, which made job {existing}; \
         send that request again, or use a new key"
    )]
    IdempotencyConflict {
        /// The job of that request.
        existing: JobId,
    },
    /// Scheduled too far ahead.
    #[error("run_at {given} lies more than ten years ahead; the latest allowed now is {latest}")]
    TooFarAhead {
        /// When it should run.
        given: Wall,
        /// The latest it may.
        latest: Wall,
    },
    /// There are as many queues as there may be.
    #[error("there are {QUEUES} queues already; use one of them")]
    TooManyQueues,
    /// The queue has as many kinds as it may.
    #[error(
        "queue {queue} holds jobs of {KINDS_PER_QUEUE} kinds already; \
         use one of them, or another queue"
    )]
    TooManyKinds {
        /// Which.
        queue: QueueName,
    },
}

impl NewJob {
    /// A job for the default queue, to run at once, with every option left to its default.
    pub fn new(kind: Kind, payload: Payload) -> Self {
        Self {
            queue: QueueName::default(),
            kind,
            payload,
            priority: Priority::DEFAULT,
            when: When::Now,
            max_retries: None,
            timeout: None,
            visibility_timeout: None,
            retry: None,
            idempotency: None,
            echo: false,
        }
    }

    /// The options after defaults are filled in.
    pub fn terms(&self, queue: &QueueSettings, policy: &Policy) -> Terms {
        let visibility_timeout = self.visibility_timeout.or(queue.visibility_timeout);
        Terms {
            max_retries: self.max_retries.or(queue.max_retries).unwrap_or(policy.max_retries),
            timeout: self.timeout.or(queue.timeout).or(policy.timeout),
            visibility_timeout: visibility_timeout.unwrap_or(policy.visibility_timeout),
            retry: self.retry.or(queue.retry).unwrap_or(policy.retry),
        }
    }

    /// The fingerprint of the whole request, if it carries an idempotency key: queue, kind,
    /// payload, the delay as given, and every option after defaults are filled in.
    pub fn fingerprint(&self, terms: &Terms) -> Option<Fingerprint> {
        let payload = self.idempotency.as_ref()?.payload.0.to_le_bytes();
        let (when, instant) = match self.when {
            When::Now => (0, 0),
            When::After(delay) => (1, delay.get()),
            When::At(at) => (2, at.get().cast_unsigned()),
        };
        let (strategy, factor) = match terms.retry.strategy() {
            Strategy::Fixed => (0, 0),
            Strategy::Linear => (1, 0),
            Strategy::Exponential { factor } => (2, factor),
        };
        let builder = FingerprintBuilder::new()
            .bytes(self.queue.as_str().as_bytes())
            .bytes(self.kind.as_str().as_bytes())
            .bytes(&payload)
            .number(i64::from(self.priority.get()).cast_unsigned())
            .number(when)
            .number(instant)
            .number(u64::from(terms.max_retries.get()))
            .maybe(terms.timeout.map(JobTimeout::get))
            .number(terms.visibility_timeout.get())
            .number(strategy)
            .number(u64::from(factor))
            .number(terms.retry.initial().get())
            .number(terms.retry.cap().get())
            .number(u64::from(terms.retry.jitter()));
        Some(builder.finish())
    }

    /// The job this becomes when it is stored at `now` under this id.
    pub fn admit(&self, id: JobId, terms: Terms, now: Wall) -> Result<Job, EnqueueRefused> {
        Ok(self.stored(id, terms, self.run_at(now)?, now))
    }

    /// The row of this job.
    pub(crate) fn stored(&self, id: JobId, terms: Terms, run_at: Wall, now: Wall) -> Job {
        Job {
            id,
            queue: self.queue.clone(),
            kind: self.kind.clone(),
            priority: self.priority,
            rank: Rank::new(self.priority, run_at, id),
            state: State::Queued { ready: run_at <= now, spent: None },
            attempts: 0,
            max_retries: terms.max_retries,
            epoch: Epoch::NEVER,
            generation: 0,
            run_at,
            timeout: terms.timeout,
            visibility_timeout: terms.visibility_timeout,
            retry: terms.retry,
            idempotency_key: self.idempotency.as_ref().map(|idem| idem.key.clone()),
            payload_bytes: self.payload.bytes(),
            created_at: now,
            updated_at: now,
            started_at: None,
        }
    }

    /// When it is due if it is stored at `now`.
    pub(crate) fn run_at(&self, now: Wall) -> Result<Wall, EnqueueRefused> {
        let latest = now.plus(MAX_AHEAD);
        match self.when {
            When::Now => Ok(now),
            When::After(delay) => Ok(delay.from(now)),
            When::At(given) if given > latest => Err(EnqueueRefused::TooFarAhead { given, latest }),
            When::At(given) => Ok(given.max(now)),
        }
    }
}
