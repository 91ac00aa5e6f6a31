//! A commit that finds rows other than the cache says reads them again, and is decided on what is
//! stored.
//!
//! Since no other process writes while a transaction is open, this takes a cache that is wrong:
//! here it is kept, by hand, beyond a commit of another handle.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;
use windlass_core::store::{
    Admin, AdminRefused, Batch, ClaimFor, CommitPoint, Heartbeat, JobRefused, Outcomes, Settle,
    Store, Taker,
};
use windlass_core::{
    BatchId, Demand, Kind, LeaseLength, LeaseToken, NewJob, Payload, Policy, ProcessId, Rejected,
    StateName, Verdict, Wall, WorkerId,
};

use super::SqliteStore;
use super::store::data_version;

/// Two handles to one file. The first has claimed a job, the second has changed it since; the
/// cache of the first still has it as it was claimed.
struct StaleCache {
    _dir: TempDir,
    store: SqliteStore,
    held: Settle,
    /// How often the store has answered the questions of a batch since then.
    tries: Arc<AtomicUsize>,
}

impl StaleCache {
    fn new(change: impl FnOnce(&mut Batch, LeaseToken)) -> Self {
        let dir = TempDir::new().expect("a directory");
        let open = || SqliteStore::open(dir.path().join("jobs.db")).expect("it opens");
        let (mut store, mut other) = (open(), open());
        let held = claimed(&mut store);
        let recent = std::mem::take(&mut store.cache.recent);
        let changed = commit(&mut other, 2, |batch| change(batch, held.token));
        assert!(changed.admin.iter().all(Result::is_ok), "{:?}", changed.admin);
        assert!(changed.heartbeats.iter().all(Result::is_ok), "{:?}", changed.heartbeats);
        let version = data_version(store.conn.as_ref().expect("it is open")).expect("a version");
        store.cache.begin(version);
        store.cache.recent = recent;
        let tries = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&tries);
        store.on_commit(move |point| {
            counted.fetch_add(usize::from(point == CommitPoint::Answered), Ordering::Relaxed);
        });
        Self { _dir: dir, store, held, tries }
    }

    /// Checks that the batch was decided twice, and that nothing of the first decision is left.
    fn assert_retried(&self) {
        assert_eq!(self.tries.load(Ordering::Relaxed), 2, "it is applied again once");
        assert_eq!(self.store.verify().expect("it is read"), []);
    }
}

fn commit(store: &mut SqliteStore, process: u64, fill: impl FnOnce(&mut Batch)) -> Outcomes {
    let id = BatchId { process: ProcessId(process), seq: 1 };
    let mut batch = Batch::new(id, Policy::default());
    fill(&mut batch);
    store.commit(Wall::new(0), &batch).expect("it commits")
}

fn claimed(store: &mut SqliteStore) -> Settle {
    let taker = Taker { worker: WorkerId::new("w").expect("a name"), max: 1, length: None };
    let out = commit(store, 1, |batch| {
        batch.enqueues.push(NewJob::new(Kind::default(), Payload::null()));
        batch.claims.push(ClaimFor { demand: Demand::ALL, takers: vec![taker] });
    });
    let token = out.claims[0].jobs[0].job.token();
    Settle { token, verdict: Verdict::Complete { result: None } }
}

fn cancel(batch: &mut Batch, held: LeaseToken) {
    batch.admin.push(Admin::Cancel(held.job));
}

fn delete(batch: &mut Batch, held: LeaseToken) {
    batch.admin = vec![Admin::Cancel(held.job), Admin::Delete(held.job)];
}

fn extend(batch: &mut Batch, held: LeaseToken) {
    let length = LeaseLength::new(60 * 60 * 1000).expect("a length");
    batch.heartbeats.push(Heartbeat { token: held, extend: Some(length), progress: None });
}

fn is_cancelled<T: std::fmt::Debug>(result: &Result<T, JobRefused>) -> bool {
    let Err(JobRefused::Rejected(Rejected::Stale { state, .. })) = result else { return false };
    *state == StateName::Cancelled
}

#[test]
fn a_verdict_on_a_job_that_another_handle_has_deleted_is_refused_at_the_second_try() {
    let mut stale = StaleCache::new(delete);
    let held = stale.held.clone();
    let out = commit(&mut stale.store, 3, |batch| batch.settles.push(held));
    assert_eq!(out.settles, [Err(JobRefused::NotFound(stale.held.token.job))]);
    stale.assert_retried();
}

#[test]
fn a_job_that_another_handle_has_deleted_is_not_deleted_again() {
    let mut stale = StaleCache::new(delete);
    let held = stale.held.token;
    let out = commit(&mut stale.store, 3, |batch| delete(batch, held));
    let gone = Err(AdminRefused::Job(JobRefused::NotFound(held.job)));
    assert_eq!(out.admin, [gone.clone(), gone]);
    stale.assert_retried();
}

// A cancel keeps the epoch: only the view and the instant differ from what the cache says.

#[test]
fn a_verdict_on_a_job_that_another_handle_has_cancelled_is_refused_at_the_second_try() {
    let mut stale = StaleCache::new(cancel);
    let held = stale.held.clone();
    let out = commit(&mut stale.store, 3, |batch| batch.settles.push(held));
    assert!(is_cancelled(&out.settles[0]), "{:?}", out.settles);
    stale.assert_retried();
}

#[test]
fn a_heartbeat_does_not_lease_a_job_again_that_another_handle_has_cancelled() {
    let mut stale = StaleCache::new(cancel);
    let held = stale.held.token;
    let out = commit(&mut stale.store, 3, |batch| extend(batch, held));
    assert!(is_cancelled(&out.heartbeats[0]), "{:?}", out.heartbeats);
    stale.assert_retried();
}

// A heartbeat keeps the view too: only the instant differs.

#[test]
fn a_verdict_on_a_job_whose_lease_another_handle_has_extended_is_decided_again() {
    let mut stale = StaleCache::new(extend);
    let held = stale.held.clone();
    let out = commit(&mut stale.store, 3, |batch| batch.settles.push(held));
    assert!(out.settles[0].is_ok(), "{:?}", out.settles);
    stale.assert_retried();
}
