//! Moving everything from one store to another, whichever kinds of stores they are.

use std::path::Path;

use thiserror::Error;
use windlass_core::ProcessId;
use windlass_core::store::{CopyDone, CopyEnd, CopyError, CopyId, CopyStep, Copying, Seal, Store};

use super::{BareStore, OpenError, StoreUrl, aside, open_reader};
use crate::app;
use crate::process::dead_here;
use crate::settings::Given;

/// Why a store was not moved.
#[derive(Debug, Error)]
pub(crate) enum MoveError {
    /// There is no source.
    #[error("there is no store {0}; --from names it")]
    Missing(String),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Copy(#[from] CopyError),
    #[error("the operating system gave no random number: {0}")]
    Random(String),
}

/// What a move came to.
#[derive(Debug)]
pub(crate) enum Moved {
    /// Everything was copied and compared.
    Copied(CopyDone),
    /// An earlier run had finished.
    Already(CopyError),
}

/// Copies everything, compares both stores, and puts the target into use instead of the source.
/// It blocks; `show` is called after each page.
pub(crate) fn move_store(
    from: &StoreUrl,
    to: &StoreUrl,
    show: impl FnMut(&CopyStep) + Send,
) -> Result<Moved, MoveError> {
    let source = open_source(from)?;
    let ids = (CopyId(random()?), ProcessId(random()?));
    let target = BareStore::open_or_make(to)?;
    let names = (name(from), name(to));
    aside(|| match source {
        BareStore::Sqlite(store) => from_store(*store, target, names, ids, show),
        BareStore::Redb(store) => from_store(*store, target, names, ids, show),
        BareStore::Postgres(store) => from_store(*store, target, names, ids, show),
    })
}

fn from_store<A: Store>(
    source: A,
    target: BareStore,
    names: (String, String),
    ids: (CopyId, ProcessId),
    show: impl FnMut(&CopyStep),
) -> Result<Moved, MoveError> {
    match target {
        BareStore::Sqlite(store) => run(source, *store, names, ids, show),
        BareStore::Redb(store) => run(source, *store, names, ids, show),
        BareStore::Postgres(store) => run(source, *store, names, ids, show),
    }
}

fn run<A: Store, B: Store>(
    source: A,
    target: B,
    (from, to): (String, String),
    ids: (CopyId, ProcessId),
    mut show: impl FnMut(&CopyStep),
) -> Result<Moved, MoveError> {
    let source = CopyEnd { store: source, name: from };
    let target = CopyEnd { store: target, name: to };
    let mut copy = match Copying::begin(source, target, ids, app::now(), &dead_here()) {
        Err(done @ CopyError::AlreadyMoved { .. }) => return Ok(Moved::Already(done)),
        begun => begun?,
    };
    loop {
        let step = copy.step(app::now())?;
        show(&step);
        if let CopyStep::Finished(done) = step {
            return Ok(Moved::Copied(done));
        }
    }
}

/// Takes the mark off a store that was moved or is being moved. Returns the mark, if there was one.
pub(crate) fn undo_move(from: &StoreUrl) -> Result<Option<Seal>, MoveError> {
    let source = open_source(from)?;
    let (name, process) = (name(from), ProcessId(random()?));
    let now = app::now();
    let seal = aside(|| match source {
        BareStore::Sqlite(store) => CopyEnd { store: *store, name }.undo(process, now),
        BareStore::Redb(store) => CopyEnd { store: *store, name }.undo(process, now),
        BareStore::Postgres(store) => CopyEnd { store: *store, name }.undo(process, now),
    });
    Ok(seal?)
}

/// Opens a store that exists and has the schema of this program. It is read first: opening a
/// file to write would make or migrate it.
fn open_source(from: &StoreUrl) -> Result<BareStore, MoveError> {
    if from.file().is_some_and(|path| !path.exists()) {
        return Err(MoveError::Missing(from.to_string()));
    }
    drop(open_reader(from, Given::default())?);
    Ok(BareStore::open(from)?)
}

/// Where a store is, whatever the current directory.
fn name(url: &StoreUrl) -> String {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.into());
    url.file().map_or_else(|| url.to_string(), |path| url.with_file(&absolute(path)).to_string())
}

fn random() -> Result<u64, MoveError> {
    getrandom::u64().map_err(|error| MoveError::Random(error.to_string()))
}
