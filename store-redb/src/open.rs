//! Opening a database: for its owner alone, refused if it is not ours or newer than we are.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io;
use std::ops::{Bound, ControlFlow};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use redb::{
    Builder, Database, DatabaseError, ReadableTable, StorageBackend, TableError, TableHandle,
    WriteTransaction,
};
use windlass_core::{StateName, View, WorkerId};
use windlass_store_file::{
    FileChanged, FileState, Watched, directory_of, make_directory, make_file, sync_directory,
};

use crate::bytes::utf8;
use crate::error::{OpenError, TxError};
use crate::groups;
use crate::overlay::Overlay;
use crate::rows::{self, Numbers, bad};
use crate::sorted::{get_all, put_all, replace_all};
use crate::tables::{
    APPLICATION, Access, BULK, COUNTS, FIGURES, Found, JOBS, KEYED, LAST_ID, META, OLD_READY,
    OLD_WAITING, PAIRS, PAYLOADS, RATES, READY, SCHEMA, SETTLED, WORKERS, each_table, job_id,
    job_key, keyed_key, missing_table, pair_key, ready_key, settled_key, table_names, time_key,
    time_table,
};
use crate::write::written;

/// Written into every store of ours: "WDLS".
const APPLICATION_ID: u64 = 0x5744_4c53;
/// The steps of the schema. A step is never changed once it was released.
const MIGRATIONS: [fn(&WriteTransaction) -> Found<()>; 11] =
    [first, second, third, fourth, fifth, sixth, seventh, eighth, ninth, tenth, eleventh];
/// The newest schema known here.
const KNOWN_SCHEMA: u64 = MIGRATIONS.len() as u64;
/// How many jobs a migration holds in memory at a time.
const CHUNK: usize = 1_000;
/// How much memory pages may take, in bytes.
const CACHE: usize = 128 * 1024 * 1024;
/// How much memory pages may take while a file is only read or copied, in bytes.
const READ_CACHE: usize = 16 * 1024 * 1024;

type Opener = dyn Fn(&Builder) -> Result<Database, OpenError> + Send + Sync;

/// How to open a database, again and again.
pub(crate) struct Source {
    /// The path of the file; of another disk, its name.
    pub(crate) path: PathBuf,
    open: Box<Opener>,
    /// Whether other programs can change it: it is a file.
    is_file: bool,
    /// The file, once it was opened.
    file: Option<Watched>,
    /// How large it was when redb had last worked on it, in bytes.
    size: AtomicU64,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.fmt(f)
    }
}

impl Source {
    fn new(
        path: PathBuf,
        is_file: bool,
        open: impl Fn(&Builder) -> Result<Database, OpenError> + Send + Sync + 'static,
    ) -> Self {
        Self { path, open: Box::new(open), is_file, file: None, size: AtomicU64::new(0) }
    }

    /// A file; it is made if it does not exist.
    pub(crate) fn file(path: &Path) -> Self {
        let at = path.to_path_buf();
        let open = move |builder: &Builder| {
            create(&at, builder)?;
            open_file(&at, builder)
        };
        Self::new(path.to_path_buf(), true, open)
    }

    /// Whatever `make` gives, called `name` in messages.
    pub(crate) fn backend<B: StorageBackend>(
        name: &str,
        make: impl Fn() -> io::Result<B> + Send + Sync + 'static,
    ) -> Self {
        let path = PathBuf::from(name);
        let at = path.clone();
        let open = move |builder: &Builder| {
            let backend = make().map_err(DatabaseError::from);
            let opened = backend.and_then(|backend| builder.create_with_backend(backend));
            opened.map_err(|error| OpenError::new(&at, error))
        };
        Self::new(path, false, open)
    }

    /// Opens it; an empty one is made a store.
    pub(crate) fn open(&mut self) -> Result<Database, OpenError> {
        let db = (self.open)(&builder())?;
        migrate(&db, &self.path)?;
        self.file = self.is_file.then(|| Watched::new(self.path.clone()));
        self.note_size();
        Ok(db)
    }

    /// Checks that the file was not changed from outside. No transaction may be open.
    pub(crate) fn check(&self) -> Result<(), FileChanged> {
        let Some((file, found)) = self.found()? else { return Ok(()) };
        let before = self.size.load(Ordering::Relaxed);
        if found.len < before {
            return Err(file.cut(before, found));
        }
        file.check_writable(found)
    }

    /// Looks whether the file is still the one that was opened. Its length is not looked at: redb
    /// itself may have cut it when it was closed.
    pub(crate) fn check_closed(&self) -> Result<(), FileChanged> {
        let found = self.found()?;
        found.map_or(Ok(()), |(file, found)| file.check_writable(found))
    }

    /// Remembers how large the file is left. To be called whenever redb may have made it smaller,
    /// before another thread uses the database.
    pub(crate) fn note_size(&self) {
        let size = self.found().ok().flatten().map_or(0, |(_, found)| found.len);
        self.size.store(size, Ordering::Relaxed);
    }

    fn found(&self) -> Result<Option<(&Watched, FileState)>, FileChanged> {
        let Some(file) = &self.file else { return Ok(None) };
        Ok(file.find()?.map(|found| (file, found)))
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE);
    builder
}

/// Makes a file that does not exist. It gets its name when it is a whole database, so that a crash
/// on the way leaves no half of one there.
fn create(path: &Path, builder: &Builder) -> Result<(), OpenError> {
    let failed = |source| OpenError::creating(path, source);
    let dir = directory_of(path);
    make_directory(dir).map_err(failed)?;
    if path.exists() {
        return Ok(());
    }
    let new = path.with_added_extension(format!("new-{}", std::process::id()));
    let made = make_file(&new).map_err(failed).and_then(|file| {
        let db = builder.create_file(file).map_err(|error| OpenError::new(path, error))?;
        migrate(&db, path)
    });
    let named = made.and_then(|()| give_name(&new, path).map_err(failed));
    let _ = fs::remove_file(&new);
    named.and_then(|()| sync_directory(dir).map_err(failed))
}

/// Gives a new file its name, unless another process has made the file meanwhile: then that one is
/// used.
fn give_name(new: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(new, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        // Not every file system knows links.
        Err(_) => fs::rename(new, path),
        Ok(()) => Ok(()),
    }
}

fn open_file(path: &Path, builder: &Builder) -> Result<Database, OpenError> {
    let failed = |error: DatabaseError| OpenError::new(path, error);
    let file = OpenOptions::new().read(true).write(true).open(path);
    let file = file.map_err(|error| failed(error.into()))?;
    builder.create_file(file).map_err(failed)
}

/// Opens a database of the present schema for reading alone: the file is not written, whatever redb
/// does to the database.
pub(crate) fn read_only(path: &Path) -> Result<Database, OpenError> {
    let ((db, found), known) = (any_schema(path)?, KNOWN_SCHEMA);
    match found.cmp(&known) {
        Less => Err(OpenError::Older { path: path.into(), found, known }),
        Greater => Err(OpenError::Newer { path: path.into(), found, known }),
        Equal => Ok(db),
    }
}

/// The same, with the schema that it has.
pub(crate) fn any_schema(path: &Path) -> Result<(Database, u64), OpenError> {
    let failed = |error: DatabaseError| OpenError::new(path, error);
    let file = fs::File::open(path).map_err(|error| failed(error.into()))?;
    let overlay = Overlay::new(file).map_err(failed)?;
    let mut builder = Builder::new();
    builder.set_cache_size(READ_CACHE);
    let failed = |error: TxError| OpenError::new(path, error);
    let db = caught(|| Ok(builder.create_with_backend(overlay)?)).map_err(failed)?;
    let txn = db.begin_write().map_err(|error| failed(error.into()))?;
    let found = schema(&txn, path)?;
    txn.abort().map_err(|error| failed(error.into()))?;
    if found == 0 {
        return Err(OpenError::Foreign { path: path.into(), what: EMPTY.into() });
    }
    Ok((db, found))
}

/// Runs work on a file that may be damaged: redb panics on some damages.
pub(crate) fn caught<T>(work: impl FnOnce() -> Found<T>) -> Found<T> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(bad("redb stopped at a page that it cannot have written")))
}

/// What a file without tables is.
const EMPTY: &str = "it is empty";

/// Opens a new database in a file that does not exist yet, for a copy.
pub(crate) fn copy_target(path: &Path) -> Result<Database, OpenError> {
    let file = make_file(path).map_err(|source| OpenError::creating(path, source))?;
    let mut builder = Builder::new();
    builder.set_cache_size(READ_CACHE);
    builder.create_file(file).map_err(|error| OpenError::new(path, error))
}

/// Brings the schema up to date, one transaction per step. An empty database becomes a store; one
/// of another program is refused.
fn migrate(db: &Database, path: &Path) -> Result<(), OpenError> {
    let failed = |error: TxError| OpenError::new(path, error);
    loop {
        let mut txn = db.begin_write().map_err(|error| failed(error.into()))?;
        txn.set_two_phase_commit(true);
        let found = schema(&txn, path)?;
        if found > KNOWN_SCHEMA {
            return Err(OpenError::Newer { path: path.into(), found, known: KNOWN_SCHEMA });
        }
        let step = usize::try_from(found).ok().and_then(|at| MIGRATIONS.get(at));
        let Some(step) = step else {
            return txn.abort().map_err(|error| failed(error.into()));
        };
        step(&txn).map_err(failed)?;
        let meta = txn.open(META).and_then(|mut meta| {
            meta.insert(SCHEMA, found + 1)?;
            Ok(())
        });
        meta.map_err(failed)?;
        txn.commit().map_err(|error| failed(error.into()))?;
    }
}

/// The schema of a database: 0 if it is empty.
fn schema(txn: &WriteTransaction, path: &Path) -> Result<u64, OpenError> {
    let failed = |error: TxError| OpenError::new(path, error);
    let foreign = || {
        let what = "it is a database of another program".into();
        OpenError::Foreign { path: path.into(), what }
    };
    let names = table_names(txn).map_err(failed)?;
    if names.is_empty() {
        return Ok(0);
    }
    if !names.iter().any(|name| name == META.name()) {
        return Err(foreign());
    }
    let meta = txn.open_table(META).map_err(|error| match error {
        TableError::Storage(error) => failed(error.into()),
        _ => foreign(),
    })?;
    let number = |key: &[u8]| {
        let number = meta.get(key).map_err(|error| failed(error.into()))?;
        Ok(number.map_or(0, |number| number.value()))
    };
    if number(APPLICATION)? != APPLICATION_ID {
        return Err(foreign());
    }
    let missing = missing_table(&names).filter(|_| number(SCHEMA).is_ok_and(|n| n == KNOWN_SCHEMA));
    match missing {
        Some(name) => Err(failed(TxError::BadRow(format!("table {name} is missing")))),
        None => number(SCHEMA),
    }
}

/// The first schema: every table, empty.
fn first(txn: &WriteTransaction) -> Found<()> {
    macro_rules! make {
        ($table:expr) => {
            txn.open($table)?;
        };
    }
    each_table!(make);
    let mut meta = txn.open(META)?;
    meta.insert(APPLICATION, APPLICATION_ID)?;
    meta.insert(LAST_ID, 0)?;
    Ok(())
}

/// The second schema: rows of workers hold what they would run, and whether they are to stop.
fn second(txn: &WriteTransaction) -> Found<()> {
    let mut table = txn.open(WORKERS)?;
    let mut workers = Vec::new();
    for row in table.iter()? {
        let (id, row) = row?;
        let id = WorkerId::new(utf8(id.value())?).map_err(bad)?;
        workers.push(rows::first_worker(id, row.value())?);
    }
    for seen in workers {
        let row = written(|out| rows::put_worker(out, &seen));
        table.insert(seen.worker.id.as_str().as_bytes(), row.as_slice())?;
    }
    Ok(())
}

/// The third schema: rows of jobs hold the length of the payload and the rank, keys of ready jobs
/// hold the rank.
fn third(txn: &WriteTransaction) -> Found<()> {
    let mut last = None;
    loop {
        let old = jobs_behind(txn, last)?;
        let Some((id, _)) = old.last() else { break };
        last = Some(*id);
        migrate_jobs(txn, &old)?;
    }
    txn.delete_table(OLD_READY)?;
    Ok(())
}

/// The fourth schema: jobs are found by queue and kind, and by idempotency key; ready jobs by their
/// rank alone.
fn fourth(txn: &WriteTransaction) -> Found<()> {
    let mut last = None;
    loop {
        let jobs = jobs_behind(txn, last)?;
        let Some((id, _)) = jobs.last() else { break };
        last = Some(*id);
        index_jobs(txn, &jobs)?;
    }
    txn.delete_table(OLD_WAITING)?;
    Ok(())
}

/// Writes the keys of the fourth schema for these jobs.
fn index_jobs(txn: &WriteTransaction, jobs: &[(u64, Vec<u8>)]) -> Found<()> {
    let (mut pairs, mut settled) = (Vec::with_capacity(jobs.len()), Vec::new());
    let mut keyed = txn.open(KEYED)?;
    for (id, row) in jobs {
        let row = rows::job_row(row)?;
        let Numbers { queue, kind, .. } = row.numbers;
        pairs.push((job_key(queue, kind, *id), ()));
        if time_table(row.view).is_some() {
            let place = time_key(row.at, *id);
            settled.push((settled_key(queue, kind, row.view, place), ()));
        }
        if let Some(key) = &row.idempotency_key {
            keyed.insert(keyed_key(key.as_str(), *id).as_slice(), ())?;
        }
    }
    pairs.sort_unstable();
    settled.sort_unstable();
    put_all(&mut txn.open(PAIRS)?, &pairs)?;
    put_all(&mut txn.open(SETTLED)?, &settled)?;
    Ok(())
}

/// The fifth schema: figures.
fn fifth(txn: &WriteTransaction) -> Found<()> {
    txn.open(FIGURES)?;
    Ok(())
}

/// The sixth schema: new rows of workers tell which process they are, and are read beside those of
/// before. Programs of earlier schemas cannot read them: this step refuses those.
#[expect(clippy::unnecessary_wraps, reason = "a step like the others")]
fn sixth(_: &WriteTransaction) -> Found<()> {
    Ok(())
}

/// The seventh schema: dead letters by the group of their error.
fn seventh(txn: &WriteTransaction) -> Found<()> {
    groups::regroup(txn)
}

/// The eighth schema: bulk actions.
fn eighth(txn: &WriteTransaction) -> Found<()> {
    txn.open(BULK)?;
    Ok(())
}

/// The ninth schema: counters hold how many jobs wait for another attempt. Rows of queues tell
/// since when they are paused, and by whom; those of before are read as they are.
fn ninth(txn: &WriteTransaction) -> Found<()> {
    let mut retrying: BTreeMap<[u8; 8], u64> = BTreeMap::new();
    let mut last = None;
    loop {
        let jobs = jobs_behind(txn, last)?;
        let Some((id, _)) = jobs.last() else { break };
        last = Some(*id);
        for (_, row) in &jobs {
            let row = rows::job_row(row)?;
            if row.view.state() == StateName::Queued && row.attempts > 0 {
                let pair = pair_key(row.numbers.queue, row.numbers.kind);
                *retrying.entry(pair).or_default() += 1;
            }
        }
    }
    let mut table = txn.open(COUNTS)?;
    let mut counted = Vec::new();
    for row in table.iter()? {
        let (pair, row) = row?;
        counted.push((*pair.value(), rows::old_counts(row.value())?));
    }
    for (pair, counts) in counted {
        let counts = counts.with_retrying(retrying.remove(&pair).unwrap_or(0));
        table.insert(&pair, written(|out| rows::put_counts(out, &counts)).as_slice())?;
    }
    Ok(())
}

/// The tenth schema: new rows of workers tell the version of their program and their server, and
/// are read beside those of before. Programs of earlier schemas cannot read them: this step refuses
/// those.
#[expect(clippy::unnecessary_wraps, reason = "a step like the others")]
fn tenth(_: &WriteTransaction) -> Found<()> {
    Ok(())
}

/// The eleventh schema: rows of queues may end with rates, limits of kinds and aging; a table holds
/// the state of rates.
fn eleventh(txn: &WriteTransaction) -> Found<()> {
    txn.open(RATES)?;
    Ok(())
}

/// The rows of the next jobs, as they are stored.
fn jobs_behind(txn: &WriteTransaction, last: Option<u64>) -> Found<Vec<(u64, Vec<u8>)>> {
    let jobs = txn.open(JOBS)?;
    let from = last.map_or(Bound::Unbounded, Bound::Excluded);
    let page = jobs.range::<u64>((from, Bound::Unbounded))?.take(CHUNK);
    page.map(|row| row.map(|(id, row)| (id.value(), row.value().to_vec())).map_err(Into::into))
        .collect()
}

/// Writes these rows in the form of the third schema, and the keys of those jobs that are ready.
fn migrate_jobs(txn: &WriteTransaction, old: &[(u64, Vec<u8>)]) -> Found<()> {
    let ids: Vec<u64> = old.iter().map(|(id, _)| *id).collect();
    let mut lengths = Vec::with_capacity(old.len());
    get_all(&txn.open(PAYLOADS)?, &ids, |text| {
        // A missing payload is reported by `verify`; it must not keep the file from opening.
        lengths.push(u32::try_from(text.map_or(0, <[u8]>::len)).map_err(bad)?);
        Ok(ControlFlow::Continue(()))
    })?;
    let (mut rows, mut ready) = (Vec::with_capacity(old.len()), Vec::new());
    for ((id, row), length) in old.iter().zip(lengths) {
        let mut new = Vec::with_capacity(row.len() + 4);
        rows::put_second_job(&mut new, row, length)?;
        let row = rows::job_row(&new)?;
        if row.view == View::Queued {
            let rank = row.rank(job_id(*id)?);
            ready.push((ready_key(row.numbers.queue, row.numbers.kind, rank), ()));
        }
        rows.push((*id, new));
    }
    let rows: Vec<(u64, &[u8])> = rows.iter().map(|(id, row)| (*id, row.as_slice())).collect();
    replace_all(&mut txn.open(JOBS)?, &rows)?;
    ready.sort_unstable();
    put_all(&mut txn.open(READY)?, &ready)?;
    Ok(())
}
