//! Opening the store that was asked for, and starting the queue on it. After this no code knows
//! which store it is.

mod bare;
mod copy;
mod maintenance;
mod password;
mod restore;
mod url;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use windlass_core::store::{Reader, Store, StoreError, WorkerKind};
use windlass_runtime_tokio::{Builder, Queue, Reads, Runtime, StartError};
use windlass_store_postgres::{OpenError as PgError, PgOptions, PgStore, StoreUrl as PgUrl};
use windlass_store_redb::{OpenError as RedbError, RedbMaintenance, RedbReader, RedbStore};
use windlass_store_sqlite::{SqliteMaintenance, SqliteReader, SqliteStore};

use crate::cli::ServeArgs;
use crate::demo;
use crate::kinds::{self, KindSettings};
use crate::settings::{Followed, Given, Id, Levels};

use crate::process::{WorkArgs, own_instance};
pub(crate) use bare::BareStore;
pub(crate) use copy::{MoveError, Moved, move_store, undo_move};
pub(crate) use maintenance::{CopyError, Maintenance, StoreBytes, remove_leftovers};
pub(crate) use password::hide_password;
pub(crate) use restore::{CheckedCopy, RestoreError};
pub(crate) use url::{StoreParser, StoreUrl};
/// Files beside a store or for one: made for their owner alone, named durably.
pub(crate) use windlass_store_file as file;
pub(crate) use windlass_store_file::{short_of_space, space as disk_space};
pub(crate) use windlass_store_postgres::OldestXmin;

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
    /// There is a database, and no store in it.
    #[error("there is no store {store}")]
    NotMade { store: String },
    #[error(transparent)]
    Postgres(PgError),
    #[error(transparent)]
    Start(#[from] StartError),
}

impl From<PgError> for OpenError {
    fn from(error: PgError) -> Self {
        match error {
            PgError::NotMigrated { url, found: 0, .. } => Self::NotMade { store: url },
            other => Self::Postgres(other),
        }
    }
}

/// What a queue is started for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose<'a> {
    /// To serve: with presence, retention and the kinds that are built in.
    Serve(&'a ServeArgs, &'a KindSettings),
    /// To run jobs beside others, on a store that several processes share.
    Work(&'a WorkArgs, &'a KindSettings),
    /// To answer a few calls of a command. It runs no jobs, and is not listed as a worker.
    Direct,
}

/// A store that can be read, checked and copied.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) reads: Reads,
    pub(crate) settings: Arc<Followed>,
    pub(crate) maintenance: Maintenance,
}

/// A queue that runs, and what belongs to it.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) queue: Queue,
    pub(crate) opened: Opened,
}

/// Opens a store that exists for reading alone. Nothing runs on it, nothing is written to it, and
/// other processes may have it open, as far as the store allows.
pub(crate) fn open_reader(url: &StoreUrl, given: Given) -> Result<Opened, OpenError> {
    match url {
        StoreUrl::Sqlite(path) => {
            let reader = SqliteReader::open(path).map_err(|error| sqlite_error(url, &error))?;
            read_by(reader, Maintenance::Sqlite(SqliteMaintenance::of(path)), given)
        }
        StoreUrl::Redb(path) => {
            let reader = RedbReader::open(path).map_err(|error| redb_error(url, &error))?;
            read_by(reader, Maintenance::Redb(RedbMaintenance::of(path)), given)
        }
        StoreUrl::Postgres(url) => {
            let store = open_postgres(url, Schema::Keep)?;
            read_by(store.reader()?, Maintenance::of_postgres(&store, url), given)
        }
    }
}

fn read_by(
    mut reader: impl Reader + Send + 'static,
    maintenance: Maintenance,
    given: Given,
) -> Result<Opened, OpenError> {
    let levels = Levels::new(&given, &aside(|| reader.settings())?);
    let settings = Followed::new(given, None, levels);
    Ok(Opened { reads: Reads::alone(reader), settings, maintenance })
}

/// Opens the store and starts the queue, by what was given to this process and what the store
/// keeps.
pub(crate) fn start(
    url: &StoreUrl,
    purpose: Purpose<'_>,
    given: Given,
) -> Result<Started, OpenError> {
    match url {
        StoreUrl::Sqlite(path) => {
            let store = open_sqlite(url, path)?;
            let maintenance = Maintenance::Sqlite(store.maintenance());
            start_on(store, maintenance, purpose, given)
        }
        StoreUrl::Redb(path) => {
            let store = open_redb(url, path)?;
            let maintenance = Maintenance::Redb(store.maintenance());
            start_on(store, maintenance, purpose, given)
        }
        StoreUrl::Postgres(url) => {
            let store = open_postgres(url, purpose.schema())?;
            let maintenance = Maintenance::of_postgres(&store, url);
            start_on(store, maintenance, purpose, given)
        }
    }
}

/// What may be done to the schema of a PostgreSQL store, which other nodes may be using.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Schema {
    /// It is made, or brought to the newest version.
    Migrate,
    /// It is made if there is none; an older one is refused.
    Make,
    /// It must be of the newest version.
    Keep,
}

impl Purpose<'_> {
    fn schema(self) -> Schema {
        match self {
            Purpose::Serve(args, _) if !args.no_migrate => Schema::Migrate,
            Purpose::Serve(..) | Purpose::Work(..) => Schema::Keep,
            Purpose::Direct => Schema::Make,
        }
    }
}

fn open_postgres(url: &PgUrl, schema: Schema) -> Result<PgStore, PgError> {
    let usual = PgOptions::default();
    // A command takes the ids that it uses.
    let id_block = if schema == Schema::Make { 1 } else { usual.id_block };
    let id_block = url.id_block().unwrap_or(id_block);
    let open = |migrate| PgStore::open(url.clone(), PgOptions { migrate, id_block, ..usual });
    aside(|| match open(schema == Schema::Migrate) {
        Err(PgError::NotMigrated { found: 0, .. }) if schema == Schema::Make => open(true),
        opened => opened,
    })
}

/// Brings the schema of a store to the newest version. Returns the numbers of the schema before
/// and after, of a PostgreSQL store that was not of the newest.
pub(crate) fn migrate(url: &StoreUrl) -> Result<Option<(i64, i64)>, OpenError> {
    let StoreUrl::Postgres(url) = url else {
        // A store in a file is migrated whenever it is opened to write.
        return BareStore::open(url).map(|_| None);
    };
    match open_postgres(url, Schema::Keep) {
        Err(PgError::NotMigrated { found, known, .. }) => {
            open_postgres(url, Schema::Migrate)?;
            Ok(Some((found, known)))
        }
        opened => Ok(opened.map(|_| None)?),
    }
}

/// Runs on a thread of its own what waits for a server with a runtime of its own: this thread may
/// be driving another one.
fn aside<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let done = std::thread::scope(|scope| scope.spawn(work).join());
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn open_sqlite(url: &StoreUrl, path: &Path) -> Result<SqliteStore, OpenError> {
    SqliteStore::open(path).map_err(|error| sqlite_error(url, &error))
}

fn sqlite_error(url: &StoreUrl, error: &windlass_store_sqlite::OpenError) -> OpenError {
    OpenError::Store { store: url.to_string(), why: error.to_string() }
}

/// Opens a file that belongs to one process. A command that reads has it for a moment only.
fn open_redb(url: &StoreUrl, path: &Path) -> Result<RedbStore, OpenError> {
    let mut tries = 0;
    loop {
        match RedbStore::open(path) {
            Err(RedbError::Locked { .. }) if tries < LOCKED_TRIES => tries += 1,
            opened => return opened.map_err(|error| redb_error(url, &error)),
        }
        #[expect(clippy::disallowed_methods, reason = "no event says when a file is unlocked")]
        std::thread::sleep(LOCKED_PAUSE);
    }
}

/// How often a redb file is tried that another process has.
const LOCKED_TRIES: u32 = 10;
/// The time between two tries.
const LOCKED_PAUSE: Duration = Duration::from_millis(30);

fn redb_error(url: &StoreUrl, error: &RedbError) -> OpenError {
    let (store, why) = (url.to_string(), error.to_string());
    match error {
        RedbError::Locked { .. } => OpenError::InUse { store, why },
        _ => OpenError::Store { store, why },
    }
}

fn start_on<S>(
    store: S,
    maintenance: Maintenance,
    purpose: Purpose<'_>,
    given: Given,
) -> Result<Started, OpenError>
where
    S: Store + Send + 'static,
    S::Reader: Send + 'static,
{
    let shared = store.change_check().is_some();
    let mut reader = store.reader()?;
    let levels = Levels::new(&given, &aside(|| reader.settings())?);
    drop(reader);
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
    let opened = Opened { reads: queue.reads(), settings, maintenance };
    Ok(Started { queue, opened })
}

/// One that stays: it is seen by others, and removes what is past its age.
fn present<S>(builder: Builder<S>, levels: &Levels) -> Builder<S>
where
    S: Store + Send + 'static,
    S::Reader: Send + 'static,
{
    let every = Duration::from_millis(levels.heartbeat().get());
    builder
        .presence(every)
        .host(&host_name())
        .instance(own_instance())
        .retention(levels.retention())
}

/// Events that wait for the hub, which only counts and keeps them.
const EVENT_BUFFER: usize = 65_536;

/// The name of this machine, as far as it can be shown.
pub(crate) fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    name.chars().filter(|c| !c.is_control()).take(255).collect()
}
