//! Health, and the watchdog over calls of the store.
//!
//! The watchdog sleeps while no call runs. When a call exceeds the store timeout, it answers
//! waiting callers and health becomes `Stuck`. It never interrupts the call. The lease timer stops
//! attempts whose lease is about to end.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use windlass_core::machine::{self, Refused};
use windlass_core::store::Cause;
use windlass_core::{Millis, Mono};

use crate::shared::{Mail, Response, Shared};
use crate::sync::{Admission, lock};

/// The state of a runtime and its store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Jobs are accepted and run.
    Good,
    /// The last commit failed; it is retried.
    Retrying(Cause),
    /// The store failed and is being reopened.
    Reopening(Cause),
    /// A call of the store exceeds the store timeout.
    Stuck(Cause),
    /// The store is lost. Stop the process; start it again once the store is repaired.
    Lost(Cause),
    /// The writer thread panicked. Restart the process.
    Died(Cause),
    /// A shutdown has begun.
    Stopping,
    /// The runtime has ended.
    Stopped,
}

impl Health {
    /// Whether jobs are accepted and run.
    pub fn is_good(&self) -> bool {
        *self == Self::Good
    }

    /// The reason of a bad state; `None` if good or stopping.
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
        // Checked here too: the watchdog does not run once the tokio runtime is gone.
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

    /// The cause, if the current call exceeds the store timeout.
    fn late(&self) -> Option<Cause> {
        let time = self.clock.now().mono.since(Mono::new(self.store_call.since()?));
        let late = time >= self.store_timeout;
        late.then(|| Cause::new(&format!("the store has not answered for {time}")))
    }

    /// When the watchdog checks the current call: at the store timeout.
    fn next_check(&self, since: u64) -> Mono {
        Mono::new(since).plus(self.store_timeout.max(MIN_CHECK_INTERVAL))
    }

    /// Answers all waiting callers while the store is stuck. Requests in the mailbox were not
    /// given to the store; the result of the others is unknown.
    fn answer_waiting(&self, cause: &Cause) {
        let is_request = |mail: &mut Mail| matches!(mail, Mail::Request(..));
        for mail in self.mailbox.take_requests(is_request) {
            if let Mail::Request(_, ticket) = mail {
                let refused = Refused::Unavailable(cause.clone());
                self.answer(&ticket, Response::Unserved(refused.into()));
            }
        }
        let known = lock(&self.tickets).take_all();
        for ticket in known {
            let refused = Refused::Unknown(cause.clone());
            self.answer(&ticket, Response::Unserved(refused.into()));
        }
    }
}

const MIN_CHECK_INTERVAL: Millis = Millis::new(100);

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
    let store_call = &shared.store_call;
    let Some(since) = store_call.since() else {
        store_call.asleep.store(true, Ordering::SeqCst);
        if store_call.since().is_none() {
            store_call.begun.notified().await;
        }
        return;
    };
    shared.clock.sleep(shared.next_check(since)).await;
    // If another call is running by now, this one has returned in time.
    while store_call.since() == Some(since) {
        if let Some(cause) = shared.late() {
            if !store_call.stuck.swap(true, Ordering::SeqCst) {
                tracing::error!(%cause, "a store call has not returned in time");
            }
            if store_call.since() != Some(since) {
                store_call.stuck.store(false, Ordering::SeqCst);
                return;
            }
            shared.answer_waiting(&cause);
        }
        let now = shared.clock.now().mono;
        shared.clock.sleep(now.plus(MIN_CHECK_INTERVAL.times(10))).await;
    }
}
