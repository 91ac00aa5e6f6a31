//! One attempt at a job: what its handler can see of it, the stop signal, and the report of its
//! end, which is sent exactly once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
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

/// The second argument of a handler: its job, the stop signal, progress and heartbeats. Clones
/// refer to the same attempt.
///
/// ```
/// use windlass_runtime_tokio::{BoxError, Context};
///
/// async fn import(rows: Vec<String>, ctx: Context) -> Result<usize, BoxError> {
///     for (at, row) in rows.iter().enumerate() {
///         if ctx.is_stopping() {
///             return Err("stopped half way".into()); // not charged on shutdown
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

/// One attempt that runs in this process.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) job: Job,
    pub(crate) payload: Payload,
    pub(crate) shared: Arc<Shared>,
    /// When the attempt times out; `None` if the job has no timeout.
    deadline: Option<Mono>,
    /// When it is stopped unless its lease is extended, in milliseconds.
    stop_at: AtomicU64,
    stop: Stop,
}

/// The stop signal of an attempt.
#[derive(Debug, Default)]
struct Stop {
    /// One more than the index into [`REASONS`]; zero before the signal.
    reason: AtomicU8,
    requested: Notify,
}

const REASONS: [StopReason; 4] =
    [StopReason::Cancelled, StopReason::LeaseLost, StopReason::TimedOut, StopReason::Shutdown];

impl Attempt {
    pub(crate) fn new(job: Job, payload: Payload, stop_at: Mono, shared: Arc<Shared>) -> Self {
        let deadline = job.timeout.map(|timeout| shared.clock.now().mono.plus(timeout.millis()));
        let stop_at = AtomicU64::new(stop_at.get());
        Self { job, payload, shared, deadline, stop_at, stop: Stop::default() }
    }

    /// Its lease was extended: it need not stop before this.
    pub(crate) fn extended(&self, stop_at: Mono) {
        self.stop_at.fetch_max(stop_at.get(), Ordering::AcqRel);
    }

    /// When it must stop by itself, as far as is known now.
    pub(crate) fn must_stop_at(&self) -> Mono {
        let lease = Mono::new(self.stop_at.load(Ordering::Acquire));
        self.deadline.map_or(lease, |deadline| deadline.min(lease))
    }

    /// Tells it to stop if it must by now; says when it must, otherwise.
    pub(crate) fn check(&self, now: Mono) -> Option<Mono> {
        let stop_at = self.must_stop_at();
        if self.stop_reason().is_some() || stop_at > now {
            return Some(stop_at).filter(|_| self.stop_reason().is_none());
        }
        let timed_out = self.deadline.is_some_and(|deadline| deadline <= now);
        self.stop(if timed_out { StopReason::TimedOut } else { StopReason::LeaseLost });
        None
    }

    pub(crate) fn token(&self) -> LeaseToken {
        self.job.token()
    }

    /// Signals the handler to stop. Only the first reason is kept.
    pub(crate) fn stop(&self, reason: StopReason) {
        let code = REASONS.iter().position(|one| *one == reason).map_or(1, |at| at + 1);
        let code = u8::try_from(code).unwrap_or(1);
        let first = self.stop.reason.compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire);
        if first.is_ok() {
            self.stop.requested.notify_waiters();
        }
    }

    pub(crate) fn stop_reason(&self) -> Option<StopReason> {
        let code = usize::from(self.stop.reason.load(Ordering::Acquire));
        REASONS.get(code.checked_sub(1)?).copied()
    }

    /// Waits for the stop signal.
    pub(crate) async fn stopping(&self) -> StopReason {
        loop {
            let requested = self.stop.requested.notified();
            if let Some(reason) = self.stop_reason() {
                return reason;
            }
            requested.await;
        }
    }

    /// The length of the lease at the time of the claim.
    pub(crate) fn lease_length(&self) -> LeaseLength {
        self.job.lease().map_or(self.job.visibility_timeout, |lease| lease.length)
    }

    /// How long the handler may take to return after the stop signal, before it is dropped.
    pub(crate) fn grace(&self, reason: StopReason) -> Millis {
        let grace = self.shared.stop_grace;
        match reason {
            StopReason::LeaseLost => grace.min(self.lease_length().time_to_end()),
            // It is dropped at the deadline of the shutdown. The machine waits a moment longer, for
            // what is recorded then, and for what was asked to stop only at the deadline.
            StopReason::Shutdown => {
                let now = self.shared.clock.now().mono;
                let deadline = self.shared.drain.borrow().unwrap_or(now);
                grace.min(deadline.since(now).max(self.shared.force_grace.part(2)))
            }
            StopReason::Cancelled | StopReason::TimedOut => grace,
        }
    }
}

impl Context {
    pub(crate) fn new(attempt: Arc<Attempt>) -> Self {
        Self { attempt }
    }

    /// The id of the job.
    pub fn id(&self) -> JobId {
        self.attempt.job.id
    }

    /// The fencing token of this attempt: greater than that of every earlier attempt at this job.
    /// A database that stores the greatest epoch seen per job can refuse the writes of an attempt
    /// whose lease was lost.
    pub fn epoch(&self) -> Epoch {
        self.attempt.job.epoch
    }

    /// The number of this attempt, from one. It starts again at one after a replay.
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

    /// Time left before this attempt times out; `None` if the job has no timeout.
    pub fn time_left(&self) -> Option<Duration> {
        let now = self.attempt.shared.clock.now().mono;
        self.attempt.deadline.map(|at| Duration::from_millis(at.since(now).get()))
    }

    /// The reason of the stop signal; `None` before it.
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.attempt.stop_reason()
    }

    /// Whether the handler should stop: the job was cancelled, timed out or lost its lease, or the
    /// runtime shuts down. An async handler that does not return within
    /// [`stop_grace`](Context::stop_grace) is dropped at its next `await`; a blocking one cannot
    /// be.
    pub fn is_stopping(&self) -> bool {
        self.stop_reason().is_some()
    }

    /// Whether the runtime shuts down. Nothing is asked of this attempt yet: it may end by itself,
    /// and is asked to stop one [grace](crate::Builder::stop_grace) before the deadline.
    pub fn is_draining(&self) -> bool {
        self.attempt.shared.drain.borrow().is_some()
    }

    /// Ends when the runtime begins to shut down.
    pub async fn draining(&self) {
        let mut drain = self.attempt.shared.drain.subscribe();
        // The sender lives in the same place as the attempt: it is not dropped before.
        let _ = drain.wait_for(Option::is_some).await;
    }

    /// How long a handler may take to return after a stop signal with this reason, before it is
    /// dropped.
    pub fn stop_grace(&self, reason: StopReason) -> Duration {
        Duration::from_millis(self.attempt.grace(reason).get())
    }

    /// Waits for the stop signal, and returns its reason.
    pub async fn stopping(&self) -> StopReason {
        self.attempt.stopping().await
    }

    /// Stores the progress of this attempt, shown with the job. It returns at once. Values that
    /// come faster than they can be written are dropped.
    pub fn progress<T: Serialize + ?Sized>(&self, progress: &T) -> Result<(), InvalidJob> {
        let json = serde_json::to_string(progress);
        let json = json.map_err(|error| InvalidJob::Json(error.to_string()))?;
        let progress = Payload::new(&json)?;
        self.attempt.shared.input(Input::Progress { token: self.attempt.token(), progress });
        Ok(())
    }

    /// Extends the lease now, and fails if it was lost: a check before a step that cannot be
    /// undone. The runtime extends the leases of running handlers by itself as well.
    pub async fn heartbeat(&self) -> Result<LeaseExtended, ReportError> {
        self.send_heartbeat(None).await
    }

    /// Like [`heartbeat`](Context::heartbeat), and sets the length of the lease from now on.
    pub async fn heartbeat_for(&self, length: Duration) -> Result<LeaseExtended, ReportError> {
        let length = LeaseLength::new(millis(length));
        self.send_heartbeat(Some(length.unwrap_or(LeaseLength::MAX))).await
    }

    async fn send_heartbeat(
        &self,
        extend: Option<LeaseLength>,
    ) -> Result<LeaseExtended, ReportError> {
        let heartbeat = Heartbeat { token: self.attempt.token(), extend, progress: None };
        self.queue().heartbeat(heartbeat).await
    }

    /// A handle of the runtime, for example to enqueue further jobs.
    pub fn queue(&self) -> Queue {
        Queue::of(&self.attempt.shared)
    }
}

/// An attempt whose end is reported exactly once: by `report`, or as stopped when it is dropped.
#[derive(Debug)]
pub(crate) struct RunningJob {
    attempt: Arc<Attempt>,
    begun: bool,
    reported: bool,
}

impl RunningJob {
    pub(crate) fn new(attempt: Arc<Attempt>) -> Self {
        Self { attempt, begun: false, reported: false }
    }

    /// Its handler is called next.
    pub(crate) fn begin(&mut self) {
        self.begun = true;
    }

    pub(crate) fn attempt(&self) -> &Arc<Attempt> {
        &self.attempt
    }

    /// Reports a verdict; `None` if the attempt was stopped without one.
    pub(crate) fn report(mut self, verdict: Option<Verdict>) {
        self.reported = true;
        self.send(verdict);
    }

    fn send(&self, verdict: Option<Verdict>) {
        let token = self.attempt.token();
        // The reason of the stop decides whether the attempt is charged. One that never began has
        // none.
        let reason = self.attempt.stop_reason().filter(|_| self.begun);
        self.attempt.shared.input(match verdict {
            Some(verdict) => Input::Report { token, verdict },
            None => Input::Stopped { token, reason },
        });
    }
}

impl Drop for RunningJob {
    fn drop(&mut self) {
        if !self.reported {
            self.send(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use tokio::runtime::Builder;
    use windlass_core::StateName;
    use windlass_store_memory::MemoryStore;

    use super::*;
    use crate::sync::lock;
    use crate::{ManualClock, NewJob, Runtime};

    /// The timer of leases may stop an attempt just before it learns of a longer lease. The end of
    /// the tokio runtime then drops a handler that the machine takes to run.
    #[test]
    fn an_attempt_that_lost_its_lease_is_charged_if_the_tokio_runtime_is_dropped() {
        let (store, clock) = (MemoryStore::new(), ManualClock::new());
        let image = store.another();
        let outside = Builder::new_current_thread().enable_all().build().unwrap();
        let inside = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (send, mut received) = tokio::sync::mpsc::unbounded_channel();
        let queue = {
            let _entered = inside.enter();
            let handler = move |(): (), ctx: Context| {
                let send = send.clone();
                async move {
                    send.send(None).unwrap();
                    send.send(Some(ctx.stopping().await)).unwrap();
                    std::future::pending::<()>().await;
                }
            };
            let builder = Runtime::builder(store).clock(clock.clone());
            builder.handler("work", handler).start().unwrap()
        };
        let work = NewJob::of("work", &()).unwrap().max_retries(0);
        let id = outside.block_on(queue.enqueue(work)).unwrap().id;
        assert_eq!(received.blocking_recv(), Some(None));
        let attempt = lock(&queue.shared().attempts).values().find_map(Weak::upgrade).unwrap();
        attempt.stop(StopReason::LeaseLost);
        assert_eq!(received.blocking_recv(), Some(Some(StopReason::LeaseLost)));
        drop((inside, attempt, queue));
        outside.block_on(async {
            let builder = Runtime::builder(image).clock(clock.clone());
            let again = builder.handler("work", |(): (), _: Context| async {}).start().unwrap();
            let detail = again.wait(id).await.unwrap();
            assert_eq!(detail.job.state.name(), StateName::Failed, "its one attempt is used up");
            let error = detail.last_error.unwrap();
            assert!(error.as_str().contains("could not be extended"), "{error:?}");
        });
    }
}
