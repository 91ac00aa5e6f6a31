//! Opening the store that was asked for, and starting the queue on it. After this nobody knows
//! which store it is.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use windlass_core::store::{Reader, Store, StoreError, WorkerKind};
use windlass_runtime_tokio::{Builder, Queue, Runtime, StartError};
use windlass_store_redb::RedbStore;
use windlass_store_sqlite::SqliteStore;

use crate::cli::{ServeArgs, StoreUrl};
use crate::demo;
use crate::keeper::Keeper;
use crate::kinds::{self, KindSettings};
use crate::settings::{Followed, Given, Id, Levels};
use crate::worker::WorkArgs;

/// Why there is no queue.
#[derive(Debug, Error)]
pub(crate) enum OpenError {
    #[error("the store {store} cannot be opened: {why}")]
    Store { store: String, why: String },
    #[error("the settings kept in the store cannot be read: {0}")]
    Settings(#[from] StoreError),
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
    Serve(&'a ServeArgs, &'a KindSettings),
    /// To run jobs beside others, on a store that several processes share.
    Work(&'a WorkArgs, &'a KindSettings),
    /// To answer a few calls of a command. It runs nothing, and nobody sees it come and go.
    Direct,
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
pub(crate) fn start(
    url: &StoreUrl,
    purpose: Purpose<'_>,
    given: Given,
) -> Result<Started, OpenError> {
    let failed = |why: String| OpenError::Store { store: url.to_string(), why };
    match url {
        StoreUrl::Sqlite(path) => {
            let store = SqliteStore::open(path).map_err(|error| failed(error.to_string()))?;
            let keeper = Keeper::Sqlite(store.maintenance());
            start_on(store, keeper, purpose, given)
        }
        StoreUrl::Redb(path) => {
            let store = RedbStore::open(path).map_err(|error| match error {
                windlass_store_redb::OpenError::Locked { .. } => {
                    OpenError::InUse { store: url.to_string(), why: error.to_string() }
                }
                other => failed(other.to_string()),
            })?;
            let keeper = Keeper::Redb(store.maintenance());
            start_on(store, keeper, purpose, given)
        }
    }
}

fn start_on<S>(
    store: S,
    keeper: Keeper,
    purpose: Purpose<'_>,
    given: Given,
) -> Result<Started, OpenError>
where
    S: Store + Send + 'static,
    S::Reader: Send + 'static,
{
    let shared = store.change_check().is_some();
    let levels = Levels::new(&given, &store.reader()?.settings()?);
    let builder = Runtime::builder(store).policy(levels.policy());
    let queue = match purpose {
        Purpose::Direct => builder.start()?,
        Purpose::Serve(args, kinds) => {
            let builder = builder.mailbox(args.limits.mailbox).event_buffer(EVENT_BUFFER);
            let builder = if args.demo && levels.slots(Id::Workers) > 0 {
                demo::register(builder)
            } else {
                builder
            };
            kinds::register(present(builder, &levels), levels.slots(Id::Workers), kinds).start()?
        }
        Purpose::Work(args, kinds) => {
            let builder = present(builder, &levels).worker_kind(WorkerKind::Process);
            let builder = match args.queues.as_slice() {
                [] => builder,
                names => builder.queues(names.iter().map(String::as_str)),
            };
            kinds::register(builder, levels.slots(Id::WorkerConcurrency), kinds).start()?
        }
    };
    let slots = match purpose {
        Purpose::Serve(..) => Some(Id::Workers),
        Purpose::Work(..) => Some(Id::WorkerConcurrency),
        Purpose::Direct => None,
    };
    let settings = Followed::new(given, slots, levels);
    if shared && !matches!(purpose, Purpose::Direct) {
        tokio::spawn(Arc::clone(&settings).follow(queue.clone()));
    }
    Ok(Started { queue, settings, keeper })
}

/// One that stays: it is seen by others, and removes what is past its age.
fn present<S>(builder: Builder<S>, levels: &Levels) -> Builder<S>
where
    S: Store + Send + 'static,
    S::Reader: Send + 'static,
{
    let every = Duration::from_millis(levels.heartbeat().get());
    builder.presence(every).host(&host_name()).retention(levels.retention())
}

/// Events that wait for the hub, which only counts and keeps them.
const EVENT_BUFFER: usize = 65_536;

/// The name of this machine, as far as it can be shown.
fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    name.chars().filter(|c| !c.is_control()).take(255).collect()
}
