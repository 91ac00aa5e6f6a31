//! The inputs and outputs of the machine: plain, comparable data without behaviour.

use alloc::vec::Vec;

use thiserror::Error;

use crate::store::{
    Admin, AdminDone, AdminRefused, Batch, Cause, Change, Heartbeat, JobRefused, LeaseExtended,
    Settle, Worker,
};
use crate::{
    BatchId, EnqueueRefused, Gauges, Job, LeaseLength, LeaseToken, Millis, Mono, NewJob, Payload,
    Policy, Queue, Receipt, RequestId, StateName, Verdict,
};

/// An event outside of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A request. Exactly one [`Effect::Reply`] with this id answers it.
    Request(RequestId, Request),
    /// The caller of this request is gone. A waiting poll is dropped; jobs already claimed for it
    /// are given back.
    Gone(RequestId),
    /// The reply with these jobs could not be delivered: give them back.
    Undelivered(Vec<LeaseToken>),
    /// The handler of a local run has returned. Its slot is free.
    Report {
        /// The lease of the run.
        token: LeaseToken,
        /// As the handler returned it, or made of its panic.
        verdict: Verdict,
    },
    /// A local run was stopped without a verdict. Its slot is free.
    Stopped {
        /// The lease of the run.
        token: LeaseToken,
        /// Why: as [`Effect::Stop`] asked; or because [`Effect::Run`] or [`Effect::Extended`] said
        /// when; `None` if it never began, or its driver cannot run anything any more.
        reason: Option<StopReason>,
    },
    /// The handler of a local run reports progress. Dropped if too many wait for a commit.
    Progress {
        /// The lease of the run.
        token: LeaseToken,
        /// As the handler wrote it: any JSON.
        progress: Payload,
    },
    /// Another process may have written to the store: a hint to check for changes now, never needed
    /// for correctness.
    Changed,
    /// Changes the number of local jobs that run at the same time. Running jobs are not stopped: if
    /// there are more, none is claimed until enough have ended.
    Slots(usize),
    /// Changes the period with which this worker, and remote ones that poll here, are updated in
    /// the store. With `None` the row of this worker is removed.
    Presence(Option<Millis>),
    /// Use these defaults from now on.
    Policy(Policy),
    /// This process has started, and runs or serves jobs: to be counted in its figures.
    Started,
    /// What waited and ran a moment ago. It is written with the figures of this process, and by
    /// itself at most once a minute; it replaces what is not written yet.
    Gauges(Gauges),
    /// Changes how long finished jobs are kept.
    Retention(crate::store::Retention),
    /// Stop in an orderly way: admit nothing, start nothing, let what runs finish. What has not
    /// ended by itself gets the stop signal [`Config::stop_grace`](super::Config::stop_grace)
    /// before the deadline, and is ended at the deadline.
    Drain {
        /// The time that running jobs have to finish.
        deadline: Millis,
    },
    /// Stop running jobs now. The second time, do not wait for their handlers either.
    Force,
}

/// A request of a client, a remote worker or an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Enqueue a job.
    Enqueue(NewJob),
    /// Enqueue jobs, all in one commit.
    EnqueueMany(Vec<NewJob>),
    /// A remote worker's verdict.
    Settle(Settle),
    /// A remote worker's verdicts.
    SettleMany(Vec<Settle>),
    /// A remote worker's heartbeat.
    Heartbeat(Heartbeat),
    /// An operator's command.
    Admin(Admin),
    /// A remote worker asks for jobs.
    Poll(Poll),
}

/// A request for jobs by a remote worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Poll {
    /// The worker; its slots are the maximum number of jobs.
    pub worker: Worker,
    /// The longest wait for a ready job.
    pub wait: Millis,
    /// The length of the leases; `None` for each job's visibility timeout.
    pub length: Option<LeaseLength>,
}

/// An order to the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Answer a request.
    Reply {
        /// The id that the driver gave the request.
        request: RequestId,
        /// The answer that fits the kind of the request, or a refusal.
        answer: Answer,
    },
    /// Run a job on a free slot; then send [`Input::Report`] or [`Input::Stopped`].
    Run {
        /// The job.
        run: Run,
        /// When the run must be stopped, because its lease is about to end, unless
        /// [`Effect::Extended`] names a later instant before. The machine says so itself; a driver
        /// whose calls of the store may block has to watch the clock beside them.
        stop_at: Mono,
    },
    /// The lease of a local run was extended.
    Extended {
        /// The lease of the run.
        token: LeaseToken,
        /// When the run must be stopped now, unless its lease is extended again.
        stop_at: Mono,
    },
    /// Stop this run: signal its handler, then drop it; then send [`Input::Stopped`], or
    /// [`Input::Report`] if it finished first. A run whose end was sent may be stopped once more,
    /// because the machine checks its timers before it handles an input; ignore that.
    Stop {
        /// The lease of the run.
        token: LeaseToken,
        /// The reason, for the handler and for the verdict if it gives none.
        reason: StopReason,
    },
    /// An operator asked this process's worker to stop; sent once. The driver should send
    /// [`Input::Drain`].
    StopAsked,
    /// Committed changes of jobs and queues, in order, for watchers.
    Changed {
        /// Jobs that were enqueued, changed their state, or were removed.
        jobs: Vec<Change>,
        /// Queues whose settings changed.
        queues: Vec<Queue>,
    },
}

/// A job to run, under the lease it carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The job as claimed.
    pub job: Job,
    /// The input of the handler.
    pub payload: Payload,
}

/// Why a run is to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopReason {
    /// The job was cancelled.
    Cancelled,
    /// The lease is lost, or is about to be: heartbeats were refused, or could not be written.
    LeaseLost,
    /// It ran longer than its timeout.
    TimedOut,
    /// This process shuts down and does not wait any longer.
    Shutdown,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// To [`Request::Enqueue`].
    Enqueued(Result<Receipt, EnqueueRefused>),
    /// To [`Request::EnqueueMany`], in its order.
    EnqueuedMany(Vec<Result<Receipt, EnqueueRefused>>),
    /// To [`Request::Settle`]: the state the job went to.
    Settled(Result<StateName, JobRefused>),
    /// To [`Request::SettleMany`], in its order.
    SettledMany(Vec<Result<StateName, JobRefused>>),
    /// To [`Request::Heartbeat`].
    LeaseExtended(Result<LeaseExtended, JobRefused>),
    /// To [`Request::Admin`].
    Admin(Result<AdminDone, AdminRefused>),
    /// To [`Request::Poll`]; empty if nothing came in time.
    Jobs(Vec<Run>),
    /// To any request: it was not taken.
    Refused(Refused),
}

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refused {
    /// This process shuts down.
    #[error("this process is shutting down; try another, or try again shortly")]
    ShuttingDown,
    /// A limit is reached.
    #[error("the limit of {limit} waiting {what} is reached; try again shortly")]
    Overloaded {
        /// The kind of request, in plural, for the message.
        what: &'static str,
        /// Most requests that may wait.
        limit: usize,
    },
    /// One request asks for too much.
    #[error("{given} jobs in one request, {limit} at most; split it")]
    TooMany {
        /// Number of jobs in the request.
        given: usize,
        /// Most jobs in one request.
        limit: usize,
    },
    /// The store has no space left. Nothing was stored.
    #[error("the store has no space left, nothing was stored: {0}; free some, then try again")]
    StoreFull(Cause),
    /// The store cannot be written. Nothing was stored.
    #[error("the store cannot be written now, nothing was stored: {0}; try again shortly")]
    Unavailable(Cause),
    /// It may have been stored or not.
    #[error(
        "the commit's outcome is unknown: {0}; \
         check, or repeat it with the same idempotency key"
    )]
    Unknown(Cause),
}

/// A call of the store that the driver is to make; at most one at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "nearly every call is a commit")]
pub enum StoreCall {
    /// [`Store::commit`](crate::store::Store::commit), answered by
    /// [`handle_committed`](super::Machine::handle_committed).
    Commit(Batch),
    /// [`Store::was_committed`](crate::store::Store::was_committed), answered by
    /// [`handle_was_committed`](super::Machine::handle_was_committed).
    WasCommitted(BatchId),
    /// [`Store::reopen`](crate::store::Store::reopen), answered by
    /// [`handle_reopened`](super::Machine::handle_reopened).
    Reopen,
    /// [`Store::news`](crate::store::Store::news) with the leases of local runs, answered by
    /// [`handle_news`](super::Machine::handle_news).
    News(Vec<LeaseToken>),
    /// [`Store::plan_bulk`](crate::store::Store::plan_bulk), answered by
    /// [`handle_bulk`](super::Machine::handle_bulk).
    Bulk,
}

/// When the machine next wants to be called, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wakeup {
    /// The earliest instant of all timers.
    pub at: Mono,
    /// The timer that is due then.
    pub reason: WakeReason,
}

/// Why the machine wants to be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WakeReason {
    /// A scheduled job falls due.
    JobDue,
    /// A lease runs out.
    LeaseExpiry,
    /// A local run needs a heartbeat.
    Heartbeat,
    /// The lease of a local run could not be extended: it has to stop before the lease ends.
    LeaseEnd,
    /// A local run exceeds its timeout.
    JobTimeout,
    /// A poll has waited long enough.
    PollTimeout,
    /// A failed call of the store is due for a retry.
    StoreRetry,
    /// Other processes may have written.
    ChangeCheck,
    /// `last_seen` of this worker is due for an update.
    Presence,
    /// Finished jobs are past their age.
    Purge,
    /// Queues are due for a search for those that hold nothing.
    QueueSweep,
    /// The next step of a bulk action is due.
    Bulk,
    /// A rate that kept claims from jobs has room again.
    RateOpens,
    /// Figures of what this process did are to be written.
    Figures,
    /// The wall clock is due for a check for steps.
    ClockCheck,
    /// The drain deadline has passed.
    DrainDeadline,
    /// The grace after the drain deadline has passed.
    ForceDeadline,
}

impl WakeReason {
    /// Every reason, in order.
    pub const ALL: [Self; 17] = [
        Self::JobDue,
        Self::LeaseExpiry,
        Self::Heartbeat,
        Self::LeaseEnd,
        Self::JobTimeout,
        Self::PollTimeout,
        Self::StoreRetry,
        Self::ChangeCheck,
        Self::Presence,
        Self::Purge,
        Self::QueueSweep,
        Self::Bulk,
        Self::RateOpens,
        Self::Figures,
        Self::ClockCheck,
        Self::DrainDeadline,
        Self::ForceDeadline,
    ];
}

/// The phase of a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// No shutdown has begun.
    Running,
    /// Nothing is admitted or started; what runs may finish.
    Draining,
    /// Running jobs are being stopped.
    Forcing,
    /// Further inputs are ignored.
    Stopped,
}

/// The state of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Well.
    Good,
    /// The last commit failed; it is tried again.
    Retrying(Cause),
    /// It failed and is being reopened; nothing is acknowledged until that succeeds.
    Reopening(Cause),
    /// It is lost for good.
    Lost(Cause),
}

/// The result of a shutdown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShutdownReport {
    /// Local runs that ended with a recorded verdict after the shutdown began.
    pub finished: u64,
    /// Local runs that were given back.
    pub released: u64,
    /// Runs whose end is not recorded: their leases will expire.
    pub left: Vec<LeaseToken>,
    /// Whether the deadline passed.
    pub forced: bool,
}
