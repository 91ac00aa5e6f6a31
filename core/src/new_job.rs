//! A job to enqueue, its defaults, and the row it becomes.

use alloc::boxed::Box;

use thiserror::Error;

use crate::limits::{ERROR_GROUPS, KINDS_PER_QUEUE, MAX_AHEAD, QUEUES};
use crate::store::TooManyQueues;
use crate::{
    Delay, Epoch, Fingerprint, FingerprintBuilder, Idempotency, Job, JobId, JobTimeout, Kind,
    LeaseLength, MaxQueued, MaxRetries, Millis, Payload, Priority, QueueName, QueueSettings, Rank,
    RetryPolicy, State, Strategy, Wall,
};

/// A job to enqueue. Options that are not set come from the queue's settings, then the [`Policy`].
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
    /// `default` if the client sets none.
    pub queue: QueueName,
    /// Selects the handler.
    pub kind: Kind,
    /// The input of the handler.
    pub payload: Payload,
    /// Higher priorities are claimed first.
    pub priority: Priority,
    /// The earliest time to run it.
    pub when: When,
    /// Attempts allowed after the first failed one.
    pub max_retries: Option<MaxRetries>,
    /// Maximum duration of one attempt.
    pub timeout: Option<JobTimeout>,
    /// The length of a lease without heartbeats.
    pub visibility_timeout: Option<LeaseLength>,
    /// The time between attempts.
    pub retry: Option<RetryPolicy>,
    /// Makes the enqueue idempotent.
    pub idempotency: Option<Idempotency>,
    /// Return the row in the [`Receipt`]. Costs a copy; not stored.
    pub echo: bool,
}

/// When a job is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// At once.
    Now,
    /// This long after the enqueue.
    After(Delay),
    /// At this instant; at once if it has passed.
    At(Wall),
}

/// Defaults for jobs that do not set an option, in queues that do not set it either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Attempts allowed after the first failed one.
    pub max_retries: MaxRetries,
    /// Maximum duration of one attempt; `None` for no limit.
    pub timeout: Option<JobTimeout>,
    /// The length of a lease without heartbeats.
    pub visibility_timeout: LeaseLength,
    /// The time between attempts.
    pub retry: RetryPolicy,
    /// How long an idempotency key is in use, from the creation of its job.
    pub idempotency_window: Millis,
    /// Maximum number of queues of the store. The queue `default` is made in any case.
    pub max_queues: usize,
    /// Maximum number of error groups of the store.
    pub max_error_groups: usize,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_retries: MaxRetries::DEFAULT,
            timeout: None,
            visibility_timeout: LeaseLength::DEFAULT,
            retry: RetryPolicy::default(),
            idempotency_window: Millis::hours(24),
            max_queues: QUEUES,
            max_error_groups: ERROR_GROUPS,
        }
    }
}

/// The options of a job after defaults are filled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Attempts allowed after the first failed one.
    pub max_retries: MaxRetries,
    /// Maximum duration of one attempt; `None` for no limit.
    pub timeout: Option<JobTimeout>,
    /// The length of a lease without heartbeats.
    pub visibility_timeout: LeaseLength,
    /// The time between attempts.
    pub retry: RetryPolicy,
}

/// An accepted enqueue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The id of the job.
    pub id: JobId,
    /// Whether an earlier request with the same key enqueued it.
    pub duplicate: bool,
    /// The stored row; only with [`NewJob::echo`], and if the job still exists.
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
    /// The queue is at its limit of waiting jobs.
    #[error(
        "queue {queue} is full: it holds {} waiting jobs; try again later, or raise its max_queued",
        limit.get()
    )]
    QueueFull {
        /// The full queue.
        queue: QueueName,
        /// Its `max_queued`.
        limit: MaxQueued,
    },
    /// A different request was made with the same key.
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
        /// The requested `run_at`.
        given: Wall,
        /// The latest allowed one.
        latest: Wall,
    },
    /// The store is at its limit of queues.
    #[error(transparent)]
    TooManyQueues(#[from] TooManyQueues),
    /// The queue is at its limit of kinds.
    #[error(
        "queue {queue} holds jobs of {KINDS_PER_QUEUE} kinds already; \
         use one of them, or another queue"
    )]
    TooManyKinds {
        /// The queue that was named.
        queue: QueueName,
    },
}

impl NewJob {
    /// A job for the default queue, due at once, with no option set.
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
            state: State::Queued { ready: run_at <= now, last_verdict: None },
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
