//! The end of a runtime: what it left, and who waits for it.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::machine::{Input, ShutdownReport, StopReason};
use windlass_core::store::Cause;
use windlass_core::{LeaseToken, Millis};

use crate::new_job::millis;
use crate::shared::{Mail, Shared};
use crate::writer::SLACK;

/// What a runtime left when it ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Attempts whose verdict was recorded after the shutdown began.
    pub finished: u64,
    /// Attempts that were given back: they are runnable at once, and were not charged.
    pub released: u64,
    /// Attempts whose end is not recorded. They become runnable when their leases run out.
    pub left: Vec<LeaseToken>,
    /// Whether the deadline passed, or somebody asked not to wait.
    pub forced: bool,
    /// Why the writer did not end in order, if it did not.
    pub cause: Option<Cause>,
}

impl Report {
    pub(crate) fn of(report: &ShutdownReport, cause: Option<Cause>) -> Self {
        let ShutdownReport { finished, released, left, forced } = report.clone();
        Self { finished, released, left, forced, cause }
    }

    /// Whether every attempt has ended and is recorded.
    pub fn is_clean(&self) -> bool {
        self.left.is_empty() && self.cause.is_none()
    }
}

/// Stop what runs now. Unlike a second [`Input::Force`], saying it again changes nothing.
pub(crate) const AT_ONCE: Input = Input::Drain { deadline: Millis::ZERO };

impl Shared {
    /// Begins to drain, unless that was begun before, and waits for the end.
    pub(crate) async fn drain(self: &Arc<Self>, deadline: Duration) -> Report {
        let deadline = Millis::new(millis(deadline));
        self.mailbox.close_gate(Mail::Input(Input::Drain { deadline }));
        self.ended(deadline).await
    }

    /// Stops what runs now, and waits for the end.
    pub(crate) async fn force(self: &Arc<Self>) -> Report {
        self.mailbox.close_gate(Mail::Input(Input::Force));
        self.ended(Millis::ZERO).await
    }

    /// Waits for the end; but no longer than the machine may take by its own rules. If it has not
    /// come by then, the writer hangs in its store, and what is known is reported without it.
    async fn ended(self: &Arc<Self>, deadline: Millis) -> Report {
        let mut ended = self.ended.subscribe();
        let slack = Millis::new(millis(SLACK));
        let latest = self.clock.now().mono.plus(deadline).plus(self.force_grace).plus(slack);
        tokio::select! {
            biased;
            report = ended.wait_for(Option::is_some) => {
                report.ok().and_then(|report| report.clone()).unwrap_or_default()
            }
            () = self.clock.sleep(latest) => {
                self.stop_attempts(StopReason::Shutdown, |_| true);
                let cause = Cause::new("the writer did not end: a call of the store hangs");
                let (left, cause) = (self.running(), Some(cause));
                Report { left, forced: true, cause, ..Report::default() }
            }
        }
    }
}
