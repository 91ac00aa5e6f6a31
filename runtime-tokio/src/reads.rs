//! Reads of the store: a small pool of readers, used on blocking threads, never on an async task.
//! A read sees one committed state and does not wait for the writer.

use std::fmt;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use windlass_core::store::{Cause, Reader, Seal, Store, StoreError};

use crate::ReadError;
use crate::shared::Shared;
use crate::sync::{Mutex, lock};

/// Reads of a store, with or without a runtime on it. Clones are cheap and share the readers.
///
/// [`Queue::reads`](crate::Queue::reads) gives the reads of a running queue, which end with it.
#[derive(Debug, Clone)]
pub struct Reads {
    readers: Arc<Readers>,
}

impl Reads {
    /// Reads with one reader of a store that this process does not write.
    pub fn alone(reader: impl Reader + Send + 'static) -> Self {
        let idle = Idle { readers: vec![Box::new(reader)], opened: 0 };
        let free = Arc::new(Semaphore::new(1));
        Self { readers: Arc::new(Readers { idle: Mutex::new(idle), free }) }
    }

    pub(crate) fn of(readers: &Arc<Readers>) -> Self {
        Self { readers: Arc::clone(readers) }
    }

    /// Runs a closure with a reader of the store, on a blocking thread.
    pub async fn read<R: Send + 'static>(
        &self,
        read: impl FnOnce(&mut dyn Reader) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, ReadError> {
        self.readers.read(read).await
    }

    /// Refuses further reads and closes the store once the present ones are over.
    pub fn close(&self) {
        self.readers.close();
    }
}

type AnyReader = Box<dyn Reader + Send>;

/// The pool of readers. Each serves one read at a time.
pub(crate) struct Readers {
    idle: Mutex<Idle>,
    free: Arc<Semaphore>,
}

#[derive(Default)]
struct Idle {
    readers: Vec<AnyReader>,
    /// Number of times the store was reopened. Readers of an earlier opening are not used again.
    opened: u64,
}

/// Maximum number of concurrent reads.
const READERS: usize = 4;

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readers")
            .field("free", &self.free.available_permits())
            .finish_non_exhaustive()
    }
}

impl Readers {
    pub(crate) fn new<S>(store: &S) -> Result<Self, StoreError>
    where
        S: Store,
        S::Reader: Send + 'static,
    {
        let idle = Idle { readers: open(store)?, opened: 0 };
        Ok(Self { idle: Mutex::new(idle), free: Arc::new(Semaphore::new(READERS)) })
    }

    /// The mark of a store that takes no batches. Where it cannot be read now, the store itself
    /// refuses them. It is read on a thread of its own: a reader may drive an async runtime.
    pub(crate) fn seal(&self) -> Option<Seal> {
        let mut idle = lock(&self.idle);
        let reader = idle.readers.first_mut()?;
        let read = || reader.settings().ok().and_then(|settings| Seal::of(&settings));
        std::thread::scope(|scope| scope.spawn(read).join().ok().flatten())
    }

    /// Replaces the readers after the store was reopened. If new ones cannot be opened, the old
    /// ones stay, and their reads fail with the reason.
    pub(crate) fn renew<S>(&self, store: &S)
    where
        S: Store,
        S::Reader: Send + 'static,
    {
        if let Ok(readers) = open(store) {
            let mut idle = lock(&self.idle);
            let opened = idle.opened + 1;
            *idle = Idle { readers, opened };
        }
    }

    /// Refuses further reads and drops the readers, so that another process may open the store.
    pub(crate) fn close(&self) {
        self.free.close();
        lock(&self.idle).readers.clear();
    }
}

fn open<S>(store: &S) -> Result<Vec<AnyReader>, StoreError>
where
    S: Store,
    S::Reader: Send + 'static,
{
    (0..READERS).map(|_| store.reader().map(|reader| Box::new(reader) as AnyReader)).collect()
}

/// A reader in use. Dropping it returns the reader to the pool, unless the pool was closed or
/// renewed.
struct BorrowedReader {
    readers: Arc<Readers>,
    reader: Option<AnyReader>,
    opened: u64,
    /// Released after the reader is back: the next holder of the permit finds one.
    _permit: OwnedSemaphorePermit,
}

impl Drop for BorrowedReader {
    fn drop(&mut self) {
        let readers = &self.readers;
        let mut idle = lock(&readers.idle);
        let is_current = idle.opened == self.opened && !readers.free.is_closed();
        if let Some(reader) = self.reader.take().filter(|_| is_current) {
            idle.readers.push(reader);
        }
    }
}

impl Readers {
    /// Runs a read on a blocking thread, once a reader is free.
    async fn read<R: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&mut dyn Reader) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, ReadError> {
        let free = Arc::clone(&self.free);
        let permit = free.acquire_owned().await.map_err(|_| ReadError::Stopped)?;
        let (reader, opened) = {
            let mut idle = lock(&self.idle);
            (Some(idle.readers.pop().ok_or(ReadError::Stopped)?), idle.opened)
        };
        let mut borrowed =
            BorrowedReader { readers: Arc::clone(self), reader, opened, _permit: permit };
        let reading = tokio::task::spawn_blocking(move || match &mut borrowed.reader {
            Some(reader) => read(reader.as_mut()).map_err(ReadError::from),
            None => Err(ReadError::Stopped),
        });
        reading.await.unwrap_or_else(|error| {
            let cause = Cause::new(&format!("the read panicked or was aborted: {error}"));
            Err(ReadError::Store(StoreError::Busy(cause)))
        })
    }
}

impl Shared {
    /// Runs a read on a blocking thread, once a reader is free.
    pub(crate) async fn read<R: Send + 'static>(
        &self,
        read: impl FnOnce(&mut dyn Reader) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, ReadError> {
        self.readers.read(read).await
    }
}
