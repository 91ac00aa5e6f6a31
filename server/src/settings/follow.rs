//! A running process follows what the store keeps: what it lives by changes within seconds of
//! `config set`, here or in another process. What was given to it by flag or variable stays.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use windlass_core::machine::Input;
use windlass_core::store::Reader;
use windlass_runtime_tokio::{Queue, ReadError, Reads};

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
    /// Held from the read to its application: the latest read is applied last.
    turn: tokio::sync::Mutex<()>,
}

impl Followed {
    /// Those that a queue was started with.
    pub(crate) fn new(given: Given, slots: Option<Id>, applied: Levels) -> Arc<Self> {
        complain(&[], &applied.ignored);
        let turn = tokio::sync::Mutex::new(());
        Arc::new(Self { given, slots, applied: Mutex::new(applied), turn })
    }

    /// What holds now.
    pub(crate) fn levels(&self) -> Levels {
        self.applied().clone()
    }

    fn applied(&self) -> MutexGuard<'_, Levels> {
        self.applied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what the store keeps, lives by it from now on, and says what holds.
    pub(crate) async fn refresh(
        &self,
        reads: &Reads,
        queue: Option<&Queue>,
    ) -> Result<Levels, ReadError> {
        let read = reads.read(|reader: &mut dyn Reader| reader.settings());
        self.in_turn(read, |stored| {
            let found = Levels::new(&self.given, &stored);
            let mut applied = self.applied();
            if *applied != found {
                complain(&applied.ignored, &found.ignored);
                if let Some(queue) = queue {
                    self.apply(queue, &applied, &found);
                }
                applied.clone_from(&found);
            }
            found
        })
        .await
    }

    /// Reads and applies, while no other does. Two changes made at the same time are both read
    /// afterwards; without turns the earlier read could be applied last, and stay.
    async fn in_turn<T, R>(
        &self,
        read: impl Future<Output = Result<T, ReadError>>,
        apply: impl FnOnce(T) -> R,
    ) -> Result<R, ReadError> {
        let _turn = self.turn.lock().await;
        Ok(apply(read.await?))
    }

    fn apply(&self, queue: &Queue, before: &Levels, found: &Levels) {
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
        let reads = queue.reads();
        loop {
            ticks.tick().await;
            match self.refresh(&reads, Some(&queue)).await {
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

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn the_later_of_two_changes_is_applied_last_however_slow_the_earlier_read_is() {
        let levels = Levels::new(&Given::default(), &[]);
        let followed = Followed::new(Given::default(), None, levels);
        let applied = Mutex::new(Vec::new());
        let keep = |value| applied.lock().unwrap().push(value);
        let gate = tokio::sync::Notify::new();
        let mut slow = Box::pin(followed.in_turn(
            async {
                gate.notified().await;
                Ok("earlier")
            },
            keep,
        ));
        let mut quick = Box::pin(followed.in_turn(async { Ok("later") }, keep));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(slow.as_mut().poll(&mut cx).is_pending());
        let early = quick.as_mut().poll(&mut cx);
        gate.notify_one();
        assert!(slow.as_mut().poll(&mut cx).is_ready());
        assert!(early.is_ready() || quick.as_mut().poll(&mut cx).is_ready());
        assert_eq!(*applied.lock().unwrap(), ["earlier", "later"]);
    }
}
