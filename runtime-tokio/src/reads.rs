//! Reads of committed states: on blocking threads beside the writer, never on an async task.

use std::fmt;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use windlass_core::store::{Cause, Reader, StoreError};

use crate::ReadError;
use crate::shared::Shared;
use crate::sync::{Mutex, lock};

type AnyReader = Box<dyn Reader + Send>;

/// A few readers of the store, lent to one read at a time.
pub(crate) struct Readers {
    idle: Mutex<Vec<AnyReader>>,
    free: Arc<Semaphore>,
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readers").field("free", &self.free.available_permits()).finish()
    }
}

impl Readers {
    pub(crate) fn new(readers: Vec<AnyReader>) -> Self {
        let free = Arc::new(Semaphore::new(readers.len()));
        Self { idle: Mutex::new(readers), free }
    }

    /// Nothing is read any more, and the readers are dropped: the store may be opened by others.
    pub(crate) fn close(&self) {
        self.free.close();
        lock(&self.idle).clear();
    }
}

/// A reader that goes back when it is dropped, unless there is nothing to go back to.
struct Lent {
    shared: Arc<Shared>,
    reader: Option<AnyReader>,
    /// Given back after the reader: whoever gets it finds one.
    _permit: OwnedSemaphorePermit,
}

impl Drop for Lent {
    fn drop(&mut self) {
        let readers = &self.shared.readers;
        let mut idle = lock(&readers.idle);
        if let Some(reader) = self.reader.take().filter(|_| !readers.free.is_closed()) {
            idle.push(reader);
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
        let reader = lock(&self.readers.idle).pop().ok_or(ReadError::Stopped)?;
        let (shared, reader) = (Arc::clone(self), Some(reader));
        let mut lent = Lent { shared, reader, _permit: permit };
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
