//! Opening the store that was asked for, and starting the queue on it. After this nobody knows
//! which store it is.

use thiserror::Error;
use windlass_core::store::{Retention, Store};
use windlass_core::{Millis, Policy};
use windlass_runtime_tokio::{Builder, Queue, Runtime, StartError};
use windlass_store_redb::RedbStore;
use windlass_store_sqlite::SqliteStore;

use crate::app::PRESENCE;
use crate::cli::{ServeArgs, StoreUrl};

/// Why there is no queue.
#[derive(Debug, Error)]
pub(crate) enum OpenError {
    #[error("the store {store} cannot be opened: {why}")]
    Store { store: String, why: String },
    /// Another process has the file, and does not share it.
    #[error("the store {store} cannot be opened: {why}")]
    InUse { store: String, why: String },
    #[error(transparent)]
    Start(#[from] StartError),
}

/// What a queue is started for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose<'a> {
    /// To serve: with presence, retention and the kinds that are built in.
    Serve(&'a ServeArgs),
    /// To answer a few calls of a command. It runs nothing, and nobody sees it come and go.
    Direct,
}

/// Opens the store and starts the queue.
pub(crate) fn start(url: &StoreUrl, purpose: Purpose<'_>) -> Result<Queue, OpenError> {
    let failed = |why: String| OpenError::Store { store: url.to_string(), why };
    match url {
        StoreUrl::Sqlite(path) => {
            let store = SqliteStore::open(path).map_err(|error| failed(error.to_string()))?;
            Ok(configured(store, purpose).start()?)
        }
        StoreUrl::Redb(path) => {
            let store = RedbStore::open(path).map_err(|error| match error {
                windlass_store_redb::OpenError::Locked { .. } => {
                    OpenError::InUse { store: url.to_string(), why: error.to_string() }
                }
                other => failed(other.to_string()),
            })?;
            Ok(configured(store, purpose).start()?)
        }
    }
}

fn configured<S>(store: S, purpose: Purpose<'_>) -> Builder<S>
where
    S: Store + Send + 'static,
    S::Reader: Send + 'static,
{
    let millis = |time: std::time::Duration| {
        Millis::new(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    };
    let builder = Runtime::builder(store);
    let Purpose::Serve(args) = purpose else { return builder };
    let builder = builder
        .presence(PRESENCE)
        .host(&host_name())
        .mailbox(args.limits.mailbox)
        .event_buffer(EVENT_BUFFER)
        .policy(Policy { idempotency_window: millis(args.idempotency_window), ..Policy::default() })
        .retention(Retention {
            done: args.keep_done.map(millis),
            failed: args.keep_failed.map(millis),
            cancelled: args.keep_done.map(millis),
        });
    with_built_in_kinds(builder, args.workers)
}

/// Events that wait for the hub, which only counts and keeps them.
const EVENT_BUFFER: usize = 65_536;

/// The kinds that the server runs itself. There are none yet, so it has no local workers either;
/// a kind is added here, and `BUILT_IN` with it.
fn with_built_in_kinds<S>(builder: Builder<S>, _workers: usize) -> Builder<S>
where
    S: Store + Send + 'static,
    S::Reader: Send + 'static,
{
    builder
}

/// The kinds that the server runs itself.
pub(crate) const BUILT_IN: [&str; 0] = [];

/// The name of this machine, as far as it can be shown.
fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    name.chars().filter(|c| !c.is_control()).take(255).collect()
}
