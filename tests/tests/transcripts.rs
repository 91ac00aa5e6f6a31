//! What the dispatcher machine does, as transcripts: `>` goes in, `<` comes out, `=` is a call of
//! the store, `!` its answer, `*` a wake-up. A reviewer reads a changed transcript as a change of
//! behaviour. Regenerate with `INSTA_UPDATE=always cargo test`.

use windlass_core::machine::{Config, Input, Request, StoreCall};
use windlass_core::store::{Admin, Heartbeat, Reader, Retention, Settle, Store};
use windlass_core::{
    Delay, Failure, JobId, JobTimeout, Millis, NewJob, ProcessId, QueueName, Verdict, When,
    WorkerId,
};
use windlass_store_memory::{Fault, MemoryStore};
use windlass_tests::stage::{Stage, config, job, token};

fn stage(slots: usize) -> Stage<MemoryStore> {
    let mut stage = Stage::new(MemoryStore::new(), slots);
    stage.settle();
    stage
}

#[test]
fn an_idle_queue_stores_and_starts_a_job_with_one_commit() {
    let mut stage = stage(2);
    stage.enqueue(job());
    stage.settle();
    stage.complete("1.1");
    stage.settle();
    insta::assert_snapshot!(stage.log());
}

#[test]
fn requests_that_come_during_a_commit_share_the_next_one() {
    let mut stage = stage(2);
    stage.enqueue(job());
    let first = stage.take_call().expect("a commit for the first");
    stage.say("while that commit is under way");
    for _ in 0..3 {
        stage.enqueue(job());
    }
    assert_eq!(stage.take_call(), None, "there is one commit at a time");
    stage.make_call(first);
    stage.settle();
    stage.say("both slots are taken: one job waits until a slot is free");
    stage.complete("1.1");
    stage.settle();
    insta::assert_snapshot!(stage.log());
}

#[test]
fn a_commit_of_unknown_outcome_is_looked_up_and_never_repeated_blindly() {
    let mut stage = stage(1);
    stage.say("it was committed after all");
    stage.store.fail_next(Fault::UnknownCommitted);
    stage.enqueue(job());
    stage.settle();
    stage.say("it was not committed: only now is it tried again");
    stage.complete("1.1");
    stage.settle();
    stage.store.fail_next(Fault::UnknownNotCommitted);
    stage.enqueue(job());
    stage.settle();
    stage.pass(Millis::new(10));
    insta::assert_snapshot!(stage.log());
}

#[test]
fn a_store_that_failed_is_reopened_before_anything_is_acknowledged() {
    let mut stage = stage(1);
    stage.store.fail_next(Fault::FatalCommitted);
    stage.enqueue(job());
    stage.settle();
    stage.say("the claim of that batch was committed but never started: it was given back");
    insta::assert_snapshot!(stage.log());
}

#[test]
fn a_full_store_refuses_new_jobs_and_keeps_the_reports() {
    let mut stage = stage(1);
    stage.enqueue(job());
    stage.settle();
    stage.store.fail_next(Fault::Full);
    stage.complete("1.1");
    stage.enqueue(job());
    stage.settle();
    stage.pass(Millis::new(50));
    insta::assert_snapshot!(stage.log());
}

#[test]
fn draining_lets_running_jobs_finish_and_starts_nothing() {
    let mut stage = stage(2);
    stage.enqueue(job());
    stage.enqueue(job());
    stage.enqueue(job());
    stage.settle();
    stage.poll("remote", Millis::seconds(30));
    stage.settle();
    stage.input(Input::Drain { deadline: Millis::seconds(30) });
    stage.enqueue(job());
    stage.complete("1.1");
    stage.settle();
    stage.complete("2.1");
    stage.settle();
    insta::assert_snapshot!(stage.log());
}

#[test]
fn a_claim_that_commits_as_draining_begins_is_given_back_unstarted() {
    let mut stage = stage(1);
    stage.enqueue(job());
    let commit = stage.take_call().expect("a commit");
    stage.input(Input::Drain { deadline: Millis::seconds(30) });
    stage.make_call(commit);
    stage.settle();
    insta::assert_snapshot!(stage.log());
}

#[test]
fn past_the_deadline_runs_are_stopped_and_given_back_and_a_stubborn_one_is_left() {
    let mut stage = stage(2);
    stage.enqueue(job());
    stage.enqueue(job());
    stage.settle();
    stage.input(Input::Drain { deadline: Millis::seconds(5) });
    stage.pass(Millis::seconds(5));
    stage.say("one obeys, the other does not");
    stage.input(Input::Stopped { token: token("1.1"), reason: None });
    stage.settle();
    stage.pass(Millis::seconds(1));
    insta::assert_snapshot!(stage.log());
}

#[test]
fn a_clock_step_reaps_no_healthy_job() {
    let mut stage = stage(1);
    stage.enqueue(job());
    stage.settle();
    stage.enqueue(job());
    stage.poll("remote", Millis::ZERO);
    stage.settle();
    stage.step_wall(3_600_000);
    stage.say(
        "by the wall clock both leases ended long ago; the heartbeat of the remote one comes in \
         time",
    );
    stage.pass(Millis::seconds(15));
    stage.request(Request::Heartbeat(Heartbeat {
        token: token("2.1"),
        extend: None,
        progress: None,
    }));
    stage.settle();
    stage.pass(Millis::seconds(20));
    stage.say("now the remote worker is silent for the length of its lease");
    stage.pass(Millis::seconds(15));
    insta::assert_snapshot!(stage.log());
}

#[test]
fn a_paused_queue_starts_nothing_until_it_is_resumed() {
    let mut stage = stage(1);
    stage.admin(Admin::pause(QueueName::default()));
    stage.settle();
    stage.enqueue(job());
    stage.settle();
    stage.admin(Admin::Resume(QueueName::default()));
    stage.settle();
    insta::assert_snapshot!(stage.log());
}

#[test]
fn a_poll_waits_at_no_cost_and_ends_empty_or_with_a_job() {
    let mut stage = stage(0);
    stage.poll("first", Millis::ZERO);
    stage.settle();
    stage.poll("second", Millis::seconds(10));
    stage.settle();
    stage.pass(Millis::seconds(10));
    stage.poll("third", Millis::seconds(10));
    stage.settle();
    stage.enqueue(job());
    stage.settle();
    stage.say("a poller that goes away during the commit: its job is given back at once");
    let request = stage.poll("fourth", Millis::seconds(10));
    stage.settle();
    stage.enqueue(job());
    let commit = stage.take_call().expect("a commit");
    stage.input(Input::Gone(request));
    stage.make_call(commit);
    stage.settle();
    insta::assert_snapshot!(stage.log());
}

#[test]
fn a_long_job_is_kept_alive_by_heartbeats_and_stopped_when_they_cannot_be_written() {
    let mut stage = stage(1);
    stage.enqueue(job());
    stage.settle();
    stage.pass(Millis::seconds(25));
    stage.say("from now on nothing can be written");
    for _ in 0..100 {
        stage.store.fail_next(Fault::NotCommitted);
    }
    stage.pass(Millis::seconds(30));
    let log = stage.log();
    let retries = log.matches("not committed, retry").count();
    let log: Vec<&str> = log.lines().filter(|line| !is_retry(line)).collect();
    insta::assert_snapshot!(format!("{}\n({retries} tries)", log.join("\n")));
}

fn is_retry(line: &str) -> bool {
    line.contains("not committed, retry")
        || line.contains("StoreRetry")
        || line.contains("= commit") && line.contains("heartbeat")
}

#[test]
fn a_cancelled_job_is_stopped_and_its_report_goes_nowhere() {
    let mut stage = stage(1);
    stage.enqueue(job());
    stage.settle();
    stage.admin(Admin::Cancel(JobId::FIRST));
    stage.settle();
    stage.complete("1.1");
    stage.settle();
    insta::assert_snapshot!(stage.log());
}

#[test]
fn a_job_that_runs_too_long_is_stopped_and_fails_as_timed_out() {
    let mut stage = stage(1);
    let timeout = JobTimeout::new(2_000).ok();
    stage.enqueue(NewJob { timeout, ..job() });
    stage.settle();
    stage.pass(Millis::seconds(2));
    stage.input(Input::Stopped { token: token("1.1"), reason: None });
    stage.settle();
    insta::assert_snapshot!(stage.log());
}

#[test]
fn delayed_and_failed_jobs_wake_the_machine_when_they_are_due_and_not_before() {
    let mut stage = stage(1);
    let when = When::After(Delay::new(150_000).expect("within ten years"));
    stage.enqueue(NewJob { when, ..job() });
    stage.settle();
    stage.pass(Millis::seconds(150));
    let verdict = Verdict::Fail(Failure::new("no luck").into());
    stage.input(Input::Report { token: token("1.1"), verdict });
    stage.settle();
    stage.pass(Millis::seconds(2));
    insta::assert_snapshot!(stage.log());
}

#[test]
fn finished_jobs_are_purged_when_they_are_old_and_the_machine_sleeps_until_then() {
    let retention = Retention { done: Some(Millis::seconds(30)), ..Retention::default() };
    let mut stage = Stage::with(MemoryStore::new(), Config { retention, ..config(1) });
    stage.enqueue(job());
    stage.settle();
    stage.complete("1.1");
    stage.settle();
    stage.pass(Millis::seconds(60));
    insta::assert_snapshot!(stage.log());
}

#[test]
fn an_empty_queue_is_gone_after_two_passes_over_the_queues() {
    let retention = Retention { done: Some(Millis::minutes(15)), ..Retention::default() };
    let mut stage = Stage::with(MemoryStore::new(), Config { retention, ..config(1) });
    let queue = QueueName::new("left-empty").expect("a name");
    stage.enqueue(NewJob { queue, ..job() });
    stage.settle();
    stage.complete("1.1");
    stage.settle();
    stage.pass(Millis::minutes(10));
    stage.say(&format!("the queue has a done job until it is purged: {}", queues(&stage)));
    stage.pass(Millis::minutes(10));
    stage.say(&format!("the queue is empty: {}", queues(&stage)));
    assert_eq!(queues(&stage), "none");
    insta::assert_snapshot!(stage.log());
}

/// The queues of a stage's store, by name.
fn queues(stage: &Stage<MemoryStore>) -> String {
    let dump = stage.store.reader().and_then(|mut reader| reader.dump()).expect("it can be read");
    let names: Vec<&str> = dump.queues.iter().map(|row| row.queue.name.as_str()).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

#[test]
fn another_process_is_noticed_by_a_cheap_check() {
    let store = MemoryStore::new();
    let process = ProcessId(2);
    let mut other = Stage::with(store.another(), Config { process, ..config(0) });
    let change_check = Some(Millis::new(100));
    let mut stage = Stage::with(store, Config { change_check, ..config(1) });
    stage.settle();
    other.enqueue(job());
    other.settle();
    stage.pass(Millis::new(250));
    insta::assert_snapshot!(stage.log());
}

#[test]
fn a_stale_report_of_a_remote_worker_is_refused_and_the_new_holder_goes_on() {
    let mut stage = stage(0);
    stage.enqueue(job());
    stage.poll("slow", Millis::ZERO);
    stage.settle();
    stage.pass(Millis::seconds(31));
    stage.poll("fast", Millis::ZERO);
    stage.settle();
    let settle = |text| Settle { token: token(text), verdict: Verdict::Complete { result: None } };
    stage.request(Request::Settle(settle("1.1")));
    stage.request(Request::Settle(settle("1.2")));
    stage.settle();
    insta::assert_snapshot!(stage.log());
}

#[test]
fn a_stopped_machine_makes_no_call_and_refuses_everything() {
    let mut stage = stage(1);
    stage.input(Input::Drain { deadline: Millis::ZERO });
    stage.settle();
    stage.enqueue(job());
    stage.poll("late", Millis::seconds(1));
    assert!(!matches!(stage.take_call(), Some(StoreCall::Commit(_))));
    insta::assert_snapshot!(stage.log());
}

#[test]
fn fewer_slots_stop_nothing_and_claim_nothing_until_enough_runs_have_ended() {
    let mut stage = stage(3);
    for _ in 0..5 {
        stage.enqueue(job());
    }
    stage.settle();
    stage.input(Input::Slots(1));
    stage.complete("1.1");
    stage.complete("2.1");
    stage.settle();
    stage.say("one runs, as many as there are slots");
    stage.complete("3.1");
    stage.settle();
    stage.input(Input::Slots(2));
    stage.settle();
    stage.input(Input::Slots(0));
    stage.complete("4.1");
    stage.complete("5.1");
    stage.enqueue(job());
    stage.settle();
    insta::assert_snapshot!(stage.log());
}

#[test]
fn a_worker_asked_to_stop_by_another_process_learns_it_at_the_next_check() {
    let store = MemoryStore::new();
    let process = ProcessId(2);
    let mut other = Stage::with(store.another(), Config { process, ..config(0) });
    let (presence, change_check) = (Some(Millis::seconds(10)), Some(Millis::new(250)));
    let mut stage = Stage::with(store, Config { presence, change_check, ..config(1) });
    stage.settle();
    other.settle();
    other.admin(Admin::StopWorker(WorkerId::new("here").expect("a name")));
    other.settle();
    stage.pass(Millis::new(500));
    stage.say("it is said once, though the mark stays until the worker goes");
    stage.input(Input::Changed);
    stage.pass(Millis::new(5));
    stage.input(Input::Drain { deadline: Millis::seconds(30) });
    stage.settle();
    insta::assert_snapshot!(stage.log());
}

#[test]
fn a_worker_is_noted_as_often_as_is_said_also_while_it_ends_what_it_runs() {
    let presence = Some(Millis::seconds(10));
    let mut stage = Stage::with(MemoryStore::new(), Config { presence, ..config(1) });
    stage.enqueue(job());
    stage.settle();
    stage.input(Input::Presence(Some(Millis::seconds(4))));
    stage.pass(Millis::seconds(5));
    stage.say("a new number of slots is written at once");
    stage.input(Input::Slots(2));
    stage.settle();
    stage.input(Input::Drain { deadline: Millis::seconds(30) });
    stage.pass(Millis::seconds(5));
    stage.complete("1.1");
    stage.settle();
    insta::assert_snapshot!(stage.log());
}

#[test]
fn a_worker_that_is_no_longer_to_be_noted_is_removed() {
    let presence = Some(Millis::seconds(10));
    let mut stage = Stage::with(MemoryStore::new(), Config { presence, ..config(1) });
    stage.settle();
    stage.input(Input::Presence(None));
    stage.pass(Millis::seconds(60));
    stage.input(Input::Presence(Some(Millis::seconds(10))));
    stage.settle();
    insta::assert_snapshot!(stage.log());
}
