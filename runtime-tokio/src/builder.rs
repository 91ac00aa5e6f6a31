//! Configures a runtime and starts it: the writer thread, the delivery task, the watchdog and the
//! workers. Nothing is spawned before [`Builder::start`].

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
use windlass_core::store::{Instance, Retention, Store, Worker, WorkerKind};
use windlass_core::{
    Demand, Kind, Kinds, Millis, Policy, ProcessId, QueueName, Queues, WorkerId, WorkerVersion,
};

use crate::clock::{Clock, SystemClock};
use crate::handler::{Handler, Handlers};
use crate::lease_timer::LeaseTimer;
use crate::metrics::{TaskFigures, WriterFigures};
use crate::new_job::millis;
use crate::queue::Queue;
use crate::reads::Readers;
use crate::shared::{ClockWaker, CurrentDurability, NewsWaker, Shared, StoreCallTimer, Tickets};
use crate::sync::{Mailbox, Mutex, Outbox, Slots, Weight};
use crate::watch::{Events, Watchers};
use crate::{Context, IntoVerdict, StartError, deliver, lease_timer, pool, supervise, writer};

/// The entry point of the library: see [`Runtime::builder`].
#[derive(Debug)]
pub struct Runtime;

impl Runtime {
    /// Configures a runtime on this store, which it takes over.
    pub fn builder<S>(store: S) -> Builder<S>
    where
        S: Store + Send + 'static,
        S::Reader: Send + 'static,
    {
        Builder::new(store)
    }
}

/// The settings of a runtime. Nothing runs before [`start`](Builder::start).
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
    store_timeout: Millis,
    event_buffer: usize,
    host: String,
    instance: Option<Instance>,
    version: String,
    worker_kind: WorkerKind,
    pub(crate) journal: bool,
}

/// Workers of a runtime that has handlers and does not set their number.
const DEFAULT_WORKERS: usize = 16;

/// Bytes of payloads that may wait in the mailbox.
const MAILBOX_BYTES: usize = 64 * 1024 * 1024;

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
            retention: Retention::USUAL,
            room: Weight { items: limits.batch, bytes: MAILBOX_BYTES },
            limits,
            presence: None,
            alone: false,
            stop_grace: Millis::seconds(1),
            force_grace: Millis::new(500),
            store_timeout: Millis::seconds(10),
            event_buffer: 4_096,
            host: "local".into(),
            instance: None,
            version: env!("CARGO_PKG_VERSION").into(),
            worker_kind: WorkerKind::Local,
            journal: false,
        }
    }

    /// Runs jobs of this kind with this function. The payload is decoded by serde; a job whose
    /// payload cannot be decoded fails without a retry, and its error names the field. Jobs of
    /// kinds without a handler are not claimed by this process.
    pub fn handler<T, F, Fut>(mut self, kind: &str, run: F) -> Self
    where
        T: DeserializeOwned,
        F: Fn(T, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoVerdict> + Send + 'static,
    {
        self.handlers.push((kind.into(), Handler::asynchronous(run)));
        self
    }

    /// Like [`handler`](Builder::handler), for a function that blocks its thread. It runs on a
    /// thread of tokio's blocking pool. It cannot be dropped when it is asked to stop: it must
    /// check [`Context::is_stopping`] and return, and its worker is occupied until it does.
    pub fn blocking_handler<T, F, R>(mut self, kind: &str, run: F) -> Self
    where
        T: DeserializeOwned,
        F: Fn(T, Context) -> R + Send + Sync + 'static,
        R: IntoVerdict,
    {
        self.handlers.push((kind.into(), Handler::blocking(run)));
        self
    }

    /// Maximum number of jobs that run at the same time in this process; 16 by default. A runtime
    /// without handlers has no workers.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Runs jobs of these queues only; of all queues by default.
    pub fn queues<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.queues = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// The source of time; [`SystemClock`] by default.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Retries, timeouts and lease length of jobs that do not set them, in queues that do not set
    /// them either.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// The age at which finished jobs are purged: [`Retention::USUAL`] unless set, which is 7 days
    /// for done and cancelled jobs and 30 days for dead letters. [`Retention::default`] keeps all
    /// for ever.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// Limits on requests, polls and batches. A request beyond them is refused.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Maximum number of jobs that wait in the mailbox for a commit; 10 000 by default. Beyond it
    /// [`Queue::enqueue`] waits and [`Queue::try_enqueue`] is refused.
    pub fn mailbox(mut self, jobs: usize) -> Self {
        self.room.items = jobs.max(1);
        self
    }

    /// Lists this process in the store as a worker, and updates `last_seen` with this period. Not
    /// listed by default.
    pub fn presence(mut self, every: Duration) -> Self {
        self.presence = Some(Millis::new(millis(every)));
        self
    }

    /// The kind of worker under which this process is listed; [`WorkerKind::Local`] by default.
    pub fn worker_kind(mut self, kind: WorkerKind) -> Self {
        self.worker_kind = kind;
        self
    }

    /// The host name under which this process is listed; `local` by default.
    pub fn host(mut self, host: &str) -> Self {
        self.host = host.into();
        self
    }

    /// Which of all processes of its machine this one is: others there then know when it has died,
    /// and call [`end_worker`](Queue::end_worker).
    pub fn instance(mut self, instance: Option<Instance>) -> Self {
        self.instance = instance;
        self
    }

    /// The version under which this process is listed, up to 64 printable ASCII characters; that of
    /// Windlass by default.
    pub fn version(mut self, version: &str) -> Self {
        self.version = version.into();
        self
    }

    /// Declares that no other process writes to this store, so the store is not checked for
    /// changes by others, and an idle runtime never wakes up.
    pub fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    /// How long a handler that is asked to stop may take to return before it is dropped; one
    /// second by default. On shutdown handlers are asked this long before the deadline.
    pub fn stop_grace(mut self, grace: Duration) -> Self {
        self.stop_grace = Millis::new(millis(grace));
        self
    }

    /// How long recording the end of handlers may take after the deadline of a shutdown; 500 ms by
    /// default.
    pub fn force_grace(mut self, grace: Duration) -> Self {
        self.force_grace = Millis::new(millis(grace));
        self
    }

    /// How long a call of the store may take before health is [`Stuck`](crate::Health::Stuck) and
    /// requests are refused; ten seconds by default. The call itself is not interrupted.
    pub fn store_timeout(mut self, timeout: Duration) -> Self {
        self.store_timeout = Millis::new(millis(timeout));
        self
    }

    /// Number of events that an [`EventStream`](crate::EventStream) buffers for a slow reader;
    /// 4096 by default.
    pub fn event_buffer(mut self, events: usize) -> Self {
        self.event_buffer = events;
        self
    }

    /// Starts the runtime: it accepts and runs jobs from now on. Must be called inside a tokio
    /// runtime with timers enabled.
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
        if let Some(seal) = shared.readers.seal() {
            return Err(StartError::Sealed(seal));
        }
        shared.clock.notify(Waker::from(Arc::new(ClockWaker(Arc::downgrade(&shared)))));
        if config.change_check.is_some() {
            let waker = NewsWaker(Arc::downgrade(&shared));
            self.store.wake_on_news(Waker::from(Arc::new(waker)));
        }
        let machine = Machine::new(config);
        let (store, of_writer) = (self.store, Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("windlass-writer".into());
        let spawned = thread.spawn(move || writer::run(store, machine, &of_writer));
        spawned.map_err(|error| StartError::System(error.to_string()))?;
        let handlers = Arc::new(handlers);
        tokio.spawn(deliver::deliver(Arc::clone(&shared), Arc::clone(&handlers)));
        tokio.spawn(supervise::watch(Arc::clone(&shared)));
        tokio.spawn(lease_timer::watch(Arc::clone(&shared)));
        for worker in 0..slots {
            tokio.spawn(pool::run_worker(Arc::clone(&shared), Arc::clone(&handlers), worker));
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
        let default = if handlers.is_empty() { 0 } else { DEFAULT_WORKERS };
        let slots = self.workers.unwrap_or(default);
        if (slots == 0) != handlers.is_empty() {
            return Err(StartError::WorkerCount { handlers: handlers.len(), workers: slots });
        }
        let boot = boot_id()?;
        let id = format!("w-{boot:016x}");
        let id = WorkerId::new(&id).map_err(|source| StartError::Name {
            what: "worker",
            given: id,
            source,
        })?;
        let version = WorkerVersion::new(&self.version).map_err(|source| StartError::Name {
            what: "version",
            given: self.version.clone(),
            source,
        })?;
        let kinds = Kinds::only(handlers.keys().cloned().collect());
        let worker = Worker {
            pid: Some(std::process::id()),
            instance: self.instance.clone(),
            version: Some(version),
            demand: Demand { queues: self.demanded()?, kinds },
            ..Worker::new(id, &self.host, self.worker_kind)
        };
        let mut config = Config::new(ProcessId(boot), worker, slots);
        config.policy = self.policy;
        config.retention = self.retention;
        config.presence = self.presence;
        config.change_check = self.store.change_check().filter(|_| !self.alone);
        config.stop_grace = self.stop_grace;
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

    fn shared(&self, config: &Config, has_handlers: bool) -> Result<Arc<Shared>, StartError> {
        let workers = config.worker.slots;
        let figures = WriterFigures { workers, ..WriterFigures::default() };
        Ok(Arc::new(Shared {
            mailbox: Mailbox::new(self.room),
            outbox: Outbox::new(),
            slots: Slots::new(workers),
            tickets: Mutex::new(Tickets::default()),
            attempts: Mutex::new(BTreeMap::new()),
            clock: Arc::clone(&self.clock),
            readers: Arc::new(Readers::new(&self.store)?),
            watchers: Watchers::default(),
            events: Events::new(self.event_buffer),
            undelivered_changes: AtomicUsize::new(0),
            durability: CurrentDurability::new(self.store.durability()),
            worker: config.worker.id.clone(),
            has_handlers,
            workers: AtomicUsize::new(workers),
            stop_asked: watch::Sender::new(false),
            drain: watch::Sender::new(None),
            lease_timer: LeaseTimer::default(),
            stop_grace: self.stop_grace,
            force_grace: self.force_grace,
            store_timeout: self.store_timeout,
            handles: AtomicUsize::new(0),
            abandoned: AtomicBool::new(false),
            store_call: StoreCallTimer::default(),
            health: Mutex::new(machine::Health::Good),
            died: OnceLock::new(),
            hinted: AtomicBool::new(false),
            lost: watch::Sender::new(None),
            ended: watch::Sender::new(None),
            writer_figures: Mutex::new(figures),
            task_figures: TaskFigures::default(),
            journal: self.journal.then(|| Mutex::new(Vec::new())),
        }))
    }
}

/// A random number that identifies this start of this process.
fn boot_id() -> Result<u64, StartError> {
    getrandom::u64().map_err(|error| StartError::System(error.to_string()))
}
