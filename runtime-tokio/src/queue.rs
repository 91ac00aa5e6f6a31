//! The handle of a running queue. Each method sends one request to the writer, or makes one read.

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

use crate::lifecycle::{Report, STOP_NOW};
use crate::metrics::Metrics;
use crate::shared::{Mail, Shared};
use crate::supervise::Health;
use crate::sync::lock;
use crate::watch::EventStream;
use crate::{
    CommandError, EnqueueError, NewJob, ReadError, Reads, ReportError, Unserved, WaitError,
};

/// Proof that a job is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The id of the job.
    pub id: JobId,
    /// Whether the job was stored by an earlier request with the same idempotency key.
    pub duplicate: bool,
    /// The stored row; only with [`NewJob::echo`].
    pub row: Option<Box<Job>>,
    /// Whether the job survives a crash of the process or of the machine.
    pub durability: Durability,
}

/// A handle of a running queue. Clones are cheap and refer to the same queue.
///
/// # How it ends
///
/// * [`shutdown`](Queue::shutdown) admits and starts nothing more, waits for running handlers until
///   its deadline, then stops the others and gives their jobs back. A job interrupted that way is
///   not charged an attempt. Repeated and concurrent calls wait for the same end and get the same
///   report; the deadline of the first call counts.
/// * [`stop_now`](Queue::stop_now) stops running handlers at once. A second call does not wait for
///   handlers to return either.
/// * Dropping the last handle, or the tokio runtime, does what `stop_now` does, without waiting for
///   the end.
/// * If the process is killed, the jobs it ran become runnable when their leases expire.
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
            self.shared.mailbox.abandon(Mail::Input(STOP_NOW));
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

    /// Enqueues a job, and returns once it is stored. Waits while the mailbox is full.
    ///
    /// If the future is dropped before it returns, the job may or may not be stored; with an
    /// idempotency key the call can be repeated safely.
    pub async fn enqueue(&self, job: impl Into<NewJob>) -> Result<Receipt, EnqueueError> {
        self.enqueue_one(job.into(), true).await
    }

    /// Like [`enqueue`](Queue::enqueue), but fails at once while the mailbox is full: see
    /// [`Unserved::is_overloaded`].
    pub async fn try_enqueue(&self, job: impl Into<NewJob>) -> Result<Receipt, EnqueueError> {
        self.enqueue_one(job.into(), false).await
    }

    /// Enqueues up to 10 000 jobs in one commit. Returns one result per job, in the same order.
    pub async fn enqueue_many(
        &self,
        jobs: impl IntoIterator<Item = impl Into<NewJob>>,
    ) -> Result<Vec<Result<Receipt, EnqueueError>>, EnqueueError> {
        let jobs: Result<Vec<_>, _> = jobs.into_iter().map(|job| job.into().check()).collect();
        self.enqueue_all(jobs?, true).await
    }

    /// Like [`enqueue_many`](Queue::enqueue_many), but fails at once while the mailbox is full: see
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
        wait_for_room: bool,
    ) -> Result<Vec<Result<Receipt, EnqueueError>>, EnqueueError> {
        match self.shared.ask(Request::EnqueueMany(jobs), wait_for_room).await? {
            Answer::EnqueuedMany(results) => Ok(results
                .into_iter()
                .map(|result| result.map(|receipt| self.receipt(receipt)).map_err(Into::into))
                .collect()),
            other => Err(unexpected(&other).into()),
        }
    }

    async fn enqueue_one(&self, job: NewJob, wait_for_room: bool) -> Result<Receipt, EnqueueError> {
        match self.shared.ask(Request::Enqueue(job.check()?), wait_for_room).await? {
            Answer::Enqueued(result) => Ok(self.receipt(result?)),
            other => Err(unexpected(&other).into()),
        }
    }

    fn receipt(&self, receipt: windlass_core::Receipt) -> Receipt {
        let windlass_core::Receipt { id, duplicate, row } = receipt;
        Receipt { id, duplicate, row, durability: self.shared.durability.get() }
    }

    // Reads.

    /// A job with its payload, result, progress and last error; `None` if there is none.
    pub async fn get(&self, id: JobId) -> Result<Option<JobDetail>, ReadError> {
        let mut found = self.shared.read(move |reader| reader.jobs(&[id])).await?;
        Ok(found.pop().flatten())
    }

    /// A page of jobs, newest first, starting after the cursor. A page with fewer than `limit` jobs
    /// may still have a next page: follow the cursor.
    pub async fn list(
        &self,
        filter: Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, ReadError> {
        self.shared.read(move |reader| reader.list(&filter, after, limit)).await
    }

    /// The stored attempts of a job that did not complete it, oldest first.
    pub async fn attempts(&self, id: JobId) -> Result<Vec<Attempt>, ReadError> {
        self.shared.read(move |reader| reader.attempts(id)).await
    }

    /// All queues with their counters. Reads no job.
    pub async fn queues(&self) -> Result<Vec<QueueRow>, ReadError> {
        self.shared.read(|reader| reader.queues()).await
    }

    /// Number of jobs per view, over all queues.
    pub async fn counts(&self) -> Result<Counts, ReadError> {
        let queues = self.queues().await?;
        Ok(queues.iter().fold(Counts::default(), |sum, row| sum.plus(&row.total())))
    }

    /// When the next scheduled job falls due; `None` if none is scheduled.
    pub async fn next_due(&self) -> Result<Option<Wall>, ReadError> {
        self.shared.read(|reader| reader.next_due()).await
    }

    /// All listed workers, with the jobs they run.
    pub async fn workers(&self) -> Result<Vec<WorkerRow>, ReadError> {
        self.shared.read(|reader| reader.workers()).await
    }

    /// Runs a closure with a reader of the store, on a blocking thread.
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

    /// The reads of this queue, for callers that must not write. They end with the queue.
    pub fn reads(&self) -> Reads {
        Reads::of(&self.shared.readers)
    }

    /// Waits until a job is done, failed or cancelled, and returns it. Does not poll.
    pub async fn wait(&self, id: JobId) -> Result<JobDetail, WaitError> {
        loop {
            // Watch first, then read: a change after the read wakes the watch.
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

    /// A stream of changes from now on. It is bounded, and reports when it dropped events.
    pub fn events(&self) -> EventStream {
        self.shared.events.subscribe()
    }

    // Commands.

    /// Cancels a queued or running job. A running handler gets the stop signal, then is dropped.
    pub async fn cancel(&self, id: JobId) -> Result<Job, CommandError> {
        self.job_command(Admin::Cancel(id)).await
    }

    /// Runs a failed or cancelled job again, with a new count of attempts.
    pub async fn replay(&self, id: JobId) -> Result<Job, CommandError> {
        self.job_command(Admin::Replay(id)).await
    }

    /// Runs up to `limit` dead letters again, newest failure first. Returns their number, and the
    /// cursor to continue from if there may be more.
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

    /// Deletes up to `limit` dead letters, newest failure first. Returns their number, and the
    /// cursor to continue from if there may be more.
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

    /// Deletes a finished job.
    pub async fn delete(&self, id: JobId) -> Result<(), CommandError> {
        self.command(Admin::Delete(id)).await.map(drop)
    }

    /// Starts no job of this queue until it is resumed. Running jobs go on.
    pub async fn pause(&self, queue: &str) -> Result<windlass_core::Queue, CommandError> {
        self.queue_command(Admin::pause(QueueName::new(queue)?)).await
    }

    /// The same, with the name of who does it: kept with the queue until it is resumed.
    pub async fn pause_by(
        &self,
        queue: &str,
        by: &str,
    ) -> Result<windlass_core::Queue, CommandError> {
        let (name, by) = (QueueName::new(queue)?, Some(by.into()));
        self.queue_command(Admin::Pause { name, by }).await
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
        self.queue_command(Admin::set_queue(QueueName::new(queue)?, settings)).await
    }

    /// Replaces the limits and defaults of a queue if they are still `expected`; otherwise it is
    /// refused with [`AdminRefused::SettingsChanged`](windlass_core::store::AdminRefused). Of
    /// several callers with the same expectation, on any process of the store, one succeeds.
    pub async fn set_queue_from(
        &self,
        queue: &str,
        expected: QueueSettings,
        settings: QueueSettings,
    ) -> Result<windlass_core::Queue, CommandError> {
        let (name, expected) = (QueueName::new(queue)?, Some(Box::new(expected)));
        self.queue_command(Admin::SetQueue { name, settings, expected }).await
    }

    /// Executes any operator command.
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

    /// Asks a worker of any process on this store to stop; there,
    /// [`stop_asked`](Queue::stop_asked) returns. The jobs it runs are not stopped by this call.
    pub async fn stop_worker(&self, id: WorkerId) -> Result<(), CommandError> {
        self.command(Admin::StopWorker(id)).await.map(drop)
    }

    /// Takes the leases of a worker back at once, charged as attempts that ran out: its process is
    /// known to be dead. One that lives on loses what it runs.
    pub async fn end_worker(&self, id: WorkerId) -> Result<(), CommandError> {
        self.command(Admin::EndWorker(id)).await.map(drop)
    }

    // Remote workers.

    /// Claims jobs for a remote worker, and waits for them as long as the poll says. If the future
    /// is dropped, jobs claimed for it are given back.
    pub async fn poll(&self, poll: Poll) -> Result<Vec<Run>, Unserved> {
        match self.shared.ask(Request::Poll(poll), false).await? {
            Answer::Jobs(runs) => Ok(runs),
            other => Err(unexpected(&other)),
        }
    }

    /// Records the verdict of a remote worker. Returns the new state of the job.
    pub async fn settle(&self, settle: Settle) -> Result<StateName, ReportError> {
        match self.shared.ask(Request::Settle(settle), true).await? {
            Answer::Settled(result) => Ok(result?),
            other => Err(unexpected(&other).into()),
        }
    }

    /// Records verdicts of remote workers in one commit. Returns one result per verdict, in the
    /// same order.
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

    /// Extends the lease of a remote worker.
    pub async fn heartbeat(&self, heartbeat: Heartbeat) -> Result<LeaseExtended, ReportError> {
        match self.shared.ask(Request::Heartbeat(heartbeat), true).await? {
            Answer::LeaseExtended(result) => Ok(result?),
            other => Err(unexpected(&other).into()),
        }
    }

    /// Changes policy, retention, the number of workers or the period of their presence at run
    /// time, adds to its figures, or hints that another process has written. When the number of
    /// workers shrinks, running jobs go on to their end. Without handlers it stays zero. Other
    /// inputs are ignored.
    pub fn reconfigure(&self, input: Input) {
        let taken = match input {
            Input::Policy(_)
            | Input::Retention(_)
            | Input::Presence(_)
            | Input::Started
            | Input::Gauges(_)
            | Input::Changed => true,
            Input::Slots(_) => self.shared.has_handlers,
            _ => false,
        };
        if taken {
            self.shared.input(input);
        }
    }

    // The runtime.

    /// The id under which this process holds leases.
    pub fn worker_id(&self) -> &WorkerId {
        &self.shared.worker
    }

    /// Waits until this worker is asked to stop, by [`stop_worker`](Queue::stop_worker) in any
    /// process on this store. The caller then has to shut down; nothing stops by itself. A request
    /// of the same process arrives at once, one of another process with the next change check, at
    /// the latest with the next update of `last_seen`. A runtime without
    /// [`presence`](crate::Builder::presence) is not listed, and cannot be asked.
    pub async fn stop_asked(&self) {
        let mut asked = self.shared.stop_asked.subscribe();
        // The sender lives as long as this handle.
        let _ = asked.wait_for(|asked| *asked).await;
    }

    /// Waits until no handler runs and no job that this runtime would run is due.
    pub async fn idle(&self) -> Result<(), Unserved> {
        self.shared.idle(true).await
    }

    /// The state of the runtime and its store.
    pub fn health(&self) -> Health {
        self.shared.health()
    }

    /// Waits until nothing can be stored any more because the store is lost or the writer thread
    /// panicked, and returns the cause: stop the process then. Returns `None` if the runtime ends
    /// normally first. Does not poll.
    pub async fn lost(&self) -> Option<Cause> {
        let (mut lost, mut ended) = (self.shared.lost.subscribe(), self.shared.ended.subscribe());
        tokio::select! {
            biased;
            cause = lost.wait_for(Option::is_some) => cause.ok().and_then(|cause| cause.clone()),
            _ = ended.wait_for(Option::is_some) => None,
        }
    }

    /// A snapshot of the metrics of this runtime.
    pub fn metrics(&self) -> Metrics {
        let writer = *lock(&self.shared.writer_figures);
        Metrics::of(&writer, &self.shared.task_figures)
    }

    /// Number of jobs and commands that wait in the mailbox.
    pub fn mailbox_depth(&self) -> usize {
        self.shared.mailbox.used().items
    }

    /// What a job that is stored now survives: a crash of the process, of the machine, or the loss
    /// of its disk. It can change while the queue runs, where the database fails over.
    pub fn durability(&self) -> Durability {
        self.shared.durability.get()
    }

    /// Drains and stops: see [how it ends](Queue#how-it-ends). Returns at most one second after
    /// the deadline, whatever handlers and the store do.
    pub async fn shutdown(&self, deadline: Duration) -> Report {
        self.shared.drain(deadline).await
    }

    /// Stops running handlers at once: see [how it ends](Queue#how-it-ends).
    pub async fn stop_now(&self) -> Report {
        self.shared.force().await
    }
}

/// The machine gave an answer of the wrong type: a bug of Windlass, reported without a panic.
fn unexpected(answer: &impl std::fmt::Debug) -> Unserved {
    let cause = format!("a bug in Windlass: the answer has the wrong type: {answer:?}");
    Refused::Unknown(Cause::new(&cause)).into()
}
