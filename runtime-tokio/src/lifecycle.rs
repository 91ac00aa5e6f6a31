//! Shutdown: drain or force, the wait for the end, and the report. The order of events is decided
//! by the machine; this file waits for it, with a deadline of its own.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::machine::{Input, ShutdownReport, StopReason};
use windlass_core::store::Cause;
use windlass_core::{LeaseToken, Millis};

use crate::new_job::millis;
use crate::shared::{Mail, Shared};
use crate::writer::SHUTDOWN_SLACK;

/// The result of a shutdown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Attempts whose verdict was recorded after the shutdown began.
    pub finished: u64,
    /// Attempts that were given back: runnable at once and not charged.
    pub released: u64,
    /// Attempts whose end is not recorded. They become runnable when their leases expire.
    pub left: Vec<LeaseToken>,
    /// Whether running handlers were stopped: at the deadline, or by `stop_now`.
    pub forced: bool,
    /// Why the writer thread did not end normally; `None` if it did.
    pub cause: Option<Cause>,
}

impl Report {
    pub(crate) fn of(report: &ShutdownReport, cause: Option<Cause>) -> Self {
        let ShutdownReport { finished, released, left, forced } = report.clone();
        Self { finished, released, left, forced, cause }
    }

    /// Whether the end of every attempt is recorded.
    pub fn is_clean(&self) -> bool {
        self.left.is_empty() && self.cause.is_none()
    }
}

/// Stops running handlers at once. Unlike a second [`Input::Force`], repeating it has no effect.
pub(crate) const STOP_NOW: Input = Input::Drain { deadline: Millis::ZERO };

impl Shared {
    /// Drains with this deadline, unless a drain has begun, and waits for the end.
    pub(crate) async fn drain(self: &Arc<Self>, deadline: Duration) -> Report {
        let deadline = Millis::new(millis(deadline));
        self.draining_until(deadline);
        self.mailbox.close_gate(Mail::Input(Input::Drain { deadline }));
        self.ended(deadline).await
    }

    /// Lets handlers know that the runtime ends after this time at the latest.
    pub(crate) fn draining_until(&self, deadline: Millis) {
        let at = self.clock.now().mono.plus(deadline);
        self.drain.send_modify(|until| *until = Some(until.map_or(at, |until| until.min(at))));
    }

    /// Stops running handlers at once, and waits for the end.
    pub(crate) async fn force(self: &Arc<Self>) -> Report {
        self.draining_until(Millis::ZERO);
        self.mailbox.close_gate(Mail::Input(Input::Force));
        self.ended(Millis::ZERO).await
    }

    /// Waits for the end, at most as long as the machine may take. After that the writer is stuck
    /// in a call of the store, and the report is made without it.
    async fn ended(self: &Arc<Self>, deadline: Millis) -> Report {
        let mut ended = self.ended.subscribe();
        let slack = Millis::new(millis(SHUTDOWN_SLACK));
        let latest = self.clock.now().mono.plus(deadline).plus(self.force_grace).plus(slack);
        tokio::select! {
            biased;
            report = ended.wait_for(Option::is_some) => {
                report.ok().and_then(|report| report.clone()).unwrap_or_default()
            }
            () = self.clock.sleep(latest) => {
                self.stop_attempts(StopReason::Shutdown, |_| true);
                let cause = Cause::new("the writer did not end: a store call has not returned");
                let (left, cause) = (self.running(), Some(cause));
                Report { left, forced: true, cause, ..Report::default() }
            }
        }
    }
}
