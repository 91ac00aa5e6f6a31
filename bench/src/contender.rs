//! Contenders: a store of Windlass or a bare loop. Each call is one durable commit, so that they
//! can take turns and noise affects all alike.

use std::time::Duration;

use windlass_core::store::{Admin, Batch, Store};
use windlass_core::{BatchId, Kind, NewJob, Payload, Policy, ProcessId, Wall};

use crate::measure::{Outcome, time};

/// Stores jobs; measured in jobs per second.
pub(crate) trait Contender {
    /// Enqueues this number of jobs, in one commit.
    fn enqueue(&mut self, jobs: usize) -> Outcome<()>;

    /// Completes what the previous call claimed, and claims this number of jobs, in one commit.
    fn work(&mut self, jobs: usize) -> Outcome<()>;
}

/// Enqueues this number of jobs, a batch in each commit.
pub(crate) fn enqueue(
    contender: &mut (impl Contender + ?Sized),
    jobs: usize,
    batch: usize,
) -> Outcome<Duration> {
    let ((), took) = time(|| batches(jobs, batch).try_for_each(|jobs| contender.enqueue(jobs)))?;
    Ok(took)
}

/// Claims and completes this number of jobs. What the last commit has claimed is completed by the
/// first of the next call, or by [`finish`].
pub(crate) fn work(
    contender: &mut (impl Contender + ?Sized),
    jobs: usize,
    batch: usize,
) -> Outcome<Duration> {
    let ((), took) = time(|| batches(jobs, batch).try_for_each(|jobs| contender.work(jobs)))?;
    Ok(took)
}

/// Completes what is still claimed.
pub(crate) fn finish(contender: &mut (impl Contender + ?Sized)) -> Outcome<Duration> {
    let ((), took) = time(|| contender.work(0))?;
    Ok(took)
}

/// Splits a number into batches.
pub(crate) fn batches(jobs: usize, batch: usize) -> impl Iterator<Item = usize> {
    let batch = batch.max(1);
    (0..jobs).step_by(batch).map(move |done| batch.min(jobs - done))
}

/// The instant of every commit.
pub(crate) const NOW: i64 = 1_700_000_000_000;

/// A payload of this number of bytes.
pub(crate) fn payload(bytes: usize) -> String {
    format!("\"{}\"", "x".repeat(bytes.saturating_sub(2)))
}

/// Creates the rows of queue and kind that a bare loop refers to by number, by one job that is
/// completed.
pub(crate) fn seed(mut store: impl Store) -> Outcome<()> {
    let batch = |seq| Batch::new(BatchId { process: ProcessId(PROCESS), seq }, Policy::default());
    let mut first = batch(1);
    first.enqueues.push(NewJob::new(Kind::default(), Payload::null()));
    let receipt = store.commit(Wall::new(NOW), &first)?.enqueues.remove(0)?;
    let mut second = batch(2);
    second.admin = vec![Admin::Cancel(receipt.id), Admin::Delete(receipt.id)];
    store.commit(Wall::new(NOW), &second)?;
    Ok(())
}

/// Process id of every commit.
pub(crate) const PROCESS: u64 = 1;
/// The worker that claims everything.
pub(crate) const WORKER: &str = "bench";
/// Length of its leases in ms: the default of a job.
pub(crate) const LEASE: i64 = 30_000;

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::LeaseLength;

    #[test]
    fn batches_add_up_and_none_is_larger_than_asked() {
        assert_eq!(batches(11, 4).collect::<Vec<_>>(), [4, 4, 3]);
        assert_eq!(batches(0, 4).count(), 0);
        assert_eq!(batches(3, 0).collect::<Vec<_>>(), [1, 1, 1]);
    }

    #[test]
    fn the_bare_loops_lease_for_as_long_as_we_do() {
        assert_eq!(LeaseLength::DEFAULT.get().cast_signed(), LEASE);
    }
}
