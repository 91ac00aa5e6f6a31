//! What several families of cases use.

use windlass_core::store::{Batch, JobRefused, Leased, Outcomes};
use windlass_core::{Epoch, JobId, Rejected, StaleReason, StateName};

use crate::fixture::{Subject, World};

/// Commits a batch that must write nothing at all.
#[track_caller]
pub(super) fn commit_idle<S: Subject>(
    world: &mut World<S>,
    fill: impl FnOnce(&mut Batch),
) -> Outcomes {
    let before = world.dump();
    let out = world.commit(fill);
    assert!(!out.wrote, "the batch had nothing to write, but it wrote");
    assert_eq!(world.dump(), before, "the batch had nothing to change, but something changed");
    out
}

/// The jobs that were claimed, in order.
pub(super) fn ids(leased: &[Leased]) -> Vec<JobId> {
    leased.iter().map(|leased| leased.job.id).collect()
}

/// The refusal of a token that does not hold the job: it is in this state, claimed so often.
pub(super) fn stale<T>(reason: StaleReason, state: StateName, epoch: u64) -> Result<T, JobRefused> {
    Err(Rejected::Stale { reason, state, epoch: Epoch::new(epoch) }.into())
}
