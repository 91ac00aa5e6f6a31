//! What systemd is told, if it asked: ready, stopping, and that work still gets done.

use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;

use crate::app::{App, Stage};

/// Tells systemd something; nothing happens if nobody listens.
fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(false, &[state]) {
        tracing::debug!(%error, "systemd could not be told");
    }
}

/// The server listens.
pub(crate) fn ready() {
    tell(NotifyState::Ready);
}

/// The server begins to stop.
pub(crate) fn stopping() {
    tell(NotifyState::Stopping);
}

/// Tells systemd that work gets done, twice in the time it allows, for as long as that is true.
pub(crate) fn start_watchdog(app: Arc<App>) {
    let mut micros = 0;
    if !sd_notify::watchdog_enabled(false, &mut micros) {
        return;
    }
    let mut ticks = tokio::time::interval(Duration::from_micros(micros) / 2);
    tokio::spawn(async move {
        while app.closing.stage() == Stage::Open {
            ticks.tick().await;
            if app.queue.health().is_good() {
                tell(NotifyState::Watchdog);
            }
        }
    });
}
