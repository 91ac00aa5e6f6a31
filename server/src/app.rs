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
use crate::http::limits::{ANSWERS_KIB, BODIES_KIB, Limits};
use crate::kinds::command::Allowed;
use crate::settings::{Followed, Levels};
use crate::store::{Maintenance, Opened, StoreBytes, StoreUrl};

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
    /// Room for large answers that wait for their readers, in KiB.
    pub(crate) answer_room: Arc<Semaphore>,
    /// Where the store is.
    pub(crate) store: StoreUrl,
    /// For checks and copies, one at a time.
    pub(crate) maintenance: Maintenance,
    pub(crate) upkeep: Arc<Semaphore>,
    /// What this process lives by.
    pub(crate) settings: Arc<Followed>,
    /// Which commands are taken over HTTP.
    pub(crate) allowed: Allowed,
    /// What this environment is called.
    pub(crate) label: Option<String>,
    pub(crate) started_at: Wall,
    /// Snapshots for those who watch.
    pub(crate) feed: Feed,
    /// What this process has seen of the past.
    pub(crate) history: Past,
    /// Held while the settings of a queue are checked and replaced.
    pub(crate) queue_edits: tokio::sync::Mutex<()>,
    /// Whether callers are whoever started this process, and may run commands with it.
    pub(crate) trusted: bool,
}

/// How often a process without a queue looks at a job that it waits for.
const LOOK: Duration = Duration::from_millis(100);

/// What time it is.
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
            answer_room: Arc::new(Semaphore::new(ANSWERS_KIB)),
            store,
            maintenance,
            upkeep: Arc::new(Semaphore::new(1)),
            settings,
            allowed: Allowed::default(),
            label: None,
            started_at: now(),
            feed: Feed::new(),
            history: Past::new(now()),
            queue_edits: tokio::sync::Mutex::new(()),
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

    /// How it is with the queue and its store. Nothing is wrong with a store that is only read.
    pub(crate) fn health(&self) -> Health {
        self.queue.as_ref().map_or(Health::Good, Queue::health)
    }

    /// Waits until a job is finished or gone. Without a queue, which hears of it, the job is looked
    /// at again and again.
    pub(crate) async fn finished(&self, id: JobId) {
        if let Some(queue) = &self.queue {
            // Whatever came of it is seen by whoever waits.
            let _ = queue.wait(id).await;
            return;
        }
        let mut ticks = tokio::time::interval(LOOK);
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

    /// Reads the settings that the store keeps, and says what holds.
    pub(crate) async fn refresh_settings(&self) -> Result<Levels, ReadError> {
        self.settings.refresh(&self.reads, self.queue.as_ref()).await
    }

    /// How much space the store takes.
    pub(crate) async fn store_bytes(&self) -> StoreBytes {
        let (maintenance, store) = (self.maintenance.clone(), self.store.clone());
        let read = tokio::task::spawn_blocking(move || maintenance.bytes(&store));
        read.await.unwrap_or_default()
    }

    /// What a stored job survives, as clients are told.
    pub(crate) fn durability(&self) -> &'static str {
        match self.queue.as_ref().map(Queue::durability) {
            Some(Durability::Replicated) => "replicated",
            None | Some(Durability::Synced) => "fsync",
            Some(Durability::Memory) => "none",
        }
    }
}

/// The end of the server, as those who wait learn it.
#[derive(Debug, Clone)]
pub(crate) struct Closing(watch::Receiver<Stage>);

/// How far the end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Not at all.
    Open,
    /// Nothing is admitted; what waits is sent home.
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
        // Whoever could say so is gone: that is the end too.
        let _ = receiver.wait_for(|now| *now >= stage).await;
    }
}
