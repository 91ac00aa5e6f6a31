//! The handle of a running queue: what callers do with it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use windlass_core::machine::{Answer, Input, Poll, Refused, Request, Run};
use windlass_core::store::{
    Admin, AdminDone, Cause, Cursor, DeadFilter, Durability, Filter, Heartbeat, JobDetail,
    LeaseExtended, Page, Settle, WorkerRow,
};
use windlass_core::{
    Attempt, Counts, Job, JobId, QueueName, QueueRow, QueueSettings, StateName, Wall, WorkerId,
};

use crate::lifecycle::{AT_ONCE, Report};
use crate::metrics::Metrics;
use crate::shared::{Mail, Shared};
use crate::supervise::Health;
use crate::sync::lock;
use crate::watch::EventStream;
use crate::{CommandError, EnqueueError, NewJob, ReadError, ReportError, Unserved, WaitError};

/// Proof that a job is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The job.
    pub id: JobId,
    /// Whether an earlier request with the same idempotency key had made it.
    pub duplicate: bool,
    /// Its row as it was committed, if [`NewJob::echo`] asked for it.
    pub row: Option<Box<Job>>,
    /// What it survives from now on.
    pub durability: Durability,
}

/// A handle of a running queue. Clones are cheap and are the same queue.
///
/// # How it ends
///
/// * [`shutdown`](Queue::shutdown) admits and starts nothing more, waits for what runs until its
///   deadline, stops the rest and gives it back. A job interrupted that way is not charged an
///   attempt. Called again, or by several at once, everybody waits for the same end and gets the
///   same report; the deadline of the first call counts.
/// * [`stop_now`](Queue::stop_now) does not wait for what runs. Called a second time, it does not
///   wait for handlers to end either.
/// * Dropping the last handle does what `stop_now` does, without waiting for the end. So does
///   dropping the tokio runtime.
/// * If the process is killed, jobs that ran become runnable when their leases run out.
///
/// After the end every call returns an error that says so.
#[derive(Debug)]
pub struct Queue {
    shared: Arc<Shared>,
}

impl Clone for Queue {
    fn clone(&self) -> Self {
        Self::of(&self.shared)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let last = self.shared.handles.fetch_sub(1, Ordering::AcqRel) == 1;
        if last && !self.shared.abandoned.swap(true, Ordering::AcqRel) {
            self.shared.mailbox.abandon(Mail::Input(AT_ONCE));
        }
    }
}

impl Queue {
    pub(crate) fn of(shared: &Arc<Shared>) -> Self {
        shared.handles.fetch_add(1, Ordering::AcqRel);
        Self { shared: Arc::clone(shared) }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    // New jobs.

    /// Enqueues a job, and returns once it is stored. If there is no room it waits for some.
    ///
    /// If the future is dropped before it returns, the job may be stored or not; with an
    /// idempotency key the call can be repeated.
    pub async fn enqueue(&self, job: impl Into<NewJob>) -> Result<Receipt, EnqueueError> {
        self.enqueue_one(job.into(), true).await
    }

    /// The same, but if there is no room it is refused at once: see
    /// [`Unserved::is_overloaded`].
    pub async fn try_enqueue(&self, job: impl Into<NewJob>) -> Result<Receipt, EnqueueError> {
        self.enqueue_one(job.into(), false).await
    }

    /// Enqueues up to 10 000 jobs in one commit. Each has its own answer; the order is the same.
    pub async fn enqueue_many(
        &self,
        jobs: impl IntoIterator<Item = impl Into<NewJob>>,
    ) -> Result<Vec<Result<Receipt, EnqueueError>>, EnqueueError> {
        let jobs: Result<Vec<_>, _> = jobs.into_iter().map(|job| job.into().check()).collect();
        self.enqueue_all(jobs?, true).await
    }

    /// The same, but if there is no room they are refused at once: see
    /// [`Unserved::is_overloaded`].
    pub async fn try_enqueue_many(
        &self,
        jobs: impl IntoIterator<Item = impl Into<NewJob>>,
    ) -> Result<Vec<Result<Receipt, EnqueueError>>, EnqueueError> {
        let jobs: Result<Vec<_>, _> = jobs.into_iter().map(|job| job.into().check()).collect();
        self.enqueue_all(jobs?, false).await
    }

    async fn enqueue_all(
        &self,
        jobs: Vec<windlass_core::NewJob>,
        patient: bool,
    ) -> Result<Vec<Result<Receipt, EnqueueError>>, EnqueueError> {
        match self.shared.ask(Request::EnqueueMany(jobs), patient).await? {
            Answer::EnqueuedMany(results) => Ok(results
                .into_iter()
                .map(|result| result.map(|receipt| self.receipt(receipt)).map_err(Into::into))
                .collect()),
            other => Err(unexpected(&other).into()),
        }
    }

    async fn enqueue_one(&self, job: NewJob, patient: bool) -> Result<Receipt, EnqueueError> {
        match self.shared.ask(Request::Enqueue(job.check()?), patient).await? {
            Answer::Enqueued(result) => Ok(self.receipt(result?)),
            other => Err(unexpected(&other).into()),
        }
    }

    fn receipt(&self, receipt: windlass_core::Receipt) -> Receipt {
        let windlass_core::Receipt { id, duplicate, row } = receipt;
        Receipt { id, duplicate, row, durability: self.shared.durability }
    }

    // Reads.

    /// A job with its payload, result, progress and last error.
    pub async fn get(&self, id: JobId) -> Result<Option<JobDetail>, ReadError> {
        let mut found = self.shared.read(move |reader| reader.jobs(&[id])).await?;
        Ok(found.pop().flatten())
    }

    /// A page of jobs, newest first, behind `after`. A page may be short and still have a next.
    pub async fn list(
        &self,
        filter: Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, ReadError> {
        self.shared.read(move |reader| reader.list(&filter, after, limit)).await
    }

    /// The remembered attempts of a job that did not complete, oldest first.
    pub async fn attempts(&self, id: JobId) -> Result<Vec<Attempt>, ReadError> {
        self.shared.read(move |reader| reader.attempts(id)).await
    }

    /// Every queue with its counters. No job is looked at.
    pub async fn queues(&self) -> Result<Vec<QueueRow>, ReadError> {
        self.shared.read(|reader| reader.queues()).await
    }

    /// How many jobs stand where, over all queues.
    pub async fn counts(&self) -> Result<Counts, ReadError> {
        let queues = self.queues().await?;
        Ok(queues.iter().fold(Counts::default(), |sum, row| sum.plus(&row.total())))
    }

    /// When the next scheduled job falls due.
    pub async fn next_due(&self) -> Result<Option<Wall>, ReadError> {
        self.shared.read(|reader| reader.next_due()).await
    }

    /// Every known worker, with what it runs.
    pub async fn workers(&self) -> Result<Vec<WorkerRow>, ReadError> {
        self.shared.read(|reader| reader.workers()).await
    }

    /// Reads on a blocking thread, with everything a store can be asked.
    pub async fn read<R: Send + 'static>(
        &self,
        read: impl FnOnce(
            &mut dyn windlass_core::store::Reader,
        ) -> Result<R, windlass_core::store::StoreError>
        + Send
        + 'static,
    ) -> Result<R, ReadError> {
        self.shared.read(read).await
    }

    /// Waits until a job has a verdict (done, failed for good, or cancelled), and returns it as it
    /// is then. It does not poll.
    pub async fn wait(&self, id: JobId) -> Result<JobDetail, WaitError> {
        loop {
            // Watch first, then look: whatever happens after the look wakes the watch.
            let watch = self.shared.watchers.watch(id).ok_or(WaitError::Stopped(id))?;
            let found = self.get(id).await.map_err(|error| match error {
                ReadError::Stopped => WaitError::Stopped(id),
                ReadError::Store(_) => error.into(),
            })?;
            let detail = found.ok_or(WaitError::NotFound(id))?;
            if detail.job.state.name().is_finished() {
                return Ok(detail);
            }
            watch.woken().await;
        }
    }

    /// A stream of changes from now on: bounded, and it says when it lagged.
    pub fn events(&self) -> EventStream {
        self.shared.events.subscribe()
    }

    // Commands.

    /// Does not run this job, or stops it: its handler is told, then dropped.
    pub async fn cancel(&self, id: JobId) -> Result<Job, CommandError> {
        self.job_command(Admin::Cancel(id)).await
    }

    /// Runs a failed or cancelled job again, with all its attempts.
    pub async fn replay(&self, id: JobId) -> Result<Job, CommandError> {
        self.job_command(Admin::Replay(id)).await
    }

    /// Runs up to `limit` dead-lettered jobs again, newest failure first. Returns how many, and
    /// where to go on if there may be more.
    pub async fn replay_dead(
        &self,
        filter: DeadFilter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<(usize, Option<Cursor>), CommandError> {
        match self.command(Admin::ReplayDead { filter, after, limit }).await? {
            AdminDone::Replayed { count, next } => Ok((count, next)),
            other => Err(unexpected(&other).into()),
        }
    }

    /// Forgets up to `limit` dead-lettered jobs, newest failure first. Returns how many, and where
    /// to go on if there may be more.
    pub async fn discard_dead(
        &self,
        filter: DeadFilter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<(usize, Option<Cursor>), CommandError> {
        match self.command(Admin::DiscardDead { filter, after, limit }).await? {
            AdminDone::Discarded { count, next } => Ok((count, next)),
            other => Err(unexpected(&other).into()),
        }
    }

    /// Forgets a finished job.
    pub async fn delete(&self, id: JobId) -> Result<(), CommandError> {
        self.command(Admin::Delete(id)).await.map(drop)
    }

    /// Starts nothing of this queue until it is resumed.
    pub async fn pause(&self, queue: &str) -> Result<windlass_core::Queue, CommandError> {
        self.queue_command(Admin::Pause(QueueName::new(queue)?)).await
    }

    /// Starts jobs of this queue again.
    pub async fn resume(&self, queue: &str) -> Result<windlass_core::Queue, CommandError> {
        self.queue_command(Admin::Resume(QueueName::new(queue)?)).await
    }

    /// Replaces the limits and defaults of a queue.
    pub async fn set_queue(
        &self,
        queue: &str,
        settings: QueueSettings,
    ) -> Result<windlass_core::Queue, CommandError> {
        self.queue_command(Admin::SetQueue(QueueName::new(queue)?, settings)).await
    }

    /// Any command of an operator.
    pub async fn command(&self, command: Admin) -> Result<AdminDone, CommandError> {
        match self.shared.ask(Request::Admin(command), true).await? {
            Answer::Admin(result) => Ok(result?),
            other => Err(unexpected(&other).into()),
        }
    }

    async fn job_command(&self, command: Admin) -> Result<Job, CommandError> {
        match self.command(command).await? {
            AdminDone::Job(job) => Ok(*job),
            other => Err(unexpected(&other).into()),
        }
    }

    async fn queue_command(&self, command: Admin) -> Result<windlass_core::Queue, CommandError> {
        match self.command(command).await? {
            AdminDone::Queue(queue) => Ok(queue),
            other => Err(unexpected(&other).into()),
        }
    }

    /// Asks a worker of any process on this store to stop; it hears of it by
    /// [`stop_asked`](Queue::stop_asked). What it runs is not touched.
    pub async fn stop_worker(&self, id: WorkerId) -> Result<(), CommandError> {
        self.command(Admin::StopWorker(id)).await.map(drop)
    }

    // Remote workers.

    /// Asks for jobs on behalf of a remote worker, and waits for them as long as it says. If the
    /// future is dropped, what was claimed for it is given back.
    pub async fn poll(&self, poll: Poll) -> Result<Vec<Run>, Unserved> {
        match self.shared.ask(Request::Poll(poll), false).await? {
            Answer::Jobs(runs) => Ok(runs),
            other => Err(unexpected(&other)),
        }
    }

    /// A remote worker's verdict. Returns the state the job went to.
    pub async fn settle(&self, settle: Settle) -> Result<StateName, ReportError> {
        match self.shared.ask(Request::Settle(settle), true).await? {
            Answer::Settled(result) => Ok(result?),
            other => Err(unexpected(&other).into()),
        }
    }

    /// The verdicts of remote workers, all in one commit. Each has its own answer; the order is the
    /// same.
    pub async fn settle_many(
        &self,
        settles: Vec<Settle>,
    ) -> Result<Vec<Result<StateName, ReportError>>, ReportError> {
        match self.shared.ask(Request::SettleMany(settles), true).await? {
            Answer::SettledMany(results) => {
                Ok(results.into_iter().map(|result| result.map_err(Into::into)).collect())
            }
            other => Err(unexpected(&other).into()),
        }
    }

    /// A worker's heartbeat.
    pub async fn heartbeat(&self, beat: Heartbeat) -> Result<LeaseExtended, ReportError> {
        match self.shared.ask(Request::Heartbeat(beat), true).await? {
            Answer::LeaseExtended(result) => Ok(result?),
            other => Err(unexpected(&other).into()),
        }
    }

    /// Changes defaults, retention, the number of workers or how often they are noted while it
    /// runs, or hints that another process has written. With fewer workers, what runs goes on to
    /// its end; without handlers there are no workers. Inputs that belong to the runtime itself are
    /// not taken.
    pub fn reconfigure(&self, input: Input) {
        let taken = match input {
            Input::Policy(_) | Input::Retention(_) | Input::Presence(_) | Input::Changed => true,
            Input::Slots(_) => self.shared.manned,
            _ => false,
        };
        if taken {
            self.shared.input(input);
        }
    }

    // The runtime.

    /// Who runs jobs here, as the store knows it.
    pub fn worker_id(&self) -> &WorkerId {
        &self.shared.worker
    }

    /// Waits until somebody asks this runtime's worker to stop, with
    /// [`stop_worker`](Queue::stop_worker) in any process on this store. Nothing stops by itself:
    /// that is for the caller to do. It is heard at once in the same process; from another one when
    /// the store is next checked for changes, at the latest when this worker is next noted. A
    /// runtime without [`presence`](crate::Builder::presence) is not known to the store, and cannot
    /// be asked.
    pub async fn stop_asked(&self) {
        let mut asked = self.shared.stop_asked.subscribe();
        // The sender lives as long as this handle.
        let _ = asked.wait_for(|asked| *asked).await;
    }

    /// Waits until there is nothing that this runtime could do now: no handler runs, and nothing
    /// that it would run is due.
    pub async fn idle(&self) -> Result<(), Unserved> {
        self.shared.idle(true).await
    }

    /// How the runtime is doing.
    pub fn health(&self) -> Health {
        self.shared.health()
    }

    /// Waits until nothing can be stored any more, because the store is lost or its writer has
    /// died, and returns why; none if the runtime ends in order before. It does not poll. Stop
    /// the process then: [`health`](Queue::health) says which it was.
    pub async fn lost(&self) -> Option<Cause> {
        let (mut lost, mut ended) = (self.shared.lost.subscribe(), self.shared.ended.subscribe());
        tokio::select! {
            biased;
            cause = lost.wait_for(Option::is_some) => cause.ok().and_then(|cause| cause.clone()),
            _ = ended.wait_for(Option::is_some) => None,
        }
    }

    /// The figures of this runtime.
    pub fn metrics(&self) -> Metrics {
        let writer = *lock(&self.shared.writer_figures);
        Metrics::of(&writer, &self.shared.task_figures)
    }

    /// How many jobs and commands stand in the mailbox, waiting for the dispatcher.
    pub fn mailbox_depth(&self) -> usize {
        self.shared.mailbox.used().items
    }

    /// What a stored job survives.
    pub fn durability(&self) -> Durability {
        self.shared.durability
    }

    /// Stops in an orderly way, and returns what was left: see [how it ends](Queue#how-it-ends).
    /// It returns at the deadline, plus a second at most, whatever handlers and the store do.
    pub async fn shutdown(&self, deadline: Duration) -> Report {
        self.shared.drain(deadline).await
    }

    /// Stops what runs now, and returns what was left: see [how it ends](Queue#how-it-ends).
    pub async fn stop_now(&self) -> Report {
        self.shared.force().await
    }
}

/// The machine answered something else than was asked: a bug of ours, but no reason to panic.
fn unexpected(answer: &impl std::fmt::Debug) -> Unserved {
    let cause = format!("the dispatcher gave an answer of another kind: {answer:?}");
    Refused::Unknown(Cause::new(&cause)).into()
}
