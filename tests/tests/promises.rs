//! The seven promises of docs/GUARANTEES.md, each shown by the machine and `apply` together. The
//! simulation and the crash tests of each store show them under faults.

use windlass_core::machine::{Answer, Config, Input, Limits, Phase, Refused, Request};
use windlass_core::store::{Admin, JobRefused, Reader, Settle, Store, audit};
use windlass_core::{
    Delay, Demand, Failure, Job, JobId, Kind, Kinds, MaxRetries, Millis, NewJob, Priority,
    ProcessId, QueueName, Rejected, StaleReason, StateName, Verdict, When,
};
use windlass_store_memory::{Fault, MemoryStore};
use windlass_tests::stage::{Stage, config, job, token};

fn stage(slots: usize) -> Stage<MemoryStore> {
    let mut stage = Stage::new(MemoryStore::new(), slots);
    stage.settle();
    stage
}

fn row(store: &MemoryStore, id: u64) -> Job {
    let id = JobId::new(id).expect("an id");
    let mut reader = store.reader().expect("a reader");
    let found = reader.jobs(&[id]).expect("it reads");
    found[0].as_ref().expect("the job exists").job.clone()
}

fn retries(count: u32) -> NewJob {
    NewJob { max_retries: MaxRetries::new(count).ok(), ..job() }
}

/// Another process on what a crash of this one leaves behind, a while later.
fn restart_after_crash(
    stage: &Stage<MemoryStore>,
    slots: usize,
    later: Millis,
) -> Stage<MemoryStore> {
    let process = ProcessId(stage.now.mono.get() + 1);
    let (now, store) = (stage.now, stage.store.crash_image());
    let mut next = Stage::with(store, Config { process, ..config(slots) });
    next.now = now;
    next.pass(later);
    next.settle();
    next
}

#[test]
fn promise_1_at_least_once_an_acknowledged_job_survives_a_crash_and_runs_until_it_has_a_verdict() {
    let mut stage = stage(1);
    let request = stage.enqueue(job());
    let commit = stage.take_call().expect("a commit");
    assert_eq!(stage.answer(request), None, "nothing is acknowledged before the commit");
    stage.make_call(commit);
    assert!(matches!(stage.answer(request), Some(Answer::Enqueued(Ok(_)))));
    assert_eq!(stage.started(), [token("1.1")]);
    let mut stage = restart_after_crash(&stage, 1, Millis::seconds(31));
    assert_eq!(stage.started(), [token("1.2")], "it runs again");
    stage.complete("1.2");
    stage.settle();
    assert_eq!(row(&stage.store, 1).state.name(), StateName::Done);
}

#[test]
fn promise_1_a_job_whose_commit_a_lying_disk_lost_shows_that_the_crash_image_bites() {
    let mut stage = stage(0);
    stage.store.fail_next(Fault::Unsynced);
    let request = stage.enqueue(job());
    stage.settle();
    assert!(matches!(stage.answer(request), Some(Answer::Enqueued(Ok(_)))));
    let mut image = stage.store.crash_image().reader().expect("a reader");
    assert_eq!(image.jobs(&[JobId::FIRST]).expect("it reads"), [None]);
}

#[test]
fn promise_2_one_verdict_a_stale_report_is_refused_counted_and_changes_nothing() {
    let mut stage = stage(0);
    stage.enqueue(job());
    stage.poll("slow", Millis::ZERO);
    stage.settle();
    stage.pass(Millis::seconds(30));
    stage.poll("fast", Millis::ZERO);
    stage.settle();
    let before = row(&stage.store, 1);
    let verdict = Verdict::Fail(Failure::new("too late").into());
    let late = stage.request(Request::Settle(Settle { token: token("1.1"), verdict }));
    stage.settle();
    let refused = Some(&Answer::Settled(Err(JobRefused::Rejected(Rejected::Stale {
        reason: StaleReason::Expired,
        state: StateName::Processing,
        epoch: before.epoch,
    }))));
    assert_eq!(stage.answer(late), refused);
    assert_eq!(stage.machine.stats().stale_reports, 1);
    assert_eq!(row(&stage.store, 1), before);
}

#[test]
fn promise_3_bounded_duplicates_a_job_that_kills_its_process_runs_at_most_its_attempts() {
    let mut stage = stage(1);
    stage.enqueue(retries(2));
    stage.settle();
    let mut runs = stage.started().len();
    for _ in 0..10 {
        stage = restart_after_crash(&stage, 1, Millis::seconds(31));
        runs += stage.started().len();
    }
    assert_eq!(runs, 3);
    assert_eq!(row(&stage.store, 1).state.name(), StateName::Failed);
}

#[test]
fn promise_4_recovery_a_vanished_workers_job_is_runnable_after_its_lease_the_last_attempt_included()
{
    let mut stage = stage(0);
    stage.enqueue(retries(1));
    stage.poll("one", Millis::ZERO);
    stage.settle();
    stage.pass(Millis::new(29_999));
    assert_eq!(row(&stage.store, 1).state.name(), StateName::Processing);
    stage.pass(Millis::new(1));
    assert_eq!(row(&stage.store, 1).state.name(), StateName::Queued);
    stage.poll("two", Millis::ZERO);
    stage.settle();
    stage.pass(Millis::seconds(30));
    assert_eq!(row(&stage.store, 1).state.name(), StateName::Failed);
    let mut reader = stage.store.reader().expect("a reader");
    assert_eq!(audit(&reader.dump().expect("it dumps")), [], "and it has a reason");
}

#[test]
fn promise_4_a_clock_that_jumps_an_hour_reaps_no_lease_that_is_extended() {
    let mut stage = stage(0);
    stage.enqueue(job());
    stage.poll("remote", Millis::ZERO);
    stage.settle();
    stage.step_wall(3_600_000);
    stage.pass(Millis::new(29_999));
    assert_eq!(row(&stage.store, 1).state.name(), StateName::Processing, "its full length again");
    stage.pass(Millis::seconds(62));
    assert_eq!(row(&stage.store, 1).state.name(), StateName::Queued, "but not for ever");
    assert_eq!(stage.machine.stats().clock_steps, 1);
}

#[test]
fn promise_5_predictable_shutdown_an_interrupted_attempt_is_given_back_and_not_charged() {
    let mut stage = stage(2);
    stage.enqueue(job());
    stage.enqueue(job());
    stage.settle();
    stage.input(Input::Drain { deadline: Millis::seconds(5) });
    let refused = stage.enqueue(job());
    assert_eq!(stage.answer(refused), Some(&Answer::Refused(Refused::ShuttingDown)));
    stage.complete("1.1");
    stage.pass(Millis::seconds(5));
    stage.input(Input::Stopped { token: token("2.1"), reason: None });
    stage.settle();
    assert_eq!(stage.machine.phase(), Phase::Stopped);
    let report = stage.machine.shutdown_report();
    assert_eq!((report.finished, report.released, report.forced), (1, 1, true));
    let given_back = row(&stage.store, 2);
    assert_eq!((given_back.state.name(), given_back.attempts), (StateName::Queued, 0));
    assert_eq!(row(&stage.store, 1).state.name(), StateName::Done);
}

#[test]
fn promise_5_a_commit_that_never_returns_does_not_hold_up_the_shutdown() {
    let mut stage = stage(1);
    let request = stage.enqueue(job());
    let stuck = stage.take_call().expect("a commit");
    stage.input(Input::Drain { deadline: Millis::seconds(5) });
    stage.pass(Millis::seconds(6));
    assert_eq!(stage.machine.phase(), Phase::Stopped);
    assert!(matches!(stage.answer(request), Some(Answer::Refused(Refused::Unknown(_)))));
    let effects = stage.effects.len();
    stage.make_call(stuck);
    assert_eq!(stage.effects.len(), effects, "what comes after the end is ignored");
}

#[test]
fn promise_6_bounded_everything_over_a_limit_the_caller_is_refused_by_name_and_nothing_is_dropped()
{
    let limits = Limits { waiting_admin: 2, waiting_polls: 1, ..Limits::default() };
    let mut stage = Stage::with(MemoryStore::new(), Config { limits, ..config(3) });
    stage.settle();
    let pause = |stage: &mut Stage<MemoryStore>| stage.admin(Admin::pause(QueueName::default()));
    let accepted = [pause(&mut stage), pause(&mut stage)];
    let refused = pause(&mut stage);
    let overloaded = Refused::Overloaded { what: "commands", limit: 2 };
    assert_eq!(stage.answer(refused), Some(&Answer::Refused(overloaded)));
    stage.poll("one", Millis::seconds(9));
    let second = stage.poll("two", Millis::seconds(9));
    assert!(matches!(stage.answer(second), Some(Answer::Refused(Refused::Overloaded { .. }))));
    stage.settle();
    for request in accepted {
        assert!(matches!(stage.answer(request), Some(Answer::Admin(Ok(_)))));
    }
}

#[test]
fn promise_6_never_more_runs_than_slots() {
    let mut stage = stage(3);
    for _ in 0..10 {
        stage.enqueue(job());
    }
    stage.settle();
    assert_eq!(stage.started().len(), 3);
    let mut done = 0;
    while let Some(next) = stage.started().get(done).copied() {
        stage.complete(&next.to_string());
        stage.settle();
        done += 1;
        assert!(stage.machine.running() <= 3);
    }
    assert_eq!(done, 10);
}

#[test]
fn promise_7_flat_cost_a_claim_reads_as_many_jobs_as_it_takes_whatever_waits() {
    let rows_read = |backlog: usize| {
        let mut stage = stage(0);
        let priority = Priority::new(9).expect("a priority");
        let when = When::After(Delay::new(1_000_000).expect("a delay"));
        let other = Kind::new("other").expect("a kind");
        let scheduled = NewJob { priority, when, ..job() };
        for new in [job(), scheduled, NewJob { kind: other, priority, ..job() }] {
            stage.request(Request::EnqueueMany(vec![new; backlog]));
            stage.settle();
        }
        let before = stage.store.rows_read();
        let kinds = Kinds::only(vec![Kind::default()]);
        for _ in 0..5 {
            stage.poll_for("remote", Demand { kinds: kinds.clone(), ..Demand::ALL });
            stage.settle();
        }
        stage.store.rows_read() - before
    };
    assert_eq!(rows_read(10), 5);
    assert_eq!(rows_read(5_000), 5);
}
