//! A hook that tests set on a handle to stop its commits at certain points.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use windlass_core::store::CommitPoint;

/// Is called at points inside [`commit`](windlass_core::store::Store::commit).
#[derive(Clone)]
pub(crate) struct Hook(Arc<Mutex<dyn FnMut(CommitPoint) + Send>>);

impl Hook {
    pub(crate) fn new(hook: impl FnMut(CommitPoint) + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(hook)))
    }

    pub(crate) fn call(&self, point: CommitPoint) {
        let mut hook = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        hook(point);
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}
