//! What is sent to systemd, if it asked: ready, stopping, and that work still gets done.

use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;

use windlass_runtime_tokio::Health;

use crate::app::{App, Stage};

/// Notifies systemd; does nothing without a socket.
fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(false, &[state]) {
        tracing::debug!(%error, "cannot notify systemd");
    }
}

/// Tells systemd that the server listens.
pub(crate) fn ready() {
    notify(NotifyState::Ready);
}

/// The server begins to stop.
pub(crate) fn stopping() {
    notify(NotifyState::Stopping);
}

/// Feeds the watchdog of systemd, twice in the time it allows, while the dispatcher's loop turns:
/// also during the drain, which may take longer than that time.
/// A store that is full, or whose commits are tried again, is no reason to be restarted: what can
/// be served is served meanwhile.
pub(crate) fn start_watchdog(app: Arc<App>) {
    let mut micros = 0;
    if !sd_notify::watchdog_enabled(false, &mut micros) {
        return;
    }
    let mut ticks = tokio::time::interval(Duration::from_micros(micros) / 2);
    tokio::spawn(async move {
        while app.closing.stage() < Stage::Closing {
            ticks.tick().await;
            if turns(&app.health()) {
                notify(NotifyState::Watchdog);
            }
        }
    });
}

/// Whether the dispatcher's loop turns, whatever the store says.
fn turns(health: &Health) -> bool {
    match health {
        Health::Good | Health::Retrying(_) | Health::Reopening(_) | Health::Stopping => true,
        Health::Stuck(_) | Health::Lost(_) | Health::Died(_) | Health::Stopped => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::store::Cause;

    #[test]
    fn a_store_that_fails_does_not_starve_the_watchdog_and_a_loop_that_hangs_does() {
        let cause = || Cause::new("no space");
        let turning = [Health::Good, Health::Retrying(cause()), Health::Reopening(cause())];
        assert!(turning.iter().all(turns));
        let gone = [Health::Stuck(cause()), Health::Lost(cause()), Health::Died(cause())];
        assert!(!gone.iter().any(turns));
    }
}
