//! What a handler knows about its attempt, and how it is told to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::Notify;
use windlass_core::machine::{Input, StopReason};
use windlass_core::store::{Heartbeat, LeaseExtended};
use windlass_core::{Epoch, Job, JobId, LeaseLength, LeaseToken, Millis, Mono, Payload, Verdict};

use crate::new_job::millis;
use crate::queue::Queue;
use crate::shared::Shared;
use crate::{InvalidJob, ReportError};

/// What a handler is given beside its payload. Clones are about the same attempt.
///
/// ```
/// use windlass_runtime_tokio::{Context, JobError};
///
/// async fn import(rows: Vec<String>, ctx: Context) -> Result<usize, JobError> {
///     for (at, row) in rows.iter().enumerate() {
///         if ctx.is_stopping() {
///             return Err(JobError::retry("stopped half way")); // given back if we shut down
///         }
///         // `(ctx.id(), ctx.epoch())` fences writes to a database of your own.
///         println!("{}.{}: {row}", ctx.id(), ctx.epoch());
///         ctx.progress(&at)?;
///     }
///     Ok(rows.len())
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Context {
    attempt: Arc<Attempt>,
}

/// One attempt, as this process knows it.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) job: Job,
    pub(crate) payload: Payload,
    pub(crate) shared: Arc<Shared>,
    /// When it is stopped for having run too long.
    deadline: Option<Mono>,
    stop: Stop,
}

/// Whether an attempt was told to stop, and why.
#[derive(Debug, Default)]
struct Stop {
    reason: AtomicU8,
    told: Notify,
}

/// The reasons, in the order of their codes; zero is none.
const REASONS: [StopReason; 4] =
    [StopReason::Cancelled, StopReason::LeaseLost, StopReason::TimedOut, StopReason::Shutdown];

impl Attempt {
    pub(crate) fn new(job: Job, payload: Payload, shared: Arc<Shared>) -> Self {
        // Most have none, and need not look at the clock.
        let deadline = job.timeout.map(|timeout| shared.clock.now().mono.plus(timeout.millis()));
        Self { job, payload, shared, deadline, stop: Stop::default() }
    }

    pub(crate) fn token(&self) -> LeaseToken {
        self.job.token()
    }

    /// Tells it to stop. The first reason counts.
    pub(crate) fn stop(&self, reason: StopReason) {
        let code = REASONS.iter().position(|one| *one == reason).map_or(1, |at| at + 1);
        let code = u8::try_from(code).unwrap_or(1);
        let first = self.stop.reason.compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire);
        if first.is_ok() {
            self.stop.told.notify_waiters();
        }
    }

    pub(crate) fn stop_reason(&self) -> Option<StopReason> {
        let code = usize::from(self.stop.reason.load(Ordering::Acquire));
        REASONS.get(code.checked_sub(1)?).copied()
    }

    /// Ends when it is told to stop.
    pub(crate) async fn stopping(&self) -> StopReason {
        loop {
            let told = self.stop.told.notified();
            if let Some(reason) = self.stop_reason() {
                return reason;
            }
            told.await;
        }
    }

    /// The length of its lease as it was claimed.
    pub(crate) fn lease_length(&self) -> LeaseLength {
        self.job.lease().map_or(self.job.visibility_timeout, |lease| lease.length)
    }

    /// How long its handler has to end once it was told to stop, before it is dropped.
    pub(crate) fn grace(&self, reason: StopReason) -> Millis {
        let grace = self.shared.stop_grace;
        match reason {
            StopReason::LeaseLost => grace.min(self.lease_length().time_to_end()),
            // The machine waits for as long as it was told, and leaves what has not ended.
            StopReason::Shutdown => grace.min(self.shared.force_grace.part(2)),
            StopReason::Cancelled | StopReason::TimedOut => grace,
        }
    }
}

impl Context {
    pub(crate) fn new(attempt: Arc<Attempt>) -> Self {
        Self { attempt }
    }

    /// The job.
    pub fn id(&self) -> JobId {
        self.attempt.job.id
    }

    /// The fencing token of this attempt: greater than that of every earlier attempt of this job.
    /// A sink of your own that remembers the greatest epoch it has seen for a job can refuse
    /// writes of an attempt that has been overtaken.
    pub fn epoch(&self) -> Epoch {
        self.attempt.job.epoch
    }

    /// Which attempt this is, counted from one.
    pub fn attempt(&self) -> u32 {
        self.attempt.job.attempts
    }

    /// The job as it was claimed.
    pub fn job(&self) -> &Job {
        &self.attempt.job
    }

    /// The payload as it was enqueued.
    pub fn payload(&self) -> &Payload {
        &self.attempt.payload
    }

    /// How long this attempt may still run; `None` if it may run as long as it likes.
    pub fn time_left(&self) -> Option<Duration> {
        let now = self.attempt.shared.clock.now().mono;
        self.attempt.deadline.map(|at| Duration::from_millis(at.since(now).get()))
    }

    /// Why this attempt is to stop, if it is.
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.attempt.stop_reason()
    }

    /// Whether this attempt is to stop: its job was cancelled, ran too long or lost its lease, or
    /// the runtime shuts down. A handler that does not return soon is dropped where it awaits; one
    /// that blocks its thread cannot be.
    pub fn is_stopping(&self) -> bool {
        self.stop_reason().is_some()
    }

    /// How long a handler that is told to stop for this reason has to return, from when it is
    /// told, before it is dropped where it awaits.
    pub fn stop_grace(&self, reason: StopReason) -> Duration {
        Duration::from_millis(self.attempt.grace(reason).get())
    }

    /// Ends when this attempt is to stop, and says why.
    pub async fn stopping(&self) -> StopReason {
        self.attempt.stopping().await
    }

    /// Notes how far this attempt is, for those who look at the job. It returns at once; if notes
    /// come faster than they can be written, some are left out.
    pub fn progress<T: Serialize + ?Sized>(&self, progress: &T) -> Result<(), InvalidJob> {
        let json = serde_json::to_string(progress);
        let json = json.map_err(|error| InvalidJob::Json(error.to_string()))?;
        let progress = Payload::new(&json)?;
        self.attempt.shared.input(Input::Progress { token: self.attempt.token(), progress });
        Ok(())
    }

    /// Extends the lease now, and proves that it is still ours: the last check before something
    /// that cannot be undone. Leases are extended without this, too, for as long as a handler
    /// runs.
    pub async fn heartbeat(&self) -> Result<LeaseExtended, ReportError> {
        self.beat(None).await
    }

    /// The same, and sets the length of the lease from now on.
    pub async fn heartbeat_for(&self, length: Duration) -> Result<LeaseExtended, ReportError> {
        let length = LeaseLength::new(millis(length));
        self.beat(Some(length.unwrap_or(LeaseLength::MAX))).await
    }

    async fn beat(&self, extend: Option<LeaseLength>) -> Result<LeaseExtended, ReportError> {
        let beat = Heartbeat { token: self.attempt.token(), extend, progress: None };
        self.queue().heartbeat(beat).await
    }

    /// The queue this job came from: to enqueue what follows from it.
    pub fn queue(&self) -> Queue {
        Queue::of(&self.attempt.shared)
    }
}

/// An attempt that must be reported, whatever becomes of whoever runs it.
#[derive(Debug)]
pub(crate) struct RunningJob {
    attempt: Arc<Attempt>,
    open: bool,
}

impl RunningJob {
    pub(crate) fn new(attempt: Arc<Attempt>) -> Self {
        Self { attempt, open: true }
    }

    pub(crate) fn attempt(&self) -> &Arc<Attempt> {
        &self.attempt
    }

    /// Reports a verdict, or that the attempt was stopped without one.
    pub(crate) fn report(mut self, verdict: Option<Verdict>) {
        self.open = false;
        let token = self.attempt.token();
        self.attempt.shared.input(match verdict {
            Some(verdict) => Input::Report { token, verdict },
            None => Input::Stopped { token },
        });
    }
}

impl Drop for RunningJob {
    fn drop(&mut self) {
        if self.open {
            self.attempt.shared.input(Input::Stopped { token: self.attempt.token() });
        }
    }
}
