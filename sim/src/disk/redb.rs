//! redb as the shared store, on a disk in memory. A power cut takes back every write since the last
//! sync; then the store is reopened on what is left.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;
use windlass_core::store::{Batch, CommitError, JobDetail, Outcomes, Reader, Store, StoreError};
use windlass_core::{BatchId, JobId, Wall};
use windlass_store_redb::{RedbReader, RedbStore};

use super::real::Faulty;
use super::{Opened, Place};

/// The disk with the store open on it.
pub(super) struct RedbPlace {
    shared: Shared,
    bytes: Bytes,
}

/// The one open store, for every process: redb has one process per file. No other code opens it, so
/// a process that reopens it finds it open.
#[derive(Clone)]
struct Shared(Rc<RefCell<Option<RedbStore>>>);

impl RedbPlace {
    pub(super) fn new() -> Result<Self, String> {
        let bytes = Bytes::default();
        let shared = Shared(Rc::new(RefCell::new(Some(open(&bytes)?))));
        Ok(Self { shared, bytes })
    }
}

impl Place for RedbPlace {
    fn open(&mut self) -> Result<Box<dyn Opened>, String> {
        let store = self.shared.clone();
        let again = self.shared.clone();
        let reopen = Box::new(move || {
            again.with(Store::reopen).map_err(|error| error.to_string())?;
            Ok(again.clone())
        });
        Ok(Box::new(Faulty { store, reopen, notices: false, poisoned: false, asked: false }))
    }

    fn power_cut(&mut self) -> Result<(), String> {
        let left = self.bytes.durable();
        self.shared.0.replace(None);
        self.bytes = left;
        self.shared.0.replace(Some(open(&self.bytes)?));
        Ok(())
    }

    fn read(&mut self, ask: &mut dyn FnMut(&mut dyn Reader)) -> Result<(), StoreError> {
        ask(&mut self.shared.reader()?);
        Ok(())
    }

    fn durable(&mut self, ids: &[JobId]) -> Result<Vec<Option<JobDetail>>, StoreError> {
        self.shared.reader()?.jobs(ids)
    }

    fn verify(&self) -> Vec<String> {
        match self.shared.with(|store| store.verify()) {
            Ok(found) => found.iter().map(ToString::to_string).collect(),
            Err(error) => vec![error.to_string()],
        }
    }
}

impl Shared {
    fn with<T>(&self, ask: impl FnOnce(&mut RedbStore) -> T) -> T {
        ask(self.0.borrow_mut().as_mut().expect("it is open but for the moment of a power cut"))
    }
}

impl Store for Shared {
    type Reader = RedbReader;

    fn commit(&mut self, now: Wall, batch: &Batch) -> Result<Outcomes, CommitError> {
        self.with(|store| store.commit(now, batch))
    }

    fn was_committed(&mut self, batch: BatchId) -> Result<bool, StoreError> {
        self.with(|store| store.was_committed(batch))
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        self.with(Store::reopen)
    }

    fn reader(&self) -> Result<RedbReader, StoreError> {
        self.with(|store| store.reader())
    }
}

fn open(bytes: &Bytes) -> Result<RedbStore, String> {
    let bytes = bytes.clone();
    RedbStore::open_with("simulated", move || Ok(bytes.clone())).map_err(|error| error.to_string())
}

/// A file in memory that keeps what its unsynced writes have overwritten.
#[derive(Debug, Clone, Default)]
struct Bytes(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    live: Vec<u8>,
    /// Position and bytes that were overwritten since the last sync, oldest first.
    undo: Vec<(usize, Vec<u8>)>,
    /// Length of the file at the last sync.
    synced: usize,
}

impl Bytes {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy of what a power cut now would leave.
    fn durable(&self) -> Self {
        let state = self.state();
        let mut left = state.live.clone();
        for (at, old) in state.undo.iter().rev() {
            let end = at + old.len();
            if left.len() < end {
                left.resize(end, 0);
            }
            left[*at..end].copy_from_slice(old);
        }
        left.resize(state.synced, 0);
        let synced = left.len();
        Self(Arc::new(Mutex::new(State { live: left, undo: Vec::new(), synced })))
    }
}

impl State {
    /// Saves these bytes before they are overwritten.
    fn remember(&mut self, from: usize, to: usize) {
        let to = to.min(self.live.len());
        if from < to {
            self.undo.push((from, self.live[from..to].to_vec()));
        }
    }
}

impl StorageBackend for Bytes {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().live.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let at = place(offset);
        let state = self.state();
        let bytes = state.live.get(at..at + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state();
        let (old, new) = (state.live.len(), place(len));
        state.remember(new, old);
        state.live.resize(new, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state();
        state.undo.clear();
        state.synced = state.live.len();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let (from, to) = (place(offset), place(offset) + data.len());
        state.remember(from, to);
        if state.live.len() < to {
            state.live.resize(to, 0);
        }
        state.live[from..to].copy_from_slice(data);
        Ok(())
    }
}

fn place(offset: u64) -> usize {
    usize::try_from(offset).expect("the disk is small")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_cut_takes_back_what_was_not_synced() {
        let disk = Bytes::default();
        disk.write(0, b"abcd").unwrap();
        disk.sync_data().unwrap();
        disk.write(1, b"XY").unwrap();
        disk.write(2, b"ZZZZ").unwrap();
        disk.set_len(2).unwrap();
        assert_eq!(disk.durable().state().live, b"abcd");
        disk.sync_data().unwrap();
        assert_eq!(disk.durable().state().live, b"aX");
    }
}
