//! What every request can reach: the queue, the tokens, the figures, the events. It holds no rule.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::time::MissedTickBehavior;
use windlass_core::store::{Durability, StoreError};
use windlass_core::{JobId, Wall};
use windlass_runtime_tokio::{Clock, Health, Queue, ReadError, Reads, SystemClock};

use crate::api::feed::Feed;
use crate::api::history::Past;
use crate::api::hub::Hub;
use crate::api::lookup::Lookup;
use crate::api::metrics::Figures;
use crate::api::problem::{self, Problem};
use crate::http::auth::Tokens;
use crate::http::guard::Hosts;
use crate::http::limits::{BODIES_KIB, Limits};
use crate::http::room::AnswerRoom;
use crate::kinds::command::Allowed;
use crate::settings::{Followed, Levels};
use crate::store::{Maintenance, OldestXmin, Opened, StoreBytes, StoreUrl};

/// The server, as requests see it.
#[derive(Debug)]
pub(crate) struct App {
    /// What is stored, for whatever only reads.
    pub(crate) reads: Reads,
    /// `None` in a process that only reads the store: see [`queue`](App::queue).
    pub(crate) queue: Option<Queue>,
    pub(crate) tokens: Tokens,
    pub(crate) hosts: Hosts,
    pub(crate) limits: Limits,
    pub(crate) hub: Arc<Hub>,
    pub(crate) figures: Figures,
    pub(crate) closing: Closing,
    pub(crate) lookup: Lookup,
    /// Room for bodies that are being served, in KiB.
    pub(crate) body_room: Arc<Semaphore>,
    /// Room for large answers that wait for their readers.
    pub(crate) answer_room: AnswerRoom,
    /// The store in use, as given.
    pub(crate) store: StoreUrl,
    /// For checks and copies, one at a time.
    pub(crate) maintenance: Maintenance,
    pub(crate) upkeep: Arc<Semaphore>,
    /// The settings in effect.
    pub(crate) settings: Arc<Followed>,
    /// Programs that may be enqueued as commands over HTTP (`--allow-command`).
    pub(crate) allowed: Allowed,
    /// Name of the environment (`--label`).
    pub(crate) label: Option<String>,
    /// Start of this process, by the store's clock.
    pub(crate) started_at: Wall,
    /// Snapshots for event streams.
    pub(crate) feed: Feed,
    /// What this process has seen of the past.
    pub(crate) history: Past,
    /// Requests come from this process's own command, not from HTTP: they may enqueue commands.
    pub(crate) trusted: bool,
}

/// Interval at which `wait` polls a read-only store.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The wall clock of this machine, in milliseconds; see [`App::store_now`].
pub(crate) fn now() -> Wall {
    SystemClock.now().wall
}

impl App {
    /// What every request needs, with the usual limits; no tokens, no names, nothing local.
    pub(crate) fn new(
        opened: Opened,
        queue: Option<Queue>,
        store: StoreUrl,
        closing: Closing,
    ) -> Self {
        let Opened { reads, settings, maintenance } = opened;
        Self {
            lookup: Lookup::start(reads.clone()),
            reads,
            queue,
            tokens: Tokens::default(),
            hosts: Hosts::default(),
            limits: Limits::default(),
            hub: Hub::new(now(), false),
            figures: Figures::default(),
            closing,
            body_room: Arc::new(Semaphore::new(BODIES_KIB)),
            answer_room: AnswerRoom::new(),
            store,
            maintenance,
            upkeep: Arc::new(Semaphore::new(1)),
            settings,
            allowed: Allowed::default(),
            label: None,
            started_at: now(),
            feed: Feed::new(),
            history: Past::default(),
            trusted: false,
        }
    }

    /// The queue that writes to the store.
    pub(crate) fn queue(&self) -> Result<&Queue, Problem> {
        self.queue.as_ref().ok_or_else(|| {
            let detail = "this process only reads the store; this is a bug";
            Problem::new(problem::INTERNAL, detail)
        })
    }

    /// Health of the queue and its store; always good if the store is only read.
    pub(crate) fn health(&self) -> Health {
        self.queue.as_ref().map_or(Health::Good, Queue::health)
    }

    /// Waits until a job is finished or deleted. Without a queue (read-only) it polls at
    /// [`POLL_INTERVAL`].
    pub(crate) async fn finished(&self, id: JobId) {
        if let Some(queue) = &self.queue {
            // The result is ignored: the caller reads the job again.
            let _ = queue.wait(id).await;
            return;
        }
        let mut ticks = tokio::time::interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match self.lookup.job(id).await {
                Ok(Some(detail)) if !detail.job.state.name().is_finished() => {}
                // Another process has the file for a while.
                Err(ReadError::Store(StoreError::Busy(_))) => {}
                _ => return,
            }
        }
    }

    /// What time it is by the clock of the store, which that of this machine may differ from.
    pub(crate) async fn store_now(&self) -> Result<Wall, ReadError> {
        self.reads.read(|reader| reader.now(now())).await
    }

    /// Reads and applies the settings that the store keeps; returns those in effect.
    pub(crate) async fn refresh_settings(&self) -> Result<Levels, ReadError> {
        self.settings.refresh(&self.reads, self.queue.as_ref()).await
    }

    /// How much space the store takes.
    pub(crate) async fn store_bytes(&self) -> StoreBytes {
        let (maintenance, store) = (self.maintenance.clone(), self.store.clone());
        let read = tokio::task::spawn_blocking(move || maintenance.bytes(&store));
        read.await.unwrap_or_default()
    }

    /// The oldest snapshot that keeps dead rows of a store on PostgreSQL.
    pub(crate) async fn oldest_xmin(&self) -> Option<OldestXmin> {
        let maintenance = self.maintenance.clone();
        tokio::task::spawn_blocking(move || maintenance.oldest_xmin()).await.ok().flatten()
    }

    /// What a stored job survives, as the API names it.
    pub(crate) fn durability(&self) -> &'static str {
        match self.queue.as_ref().map(Queue::durability) {
            Some(Durability::Replicated) => "replicated",
            None | Some(Durability::Synced) => "fsync",
            Some(Durability::Memory) => "none",
        }
    }
}

/// The shutdown stage, to be awaited.
#[derive(Debug, Clone)]
pub(crate) struct Closing(watch::Receiver<Stage>);

/// A stage of the shutdown, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Serving.
    Open,
    /// New jobs are refused; polls and streams are ended.
    Draining,
    /// Connections end after their present request.
    Closing,
}

impl Closing {
    pub(crate) fn new() -> (watch::Sender<Stage>, Self) {
        let (sender, receiver) = watch::channel(Stage::Open);
        (sender, Self(receiver))
    }

    pub(crate) fn stage(&self) -> Stage {
        *self.0.borrow()
    }

    /// Ends once that stage is reached.
    pub(crate) async fn reached(&self, stage: Stage) {
        let mut receiver = self.0.clone();
        // The sender is dropped: treat as closed.
        let _ = receiver.wait_for(|now| *now >= stage).await;
    }
}
