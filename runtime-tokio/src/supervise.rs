//! How the runtime is doing, and the watchdog over the store.
//!
//! The watchdog sleeps for good while no call of the store is under way. While calls are made it
//! looks now and then whether one has taken too long; then callers get an answer, health turns
//! bad, and runs whose lease can no longer be extended in time are stopped.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use windlass_core::machine::{self, Refused, StopReason};
use windlass_core::store::Cause;
use windlass_core::{Millis, Mono};

use crate::context::Attempt;
use crate::shared::{Mail, Response, Shared};
use crate::sync::{Admission, lock};

/// How a runtime is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Well.
    Good,
    /// The last commit failed; it is tried again.
    Retrying(Cause),
    /// The store failed and is opened anew.
    Reopening(Cause),
    /// A call of the store has not returned.
    Stuck(Cause),
    /// The store is lost for good. Stop the process; start it again once the store is mended.
    Lost(Cause),
    /// The thread that writes has died. Stop the process and start it again.
    Died(Cause),
    /// It shuts down.
    Stopping,
    /// It has stopped.
    Stopped,
}

impl Health {
    /// Whether jobs are taken and run.
    pub fn is_good(&self) -> bool {
        *self == Self::Good
    }

    /// What is wrong, if something is.
    pub fn cause(&self) -> Option<&Cause> {
        match self {
            Self::Good | Self::Stopping | Self::Stopped => None,
            Self::Retrying(cause)
            | Self::Reopening(cause)
            | Self::Stuck(cause)
            | Self::Lost(cause)
            | Self::Died(cause) => Some(cause),
        }
    }
}

impl Shared {
    pub(crate) fn health(&self) -> Health {
        if let Some(cause) = self.died.get() {
            return Health::Died(cause.clone());
        }
        if self.ended.borrow().is_some() {
            return Health::Stopped;
        }
        // Asked directly, so that it is true even where the watchdog has no runtime to run on.
        if let Some(cause) = self.late() {
            return Health::Stuck(cause);
        }
        match lock(&self.health).clone() {
            machine::Health::Retrying(cause) => Health::Retrying(cause),
            machine::Health::Reopening(cause) => Health::Reopening(cause),
            machine::Health::Lost(cause) => Health::Lost(cause),
            machine::Health::Good if self.mailbox.admission() != Admission::Open => {
                Health::Stopping
            }
            machine::Health::Good => Health::Good,
        }
    }

    /// Why the call under way is late, if it is.
    fn late(&self) -> Option<Cause> {
        let time = self.clock.now().mono.since(Mono::new(self.pulse.since()?));
        let late = time >= self.patience;
        late.then(|| Cause::new(&format!("the store has not answered for {time}")))
    }

    /// When the watchdog has to look again: the call is late then, or the first lease is in
    /// danger.
    fn next_look(&self, since: u64) -> Mono {
        let attempts = lock(&self.attempts);
        let leases = attempts.values().filter_map(std::sync::Weak::upgrade);
        let danger = leases.map(|attempt| danger(&attempt)).min();
        drop(attempts);
        let look = danger.map_or(self.patience, |danger| danger.min(self.patience));
        Mono::new(since).plus(look.max(SHORTEST_LOOK))
    }

    /// Answers those who wait for a store that does not answer. What is in the mailbox was never
    /// given to it.
    fn relieve(&self, cause: &Cause) {
        let is_request = |mail: &mut Mail| matches!(mail, Mail::Request(..));
        for mail in self.mailbox.take_requests(is_request) {
            if let Mail::Request(_, ticket) = mail {
                let refused = Refused::Unavailable(cause.clone());
                self.answer(&ticket, Response::Unserved(refused.into()));
            }
        }
        let known = lock(&self.tickets).dismiss();
        for ticket in known {
            let refused = Refused::Unknown(cause.clone());
            self.answer(&ticket, Response::Unserved(refused.into()));
        }
    }
}

/// For how long a store may fail before the lease of an attempt is in danger.
fn danger(attempt: &Attempt) -> Millis {
    attempt.lease_length().bears_trouble()
}

/// The watchdog does not look more often than this.
const SHORTEST_LOOK: Millis = Millis::new(100);

/// Watches the calls of the store until the runtime ends.
pub(crate) async fn watch(shared: Arc<Shared>) {
    let mut ended = shared.ended.subscribe();
    loop {
        let watching = watch_one(&shared);
        tokio::select! {
            _ = ended.wait_for(Option::is_some) => return,
            () = watching => {}
        }
    }
}

async fn watch_one(shared: &Arc<Shared>) {
    let pulse = &shared.pulse;
    let Some(since) = pulse.since() else {
        pulse.asleep.store(true, Ordering::SeqCst);
        if pulse.since().is_none() {
            pulse.begun.notified().await;
        }
        return;
    };
    shared.clock.sleep(shared.next_look(since)).await;
    // Another call may be under way by now: then this one has returned in time.
    while pulse.since() == Some(since) {
        if let Some(cause) = shared.late() {
            if !pulse.stuck.swap(true, Ordering::SeqCst) {
                tracing::error!(%cause, "a call of the store does not return");
            }
            if pulse.since() != Some(since) {
                pulse.stuck.store(false, Ordering::SeqCst);
                return;
            }
            shared.relieve(&cause);
        }
        let now = shared.clock.now().mono;
        let trouble = Mono::new(pulse.trouble().unwrap_or(since));
        shared
            .stop_attempts(StopReason::LeaseLost, |attempt| now.since(trouble) >= danger(attempt));
        shared.clock.sleep(now.plus(SHORTEST_LOOK.times(10))).await;
    }
}
