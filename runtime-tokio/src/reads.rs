//! Reads of committed states: on blocking threads beside the writer, never on an async task.

use std::fmt;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use windlass_core::store::{Cause, Reader, Store, StoreError};

use crate::ReadError;
use crate::shared::Shared;
use crate::sync::{Mutex, lock};

type AnyReader = Box<dyn Reader + Send>;

/// A few readers of the store, lent to one read at a time.
pub(crate) struct Readers {
    idle: Mutex<Idle>,
    free: Arc<Semaphore>,
}

#[derive(Default)]
struct Idle {
    readers: Vec<AnyReader>,
    /// How often the store was opened anew. Readers from before are not lent again.
    opened: u64,
}

/// How many readers of the store there are.
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

    /// The store was opened anew: reads go to what it is now. If it gives no readers, those there
    /// are go on, and say what is wrong with them.
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

    /// Nothing is read any more, and the readers are dropped: the store may be opened by others.
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

/// A reader that goes back when it is dropped, unless there is nothing to go back to.
struct Lent {
    shared: Arc<Shared>,
    reader: Option<AnyReader>,
    opened: u64,
    /// Given back after the reader: whoever gets it finds one.
    _permit: OwnedSemaphorePermit,
}

impl Drop for Lent {
    fn drop(&mut self) {
        let readers = &self.shared.readers;
        let mut idle = lock(&readers.idle);
        let is_current = idle.opened == self.opened && !readers.free.is_closed();
        if let Some(reader) = self.reader.take().filter(|_| is_current) {
            idle.readers.push(reader);
        }
    }
}

impl Shared {
    /// Reads on a blocking thread.
    pub(crate) async fn read<R: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&mut dyn Reader) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, ReadError> {
        let free = Arc::clone(&self.readers.free);
        let permit = free.acquire_owned().await.map_err(|_| ReadError::Stopped)?;
        let (reader, opened) = {
            let mut idle = lock(&self.readers.idle);
            (Some(idle.readers.pop().ok_or(ReadError::Stopped)?), idle.opened)
        };
        let mut lent = Lent { shared: Arc::clone(self), reader, opened, _permit: permit };
        let reading = tokio::task::spawn_blocking(move || match &mut lent.reader {
            Some(reader) => read(reader.as_mut()).map_err(ReadError::from),
            None => Err(ReadError::Stopped),
        });
        // A read that panicked is a read that failed.
        reading.await.unwrap_or_else(|error| {
            let cause = Cause::new(&format!("the read did not end: {error}"));
            Err(ReadError::Store(StoreError::Busy(cause)))
        })
    }
}
