//! What goes into the machine and what comes out: plain data, comparable, without behaviour.

use alloc::vec::Vec;

use thiserror::Error;

use crate::store::{
    Admin, AdminDone, AdminRefused, Batch, Cause, Change, Heartbeat, JobRefused, LeaseExtended,
    Settle, Worker,
};
use crate::{
    BatchId, EnqueueRefused, Job, LeaseLength, LeaseToken, Millis, Mono, NewJob, Payload, Policy,
    Queue, Receipt, RequestId, StateName, Verdict,
};

/// Something that happened outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Somebody asks for something; a [`Effect::Reply`] with this id answers it, once.
    Request(RequestId, Request),
    /// Whoever made this request is gone. A waiting poll is forgotten; what it had already
    /// claimed is given back.
    Gone(RequestId),
    /// These jobs were handed out in a reply that could not be delivered: give them back.
    Undelivered(Vec<LeaseToken>),
    /// The handler of a local run has returned. Its slot is free.
    Report {
        /// Whose lease.
        token: LeaseToken,
        /// What it says.
        verdict: Verdict,
    },
    /// A local run was stopped, as [`Effect::Stop`] asked, without a verdict. Its slot is free.
    Stopped {
        /// Whose lease.
        token: LeaseToken,
    },
    /// The handler of a local run has something to say while it runs.
    Progress {
        /// Whose lease.
        token: LeaseToken,
        /// How far it is.
        progress: Payload,
    },
    /// Another process may have written to the store: a hint, never needed for correctness.
    Changed,
    /// Run so many local jobs at once from now on. Nothing that runs is stopped: where more run,
    /// nothing is claimed until enough have ended.
    Slots(usize),
    /// Note this worker, and remote ones that poll here, as alive this often from now on. If never,
    /// its row is removed.
    Presence(Option<Millis>),
    /// Use these defaults from now on.
    Policy(Policy),
    /// Keep finished jobs so long from now on.
    Retention(crate::store::Retention),
    /// Stop in an orderly way: admit nothing, start nothing, let what runs finish until the
    /// deadline, then force it.
    Drain {
        /// How long to wait for what runs.
        deadline: Millis,
    },
    /// Stop what runs now. A second time: stop at once.
    Force,
}

/// What somebody asks for.
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

/// A remote worker asks for jobs, and waits for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Poll {
    /// Who, what it would run, and how many at most.
    pub worker: Worker,
    /// For how long it waits if there is nothing.
    pub wait: Millis,
    /// The length of the leases, if not each job's own visibility timeout.
    pub length: Option<LeaseLength>,
}

/// What the driver is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Answer a request.
    Reply {
        /// Which.
        request: RequestId,
        /// With what.
        answer: Answer,
    },
    /// Run this job on a free slot; then send [`Input::Report`] or [`Input::Stopped`].
    Run(Run),
    /// Stop this run: tell its handler, then end it; then send [`Input::Stopped`], or
    /// [`Input::Report`] if it finished first. A run whose end was sent already may be asked to
    /// stop once more, because time passes before an end is heard; then there is nothing to do.
    Stop {
        /// Whose lease.
        token: LeaseToken,
        /// Why.
        reason: StopReason,
    },
    /// Somebody asks this process's own worker to stop: said once. Nothing happens by itself; an
    /// orderly end is [`Input::Drain`].
    StopAsked,
    /// Jobs and queues have changed, in this order: for those who watch.
    Changed {
        /// Jobs that came, changed their state, or went.
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
    /// What to run it with.
    pub payload: Payload,
}

/// Why a run is to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopReason {
    /// Somebody cancelled the job.
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

/// Why a request was not taken.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refused {
    /// This process shuts down.
    #[error("this process is shutting down; try another, or try again shortly")]
    ShuttingDown,
    /// A limit is reached.
    #[error("{what} wait already, {limit} at most; try again shortly")]
    Overloaded {
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// One request asks for too much.
    #[error("{given} jobs in one request, {limit} at most; split it")]
    TooMany {
        /// How many were given.
        given: usize,
        /// The limit.
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
        "it is not known whether this was stored: {0}; \
         look, or repeat it with the same idempotency key"
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
}

/// When the machine next wants to be called, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wakeup {
    /// When.
    pub at: Mono,
    /// Why.
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
    /// A local run could not be heard of in time: it is to stop before its lease ends.
    LeaseEnd,
    /// A local run exceeds its timeout.
    JobTimeout,
    /// A poll has waited long enough.
    PollTimeout,
    /// The store is to be tried again.
    StoreRetry,
    /// Other processes may have written.
    ChangeCheck,
    /// This worker is to be seen again.
    Presence,
    /// Finished jobs are past their age.
    Purge,
    /// The wall clock is to be looked at: it may have been set.
    ClockCheck,
    /// What runs has had its time.
    DrainDeadline,
    /// What was stopped has had its time.
    ForceDeadline,
}

impl WakeReason {
    /// Every reason, in order.
    pub const ALL: [Self; 13] = [
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
        Self::ClockCheck,
        Self::DrainDeadline,
        Self::ForceDeadline,
    ];
}

/// How far the shutdown has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Not at all.
    Running,
    /// Nothing is admitted or started; what runs may finish.
    Draining,
    /// What runs is being stopped.
    Forcing,
    /// Nothing happens any more.
    Stopped,
}

/// How the store is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Well.
    Good,
    /// The last commit failed; it is tried again.
    Retrying(Cause),
    /// It failed and is opened anew; nothing is acknowledged until that has worked.
    Reopening(Cause),
    /// It is lost for good.
    Lost(Cause),
}

/// What a shutdown left behind.
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
