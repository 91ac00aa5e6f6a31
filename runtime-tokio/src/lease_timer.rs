//! Stops attempts before their leases end, or at their timeouts, whether or not the writer can
//! write: the machine says when, and tells the same once its call of the store has returned.
//!
//! One task sleeps until the first attempt must stop. A lease that was extended meanwhile is seen
//! when the task wakes, so heartbeats cost it nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::Notify;
use windlass_core::Mono;

use crate::context::Attempt;
use crate::shared::Shared;
use crate::sync::lock;

/// When the task looks at the attempts next.
#[derive(Debug)]
pub(crate) struct LeaseTimer {
    /// In milliseconds of the monotonic clock; the greatest number if there is nothing to look at.
    planned: AtomicU64,
    sooner: Notify,
}

impl Default for LeaseTimer {
    fn default() -> Self {
        Self { planned: AtomicU64::new(u64::MAX), sooner: Notify::new() }
    }
}

impl LeaseTimer {
    /// Has the attempts looked at by this instant.
    pub(crate) fn plan(&self, at: Mono) {
        if self.planned.fetch_min(at.get(), Ordering::AcqRel) > at.get() {
            self.sooner.notify_one();
        }
    }
}

impl Shared {
    /// Stops the attempts that must stop by now, and plans the next look.
    fn check_attempts(&self, now: Mono) {
        // Attempts that begin from here on plan for themselves.
        self.lease_timer.planned.store(u64::MAX, Ordering::Release);
        let attempts: Vec<Arc<Attempt>> =
            lock(&self.attempts).values().filter_map(Weak::upgrade).collect();
        if let Some(next) = attempts.iter().filter_map(|attempt| attempt.check(now)).min() {
            self.lease_timer.plan(next);
        }
    }
}

/// Watches the attempts until the runtime ends.
pub(crate) async fn watch(shared: Arc<Shared>) {
    let mut ended = shared.ended.subscribe();
    loop {
        let timer = &shared.lease_timer;
        let planned = timer.planned.load(Ordering::Acquire);
        let due = async {
            if planned == u64::MAX {
                std::future::pending::<()>().await;
            }
            shared.clock.sleep(Mono::new(planned)).await;
        };
        tokio::select! {
            _ = ended.wait_for(Option::is_some) => return,
            () = timer.sooner.notified() => {}
            () = due => shared.check_attempts(shared.clock.now().mono),
        }
    }
}
