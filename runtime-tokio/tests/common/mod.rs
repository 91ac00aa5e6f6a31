//! What the tests of the runtime share: a store that fails, hangs or panics on command, and a
//! handler that waits for a signal.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use tokio::sync::{Semaphore, mpsc};
use windlass_core::store::{Batch, Cause, CommitError, Outcomes, Store, StoreError};
use windlass_core::{BatchId, JobId, LeaseToken, Millis, StateName, Wall};
use windlass_runtime_tokio::{Context, JobError, Queue};
use windlass_store_memory::{Fault, MemoryReader, MemoryStore};

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
    commits: u64,
    /// Every batch that was committed, in order.
    batches: Vec<Batch>,
    inside: bool,
}

impl Rig {
    pub(crate) fn store(&self) -> Rigged {
        self.on(MemoryStore::new())
    }

    pub(crate) fn on(&self, inner: MemoryStore) -> Rigged {
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

    /// Waits until a commit hangs.
    pub(crate) fn hangs(&self) {
        let (state, changed) = &*self.state;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        while !state.inside {
            state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
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
    type Reader = MemoryReader;

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

    fn look(&mut self, batch: BatchId) -> Result<bool, StoreError> {
        self.inner.look(batch)
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

    fn changed(&mut self) -> Result<bool, StoreError> {
        self.inner.changed()
    }

    fn reader(&self) -> Result<MemoryReader, StoreError> {
        self.inner.reader()
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
    pub(crate) async fn run(self, ctx: Context) -> Result<(), JobError> {
        let token = LeaseToken { job: ctx.id(), epoch: ctx.epoch() };
        self.started.send(token).map_err(JobError::retry)?;
        self.go.acquire().await.map_err(JobError::retry)?.forget();
        Ok(())
    }
}

impl Pace {
    /// Waits until the next handler has started.
    pub(crate) async fn started(&mut self) -> LeaseToken {
        self.started.recv().await.expect("a handler was to start")
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
    let found = queue.get(id).await.expect("the store can be read");
    found.expect("the job exists").job.state.name()
}
