//! A running process follows what the store keeps: what it lives by changes within seconds of
//! `config set`, here or in another process. What was given to it by flag or variable stays.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use windlass_core::machine::Input;
use windlass_core::store::Reader;
use windlass_runtime_tokio::{Queue, ReadError};

use super::given::Given;
use super::levels::{Ignored, Levels};
use super::table::Id;

/// How often the store is looked at for settings that others have kept. It is one small table.
const LOOK: Duration = Duration::from_secs(2);

/// The settings a process lives by.
#[derive(Debug)]
pub(crate) struct Followed {
    given: Given,
    /// Which setting says how many jobs run here at once, if any do.
    slots: Option<Id>,
    applied: Mutex<Levels>,
}

impl Followed {
    /// Those that a queue was started with.
    pub(crate) fn new(given: Given, slots: Option<Id>, applied: Levels) -> Arc<Self> {
        complain(&[], &applied.ignored);
        Arc::new(Self { given, slots, applied: Mutex::new(applied) })
    }

    fn applied(&self) -> MutexGuard<'_, Levels> {
        self.applied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what the store keeps, lives by it from now on, and says what holds.
    pub(crate) async fn refresh(&self, queue: &Queue) -> Result<Levels, ReadError> {
        let stored = queue.read(|reader: &mut dyn Reader| reader.settings()).await?;
        let found = Levels::new(&self.given, &stored);
        let mut applied = self.applied();
        if *applied != found {
            self.apply(queue, &applied, &found);
            applied.clone_from(&found);
        }
        Ok(found)
    }

    fn apply(&self, queue: &Queue, before: &Levels, found: &Levels) {
        complain(&before.ignored, &found.ignored);
        if before.policy() != found.policy() {
            queue.reconfigure(Input::Policy(found.policy()));
        }
        if before.retention() != found.retention() {
            queue.reconfigure(Input::Retention(found.retention()));
        }
        if self.slots.is_some() && before.heartbeat() != found.heartbeat() {
            queue.reconfigure(Input::Presence(Some(found.heartbeat())));
        }
        let slots = self.slots.map(|id| (before.slots(id), found.slots(id)));
        if let Some((_, now)) = slots.filter(|(before, now)| before != now) {
            queue.reconfigure(Input::Slots(now));
        }
        if before.changed(found) {
            tracing::info!("settings have changed");
        }
    }

    /// Follows the store until the queue ends. Only a store that others write needs it: what is
    /// set through this process is refreshed by whoever sets it.
    pub(crate) async fn follow(self: Arc<Self>, queue: Queue) {
        let mut ticks = tokio::time::interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match self.refresh(&queue).await {
                Ok(_) => {}
                Err(ReadError::Stopped) => return,
                Err(ReadError::Store(error)) => {
                    tracing::debug!(%error, "the settings could not be read; they stay");
                }
            }
        }
    }
}

/// Says which stored settings are not used, once each.
fn complain(before: &[Ignored], now: &[Ignored]) {
    for ignored in now.iter().filter(|ignored| !before.contains(ignored)) {
        let Ignored { name, reason, .. } = ignored;
        tracing::warn!(name, reason, "a setting kept in the store is not used");
    }
}
