//! A running process follows the settings of the store: they take effect within seconds of
//! `config set`, here or in another process. Those given by flag or variable stay.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use windlass_core::machine::Input;
use windlass_core::store::Reader;
use windlass_runtime_tokio::{Queue, ReadError, Reads};

use super::given::Given;
use super::levels::{Ignored, Levels};
use super::table::Id;

/// Interval at which the settings are read from the store: one small table.
const LOOK: Duration = Duration::from_secs(2);

/// The settings in effect in a process.
#[derive(Debug)]
pub(crate) struct Followed {
    given: Given,
    /// The setting with the number of jobs that run here at once; `None` if none run.
    slots: Option<Id>,
    applied: Mutex<Levels>,
    /// Held from the read to its application: the latest read is applied last.
    turn: tokio::sync::Mutex<()>,
}

impl Followed {
    /// `applied` are the settings that the queue was started with.
    pub(crate) fn new(given: Given, slots: Option<Id>, applied: Levels) -> Arc<Self> {
        complain(&[], &applied.ignored);
        let turn = tokio::sync::Mutex::new(());
        Arc::new(Self { given, slots, applied: Mutex::new(applied), turn })
    }

    /// The settings as last applied.
    pub(crate) fn levels(&self) -> Levels {
        self.applied().clone()
    }

    fn applied(&self) -> MutexGuard<'_, Levels> {
        self.applied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads and applies the settings of the store; returns those in effect.
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

    /// Reads and applies, one caller at a time. Otherwise, of two changes made at the same time,
    /// the earlier read could be applied last, and stay.
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

    /// Follows the store until the queue ends. Only a store that others write needs it: requests to
    /// this process refresh the settings themselves.
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
                    tracing::debug!(%error, "cannot read the settings; keeping their values");
                }
            }
        }
    }
}

/// Logs the stored settings that are not used, once each.
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
