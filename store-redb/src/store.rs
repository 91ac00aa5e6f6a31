//! The store: one write transaction per batch, committed in two phases and synced.

use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::sync::Arc;

use redb::{Durability, StorageBackend, WriteTransaction};
use windlass_core::store::{Batch, Cause, CommitError, Outcomes, Seal, Store, StoreError};
use windlass_core::{Apply, ApplyStep, BatchId, Wall};
use windlass_store_file::{Cache, FileChanged, Pair, leave_reserve};

use crate::answer::Transaction;
use crate::error::{Class, OpenError, TxError};
use crate::find::Rows;
use crate::names::Names;
use crate::open::Source;
use crate::reader::RedbReader;
use crate::slot::Slot;
use crate::tables::Found;
use crate::write::{drop_queue, write};

/// Jobs in a redb file, which belongs to one process at a time.
///
/// After an error of the disk nothing is committed and nothing is read until the store is
/// [reopened](Store::reopen). After a lack of space the store reopens by itself.
#[derive(Debug)]
pub struct RedbStore {
    pub(crate) source: Source,
    pub(crate) slot: Arc<Slot>,
    names: Names,
    /// The mark of the store; the outer `None` if it has to be read.
    #[expect(clippy::option_option, reason = "the outer one says whether it was read")]
    seal: Option<Option<Seal>>,
    /// Only this process writes to the open file, so this is valid until a transaction fails.
    pub(crate) cache: Cache,
}

impl RedbStore {
    /// Opens a store; the file and its directory are made if they do not exist.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::from(Source::file(path.as_ref()))
    }

    /// Opens a store on a storage of the caller's: `make` is called at each opening, and `name`
    /// is used as its path in messages.
    pub fn open_with<B: StorageBackend>(
        name: &str,
        make: impl Fn() -> io::Result<B> + Send + Sync + 'static,
    ) -> Result<Self, OpenError> {
        Self::from(Source::backend(name, make))
    }

    fn from(mut source: Source) -> Result<Self, OpenError> {
        let slot = Arc::new(Slot::default());
        slot.fill(source.open()?);
        Ok(Self { source, slot, names: Names::default(), seal: None, cache: Cache::default() })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.source.path
    }

    fn run(&mut self, now: Wall, batch: &Batch) -> Result<Outcomes, Failure> {
        let slot = Arc::clone(&self.slot);
        let opened = slot.shared();
        self.source.check().map_err(Failure::FileChanged)?;
        let db = opened.db().map_err(Failure::Closed)?;
        let before = |error: TxError| Failure::Before(error);
        let mut txn = db.begin_write().map_err(|error| before(error.into()))?;
        // Quick repair saves with each commit which pages are in use, for some 64 KiB per GiB of
        // file: after a crash the file opens at once, however large it is.
        txn.set_quick_repair(true);
        txn.set_two_phase_commit(true);
        txn.set_durability(Durability::Immediate)
            .map_err(|error| before(TxError::BadRow(error.to_string())))?;
        let outcomes = match self.apply(&txn, now, batch) {
            Ok(outcomes) if outcomes.wrote => outcomes,
            Ok(outcomes) => {
                // Nothing was written, so there is nothing to sync.
                txn.abort().map_err(|error| before(error.into()))?;
                return Ok(outcomes);
            }
            Err(error) => {
                self.clear_caches();
                // If the rollback fails, the file is closed with the error that led here.
                let _ = txn.abort();
                return Err(before(error));
            }
        };
        match txn.commit() {
            Ok(()) => {
                // redb may change the length until the commit has ended.
                self.source.note_size();
                let unharmed = self.source.check().or_else(|changed| changed.after_commit());
                unharmed.map_err(Failure::Lost)?;
                Ok(outcomes)
            }
            Err(error) => {
                self.clear_caches();
                Err(Failure::During(error.into(), Box::new(outcomes)))
            }
        }
    }

    /// Applies a batch in an open transaction.
    fn apply(&mut self, txn: &WriteTransaction, now: Wall, batch: &Batch) -> Found<Outcomes> {
        let (mut apply, mut asked) = Apply::new(batch);
        let mut open = Transaction::new(txn, &mut self.names, &mut self.cache, now);
        let changes = loop {
            match apply.answer(open.answer(&asked)?)? {
                ApplyStep::Ask(more) => asked = more,
                ApplyStep::Write(changes) => break changes,
            }
        };
        if !changes.is_empty() {
            write(txn, &mut self.names, &changes, now)?;
            let dropped = changes.dropped_queues.clone();
            let names = RefCell::new(&mut self.names);
            self.cache.absorb(
                changes,
                |job| {
                    let numbers = names.borrow_mut().ensure(txn, job)?;
                    Ok(Pair { queue: numbers.queue.into(), kind: numbers.kind.into() })
                },
                |queue| names.borrow_mut().queues.ensure(txn, queue).map(i64::from),
            )?;
            for name in &dropped {
                drop_queue(txn, &mut self.names, name)?;
            }
        }
        Ok(apply.finish())
    }

    /// Clears the caches of what may not be in the file.
    fn clear_caches(&mut self) {
        self.names.clear();
        self.cache.clear();
        self.seal = None;
    }

    /// The mark of the store. Only this process writes to the open file, so it is read once.
    fn seal(&mut self) -> Result<Option<&Seal>, CommitError> {
        if self.seal.is_none() {
            let names = &mut self.names;
            let read = self.slot.read(|txn, _| Rows { access: txn, names }.seal());
            self.seal = Some(read.map_err(|error| match error {
                StoreError::Busy(cause) => CommitError::NotCommitted(cause),
                StoreError::Fatal(cause) => CommitError::Fatal { cause, outcomes: None },
                StoreError::Corrupt(cause) => CommitError::Corrupt(cause),
            })?);
        }
        Ok(self.seal.as_ref().and_then(Option::as_ref))
    }

    /// Closes the file after an error and returns what is known of the batch.
    fn fail(&mut self, failure: Failure, batch: BatchId) -> Result<Outcomes, CommitError> {
        let (error, outcomes) = match failure {
            Failure::Closed(cause) => return Err(CommitError::Fatal { cause, outcomes: None }),
            Failure::FileChanged(changed) => return self.stop(changed.before_commit()),
            Failure::Lost(error) => return self.stop(error),
            Failure::Before(error) => (error, None),
            Failure::During(error, outcomes) => (error, Some(outcomes)),
        };
        let cause = self.slot.shared().note(&error);
        self.slot.close(&error);
        match error.class() {
            Class::Corrupt => Err(CommitError::Corrupt(cause)),
            Class::Fatal => Err(CommitError::Fatal { cause, outcomes }),
            Class::Full => self.recover_from_full(cause, outcomes, batch),
        }
    }

    /// Closes a file that was changed from outside.
    fn stop(&mut self, error: CommitError) -> Result<Outcomes, CommitError> {
        self.slot.close(&TxError::BadRow(error.to_string()));
        Err(error)
    }

    /// Reopens the file after a lack of space: redb refuses everything after a failed write until
    /// it is reopened. That also shows whether the batch was committed.
    fn recover_from_full(
        &mut self,
        cause: Cause,
        outcomes: Option<Box<Outcomes>>,
        batch: BatchId,
    ) -> Result<Outcomes, CommitError> {
        let committed = self.reopen().ok().and_then(|()| self.was_committed(batch).ok());
        match (committed, outcomes) {
            (Some(true), Some(outcomes)) => Ok(*outcomes),
            (Some(_), _) => Err(CommitError::Full(cause)),
            (None, outcomes) => Err(CommitError::Fatal { cause, outcomes }),
        }
    }

    /// Reopens the file. redb rolls back what was not committed and writes its header again, which
    /// selects the committed state; that state is synced already.
    fn reopen_file(&mut self) -> Result<(), OpenError> {
        self.clear_caches();
        self.slot.close(&TxError::BadRow("reopening it failed".into()));
        let mut db = self.source.open()?;
        let failed = |error: redb::DatabaseError| OpenError::new(&self.source.path, error);
        db.check_integrity().map_err(failed)?;
        self.slot.fill(db);
        Ok(())
    }
}

/// Readers may outlive the store; the file does not stay open for them.
impl Drop for RedbStore {
    fn drop(&mut self) {
        self.slot.close(&TxError::BadRow("the store was closed".into()));
    }
}

/// Why a commit failed, and when.
enum Failure {
    /// The store was closed before.
    Closed(Cause),
    /// The file was changed from outside before the commit.
    FileChanged(FileChanged),
    /// The file was changed from outside during the commit, which may be lost.
    Lost(CommitError),
    /// Before the commit: nothing was written.
    Before(TxError),
    /// In the commit: it may have been written.
    During(TxError, Box<Outcomes>),
}

impl Store for RedbStore {
    type Reader = RedbReader;

    fn commit(&mut self, now: Wall, batch: &Batch) -> Result<Outcomes, CommitError> {
        leave_reserve(&self.source.path, batch)?;
        let seal = self.seal()?;
        batch.check_seal(seal)?;
        if batch.sets_seal() {
            // It is read again.
            self.seal = None;
        }
        self.run(now, batch).or_else(|failure| self.fail(failure, batch.id))
    }

    fn was_committed(&mut self, batch: BatchId) -> Result<bool, StoreError> {
        let names = &mut self.names;
        self.slot.read(|txn, _| Rows { access: txn, names }.was_committed(batch))
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        self.source.check_closed().map_err(|changed| changed.of_read())?;
        self.reopen_file().map_err(|error| error.of_reopen())
    }

    fn reader(&self) -> Result<RedbReader, StoreError> {
        Ok(RedbReader::new(Arc::clone(&self.slot)))
    }
}
