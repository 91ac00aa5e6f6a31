//! What a process learns of the commits of other processes.

use alloc::vec::Vec;

use crate::{Epoch, LeaseToken, StateName, View};

/// What other processes have done to a store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct News {
    /// Whether another process has committed, or held rows that a commit of this one left out:
    /// there may be jobs to claim.
    pub wrote: bool,
    /// Leases of this process that are gone. Complete if `wrote` is set, else empty.
    pub lost: Vec<LostLease>,
}

/// A lease that its holder no longer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostLease {
    /// The token that is stale now.
    pub token: LeaseToken,
    /// The state of its job; `None` if the job was removed.
    pub state: Option<StateName>,
}

impl LostLease {
    /// Whether the holder of `token` has lost its lease, given the view and the epoch of the job in
    /// the store, if it exists there.
    pub fn check(token: LeaseToken, job: Option<(View, Epoch)>) -> Option<Self> {
        let held = job == Some((View::Processing, token.epoch));
        (!held).then_some(Self { token, state: job.map(|(view, _)| view.state()) })
    }
}
