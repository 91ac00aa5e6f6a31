//! Opening the store that was asked for, and starting the queue on it. After this nobody knows
//! which store it is.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use windlass_core::store::{Reader, Store, StoreError};
use windlass_runtime_tokio::{Builder, Queue, Runtime, StartError};
use windlass_store_redb::RedbStore;
use windlass_store_sqlite::SqliteStore;

use crate::cli::{ServeArgs, StoreUrl};
use crate::keeper::Keeper;
use crate::settings::{Followed, Given, Id, Levels};

/// Why there is no queue.
#[derive(Debug, Error)]
pub(crate) enum OpenError {
    #[error("the store {store} cannot be opened: {why}")]
    Store { store: String, why: String },
    #[error("the settings kept in the store cannot be read: {0}")]
    Settings(#[from] StoreError),
    #[error(transparent)]
    Start(#[from] StartError),
}

/// A queue that runs, and what belongs to it.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) queue: Queue,
    pub(crate) settings: Arc<Followed>,
    pub(crate) keeper: Keeper,
}

/// Opens the store and starts the queue, by what was given to this process and what the store
/// keeps.
pub(crate) fn start(url: &StoreUrl, args: &ServeArgs, given: Given) -> Result<Started, OpenError> {
    let failed = |why: String| OpenError::Store { store: url.to_string(), why };
    match url {
        StoreUrl::Sqlite(path) => {
            let store = SqliteStore::open(path).map_err(|error| failed(error.to_string()))?;
            let keeper = Keeper::Sqlite(store.keeper());
            start_on(store, keeper, args, given)
        }
        StoreUrl::Redb(path) => {
            let store = RedbStore::open(path).map_err(|error| failed(error.to_string()))?;
            let keeper = Keeper::Redb(store.keeper());
            start_on(store, keeper, args, given)
        }
    }
}

fn start_on<S>(
    store: S,
    keeper: Keeper,
    args: &ServeArgs,
    given: Given,
) -> Result<Started, OpenError>
where
    S: Store + Send + 'static,
    S::Reader: Send + 'static,
{
    let shared = store.change_check().is_some();
    let levels = Levels::new(&given, &store.reader()?.settings()?);
    let builder = Runtime::builder(store)
        .presence(Duration::from_millis(levels.heartbeat().get()))
        .host(&host_name())
        .mailbox(args.limits.mailbox)
        .event_buffer(EVENT_BUFFER)
        .policy(levels.policy())
        .retention(levels.retention());
    let queue = with_built_in_kinds(builder, levels.slots(Id::Workers)).start()?;
    let settings = Followed::new(given, levels);
    if shared {
        tokio::spawn(Arc::clone(&settings).follow(queue.clone()));
    }
    Ok(Started { queue, settings, keeper })
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
