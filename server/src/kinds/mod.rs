//! The kinds that Windlass runs itself. The process that runs them (`serve`, a worker process)
//! makes `KindSettings` once and registers them here.

mod args;
pub(crate) mod command;
mod noop;
mod output;
pub(crate) mod webhook;

use std::sync::Arc;
use std::time::Duration;

use windlass_core::store::Store;
use windlass_core::{Kind, Kinds, Verdict};
use windlass_runtime_tokio::{Builder, Context, IntoVerdict};

pub(crate) use args::KindArgs;

pub(crate) const BUILT_IN: [&str; 3] = ["command", "webhook", noop::NOOP];

/// Settings of the built-in kinds.
#[derive(Debug, Clone, Default)]
pub(crate) struct KindSettings {
    pub(crate) command: Arc<command::Settings>,
    pub(crate) webhook: webhook::Settings,
    /// Programs that may be enqueued over HTTP.
    pub(crate) allowed: command::Allowed,
}

pub(crate) fn names() -> Vec<Kind> {
    BUILT_IN.iter().filter_map(|name| Kind::new(name).ok()).collect()
}

/// Kinds of a remote worker that names none: all but the built-in ones, which it would fail.
pub(crate) fn remote_kinds() -> Kinds {
    Kinds::except(names())
}

/// Registers the built-in kinds with this number of workers; with 0 they are not run.
pub(crate) fn register<S>(
    builder: Builder<S>,
    workers: usize,
    settings: &KindSettings,
) -> Builder<S>
where
    S: Store + Send + 'static,
    S::Reader: Send + 'static,
{
    if workers == 0 {
        return builder;
    }
    command::prepare();
    let commands = Arc::clone(&settings.command);
    let webhooks = Arc::new(webhook::Sender::new(&settings.webhook));
    noop::register(builder)
        .workers(workers)
        .stop_grace(settings.command.grace.saturating_add(command::RESERVE))
        .handler("command", move |payload: command::Payload, ctx: Context| {
            let running = command::run(Arc::clone(&commands), payload, ctx);
            async move { Outcome(running.await) }
        })
        .handler("webhook", move |payload: webhook::Payload, ctx: Context| {
            let sending = webhook::run(Arc::clone(&webhooks), payload, ctx);
            async move { Outcome(sending.await) }
        })
}

/// A verdict as a handler returns it.
struct Outcome(Verdict);

impl IntoVerdict for Outcome {
    fn into_verdict(self) -> Verdict {
        self.0
    }
}

/// Maximum of `--command-grace`: a lease is kept a little longer than that.
pub(crate) const MAX_GRACE: Duration = Duration::from_secs(20);
