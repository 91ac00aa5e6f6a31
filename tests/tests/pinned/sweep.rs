//! What the machine does by itself, when time has come: promotions, reaping, purges.

use windlass_core::machine::{Config, Input};
use windlass_core::store::{
    Admin, Batch, CommitError, Next, Outcomes, Promoted, Questions, Reader, Retention, Store,
    WorkerKind,
};
use windlass_core::{
    BatchId, Failure, Fingerprint, Idempotency, IdempotencyKey, JobId, MaxRetries, Millis, Policy,
    ProcessId, QueueName, StateName, Verdict, Wall,
};
use windlass_store_memory::{Asked, MemoryStore};
use windlass_tests::stage::{Stage, config, job, token, worker_named};

use crate::{Odd, second, stage_with, state, stored};

/// A due job was held by another transaction, so that the promotion found nothing while the store
/// said that something was due: the machine asked again without a pause. Found by a review.
#[test]
fn a_promotion_that_finds_nothing_does_not_spin() {
    let mut stage = Stage::new(Odd { memory: MemoryStore::new(), commit: due_but_held }, 0);
    stage.settle();
    stage.pass(Millis::seconds(10));
    let commits = stage.machine.stats().commits;
    assert!((5..20).contains(&commits), "{commits} commits in 10 s");
}

/// A store whose only due job is held by another transaction.
fn due_but_held(
    memory: &mut MemoryStore,
    now: Wall,
    batch: &Batch,
) -> Result<Outcomes, CommitError> {
    let promoted = batch.promote.map(|_| Promoted { count: 0, more: false });
    let next_due = Next::Known(Some(now.minus(Millis::new(5))));
    Ok(Outcomes { next_due, promoted, ..memory.commit(now, batch)? })
}

/// Keys past their window, markers of processes and rows of workers long gone are the purge's to
/// remove. It ran only where finished jobs are not kept for ever, and it removed the markers and
/// the workers only if it had found a job to remove as well. Found by a review.
#[test]
fn what_is_not_needed_any_more_is_swept_also_where_jobs_are_kept_for_ever() {
    let mut stage = stage_with(Config { retention: Retention::default(), ..config(0) });
    let id = BatchId { process: ProcessId(9), seq: 1 };
    let mut gone = Batch::new(id, Policy::default());
    gone.admin.push(Admin::SeeWorker(worker_named("gone", WorkerKind::Remote)));
    stage.store.another().commit(stage.now.wall, &gone).expect("it commits");
    let mut new = job();
    let key = IdempotencyKey::new("key").expect("a key");
    new.idempotency = Some(Idempotency { key, payload: Fingerprint(1) });
    stage.enqueue(new);
    stage.settle();
    stage.admin(Admin::Cancel(JobId::FIRST));
    stage.admin(Admin::Delete(JobId::FIRST));
    stage.settle();
    let dump = |stage: &Stage<MemoryStore>| {
        let dump = stage.store.reader().expect("a reader").dump().expect("it dumps");
        (dump.keys.len(), dump.workers.len(), dump.markers.iter().any(|mark| mark.batch == id))
    };
    assert_eq!(dump(&stage), (1, 1, true));
    stage.pass(Millis::hours(25));
    assert_eq!(dump(&stage), (0, 0, false));
}

/// A purge that was planned for a job to be kept for a month was not planned again when one to be
/// kept for a minute came after it. Found by a review.
#[test]
fn a_job_with_a_short_age_is_purged_in_time_behind_one_with_a_long_age() {
    let (long, short) = (Some(Millis::days(30)), Some(Millis::minutes(1)));
    let retention = Retention { done: long, failed: short, cancelled: None };
    let mut stage = stage_with(Config { retention, ..config(1) });
    stage.enqueue(job());
    stage.settle();
    stage.complete("1.1");
    stage.settle();
    stage.enqueue(job());
    stage.settle();
    let verdict = Verdict::Fail(Failure::new("no").permanent().into());
    stage.input(Input::Report { token: token("2.1"), verdict });
    stage.settle();
    assert_eq!(stored(&stage.store), 2);
    stage.pass(Millis::minutes(2));
    assert_eq!((stored(&stage.store), state(&stage.store)), (1, StateName::Done));
}

/// A purge was planned when a job of this process finished: what other processes finished, that
/// purge nothing themselves, stayed for ever. Found by a review.
#[test]
fn a_job_that_another_process_has_finished_is_purged() {
    let retention = Retention { done: Some(Millis::minutes(1)), ..Retention::default() };
    let mut purger = stage_with(Config { retention, ..config(0) });
    let mut other = Stage::with(purger.store.another(), second(1));
    other.enqueue(job());
    other.settle();
    other.complete("1.1");
    other.settle();
    assert_eq!(state(&purger.store), StateName::Done);
    purger.pass(Millis::minutes(12));
    assert_eq!(stored(&purger.store), 0);
}

/// A process without slots and without polls did not look whether others had written, since it had
/// no worker that runs anything. So it knew of none of their leases either, and a job whose process
/// died at its last attempt never came to the dead-letter queue. Found by a review.
#[test]
fn a_process_that_runs_nothing_still_reaps_the_leases_of_one_that_died() {
    let mut idle = stage_with(Config { change_check: Some(Millis::new(100)), ..config(0) });
    let mut dies = Stage::with(idle.store.another(), second(1));
    let mut new = job();
    new.max_retries = Some(MaxRetries::new(0).expect("none"));
    dies.enqueue(new);
    dies.settle();
    assert_eq!(dies.started().len(), 1);
    drop(dies);
    idle.pass(Millis::minutes(1));
    assert_eq!(state(&idle.store), StateName::Failed);
}

/// After a clock was set back, one pass of the reaper looks at all leases, for their ends are those
/// of the old clock. A lease whose row another transaction held was left out, and the machine took
/// the pass for done: the lease of a dead worker lasted as much longer as the clock was set back.
/// Found by the simulation with transactions that hold rows.
#[test]
fn a_pass_over_all_leases_comes_back_to_a_row_that_another_transaction_held() {
    let mut stage = stage_with(config(0));
    stage.enqueue(job());
    stage.poll("remote", Millis::ZERO);
    stage.settle();
    assert_eq!(state(&stage.store), StateName::Processing);
    let mut foreign = stage.store.another().begin(ProcessId(9));
    let row = Questions { jobs: vec![JobId::FIRST], ..Questions::default() };
    let held = foreign.ask(&row, stage.now.wall);
    assert!(matches!(held, Asked::Answers(_)), "{held:?}");
    stage.step_wall(-3_600_000);
    stage.settle();
    stage.pass(Millis::seconds(5));
    drop(foreign);
    stage.pass(Millis::minutes(1));
    assert_eq!(state(&stage.store), StateName::Queued, "its lease has 30 s from when it is seen");
}

/// Queues could be made but not removed: after 10 000 names every new one was refused for ever.
#[test]
fn queues_that_hold_nothing_vanish_after_a_while_page_by_page() {
    let mut settings = config(0);
    settings.limits.page = 2;
    let mut stage = stage_with(settings);
    let queue = |name: &str| QueueName::new(name).expect("a plain name");
    for at in 0..5 {
        stage.admin(Admin::Resume(queue(&format!("empty-{at}"))));
    }
    stage.admin(Admin::pause(queue("paused")));
    stage.enqueue(job());
    stage.settle();
    let names = |stage: &Stage<MemoryStore>| -> Vec<String> {
        let rows = stage.store.reader().expect("a reader").queues().expect("it is read");
        rows.iter().map(|row| row.queue.name.to_string()).collect()
    };
    stage.pass(Millis::minutes(5));
    assert_eq!(names(&stage).len(), 7, "nothing vanishes at once");
    stage.pass(Millis::minutes(16));
    assert_eq!(names(&stage), ["default", "paused"]);
    let commits = stage.machine.stats().commits;
    stage.pass(Millis::minutes(60));
    let idle = stage.machine.stats().commits - commits;
    assert!(idle < 40, "{idle} commits in an idle hour");
}
