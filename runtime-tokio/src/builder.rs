//! Putting a runtime together and starting it.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::runtime::Handle;
use tokio::sync::watch;
use windlass_core::machine::{self, Config, Limits, Machine};
use windlass_core::store::{Retention, Store, Worker, WorkerKind};
use windlass_core::{Demand, Kind, Kinds, Millis, Policy, ProcessId, QueueName, Queues, WorkerId};

use crate::clock::{Clock, SystemClock};
use crate::handler::{Handler, Handlers};
use crate::metrics::{TaskFigures, WriterFigures};
use crate::new_job::millis;
use crate::queue::Queue;
use crate::reads::Readers;
use crate::shared::{ClockWaker, Pulse, Shared, Tickets};
use crate::sync::{Mailbox, Mutex, Outbox, Slots, Weight};
use crate::watch::{Events, Watchers};
use crate::{Context, IntoVerdict, StartError, deliver, pool, supervise, writer};

/// The library's entrance: see [`Runtime::builder`].
#[derive(Debug)]
pub struct Runtime;

impl Runtime {
    /// Begins to put together a runtime on this store.
    pub fn builder<S>(store: S) -> Builder<S>
    where
        S: Store + Send + 'static,
        S::Reader: Send + 'static,
    {
        Builder::new(store)
    }
}

/// A runtime that is being put together. Nothing runs before [`start`](Builder::start).
#[derive(Debug)]
#[must_use = "nothing runs before `start`"]
pub struct Builder<S> {
    store: S,
    handlers: Vec<(String, Handler)>,
    queues: Option<Vec<String>>,
    workers: Option<usize>,
    clock: Arc<dyn Clock>,
    policy: Policy,
    retention: Retention,
    limits: Limits,
    room: Weight,
    presence: Option<Millis>,
    alone: bool,
    stop_grace: Millis,
    force_grace: Millis,
    patience: Millis,
    event_buffer: usize,
    host: String,
    worker_kind: WorkerKind,
    pub(crate) journal: bool,
}

/// How many workers there are, unless somebody says otherwise.
const WORKERS: usize = 16;

/// Bytes of payloads that may wait for their commit, unless it is said otherwise.
const WAITING_BYTES: usize = 64 * 1024 * 1024;

impl<S> Builder<S>
where
    S: Store + Send + 'static,
    S::Reader: Send + 'static,
{
    fn new(store: S) -> Self {
        let limits = Limits::default();
        Self {
            store,
            handlers: Vec::new(),
            queues: None,
            workers: None,
            clock: Arc::new(SystemClock),
            policy: Policy::default(),
            retention: Retention::default(),
            room: Weight { items: limits.batch, bytes: WAITING_BYTES },
            limits,
            presence: None,
            alone: false,
            stop_grace: Millis::seconds(1),
            force_grace: Millis::new(500),
            patience: Millis::seconds(10),
            event_buffer: 4_096,
            host: "local".into(),
            worker_kind: WorkerKind::Local,
            journal: false,
        }
    }

    /// Runs jobs of this kind with this function. Its payload is decoded by serde; a job whose
    /// payload cannot be decoded fails for good, and says where. Kinds without a handler are left
    /// to others.
    pub fn handler<T, F, Fut>(mut self, kind: &str, run: F) -> Self
    where
        T: DeserializeOwned,
        F: Fn(T, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoVerdict> + Send + 'static,
    {
        self.handlers.push((kind.into(), Handler::asynchronous(run)));
        self
    }

    /// The same for a function that blocks its thread. It runs on a thread for blocking work. It is
    /// told to stop like any other, but nothing can end it if it does not listen: its worker waits
    /// for it.
    pub fn blocking_handler<T, F, R>(mut self, kind: &str, run: F) -> Self
    where
        T: DeserializeOwned,
        F: Fn(T, Context) -> R + Send + Sync + 'static,
        R: IntoVerdict,
    {
        self.handlers.push((kind.into(), Handler::blocking(run)));
        self
    }

    /// How many jobs run at once; 16 if not set. Without handlers there are no workers.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Runs jobs of these queues only.
    pub fn queues<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.queues = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// What time it is; the system's clock if not set.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// What holds for jobs that do not say, in queues that do not say either.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// How long finished jobs are kept; forever if not set.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// What may pile up before callers are refused.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// How many jobs may stand in the mailbox before callers wait, or are refused; 10 000 if not
    /// set.
    pub fn mailbox(mut self, jobs: usize) -> Self {
        self.room.items = jobs.max(1);
        self
    }

    /// Has this process noted in the store as a worker, seen again so often.
    pub fn presence(mut self, every: Duration) -> Self {
        self.presence = Some(Millis::new(millis(every)));
        self
    }

    /// What this process is noted as; the pool of a server or program if not set.
    pub fn worker_kind(mut self, kind: WorkerKind) -> Self {
        self.worker_kind = kind;
        self
    }

    /// The name of this machine, shown with the worker.
    pub fn host(mut self, host: &str) -> Self {
        self.host = host.into();
        self
    }

    /// No other process writes to this store, so nobody looks whether one has: an idle runtime
    /// then never wakes up.
    pub fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    /// How long a handler that was told to stop has to return before it is dropped; one second if
    /// not set.
    pub fn stop_grace(mut self, grace: Duration) -> Self {
        self.stop_grace = Millis::new(millis(grace));
        self
    }

    /// How long handlers have to end after the deadline of a shutdown; half a second if not set.
    pub fn force_grace(mut self, grace: Duration) -> Self {
        self.force_grace = Millis::new(millis(grace));
        self
    }

    /// How long a call of the store may take before it is taken to be stuck; ten seconds if not
    /// set.
    pub fn store_patience(mut self, patience: Duration) -> Self {
        self.patience = Millis::new(millis(patience));
        self
    }

    /// How many events a stream keeps for a reader that is slow; 4096 if not set.
    pub fn event_buffer(mut self, events: usize) -> Self {
        self.event_buffer = events;
        self
    }

    /// Starts: from here on jobs are taken and run. It must be called inside a tokio runtime whose
    /// timers are on.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass_runtime_tokio::{Context, NewJob, Runtime};
    /// use windlass_store_memory::MemoryStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let queue = Runtime::builder(MemoryStore::new())
    ///     .handler("greet", |name: String, _: Context| async move {
    ///         println!("hello, {name}");
    ///     })
    ///     .workers(4)
    ///     .start()?;
    /// let receipt = queue.enqueue(NewJob::of("greet", "Ada")?).await?;
    /// queue.wait(receipt.id).await?;
    /// let report = queue.shutdown(Duration::from_secs(30)).await;
    /// assert!(report.is_clean());
    /// # Ok(())
    /// # }
    /// ```
    pub fn start(mut self) -> Result<Queue, StartError> {
        let tokio = Handle::try_current().map_err(|_| StartError::NoTokio)?;
        let handlers = self.named_handlers()?;
        let config = self.config(&handlers)?;
        let (shared, slots) = (self.shared(&config, !handlers.is_empty())?, config.worker.slots);
        shared.clock.tell(Waker::from(Arc::new(ClockWaker(Arc::downgrade(&shared)))));
        let machine = Machine::new(config);
        let (store, of_writer) = (self.store, Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("windlass-writer".into());
        let spawned = thread.spawn(move || writer::run(store, machine, &of_writer));
        spawned.map_err(|error| StartError::System(error.to_string()))?;
        let handlers = Arc::new(handlers);
        tokio.spawn(deliver::deliver(Arc::clone(&shared), Arc::clone(&handlers)));
        tokio.spawn(supervise::watch(Arc::clone(&shared)));
        for worker in 0..slots {
            tokio.spawn(pool::keep_working(Arc::clone(&shared), Arc::clone(&handlers), worker));
        }
        Ok(Queue::of(&shared))
    }

    fn named_handlers(&mut self) -> Result<Handlers, StartError> {
        let mut handlers = BTreeMap::new();
        for (given, handler) in std::mem::take(&mut self.handlers) {
            let kind = Kind::new(&given).map_err(|source| StartError::Name {
                what: "kind",
                given: given.clone(),
                source,
            })?;
            if handlers.insert(kind, Arc::new(handler)).is_some() {
                return Err(StartError::TwoHandlers(given));
            }
        }
        Ok(handlers)
    }

    fn config(&self, handlers: &Handlers) -> Result<Config, StartError> {
        let default = if handlers.is_empty() { 0 } else { WORKERS };
        let slots = self.workers.unwrap_or(default);
        if (slots == 0) != handlers.is_empty() {
            return Err(StartError::Unmanned { handlers: handlers.len(), workers: slots });
        }
        let boot = boot_id()?;
        let id = format!("w-{boot:016x}");
        let id = WorkerId::new(&id).map_err(|source| StartError::Name {
            what: "worker",
            given: id,
            source,
        })?;
        let kinds = Kinds::only(handlers.keys().cloned().collect());
        let worker = Worker {
            pid: Some(std::process::id()),
            demand: Demand { queues: self.demanded()?, kinds },
            ..Worker::new(id, &self.host, self.worker_kind)
        };
        let mut config = Config::new(ProcessId(boot), worker, slots);
        config.policy = self.policy;
        config.retention = self.retention;
        config.presence = self.presence;
        config.change_check = self.store.change_check().filter(|_| !self.alone);
        config.force_grace = self.force_grace;
        config.limits = self.limits;
        Ok(config)
    }

    fn demanded(&self) -> Result<Queues, StartError> {
        let Some(given) = &self.queues else { return Ok(Queues::All) };
        let name = |given: &String| {
            QueueName::new(given).map_err(|source| StartError::Name {
                what: "queue",
                given: given.clone(),
                source,
            })
        };
        let names: Result<Vec<QueueName>, StartError> = given.iter().map(name).collect();
        Ok(Queues::only(names?))
    }

    fn shared(&self, config: &Config, manned: bool) -> Result<Arc<Shared>, StartError> {
        let workers = config.worker.slots;
        let figures = WriterFigures { workers, ..WriterFigures::default() };
        Ok(Arc::new(Shared {
            mailbox: Mailbox::new(self.room),
            outbox: Outbox::new(),
            slots: Slots::new(workers),
            tickets: Mutex::new(Tickets::default()),
            attempts: Mutex::new(BTreeMap::new()),
            clock: Arc::clone(&self.clock),
            readers: Readers::new(&self.store)?,
            watchers: Watchers::default(),
            events: Events::new(self.event_buffer),
            untold: AtomicUsize::new(0),
            durability: self.store.durability(),
            worker: config.worker.id.clone(),
            manned,
            workers: AtomicUsize::new(workers),
            stop_asked: watch::Sender::new(false),
            stop_grace: self.stop_grace,
            force_grace: self.force_grace,
            patience: self.patience,
            handles: AtomicUsize::new(0),
            abandoned: AtomicBool::new(false),
            pulse: Pulse::default(),
            health: Mutex::new(machine::Health::Good),
            died: OnceLock::new(),
            lost: watch::Sender::new(None),
            ended: watch::Sender::new(None),
            writer_figures: Mutex::new(figures),
            task_figures: TaskFigures::default(),
            journal: self.journal.then(|| Mutex::new(Vec::new())),
        }))
    }
}

/// A number that no other boot of any process has.
fn boot_id() -> Result<u64, StartError> {
    getrandom::u64().map_err(|error| StartError::System(error.to_string()))
}
