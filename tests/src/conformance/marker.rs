//! Commit markers: after a commit whose end is not known, `was_committed` says whether it took
//! place.

use windlass_core::store::{Admin, Batch, Heartbeat, News, Purge, Settle, Store};
use windlass_core::{BatchId, Millis, ProcessId, Verdict};

use super::commit_idle;
use crate::fixture::*;

#[track_caller]
fn was_committed<S: Subject>(world: &mut World<S>, batch: BatchId) -> bool {
    world.store().was_committed(batch).expect("a healthy store can be asked")
}

/// The batch of this process behind its latest, which is not sent.
fn unsent<S: Subject>(world: &World<S>) -> BatchId {
    let latest = world.latest_batch();
    BatchId { seq: latest.seq + 1, ..latest }
}

pub fn a_batch_that_wrote_is_found<S: Subject>() {
    let mut world = World::<S>::new();
    let out = world.commit(|batch| batch.enqueues.push(work()));
    assert!(out.wrote);
    let latest = world.latest_batch();
    assert!(was_committed(&mut world, latest));
    assert!(was_committed(&mut world, latest), "asking changes nothing");
}

pub fn a_batch_that_was_never_sent_is_not_found<S: Subject>() {
    let mut world = World::<S>::new();
    world.enqueue(work());
    let next = unsent(&world);
    assert!(!was_committed(&mut world, next));
    let unknown = BatchId { process: ProcessId(u64::MAX), seq: 0 };
    assert!(!was_committed(&mut world, unknown));
}

pub fn a_fresh_store_finds_no_batch<S: Subject>() {
    let mut world = World::<S>::alone();
    assert!(!was_committed(&mut world, BatchId { process: ProcessId(1), seq: 0 }));
    assert!(!was_committed(&mut world, BatchId { process: ProcessId(1), seq: 1 }));
}

pub fn a_batch_is_still_found_when_later_ones_were_committed<S: Subject>() {
    let mut world = World::<S>::new();
    world.enqueue(work());
    let first = world.latest_batch();
    world.enqueue(work());
    world.enqueue(work());
    assert!(was_committed(&mut world, first));
}

pub fn each_process_finds_its_own_batches_only<S: Subject>() {
    let mut world = World::<S>::new();
    world.act_as(7);
    world.enqueue(work());
    let of_seven = world.latest_batch();
    world.act_as(u64::MAX);
    world.enqueue(work());
    let of_last = world.latest_batch();
    for _ in 0..2 {
        assert!(was_committed(&mut world, of_seven));
        assert!(was_committed(&mut world, of_last));
        // The other has come further, but that says nothing about this one.
        assert!(!was_committed(&mut world, BatchId { seq: of_last.seq, ..of_seven }));
        assert!(!was_committed(&mut world, BatchId { process: ProcessId(8), ..of_seven }));
        world.reopen();
    }
}

pub fn of_each_process_one_marker_is_kept<S: Subject>() {
    let mut world = World::<S>::alone();
    for process in [3, 9, 3, 9, 3] {
        world.act_as(process);
        world.advance(TICK);
        world.enqueue(work());
    }
    let markers = world.dump().markers;
    let kept: Vec<_> = markers.iter().map(|marker| (marker.batch.process.0, marker.at)).collect();
    assert_eq!(kept, [(3, world.now()), (9, world.now().minus(TICK))]);
}

pub fn a_batch_that_changed_nothing_leaves_no_marker<S: Subject>() {
    let mut world = World::<S>::new();
    let used = world.running(work_keyed("k")).job.token();
    world.settle(used, complete()).expect("the holder's verdict counts");
    let cancelled = world.cancelled(work());
    let held = world.running(work()).job.token();
    let last = world.latest_batch();
    commit_idle(&mut world, |_| {});
    commit_idle(&mut world, |batch| batch.claims.push(claim_for(main_work(), "w1", 9)));
    commit_idle(&mut world, |batch| batch.enqueues.push(work_keyed("k")));
    commit_idle(&mut world, |batch| {
        batch.settles.push(Settle { token: used, verdict: complete() });
    });
    commit_idle(&mut world, |batch| {
        batch.settles.push(Settle { token: used, verdict: Verdict::Release });
    });
    commit_idle(&mut world, |batch| {
        batch.heartbeats.push(Heartbeat { token: used, extend: None, progress: Some(text("1")) });
    });
    commit_idle(&mut world, |batch| batch.admin.push(Admin::Cancel(cancelled)));
    commit_idle(&mut world, |batch| batch.admin.push(Admin::Delete(held.job)));
    commit_idle(&mut world, |batch| batch.reap = Some(reap_up_to(9)));
    commit_idle(&mut world, |batch| batch.promote = Some(9));
    commit_idle(&mut world, |batch| {
        let retention = keep_all_for(Millis::hours(1));
        batch.purge = Some(Purge { retention, limit: 9 });
    });
    let idle = world.latest_batch();
    assert!(!was_committed(&mut world, idle));
    assert!(was_committed(&mut world, last), "the marker before it stays");
}

pub fn ones_own_commits_are_no_news<S: Subject>() {
    let mut world = World::<S>::new();
    let batches = [world.batch(|batch| batch.enqueues.push(work())), world.batch(claim_any)];
    let now = world.now();
    let store = world.store();
    store.news(&[]).expect("a healthy store can be asked");
    for batch in &batches {
        assert!(store.commit(now, batch).is_ok_and(|out| out.wrote));
    }
    assert_eq!(store.news(&[]), Ok(News::default()));
}

fn claim_any(batch: &mut Batch) {
    batch.claims.push(claim_for(main_work(), "w1", 1));
}
