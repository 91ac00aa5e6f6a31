//! The machine carries out bulk actions: by its own timer, at their pace, also those of processes
//! that are gone, and one process at a time.

use windlass_core::bulk::{Action, Bulk, BulkState, Pace, Target, Terms};
use windlass_core::machine::{Config, StoreCall};
use windlass_core::store::{Admin, Batch, Filter, Reader, Store};
use windlass_core::{
    BatchId, JobId, JobsPerSecond, MaxRetries, Millis, NewJob, ProcessId, StateName, View, Wall,
};
use windlass_store_memory::MemoryStore;
use windlass_tests::stage::{Stage, config, job};

/// A store with this many cancelled jobs.
fn cancelled(store: &mut MemoryStore, now: Wall, count: u64) {
    let id = |seq| BatchId { process: ProcessId(9), seq };
    let mut batch = Batch::new(id(1), windlass_core::Policy::default());
    let new = NewJob { max_retries: Some(MaxRetries::MIN), ..job() };
    batch.enqueues = (0..count).map(|_| new.clone()).collect();
    store.commit(now, &batch).expect("it commits");
    let mut batch = Batch::new(id(2), windlass_core::Policy::default());
    batch.admin = (1..=count).filter_map(JobId::new).map(Admin::Cancel).collect();
    store.commit(now, &batch).expect("it commits");
}

fn retry(per_s: Option<u32>) -> Admin {
    let pace = per_s.map(|per_s| JobsPerSecond::new(per_s).expect("within bounds"));
    let view = Some(View::Cancelled);
    Admin::StartBulk(Box::new(Terms {
        action: Action::Retry,
        target: Target::Filter(Filter { view, ..Filter::default() }),
        by: String::new(),
        of: 0,
        most: None,
        pace: pace.map(|per_s| Pace::new(per_s, Wall::new(0))),
        canary: None,
    }))
}

fn stage(slots: usize, count: u64) -> Stage<MemoryStore> {
    let mut stage = Stage::with(MemoryStore::new(), config(slots));
    cancelled(&mut stage.store, stage.now.wall, count);
    stage.settle();
    stage
}

fn bulk(store: &MemoryStore) -> Bulk {
    let rows = store.reader().expect("a reader").bulk().expect("it reads");
    rows[0].decode().expect("it can be read")
}

#[test]
fn an_action_without_a_pace_is_carried_out_at_once_and_then_nothing_is_asked() {
    let mut stage = stage(0, 2_500);
    stage.admin(retry(None));
    stage.settle();
    let done = bulk(&stage.store);
    assert_eq!((done.state, done.done), (BulkState::Done, 2_500));
    let commits = stage.machine.stats().commits;
    stage.pass(Millis::minutes(5));
    let calls = stage.log().matches("bulk actions?").count();
    assert_eq!(calls, 3, "three pages, the last with the end of the list:\n{}", stage.log());
    assert!(stage.machine.stats().commits <= commits + 2, "figures, and nothing of the action");
}

#[test]
fn an_action_with_a_pace_is_carried_out_by_the_timer() {
    let mut stage = stage(0, 50);
    stage.admin(retry(Some(10)));
    stage.settle();
    for seconds in 1..=4 {
        stage.pass(Millis::seconds(1));
        let done = bulk(&stage.store).done;
        assert!((seconds * 10..=seconds * 10 + 1).contains(&done), "{done} after {seconds} s");
    }
    stage.pass(Millis::seconds(2));
    assert_eq!(bulk(&stage.store).state, BulkState::Done);
}

#[test]
fn a_process_that_starts_goes_on_with_the_actions_of_one_that_is_gone() {
    let mut stage = stage(0, 50);
    stage.admin(retry(Some(10)));
    stage.settle();
    let store = std::mem::take(&mut stage.store);
    let mut next = Stage::with(store, Config { process: ProcessId(2), ..config(0) });
    next.settle();
    next.pass(Millis::seconds(10));
    assert_eq!(bulk(&next.store).state, BulkState::Done);
}

#[test]
fn a_process_that_came_too_late_leaves_the_action_to_the_faster_one_for_a_second() {
    let mut stage = stage(0, 3_000);
    stage.admin(retry(None));
    let call = stage.take_call().expect("the order is committed");
    stage.make_call(call);
    let Some(StoreCall::Bulk) = stage.take_call() else { panic!("{}", stage.log()) };
    stage.make_call(StoreCall::Bulk);
    // Meanwhile another process takes the same page.
    let steps = stage.store.plan_bulk().expect("it reads");
    let id = BatchId { process: ProcessId(9), seq: 3 };
    let batch = Batch { bulk: steps, ..Batch::new(id, windlass_core::Policy::default()) };
    stage.store.commit(stage.now.wall, &batch).expect("it commits");
    stage.settle();
    assert_eq!(bulk(&stage.store).done, 1_000);
    stage.pass(Millis::new(999));
    assert_eq!(bulk(&stage.store).done, 1_000);
    stage.pass(Millis::new(1));
    assert_eq!(bulk(&stage.store).state, BulkState::Done);
}

#[test]
fn a_run_whose_job_is_cancelled_by_an_action_is_stopped_at_once() {
    let mut stage = Stage::with(MemoryStore::new(), config(1));
    stage.settle();
    stage.enqueue(job());
    stage.settle();
    let started = stage.started();
    let Admin::StartBulk(terms) = retry(None) else { unreachable!("it starts one") };
    let view = Some(View::Processing);
    let target = Target::Filter(Filter { view, ..Filter::default() });
    let terms = Terms { action: Action::Cancel, target, ..*terms };
    stage.admin(Admin::StartBulk(Box::new(terms)));
    stage.settle();
    assert!(stage.log().contains(&format!("stop {}: Cancelled", started[0])), "{}", stage.log());
    let found = stage.store.reader().and_then(|mut reader| reader.jobs(&[started[0].job]));
    let found = found.expect("it reads").remove(0).expect("it is there");
    assert_eq!(found.job.state.name(), StateName::Cancelled);
}
