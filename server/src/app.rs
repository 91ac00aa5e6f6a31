//! What every request can reach: the queue, the tokens, the figures, the events. It holds no rule.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::{Semaphore, watch};
use windlass_core::Wall;
use windlass_core::store::Durability;
use windlass_runtime_tokio::{Clock, Queue, SystemClock};

use crate::auth::Tokens;
use crate::guard::Hosts;
use crate::hub::Hub;
use crate::keeper::Keeper;
use crate::kinds::command::Allowed;
use crate::limits::{BODIES_KIB, Limits};
use crate::lookup::Lookup;
use crate::metrics::Figures;
use crate::settings::Followed;
use crate::store::Started;

/// The server, as requests see it.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) queue: Queue,
    pub(crate) tokens: Tokens,
    pub(crate) hosts: Hosts,
    pub(crate) limits: Limits,
    pub(crate) hub: Arc<Hub>,
    pub(crate) figures: Figures,
    pub(crate) closing: Closing,
    pub(crate) lookup: Lookup,
    /// Room for bodies that are being served, in KiB.
    pub(crate) body_room: Arc<Semaphore>,
    /// Where the store lies.
    pub(crate) store: PathBuf,
    /// For checks and copies, one at a time.
    pub(crate) keeper: Keeper,
    pub(crate) upkeep: Semaphore,
    /// What this process lives by.
    pub(crate) settings: Arc<Followed>,
    /// Which commands are taken over HTTP.
    pub(crate) allowed: Allowed,
    /// Whether callers are whoever started this process, and may run commands with it.
    pub(crate) trusted: bool,
}

/// What time it is.
pub(crate) fn now() -> Wall {
    SystemClock.now().wall
}

impl App {
    /// What every request needs, with the usual limits; no tokens, no names, nothing local.
    pub(crate) fn new(started: Started, store: PathBuf, closing: Closing) -> Self {
        let Started { queue, settings, keeper } = started;
        Self {
            lookup: Lookup::start(queue.clone()),
            queue,
            tokens: Tokens::default(),
            hosts: Hosts::default(),
            limits: Limits::default(),
            hub: Hub::new(now()),
            figures: Figures::default(),
            closing,
            body_room: Arc::new(Semaphore::new(BODIES_KIB)),
            store,
            keeper,
            upkeep: Semaphore::new(1),
            settings,
            allowed: Allowed::default(),
            trusted: false,
        }
    }

    /// What a stored job survives, as clients are told.
    pub(crate) fn durability(&self) -> &'static str {
        match self.queue.durability() {
            Durability::Synced => "fsync",
            Durability::Memory => "none",
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
