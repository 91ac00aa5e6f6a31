//! What the tests of the runtime share: a time limit, a store that fails, hangs or panics on
//! command, and a handler that waits for a signal.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use windlass_core::store::{
    Batch, BulkRow, Cause, CommitError, CopyPlace, CopyRows, Cursor, Dump, FigureRange, FigureRow,
    Filter, JobDetail, News, Outcomes, Page, PageSize, Reader, Store, StoreError, WorkerRow,
};
use windlass_core::{
    Attempt, BatchId, JobId, LeaseToken, Millis, QueueName, QueueRow, SettingKey, SettingValue,
    StateName, Wall,
};
use windlass_core::{GroupId, GroupRow};
use windlass_runtime_tokio::{BoxError, Context, Queue};
use windlass_store_memory::{Fault, MemoryReader, MemoryStore};

/// How long a test may take, in real time.
const LIMIT: Duration = Duration::from_mins(1);

thread_local! {
    /// What the test on this thread has come to, and the rigs it uses.
    static STORY: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static RIGS: RefCell<Vec<Rig>> = const { RefCell::new(Vec::new()) };
}

/// Notes how far a test has come, to be printed should it not end.
pub(crate) fn note(step: impl Into<String>) {
    let step = step.into();
    STORY.with_borrow_mut(|story| {
        if story.last() != Some(&step) {
            story.push(step);
        }
    });
}

/// Runs a test. One that does not end in time fails by its name, and says how far it came.
pub(crate) async fn within<R>(test: impl Future<Output = R>) -> R {
    within_time(LIMIT, test).await
}

/// The same, for a test that has much to do.
pub(crate) async fn within_time<R>(limit: Duration, test: impl Future<Output = R>) -> R {
    if let Ok(result) = tokio::time::timeout(limit, test).await {
        return result;
    }
    let story = STORY.with_borrow(|story| story[story.len().saturating_sub(10)..].join("; "));
    let rigs: Vec<String> = RIGS.with_borrow(|rigs| rigs.iter().map(Rig::description).collect());
    for rig in RIGS.with_borrow(Clone::clone) {
        // A task that waits for the store must not wait for ever, or the test could not end.
        rig.let_go();
    }
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    panic!("{name} did not end within {limit:?}; it came to: [{story}]; stores: {rigs:?}");
}

/// Polls a future once, from outside of any runtime.
pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut TaskContext::from_waker(Waker::noop()))
}

/// A memory store that does what its rig says.
#[derive(Debug)]
pub(crate) struct Rigged {
    inner: MemoryStore,
    rig: Rig,
}

/// The other end: what the store is to do.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rig {
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Debug, Default)]
struct State {
    fault: Option<Fault>,
    once: Option<Fault>,
    panics: bool,
    held: bool,
    /// The number of readers made.
    readers: usize,
    /// Held by every reader.
    living: Arc<()>,
    /// Every batch that was committed, in order.
    batches: Vec<Batch>,
    inside: bool,
}

impl Rig {
    /// The calls and faults so far.
    fn description(&self) -> String {
        let state = self.state.0.lock().unwrap_or_else(PoisonError::into_inner);
        let State { fault, held, inside, readers, batches, .. } = &*state;
        let last = batches.last().map(Batch::len);
        let commits = batches.len();
        format!(
            "{commits} commits, the last of {last:?}; {readers} readers; fault {fault:?}, \
             held {held}, inside {inside}"
        )
    }

    pub(crate) fn store(&self) -> Rigged {
        self.on(MemoryStore::new())
    }

    pub(crate) fn on(&self, inner: MemoryStore) -> Rigged {
        RIGS.with_borrow_mut(|rigs| rigs.push(self.clone()));
        Rigged { inner, rig: self.clone() }
    }

    /// Every commit fails like this from now on; none, if none.
    pub(crate) fn fail(&self, fault: Option<Fault>) {
        self.change(|state| state.fault = fault);
    }

    /// The next commit fails like this.
    pub(crate) fn fail_once(&self, fault: Fault) {
        self.change(|state| state.once = Some(fault));
    }

    /// The next commit panics.
    pub(crate) fn panic(&self) {
        self.change(|state| state.panics = true);
    }

    /// Commits do not return until [`let_go`](Rig::let_go).
    pub(crate) fn hold(&self) {
        self.change(|state| state.held = true);
    }

    pub(crate) fn let_go(&self) {
        self.change(|state| state.held = false);
    }

    /// Waits until a commit hangs, on a thread for waiting.
    pub(crate) async fn hangs(&self) {
        note("waiting for a commit to hang");
        let rig = self.clone();
        let waiting = tokio::task::spawn_blocking(move || {
            let (state, changed) = &*rig.state;
            let state = state.lock().unwrap_or_else(PoisonError::into_inner);
            let hangs = changed.wait_timeout_while(state, LIMIT / 2, |state| !state.inside);
            assert!(!hangs.unwrap_or_else(PoisonError::into_inner).1.timed_out(), "none hangs");
        });
        waiting.await.expect("a commit was to hang");
    }

    /// The number of those not dropped.
    pub(crate) fn living_readers(&self) -> usize {
        self.change(|state| Arc::strong_count(&state.living) - 1)
    }

    /// The number of readers made.
    pub(crate) fn readers(&self) -> usize {
        self.change(|state| state.readers)
    }

    /// The batches committed so far.
    pub(crate) fn batches(&self) -> Vec<Batch> {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner).batches.clone()
    }

    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let (state, changed) = &*self.state;
        let result = change(&mut state.lock().unwrap_or_else(PoisonError::into_inner));
        changed.notify_all();
        result
    }

    fn pass(&self) -> Option<Fault> {
        let (state, changed) = &*self.state;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.held {
            state.inside = true;
            changed.notify_all();
            state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.inside = false;
        if std::mem::take(&mut state.panics) {
            drop(state);
            panic!("the disk caught fire");
        }
        state.once.take().or(state.fault)
    }
}

impl Store for Rigged {
    type Reader = RiggedReader;

    fn commit(&mut self, now: Wall, batch: &Batch) -> Result<Outcomes, CommitError> {
        if let Some(fault) = self.rig.pass() {
            self.inner.fail_next(fault);
        }
        let result = self.inner.commit(now, batch);
        if result.is_ok() {
            self.rig.change(|state| state.batches.push(batch.clone()));
        }
        result
    }

    fn was_committed(&mut self, batch: BatchId) -> Result<bool, StoreError> {
        self.inner.was_committed(batch)
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        match self.rig.pass() {
            Some(Fault::Corrupt) => Err(StoreError::Corrupt(Cause::new("rigged"))),
            Some(_) => Err(StoreError::Busy(Cause::new("rigged"))),
            None => self.inner.reopen(),
        }
    }

    fn change_check(&self) -> Option<Millis> {
        self.inner.change_check()
    }

    fn news(&mut self, held: &[LeaseToken]) -> Result<News, StoreError> {
        self.inner.news(held)
    }

    fn reader(&self) -> Result<RiggedReader, StoreError> {
        let living = self.rig.change(|state| {
            state.readers += 1;
            Arc::clone(&state.living)
        });
        Ok(RiggedReader { inner: self.inner.reader()?, _living: living })
    }
}

/// A reader whose end can be seen.
#[derive(Debug)]
pub(crate) struct RiggedReader {
    inner: MemoryReader,
    _living: Arc<()>,
}

impl Reader for RiggedReader {
    fn jobs(&mut self, ids: &[JobId]) -> Result<Vec<Option<JobDetail>>, StoreError> {
        self.inner.jobs(ids)
    }

    fn list(
        &mut self,
        filter: &Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.inner.list(filter, after, limit)
    }

    fn queues(&mut self) -> Result<Vec<QueueRow>, StoreError> {
        self.inner.queues()
    }

    fn queue(&mut self, name: &QueueName) -> Result<Option<QueueRow>, StoreError> {
        self.inner.queue(name)
    }

    fn oldest_ready(&mut self, queue: &QueueName) -> Result<Option<Wall>, StoreError> {
        self.inner.oldest_ready(queue)
    }

    fn next_due(&mut self) -> Result<Option<Wall>, StoreError> {
        self.inner.next_due()
    }

    fn attempts(&mut self, id: JobId) -> Result<Vec<Attempt>, StoreError> {
        self.inner.attempts(id)
    }

    fn workers(&mut self) -> Result<Vec<WorkerRow>, StoreError> {
        self.inner.workers()
    }

    fn error_groups(&mut self) -> Result<Vec<GroupRow>, StoreError> {
        self.inner.error_groups()
    }

    fn error_group(&mut self, id: GroupId) -> Result<Option<GroupRow>, StoreError> {
        self.inner.error_group(id)
    }

    fn settings(&mut self) -> Result<Vec<(SettingKey, SettingValue)>, StoreError> {
        self.inner.settings()
    }

    fn figures(&mut self, ranges: &[FigureRange]) -> Result<Vec<FigureRow>, StoreError> {
        self.inner.figures(ranges)
    }

    fn bulk(&mut self) -> Result<Vec<BulkRow>, StoreError> {
        self.inner.bulk()
    }

    fn copy_page(&mut self, after: &CopyPlace, size: PageSize) -> Result<CopyRows, StoreError> {
        self.inner.copy_page(after, size)
    }

    fn dump(&mut self) -> Result<Dump, StoreError> {
        self.inner.dump()
    }
}

/// A handler that says when it starts and waits for a signal to end.
#[derive(Debug, Clone)]
pub(crate) struct Paced {
    started: mpsc::UnboundedSender<LeaseToken>,
    go: Arc<Semaphore>,
}

/// The other end of [`Paced`].
#[derive(Debug)]
pub(crate) struct Pace {
    started: mpsc::UnboundedReceiver<LeaseToken>,
    go: Arc<Semaphore>,
}

pub(crate) fn paced() -> (Paced, Pace) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let go = Arc::new(Semaphore::new(0));
    (Paced { started: sender, go: Arc::clone(&go) }, Pace { started: receiver, go })
}

impl Paced {
    pub(crate) async fn run(self, ctx: Context) -> Result<(), BoxError> {
        let token = LeaseToken { job: ctx.id(), epoch: ctx.epoch() };
        self.started.send(token)?;
        self.go.acquire().await?.forget();
        Ok(())
    }
}

impl Pace {
    /// Waits until the next handler has started.
    pub(crate) async fn started(&mut self) -> LeaseToken {
        note("waiting for a handler to start");
        let token = self.started.recv().await.expect("a handler was to start");
        note(format!("{token:?} has started"));
        token
    }

    pub(crate) fn has_started(&mut self) -> bool {
        self.started.try_recv().is_ok()
    }

    /// Lets this many handlers end.
    pub(crate) fn go(&self, handlers: usize) {
        self.go.add_permits(handlers);
    }
}

/// The state a job is in.
pub(crate) async fn state(queue: &Queue, id: JobId) -> StateName {
    note(format!("reading job {id}; {:?}", queue.health()));
    let found = queue.get(id).await.expect("the store can be read");
    found.expect("the job exists").job.state.name()
}
