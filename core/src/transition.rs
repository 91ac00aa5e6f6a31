//! The one place where a job's state changes: a total function of job, event and time.
//!
//! Every pair of state and event has an answer; `docs/STATE_MACHINE.md` shows them all, generated
//! from here. A refusal names its reason. Nothing here knows of stores, batches or queues.

use alloc::boxed::Box;
use core::fmt;

use crate::limits::{CLOCK_STEP, ERROR_BYTES};
use crate::{
    Delay, Epoch, ErrorGroup, ErrorText, Excerpt, Gate, Job, LastVerdict, Lease, LeaseLength,
    Millis, Payload, Rank, Rejected, StaleReason, State, StateName, Wall, WorkerId, attempt,
};

/// What can happen to a job.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// A scheduled job's `run_at` is reached.
    FallDue,
    /// A worker takes it.
    Claim(&'a Claim),
    /// The holder of a lease gives its verdict.
    Settle {
        /// The epoch of the holder's token.
        epoch: Epoch,
        /// As reported by the holder.
        verdict: &'a Verdict,
    },
    /// The holder of a lease extends it.
    Heartbeat {
        /// The epoch of the holder's token.
        epoch: Epoch,
        /// A new length for the lease, from now on.
        extend: Option<LeaseLength>,
        /// How long its holder may keep the lease beyond the timeout of the attempt, to stop it.
        stop_grace: Millis,
        /// The instant from which the wall clock is trusted, if it was stepped: an attempt that
        /// began before it counts its full timeout again from there.
        trusted_since: Option<Wall>,
    },
    /// Its lease may have run out. One written later than now, by a clock that was set back since,
    /// counts its length from now on.
    Expire {
        /// The instant from which the wall clock is trusted, if it was stepped: a lease given
        /// before it counts its full length again from there.
        trusted_since: Option<Wall>,
        /// Whether its holder is known to be dead: then its lease ends now.
        dead: bool,
    },
    /// An operator cancels it.
    Cancel,
    /// An operator runs a failed or cancelled job again.
    Replay,
}

impl Event<'_> {
    /// The name used in messages.
    pub fn name(&self) -> EventName {
        match self {
            Self::FallDue => EventName::FallDue,
            Self::Claim(_) => EventName::Claim,
            Self::Settle { verdict, .. } => verdict.name(),
            Self::Heartbeat { .. } => EventName::Heartbeat,
            Self::Expire { .. } => EventName::Expire,
            Self::Cancel => EventName::Cancel,
            Self::Replay => EventName::Replay,
        }
    }
}

/// A worker taking a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The worker that gets the lease.
    pub worker: WorkerId,
    /// Length of the lease; `None` for the job's own visibility timeout.
    pub length: Option<LeaseLength>,
    /// How long its holder may keep the lease beyond the timeout of the attempt, to stop it: zero
    /// for a holder that does not stop itself.
    pub stop_grace: Millis,
    /// Whether the job's queue lets jobs of its kind start.
    pub gate: Gate,
}

/// What the holder of a lease reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The attempt completed.
    Complete {
        /// The result of the job, if it returned one.
        result: Option<Payload>,
    },
    /// The attempt failed.
    Fail(Box<Failure>),
    /// Postpone the job; the attempt is not charged.
    Snooze {
        /// Time until the job is due again.
        delay: Delay,
    },
    /// Return the job to its queue; the attempt is not charged.
    Release,
}

impl Verdict {
    fn name(&self) -> EventName {
        match self {
            Self::Complete { .. } => EventName::Complete,
            Self::Fail(_) => EventName::Fail,
            Self::Snooze { .. } => EventName::Snooze,
            Self::Release => EventName::Release,
        }
    }
}

/// A failed attempt, as its worker reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Reported, timed out or panicked.
    pub kind: FailureKind,
    /// The error message, for people.
    pub error: Excerpt,
    /// Whether another attempt may help.
    pub retryable: bool,
    /// When to try again, where the other side has said so; else the retry policy decides.
    pub retry_in: Option<Delay>,
    /// The exit code of a command.
    pub exit_code: Option<i32>,
    /// The end of its standard output.
    pub stdout: Option<Excerpt>,
    /// The end of its standard error.
    pub stderr: Option<Excerpt>,
}

impl Failure {
    /// A failure that may be retried.
    ///
    /// ```
    /// use windlass_core::Failure;
    /// let failure = Failure::new("connection refused").permanent();
    /// assert!(!failure.retryable);
    /// ```
    pub fn new(error: &str) -> Self {
        Self {
            kind: FailureKind::Failed,
            error: Excerpt::head(error, ERROR_BYTES),
            retryable: true,
            retry_in: None,
            exit_code: None,
            stdout: None,
            stderr: None,
        }
    }

    /// The same without a retry.
    #[must_use]
    pub fn permanent(mut self) -> Self {
        self.retryable = false;
        self
    }

    /// The same, in this way.
    #[must_use]
    pub fn of_kind(mut self, kind: FailureKind) -> Self {
        self.kind = kind;
        self
    }
}

/// In what way an attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// The worker reported an error.
    Failed,
    /// It ran longer than its timeout.
    TimedOut,
    /// The handler panicked.
    Panicked,
}

/// Events by name, as in the table of `docs/STATE_MACHINE.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventName {
    /// [`Event::FallDue`]
    FallDue,
    /// [`Event::Claim`]
    Claim,
    /// [`Verdict::Complete`]
    Complete,
    /// [`Verdict::Fail`]
    Fail,
    /// [`Verdict::Snooze`]
    Snooze,
    /// [`Verdict::Release`]
    Release,
    /// [`Event::Heartbeat`]
    Heartbeat,
    /// [`Event::Expire`]
    Expire,
    /// [`Event::Cancel`]
    Cancel,
    /// [`Event::Replay`]
    Replay,
    /// The removal of a finished job; no transition, but refused by the same reason.
    Delete,
}

impl EventName {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FallDue => "fall due",
            Self::Claim => "claim",
            Self::Complete => "complete",
            Self::Fail => "fail",
            Self::Snooze => "snooze",
            Self::Release => "release",
            Self::Heartbeat => "heartbeat",
            Self::Expire => "expire",
            Self::Cancel => "cancel",
            Self::Replay => "retry",
            Self::Delete => "delete",
        }
    }
}

impl fmt::Display for EventName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What an accepted event did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "it lives on the stack between two lines")]
pub enum Step {
    /// The job as it is now.
    Moved(Job),
    /// Nothing: the event repeats what has already happened. This is the answer given then.
    Repeated(StateName),
}

/// What `event` makes of `job` at `now`.
///
/// ```
/// use windlass_core::{Event, Rejected, Step, StateName, transition};
/// # use windlass_core::{JobId, NewJob, Policy, Wall, QueueSettings, Kind, Payload};
/// # let new = NewJob::new(Kind::default(), Payload::null());
/// # let now = Wall::new(0);
/// # let terms = new.terms(&QueueSettings::default(), &Policy::default());
/// # let job = new.admit(JobId::FIRST, terms, now).unwrap();
/// let Ok(Step::Moved(cancelled)) = transition(&job, Event::Cancel, now) else { panic!() };
/// assert_eq!(cancelled.state.name(), StateName::Cancelled);
/// let refused = transition(&job, Event::Replay, now);
/// assert!(matches!(refused, Err(Rejected::Illegal { .. })));
/// ```
pub fn transition(job: &Job, event: Event<'_>, now: Wall) -> Result<Step, Rejected> {
    match event {
        Event::FallDue => fall_due(job, now),
        Event::Claim(claim) => self::claim(job, claim, now),
        Event::Settle { epoch, verdict } => settle(job, epoch, verdict, now),
        Event::Heartbeat { epoch, extend, stop_grace, trusted_since } => {
            let end = attempt_end(job, trusted_since, now).map(|end| end.plus(stop_grace));
            heartbeat(job, epoch, extend, end, now)
        }
        Event::Expire { trusted_since, dead } => expire(job, trusted_since, dead, now),
        Event::Cancel => cancel(job, now),
        Event::Replay => replay(job, now),
    }
}

fn fall_due(job: &Job, now: Wall) -> Result<Step, Rejected> {
    match job.state {
        State::Queued { ready: false, last_verdict } if job.run_at <= now => {
            Ok(moved(job, now, State::Queued { ready: true, last_verdict }))
        }
        State::Queued { ready: false, .. } => Err(Rejected::NotDue { run_at: job.run_at }),
        State::Queued { ready: true, .. } => Ok(Step::Repeated(StateName::Queued)),
        _ => illegal(job, EventName::FallDue),
    }
}

fn claim(job: &Job, claim: &Claim, now: Wall) -> Result<Step, Rejected> {
    let State::Queued { ready, .. } = job.state else {
        return illegal(job, EventName::Claim);
    };
    // A ready job fell due once; a wall clock set back since then does not take that away.
    if !ready && job.run_at > now {
        return Err(Rejected::NotDue { run_at: job.run_at });
    }
    if !job.has_attempts_left() {
        return Err(Rejected::AttemptsUsedUp { attempts: job.attempts });
    }
    match claim.gate {
        Gate::Open => {}
        Gate::Paused => return Err(Rejected::QueuePaused),
        Gate::Full => return Err(Rejected::ConcurrencyFull),
        Gate::KindFull => return Err(Rejected::KindFull),
        Gate::RateLimited { until } => return Err(Rejected::RateLimited { until }),
    }
    let length = claim.length.unwrap_or(job.visibility_timeout);
    let latest = job.timeout.map(|timeout| now.plus(timeout.millis()).plus(claim.stop_grace));
    let until = now.plus(length.millis());
    let until = latest.map_or(until, |latest| until.min(latest));
    let lease = Lease { worker: claim.worker.clone(), until, length };
    let mut next = with(job, now, State::Processing(lease));
    next.attempts = job.attempts.saturating_add(1);
    next.epoch = job.epoch.next();
    next.started_at = Some(now);
    Ok(Step::Moved(next))
}

fn settle(job: &Job, epoch: Epoch, verdict: &Verdict, now: Wall) -> Result<Step, Rejected> {
    if epoch != job.epoch {
        return stale(job, epoch);
    }
    if job.lease().is_none() {
        let repeated = job.state.last_verdict().and_then(|last| last.repeated(verdict));
        return repeated.map_or_else(|| stale(job, epoch), |answer| Ok(Step::Repeated(answer)));
    }
    match verdict {
        Verdict::Complete { .. } => Ok(moved(job, now, State::Done { finished_at: now })),
        Verdict::Fail(failure) => Ok(Step::Moved(fail(job, failure, now))),
        Verdict::Snooze { delay } => {
            Ok(Step::Moved(give_back(job, now, delay.from(now), LastVerdict::Snoozed)))
        }
        // It keeps its place: an attempt that our own shutdown cut short goes first again.
        Verdict::Release => {
            Ok(Step::Moved(give_back(job, now, job.run_at.min(now), LastVerdict::Released)))
        }
    }
}

fn fail(job: &Job, failure: &Failure, now: Wall) -> Job {
    let dead = |last_verdict| {
        let group = ErrorGroup::of(&job.kind, &ErrorText::of_failure(failure)).id;
        State::Failed { finished_at: now, last_verdict: Some(last_verdict), group }
    };
    if !failure.retryable {
        return with(job, now, dead(LastVerdict::Permanent));
    }
    if !job.has_attempts_left() {
        return with(job, now, dead(LastVerdict::Exhausted));
    }
    let asked = failure.retry_in.map(Delay::millis);
    let wait = asked.unwrap_or_else(|| job.retry.backoff(job.attempts, job.token()));
    requeue(job, now, now.plus(wait), Some(LastVerdict::Retried))
}

fn give_back(job: &Job, now: Wall, run_at: Wall, last_verdict: LastVerdict) -> Job {
    let mut next = requeue(job, now, run_at, Some(last_verdict));
    next.attempts = job.attempts.saturating_sub(1);
    next
}

fn requeue(job: &Job, now: Wall, run_at: Wall, last_verdict: Option<LastVerdict>) -> Job {
    let mut next = with(job, now, State::Queued { ready: run_at <= now, last_verdict });
    next.run_at = run_at;
    next.rank = Rank::new(job.priority, run_at, job.id);
    next
}

fn heartbeat(
    job: &Job,
    epoch: Epoch,
    extend: Option<LeaseLength>,
    end: Option<Wall>,
    now: Wall,
) -> Result<Step, Rejected> {
    match &job.state {
        State::Processing(lease) if epoch == job.epoch => {
            if end.is_some_and(|end| end <= now) {
                let (state, epoch) = (StateName::Processing, job.epoch);
                return Err(Rejected::Stale { reason: StaleReason::TimedOut, state, epoch });
            }
            let length = extend.unwrap_or(lease.length);
            let until = now.plus(length.millis());
            let until = end.map_or(until, |end| until.min(end));
            // A heartbeat that was written late takes nothing of what another has promised; but an
            // end that a clock wrote which was set back since means nothing.
            let until = if is_of_the_future(job, now) { until } else { until.max(lease.until) };
            let lease = Lease { until, length, worker: lease.worker.clone() };
            Ok(moved(job, now, State::Processing(lease)))
        }
        _ => stale(job, epoch),
    }
}

/// When the present attempt has run for its timeout. One that began before the wall clock was
/// stepped, or later than now by a clock that was set back since, has its whole timeout from then.
fn attempt_end(job: &Job, trusted_since: Option<Wall>, now: Wall) -> Option<Wall> {
    let began = job.started_at?;
    let began = trusted_since.map_or(began, |since| began.max(since)).min(now);
    job.timeout.map(|timeout| began.plus(timeout.millis()))
}

/// Whether the row was written by a clock that was set back since. A row may be written a moment
/// late by a clock a moment ahead: that is no step.
fn is_of_the_future(job: &Job, now: Wall) -> bool {
    job.updated_at.since(now) > CLOCK_STEP
}

fn expire(job: &Job, trusted_since: Option<Wall>, dead: bool, now: Wall) -> Result<Step, Rejected> {
    let State::Processing(lease) = &job.state else {
        return illegal(job, EventName::Expire);
    };
    if !dead && is_of_the_future(job, now) {
        let until = now.plus(lease.length.millis());
        let lease = Lease { until, length: lease.length, worker: lease.worker.clone() };
        return Ok(moved(job, now, State::Processing(lease)));
    }
    let held = trusted_since.map(|since| since.plus(lease.length.millis()));
    let until = held.map_or(lease.until, |held| held.max(lease.until));
    if !dead && until > now {
        return Err(Rejected::NotExpired { until });
    }
    // An attempt that has had its time has failed, whichever worker runs it, and waits like any
    // that fails.
    let timed_out = attempt_end(job, trusted_since, now).is_some_and(|end| end <= now);
    let last_verdict = timed_out.then_some(LastVerdict::TimedOut);
    if job.has_attempts_left() {
        let wait =
            if timed_out { job.retry.backoff(job.attempts, job.token()) } else { Millis::ZERO };
        return Ok(Step::Moved(requeue(job, now, now.plus(wait), last_verdict)));
    }
    let (_, text) = attempt::lost(job, timed_out, dead);
    let group = ErrorGroup::of(&job.kind, &ErrorText::of_message(&text)).id;
    Ok(moved(job, now, State::Failed { finished_at: now, last_verdict, group }))
}

fn cancel(job: &Job, now: Wall) -> Result<Step, Rejected> {
    match job.state {
        State::Queued { .. } | State::Processing(_) => {
            let last_verdict = job.state.last_verdict();
            Ok(moved(job, now, State::Cancelled { finished_at: now, last_verdict }))
        }
        State::Cancelled { .. } => Ok(Step::Repeated(StateName::Cancelled)),
        State::Done { .. } | State::Failed { .. } => illegal(job, EventName::Cancel),
    }
}

fn replay(job: &Job, now: Wall) -> Result<Step, Rejected> {
    match job.state {
        State::Failed { last_verdict, .. } | State::Cancelled { last_verdict, .. } => {
            let mut next = requeue(job, now, now, last_verdict);
            next.attempts = 0;
            next.generation = job.generation.saturating_add(1);
            Ok(Step::Moved(next))
        }
        _ => illegal(job, EventName::Replay),
    }
}

fn with(job: &Job, now: Wall, state: State) -> Job {
    Job {
        id: job.id,
        queue: job.queue.clone(),
        kind: job.kind.clone(),
        state,
        updated_at: now,
        idempotency_key: job.idempotency_key.clone(),
        ..*job
    }
}

fn moved(job: &Job, now: Wall, state: State) -> Step {
    Step::Moved(with(job, now, state))
}

fn stale(job: &Job, epoch: Epoch) -> Result<Step, Rejected> {
    let reason = StaleReason::of(job, epoch);
    Err(Rejected::Stale { reason, state: job.state.name(), epoch: job.epoch })
}

fn illegal(job: &Job, event: EventName) -> Result<Step, Rejected> {
    Err(Rejected::Illegal { event, state: job.state.name() })
}
