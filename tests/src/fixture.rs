//! The world of a case: a store under test, a clock the case owns, and what is always checked.
//!
//! After every commit the store must agree with itself ([`audit`]), with every read recomputed from
//! its rows, and with its own answer; and the bystanders must be byte-identical.

mod bystanders;
mod make;
mod outcomes;
mod reads;

use windlass_core::store::{
    Admin, AdminDone, AdminRefused, Batch, ClaimFor, ClockView, Dump, Heartbeat, JobDetail,
    JobRefused, LeaseExtended, Leased, Outcomes, Promoted, Purge, Purged, Reader, Reap, Reaped,
    Retention, Settle, Store, Taker, audit,
};
use windlass_core::{
    Attempt, BatchId, Demand, EnqueueRefused, Job, JobId, LeaseLength, LeaseToken, Millis, NewJob,
    Policy, ProcessId, Receipt, StateName, Verdict, Wall, WorkerId,
};

use crate::concurrent::ConcurrentSubject;
use bystanders::Bystanders;
pub use make::*;

/// A store that takes the suite.
///
/// The suite owns time: a store with a clock of its own is made here with one that reads the
/// instant given to [`Store::commit`].
pub trait Subject {
    /// The type under test.
    type Store: Store;

    /// Whether such a store can be made here. One that cannot, because a server is not installed,
    /// takes no case.
    fn is_available() -> bool {
        true
    }

    /// An empty store.
    fn fresh() -> Self;

    /// The store as it is now.
    fn store(&mut self) -> &mut Self::Store;

    /// As after a crash: drops the store and opens again what is durable.
    fn reopen(&mut self);

    /// What the store itself finds wrong with its indexes. Empty is good.
    fn verify(&mut self) -> Vec<String>;
}

/// The reader of a subject's store.
pub type ReaderOf<S> = <<S as Subject>::Store as Store>::Reader;

/// A store with a clock, in which one case happens.
#[derive(Debug)]
pub struct World<S: Subject> {
    subject: S,
    now: Wall,
    process: ProcessId,
    seq: u64,
    /// The defaults for enqueues.
    pub policy: Policy,
    /// The worker of the process that makes batches, if it has one.
    pub own: Option<WorkerId>,
    /// What its process knows of the store's clock.
    pub clock: ClockView,
    bystanders: Bystanders,
    /// The rows with which every read was compared last.
    read: Option<Dump>,
}

impl<S: Subject> World<S> {
    /// A store with bystanders in every state, in the queue of the case and in another.
    pub fn new() -> Self {
        let mut world = Self::alone();
        world.bystanders = Bystanders::settle_in(&mut world);
        world.check();
        world
    }

    /// An empty store, for cases that touch every job there is.
    pub fn alone() -> Self {
        Self {
            subject: S::fresh(),
            now: START,
            process: ProcessId(1),
            seq: 0,
            policy: Policy::default(),
            own: None,
            clock: ClockView::default(),
            bystanders: Bystanders::default(),
            read: None,
        }
    }

    // Time.

    /// The current instant of the suite's wall clock.
    pub fn now(&self) -> Wall {
        self.now
    }

    /// Sets the clock back.
    pub fn set_back(&mut self, by: Millis) {
        self.now = self.now.minus(by);
    }

    /// Lets time pass.
    pub fn advance(&mut self, by: Millis) {
        self.now = self.now.plus(by);
    }

    /// Sets the clock, also back.
    pub fn set_clock(&mut self, to: Wall) {
        self.now = to;
    }

    // Commits.

    /// From now on batches are those of another process.
    pub fn act_as(&mut self, process: u64) {
        self.process = ProcessId(process);
    }

    /// The identity of the latest batch.
    pub fn latest_batch(&self) -> BatchId {
        BatchId { process: self.process, seq: self.seq }
    }

    /// A batch filled by `fill`, not yet committed.
    pub fn batch(&mut self, fill: impl FnOnce(&mut Batch)) -> Batch {
        self.seq += 1;
        let mut batch = Batch::new(self.latest_batch(), self.policy);
        (batch.own, batch.clock) = (self.own.clone(), self.clock);
        fill(&mut batch);
        batch
    }

    /// Commits a batch and checks everything.
    pub fn commit(&mut self, fill: impl FnOnce(&mut Batch)) -> Outcomes {
        let before = self.dump();
        let batch = self.batch(fill);
        let out = self.commit_unchecked(&batch);
        let after = self.dump();
        outcomes::check(self.now, &batch, &out, (&before, &after));
        self.check();
        out
    }

    /// Commits a batch and checks nothing: for loads so large that a look at each row takes long.
    pub fn load(&mut self, fill: impl FnOnce(&mut Batch)) -> Outcomes {
        let batch = self.batch(fill);
        self.commit_unchecked(&batch)
    }

    fn commit_unchecked(&mut self, batch: &Batch) -> Outcomes {
        let committed = self.subject.store().commit(self.now, batch);
        committed.expect("a healthy store commits what it is given")
    }

    /// Crashes and comes back with what is durable.
    pub fn reopen(&mut self) {
        self.subject.reopen();
        self.check();
    }

    /// The store itself.
    pub fn store(&mut self) -> &mut S::Store {
        self.subject.store()
    }

    /// Another handle to the same store.
    pub fn handle(&mut self) -> S::Store
    where
        S: ConcurrentSubject,
    {
        self.subject.handle()
    }

    // Commands, each in a batch of its own.

    /// Enqueues a job that must be accepted as new.
    #[track_caller]
    pub fn enqueue(&mut self, new: NewJob) -> JobId {
        let receipt = self.try_enqueue(new).expect("the job is accepted");
        assert!(!receipt.duplicate, "the job is new, but the receipt says duplicate");
        receipt.id
    }

    /// Enqueues a job.
    pub fn try_enqueue(&mut self, new: NewJob) -> Result<Receipt, EnqueueRefused> {
        self.commit(|batch| batch.enqueues.push(new)).enqueues.remove(0)
    }

    /// Claims up to `max` jobs.
    pub fn claim(&mut self, demand: Demand, taker: &str, max: usize) -> Vec<Leased> {
        self.commit(|batch| batch.claims.push(claim_for(demand, taker, max))).claims.remove(0).jobs
    }

    /// Claims one job of the case's queue.
    #[track_caller]
    pub fn claim_one(&mut self, taker: &str) -> Leased {
        self.claim(main_work(), taker, 1).pop().expect("there is a job to claim")
    }

    /// Asserts that the case's queue has nothing to claim.
    #[track_caller]
    pub fn assert_nothing_to_claim(&mut self) {
        let found = self.claim(main_work(), "w-none", 1);
        assert!(found.is_empty(), "nothing was to be claimed, but this was: {found:?}");
    }

    /// Reports a verdict.
    pub fn settle(&mut self, token: LeaseToken, verdict: Verdict) -> Result<StateName, JobRefused> {
        self.commit(|batch| batch.settles.push(Settle { token, verdict })).settles.remove(0)
    }

    /// Sends a heartbeat.
    pub fn heartbeat(
        &mut self,
        token: LeaseToken,
        extend: Option<LeaseLength>,
    ) -> Result<LeaseExtended, JobRefused> {
        let heartbeat = Heartbeat { token, extend, progress: None };
        self.commit(|batch| batch.heartbeats.push(heartbeat)).heartbeats.remove(0)
    }

    /// Runs an operator's command.
    pub fn admin(&mut self, command: Admin) -> Result<AdminDone, AdminRefused> {
        self.commit(|batch| batch.admin.push(command)).admin.remove(0)
    }

    /// Takes back leases that ran out.
    pub fn reap(&mut self, reap: Reap) -> Reaped {
        let out = self.commit(|batch| batch.reap = Some(reap));
        out.reaped.expect("a batch that asks for reaping has a result of it")
    }

    /// Moves up to `limit` jobs that fell due.
    pub fn promote(&mut self, limit: usize) -> Promoted {
        let out = self.commit(|batch| batch.promote = Some(limit));
        out.promoted.expect("a batch that asks for promotion has a result of it")
    }

    /// Removes up to `limit` finished jobs past their age.
    pub fn purge(&mut self, retention: Retention, limit: usize) -> Purged {
        let out = self.commit(|batch| batch.purge = Some(Purge { retention, limit }));
        out.purged.expect("a batch that asks for a purge has a result of it")
    }

    // Jobs in a given state.

    /// A job that is being run by `w1`.
    #[track_caller]
    pub fn running(&mut self, new: NewJob) -> Leased {
        self.running_by("w1", new)
    }

    /// A job that is being run by this worker.
    #[track_caller]
    pub fn running_by(&mut self, taker: &str, new: NewJob) -> Leased {
        let demand = demand_for(&new);
        let mut out = self.commit(|batch| {
            batch.enqueues.push(new);
            batch.claims.push(claim_for(demand, taker, 1));
        });
        let receipt = out.enqueues.remove(0).expect("the job is accepted");
        let leased = out.claims.remove(0).jobs.pop().expect("the job is claimed at once");
        assert_eq!(leased.job.id, receipt.id, "no other job of its kind was ready");
        leased
    }

    /// A job that is done.
    #[track_caller]
    pub fn done(&mut self, new: NewJob) -> JobId {
        self.finished(new, complete())
    }

    /// A job in the dead-letter queue.
    #[track_caller]
    pub fn dead(&mut self, new: NewJob, error: &str) -> JobId {
        self.finished(new, fail_for_good(error))
    }

    /// A job that was cancelled.
    #[track_caller]
    pub fn cancelled(&mut self, new: NewJob) -> JobId {
        let id = self.enqueue(new);
        self.admin(Admin::Cancel(id)).expect("a waiting job can be cancelled");
        id
    }

    #[track_caller]
    fn finished(&mut self, new: NewJob, verdict: Verdict) -> JobId {
        let token = self.running(new).job.token();
        self.settle(token, verdict).expect("the holder's verdict counts");
        token.job
    }

    // Reads.

    /// A reader of the store.
    pub fn reader(&mut self) -> ReaderOf<S> {
        self.subject.store().reader().expect("a healthy store gives readers")
    }

    /// Every row, in the canonical form.
    pub fn dump(&mut self) -> Dump {
        self.reader().dump().expect("a healthy store can be dumped")
    }

    /// A job with everything kept beside it, if it exists.
    pub fn find(&mut self, id: JobId) -> Option<JobDetail> {
        self.reader().jobs(&[id]).expect("a healthy store can be read").remove(0)
    }

    /// A job that exists, with everything kept beside it.
    #[track_caller]
    pub fn detail(&mut self, id: JobId) -> JobDetail {
        self.find(id).expect("the job exists")
    }

    /// The row of a job that exists.
    #[track_caller]
    pub fn job(&mut self, id: JobId) -> Job {
        self.detail(id).job
    }

    /// The remembered attempts of a job.
    pub fn attempts(&mut self, id: JobId) -> Vec<Attempt> {
        self.reader().attempts(id).expect("a healthy store can be read")
    }

    /// Checks that the store agrees with itself, its reads with its rows, and that the bystanders
    /// are as they were.
    #[track_caller]
    pub fn check(&mut self) {
        let mut reader = self.reader();
        let dump = reader.dump().expect("a healthy store can be dumped");
        let found = audit(&dump);
        assert!(found.is_empty(), "the store contradicts itself: {found:#?}\n{dump}");
        let found = self.subject.verify();
        assert!(found.is_empty(), "the indexes contradict the rows: {found:#?}\n{dump}");
        reads::check(&mut reader, &dump, self.read.as_ref());
        self.bystanders.check(&dump);
        self.read = Some(dump);
    }
}

impl<S: Subject> Default for World<S> {
    fn default() -> Self {
        Self::new()
    }
}

/// What one worker asks for.
pub fn claim_for(demand: Demand, taker: &str, max: usize) -> ClaimFor {
    ClaimFor { demand, takers: vec![Taker { worker: worker(taker), max, length: None }] }
}
