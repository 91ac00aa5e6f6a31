//! What every request can reach: the queue, the tokens, the figures, the events. It holds no rule.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, watch};
use windlass_core::store::Durability;
use windlass_core::{Demand, Millis, Wall, WorkerId};
use windlass_runtime_tokio::{Clock, Queue, SystemClock};

use crate::auth::Tokens;
use crate::guard::Hosts;
use crate::hub::Hub;
use crate::kinds::command::Allowed;
use crate::limits::{Limits, POLLERS};
use crate::lookup::Lookup;
use crate::metrics::Figures;

/// How often this process, and workers that poll here, are noted in the store.
pub(crate) const PRESENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// How long a worker may be silent before it counts as gone.
pub(crate) const SILENT: Millis = Millis::seconds(60);

/// The server, as requests see it.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) queue: Queue,
    pub(crate) tokens: Tokens,
    pub(crate) hosts: Hosts,
    pub(crate) limits: Limits,
    pub(crate) hub: Arc<Hub>,
    pub(crate) figures: Figures,
    pub(crate) pollers: Pollers,
    pub(crate) closing: Closing,
    pub(crate) lookup: Lookup,
    /// Room for bodies that are being served, in KiB.
    pub(crate) body_room: Arc<Semaphore>,
    /// Where the store lies.
    pub(crate) store: PathBuf,
    /// What this process runs itself.
    pub(crate) local_demand: Option<Demand>,
    /// Which commands are taken over HTTP.
    pub(crate) allowed: Allowed,
}

/// What time it is.
pub(crate) fn now() -> Wall {
    SystemClock.now().wall
}

impl App {
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

/// Who has polled lately, and for what: those who would run a job.
#[derive(Debug, Default)]
pub(crate) struct Pollers(Mutex<BTreeMap<WorkerId, (Wall, Demand)>>);

impl Pollers {
    fn known(&self) -> MutexGuard<'_, BTreeMap<WorkerId, (Wall, Demand)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, worker: &WorkerId, demand: &Demand, now: Wall) {
        let mut known = self.known();
        if let Some((seen, wanted)) = known.get_mut(worker) {
            *seen = now;
            if wanted != demand {
                wanted.clone_from(demand);
            }
            return;
        }
        if known.len() >= POLLERS {
            known.retain(|_, (seen, _)| now.since(*seen) <= SILENT);
        }
        if known.len() < POLLERS {
            known.insert(worker.clone(), (now, demand.clone()));
        }
    }

    pub(crate) fn demands(&self, now: Wall) -> Vec<Demand> {
        let mut known = self.known();
        known.retain(|_, (seen, _)| now.since(*seen) <= SILENT);
        known.values().map(|(_, demand)| demand.clone()).collect()
    }
}
