//! Queues: pause, defaults, how many may wait and how many may run, and which become ready.

use windlass_core::limits::QUEUES;
use windlass_core::store::{
    Admin, AdminDone, Batch, DeadFilter, Heartbeat, Purge, Settle, TooManyQueues,
};
use windlass_core::{
    EnqueueRefused, JobId, JobTimeout, LeaseLength, Millis, NewJob, Queue, QueueName,
    QueueSettings, RetryPolicy, StateName, Strategy, Verdict, When,
};

use crate::fixture::{
    RETRY_WAIT, Subject, World, claim_for, complete, delay, fail, fail_for, fail_for_good,
    keep_all_for, keyed, kind, lease, main_work, max_queued, max_running, queue, reap_up_to,
    retries, snooze, work, work_in, work_of, work_of_queues,
};

const NO_SETTINGS: QueueSettings = QueueSettings {
    max_queued: None,
    concurrency: None,
    visibility_timeout: None,
    max_retries: None,
    timeout: None,
    retry: None,
};

/// Runs a command on a queue, and returns the queue as the answer and the store show it.
#[track_caller]
fn change<S: Subject>(world: &mut World<S>, command: Admin) -> Queue {
    let done = world.admin(command).expect("the queue takes it");
    let AdminDone::Queue(queue) = done else { panic!("the answer is the queue, not {done:?}") };
    let rows = world.dump().queues;
    let stored = rows.into_iter().map(|row| row.queue).find(|row| row.name == queue.name);
    assert_eq!(stored.as_ref(), Some(&queue), "the answer shows the queue as it is stored");
    queue
}

#[track_caller]
fn set<S: Subject>(world: &mut World<S>, name: &str, settings: QueueSettings) -> Queue {
    change(world, Admin::SetQueue(queue(name), settings))
}

fn waiting_at_most(number: u64) -> QueueSettings {
    QueueSettings { max_queued: Some(max_queued(number)), ..NO_SETTINGS }
}

fn running_at_most(number: u32) -> QueueSettings {
    QueueSettings { concurrency: Some(max_running(number)), ..NO_SETTINGS }
}

fn later() -> NewJob {
    NewJob { when: When::After(delay(Millis::hours(1))), ..work_in("q") }
}

fn full(limit: u64) -> EnqueueRefused {
    EnqueueRefused::QueueFull { queue: queue("q"), limit: max_queued(limit) }
}

/// How many jobs of this queue can be claimed now.
fn claimable<S: Subject>(world: &mut World<S>, name: &str) -> usize {
    world.claim(work_of_queues(&[name]), "w1", 100).len()
}

// Pause.

pub fn a_paused_queue_takes_jobs_but_hands_out_none_until_it_is_resumed<S: Subject>() {
    let mut world = World::<S>::new();
    let before = world.enqueue(work());
    assert!(change(&mut world, Admin::Pause(queue("main"))).paused);
    let after = world.enqueue(work());
    world.assert_nothing_to_claim();
    assert!(!change(&mut world, Admin::Resume(queue("main"))).paused);
    assert_eq!(world.claim_one("w1").job.id, before);
    assert_eq!(world.claim_one("w1").job.id, after);
}

pub fn pause_and_resume_count_for_the_claims_of_their_own_batch<S: Subject>() {
    let mut world = World::<S>::new();
    world.enqueue(work());
    let claim = |batch: &mut Batch| batch.claims.push(claim_for(main_work(), "w1", 1));
    let out = world.commit(|batch| {
        batch.admin.push(Admin::Pause(queue("main")));
        claim(batch);
    });
    assert_eq!(out.claims[0].jobs, []);
    let out = world.commit(|batch| {
        batch.admin.push(Admin::Resume(queue("main")));
        claim(batch);
    });
    assert_eq!(out.claims[0].jobs.len(), 1);
}

pub fn a_pause_stops_neither_running_jobs_nor_other_queues<S: Subject>() {
    let mut world = World::<S>::new();
    let running = world.running(work()).job;
    world.enqueue(work());
    let other = world.enqueue(work_in("other"));
    change(&mut world, Admin::Pause(queue("main")));
    assert_eq!(world.job(running.id), running);
    let claimed = world.claim(work_of_queues(&["main", "other"]), "w1", 10);
    let claimed: Vec<JobId> = claimed.iter().map(|leased| leased.job.id).collect();
    assert_eq!(claimed, [other]);
    assert!(world.beat(running.token(), None).is_ok());
    assert_eq!(world.settle(running.token(), complete()), Ok(StateName::Done));
}

pub fn a_command_on_an_unknown_queue_makes_it<S: Subject>() {
    let mut world = World::<S>::new();
    let settings = waiting_at_most(3);
    let plain = |name| Queue::new(queue(name));
    let paused = change(&mut world, Admin::Pause(queue("paused")));
    assert_eq!(paused, Queue { paused: true, ..plain("paused") });
    assert_eq!(change(&mut world, Admin::Resume(queue("resumed"))), plain("resumed"));
    assert_eq!(set(&mut world, "set", settings), Queue { settings, ..plain("set") });
    world.enqueue(work_in("paused"));
    assert_eq!(claimable(&mut world, "paused"), 0);
}

pub fn there_are_no_more_queues_than_there_may_be<S: Subject>() {
    let mut world = World::<S>::alone();
    let names: Vec<QueueName> = (0..QUEUES).map(|n| queue(&format!("q{n}"))).collect();
    let one_too_many = || Admin::Pause(queue("one-too-many"));
    let too_many = || TooManyQueues { limit: QUEUES };
    let out = world.load(|batch| {
        batch.admin.extend(names.iter().cloned().map(Admin::Resume));
        batch.admin.push(one_too_many());
    });
    assert!(out.admin[..QUEUES].iter().all(Result::is_ok), "all but the last are made");
    assert_eq!(out.admin[QUEUES], Err(too_many().into()));
    let out = world.load(|batch| {
        batch.admin.extend([one_too_many(), Admin::Pause(names[0].clone())]);
        batch.enqueues.extend([work_in("another"), work_in("q1")]);
    });
    assert_eq!(out.admin[0], Err(too_many().into()));
    assert!(out.admin[1].is_ok(), "those that exist can be changed");
    assert_eq!(out.enqueues[0], Err(too_many().into()));
    assert!(out.enqueues[1].is_ok(), "those that exist take jobs");
    assert_eq!(world.dump().queues.len(), QUEUES);
    world.enqueue(work_in("default"));
    assert_eq!(world.dump().queues.len(), QUEUES + 1, "the default queue is made in any case");
}

// Settings.

fn every_setting() -> QueueSettings {
    let retry = RetryPolicy::new(Strategy::Linear, Millis::seconds(2), Millis::seconds(9), 1);
    QueueSettings {
        max_queued: Some(max_queued(7)),
        concurrency: Some(max_running(5)),
        visibility_timeout: Some(lease(Millis::seconds(77))),
        max_retries: Some(retries(9)),
        timeout: Some(JobTimeout::new(4_321).expect("a fine timeout")),
        retry: Some(retry.expect("a fine retry policy")),
    }
}

pub fn setting_a_queue_replaces_all_its_settings<S: Subject>() {
    let mut world = World::<S>::new();
    assert_eq!(set(&mut world, "q", every_setting()).settings, every_setting());
    world.reopen();
    assert_eq!(set(&mut world, "q", running_at_most(2)).settings, running_at_most(2));
    assert_eq!(set(&mut world, "q", NO_SETTINGS).settings, NO_SETTINGS);
}

pub fn the_settings_of_a_queue_and_its_pause_leave_each_other_alone<S: Subject>() {
    let mut world = World::<S>::new();
    set(&mut world, "q", every_setting());
    assert_eq!(change(&mut world, Admin::Pause(queue("q"))).settings, every_setting());
    assert!(set(&mut world, "q", running_at_most(1)).paused);
    assert_eq!(change(&mut world, Admin::Resume(queue("q"))).settings, running_at_most(1));
}

pub fn the_defaults_of_a_queue_fill_in_what_a_job_does_not_say<S: Subject>() {
    let mut world = World::<S>::new();
    let settings = every_setting();
    let bare = |name: &str| NewJob { retry: None, ..work_in(name) };
    let out = world.commit(|batch| {
        batch.admin.push(Admin::SetQueue(queue("q"), settings));
        batch.enqueues.extend([bare("q"), bare("other")]);
    });
    let ids: Vec<JobId> = out.enqueues.iter().flatten().map(|receipt| receipt.id).collect();
    let job = world.job(ids[0]);
    assert_eq!(Some(job.max_retries), settings.max_retries);
    assert_eq!(job.timeout, settings.timeout);
    assert_eq!(Some(job.visibility_timeout), settings.visibility_timeout);
    assert_eq!(Some(job.retry), settings.retry);
    let (job, policy) = (world.job(ids[1]), world.policy);
    let plain = (job.max_retries, job.timeout, job.visibility_timeout, job.retry);
    let expected = (policy.max_retries, policy.timeout, policy.visibility_timeout, policy.retry);
    assert_eq!(plain, expected, "a queue without settings leaves it to the policy");
}

pub fn what_a_job_says_wins_over_the_defaults_of_its_queue<S: Subject>() {
    let mut world = World::<S>::new();
    set(&mut world, "q", every_setting());
    let new = NewJob {
        max_retries: Some(retries(0)),
        timeout: Some(JobTimeout::new(1).expect("a fine timeout")),
        visibility_timeout: Some(lease(Millis::seconds(2))),
        ..work_in("q")
    };
    let id = world.enqueue(new.clone());
    let job = world.job(id);
    assert_eq!((Some(job.max_retries), job.timeout), (new.max_retries, new.timeout));
    assert_eq!(Some(job.visibility_timeout), new.visibility_timeout);
    assert_eq!(Some(job.retry), new.retry);
}

pub fn new_defaults_of_a_queue_leave_the_jobs_it_has<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.enqueue(work_in("q"));
    let before = world.job(id);
    set(&mut world, "q", every_setting());
    assert_eq!(world.job(id), before);
}

// How many may wait.

pub fn a_full_queue_refuses_jobs_whether_they_are_due_or_not<S: Subject>() {
    let mut world = World::<S>::new();
    set(&mut world, "q", waiting_at_most(2));
    world.enqueue(work_in("q"));
    world.enqueue(later());
    let out = world.commit(|batch| batch.enqueues.extend([work_in("q"), later()]));
    assert_eq!(out.enqueues, [Err(full(2)), Err(full(2))]);
    assert!(!out.wrote, "a refused job leaves no trace");
    world.enqueue(work_in("other"));
}

pub fn within_one_batch_exactly_those_beyond_the_limit_are_refused<S: Subject>() {
    let mut world = World::<S>::new();
    set(&mut world, "q", waiting_at_most(3));
    world.enqueue(work_in("q"));
    let out = world.commit(|batch| {
        let keyed = |name| keyed(name, work_in("q"));
        batch.enqueues.extend([work_in("q"), keyed("k"), work_in("other")]);
        batch.enqueues.extend([work_in("q"), keyed("k"), keyed("j")]);
    });
    let accepted: Vec<bool> = out.enqueues.iter().map(Result::is_ok).collect();
    assert_eq!(accepted, [true, true, true, false, true, false]);
    assert_eq!(out.enqueues[3], Err(full(3)));
    assert!(out.enqueues[4].as_ref().is_ok_and(|receipt| receipt.duplicate), "it takes no room");
    let keys = world.dump().keys;
    assert!(keys.iter().all(|record| record.key.as_str() != "j"), "a refused job leaves no key");
}

pub fn a_full_queue_has_room_again_as_jobs_are_claimed_or_cancelled<S: Subject>() {
    let mut world = World::<S>::new();
    set(&mut world, "q", waiting_at_most(1));
    let first = world.enqueue(work_in("q"));
    assert_eq!(world.try_enqueue(work_in("q")), Err(full(1)));
    assert_eq!(claimable(&mut world, "q"), 1);
    let second = world.enqueue(work_in("q"));
    assert_eq!(world.try_enqueue(work_in("q")), Err(full(1)), "{first} runs, {second} waits");
    let out = world.commit(|batch| {
        batch.admin.push(Admin::Cancel(second));
        batch.enqueues.extend([work_in("q"), work_in("q")]);
    });
    assert!(out.enqueues[0].is_ok(), "the cancel made room in its own batch");
    assert_eq!(out.enqueues[1], Err(full(1)));
}

pub fn a_full_queue_takes_back_the_jobs_it_has<S: Subject>() {
    let mut world = World::<S>::new();
    let verdicts = [fail("once"), snooze(RETRY_WAIT), Verdict::Release];
    let tokens = verdicts.clone().map(|_| world.running(work_in("q")).job.token());
    let dead = world.dead(work_in("q"), "broken");
    let silent = world.running(work_in("q")).job.id;
    world.enqueue(work_in("q"));
    set(&mut world, "q", waiting_at_most(1));
    for (token, verdict) in tokens.into_iter().zip(verdicts) {
        assert_eq!(world.settle(token, verdict), Ok(StateName::Queued));
    }
    assert!(world.admin(Admin::Replay(dead)).is_ok());
    world.advance(LeaseLength::DEFAULT.millis());
    world.reap(reap_up_to(10));
    assert_eq!(world.job(silent).state.name(), StateName::Queued);
    assert_eq!(world.try_enqueue(work_in("q")), Err(full(1)));
}

/// Once, a job scheduled too far ahead left the queue it named behind.
pub fn a_refused_job_does_not_make_its_queue<S: Subject>() {
    let mut world = World::<S>::new();
    let too_far = world.now().plus(Millis::days(9_999));
    let new = NewJob { when: When::At(too_far), ..work_in("q") };
    let out = world.commit(|batch| batch.enqueues.push(new));
    assert!(matches!(out.enqueues[0], Err(EnqueueRefused::TooFarAhead { .. })));
    assert!(!out.wrote, "a refused job leaves no trace");
    assert!(world.dump().queues.iter().all(|row| row.queue.name != queue("q")));
}

// How many may run.

pub fn concurrency_counts_running_jobs_of_all_workers_and_kinds<S: Subject>() {
    let mut world = World::<S>::new();
    set(&mut world, "main", running_at_most(3));
    let ids = ["a", "b", "a", "b"].map(|name| world.enqueue(work_of(name)));
    // One bystander of the queue runs already.
    assert_eq!(world.claim_one("w1").job.id, ids[0]);
    assert_eq!(world.claim_one("w2").job.id, ids[1]);
    world.assert_nothing_to_claim();
}

pub fn concurrency_holds_among_the_claims_of_one_batch<S: Subject>() {
    let mut world = World::<S>::new();
    set(&mut world, "q", running_at_most(2));
    for _ in 0..4 {
        world.enqueue(work_in("q"));
    }
    let other = world.enqueue(work_in("other"));
    let out = world.commit(|batch| {
        batch.claims.push(claim_for(work_of_queues(&["q"]), "w1", 1));
        batch.claims.push(claim_for(work_of_queues(&["q", "other"]), "w2", 5));
        batch.claims.push(claim_for(work_of_queues(&["q"]), "w3", 5));
    });
    let counts: Vec<usize> = out.claims.iter().map(|claim| claim.jobs.len()).collect();
    assert_eq!(counts, [1, 2, 0]);
    let last = &out.claims[1].jobs[1].job;
    assert_eq!(last.id, other, "a full queue does not hide the jobs of another");
}

pub fn a_job_that_stops_running_makes_room_for_another<S: Subject>() {
    let mut world = World::<S>::new();
    set(&mut world, "q", running_at_most(1));
    let next = |world: &mut World<S>| {
        world.enqueue(work_in("q"));
        let mut found = world.claim(work_of_queues(&["q"]), "w1", 5);
        assert_eq!(found.len(), 1, "there is room for one");
        found.remove(0).job.token()
    };
    let verdicts = [complete(), fail_for_good("broken"), fail("once"), Verdict::Release];
    for verdict in verdicts {
        let token = next(&mut world);
        assert_eq!(claimable(&mut world, "q"), 0);
        world.settle(token, verdict).expect("the holder reports");
    }
    let token = next(&mut world);
    world.admin(Admin::Cancel(token.job)).expect("a running job can be cancelled");
    next(&mut world);
    world.advance(LeaseLength::DEFAULT.millis());
    assert_eq!(claimable(&mut world, "q"), 0, "an expired lease counts until it is reaped");
    world.reap(reap_up_to(10));
    next(&mut world);
}

pub fn room_made_in_a_batch_is_there_for_its_claims<S: Subject>() {
    let mut world = World::<S>::new();
    set(&mut world, "q", running_at_most(1));
    let token = world.running(work_in("q")).job.token();
    let waiting = world.enqueue(work_in("q"));
    let out = world.commit(|batch| {
        batch.settles.push(Settle { token, verdict: complete() });
        batch.claims.push(claim_for(work_of_queues(&["q"]), "w1", 5));
    });
    let [leased] = &out.claims[0].jobs[..] else { panic!("there is room for one") };
    assert_eq!(leased.job.id, waiting);
}

pub fn a_lowered_concurrency_stops_nothing_and_starts_nothing<S: Subject>() {
    let mut world = World::<S>::new();
    let tokens = [(); 3].map(|()| world.running(work_in("q")).job.token());
    world.enqueue(work_in("q"));
    set(&mut world, "q", running_at_most(2));
    assert_eq!(claimable(&mut world, "q"), 0, "three run, two may");
    for token in tokens {
        assert_eq!(world.job(token.job).state.name(), StateName::Processing);
    }
    world.settle(tokens[0], complete()).expect("the holder reports");
    assert_eq!(claimable(&mut world, "q"), 0, "two run, two may");
    world.settle(tokens[1], complete()).expect("the holder reports");
    assert_eq!(claimable(&mut world, "q"), 1, "one runs, two may");
    set(&mut world, "q", NO_SETTINGS);
    world.enqueue(work_in("q"));
    assert_eq!(claimable(&mut world, "q"), 1);
}

// Which queues become ready.

#[track_caller]
fn ready_queues<S: Subject>(world: &mut World<S>, fill: impl FnOnce(&mut Batch)) -> Vec<String> {
    let mut names = world.commit(fill).ready_queues;
    names.sort();
    names.iter().map(|name| name.as_str().to_owned()).collect()
}

pub fn jobs_that_become_ready_make_their_queue_ready<S: Subject>() {
    let mut world = World::<S>::new();
    let ready_again = [Verdict::Release, fail_for("once", Millis::ZERO), snooze(Millis::ZERO)];
    for (at, verdict) in ready_again.into_iter().enumerate() {
        let name = format!("settled-{at}");
        let token = world.running(work_in(&name)).job.token();
        let settle = Settle { token, verdict };
        assert_eq!(ready_queues(&mut world, |batch| batch.settles.push(settle)), [name]);
    }
    let (dead, bulk) = (world.dead(work_in("dead"), "x"), world.dead(work_in("bulk"), "x"));
    assert_eq!(ready_queues(&mut world, |batch| batch.admin.push(Admin::Replay(dead))), ["dead"]);
    let filter = DeadFilter { queue: Some(queue("bulk")), ..DeadFilter::default() };
    let all = Admin::ReplayDead { filter, after: None, limit: 9 };
    assert_eq!(ready_queues(&mut world, |batch| batch.admin.push(all)), ["bulk"], "{bulk}");
    world.running(work_in("expired"));
    world.enqueue(NewJob { when: When::After(delay(Millis::seconds(30))), ..work_in("due") });
    world.advance(LeaseLength::DEFAULT.millis());
    let names = ready_queues(&mut world, |batch| {
        batch.reap = Some(reap_up_to(10));
        batch.promote = Some(10);
    });
    assert_eq!(names, ["due", "expired"]);
}

pub fn room_under_a_concurrency_limit_makes_the_queue_ready_and_room_elsewhere_does_not<
    S: Subject,
>() {
    let mut world = World::<S>::new();
    set(&mut world, "limited", running_at_most(9));
    for (name, expected) in [("limited", vec!["limited"]), ("free", vec![])] {
        let last = NewJob { max_retries: Some(retries(0)), ..work_in(name) };
        let verdicts = [complete(), fail_for_good("x"), snooze(RETRY_WAIT)];
        for verdict in verdicts {
            let token = world.running(last.clone()).job.token();
            let settle = Settle { token, verdict };
            assert_eq!(ready_queues(&mut world, |batch| batch.settles.push(settle)), expected);
        }
        let id = world.running(last.clone()).job.id;
        assert_eq!(ready_queues(&mut world, |batch| batch.admin.push(Admin::Cancel(id))), expected);
        world.running(last);
        world.advance(LeaseLength::DEFAULT.millis());
        assert_eq!(ready_queues(&mut world, |batch| batch.reap = Some(reap_up_to(10))), expected);
    }
}

pub fn a_queue_is_ready_after_its_own_change_unless_it_is_paused<S: Subject>() {
    let mut world = World::<S>::new();
    let name = || queue("q");
    let set = |settings| Admin::SetQueue(name(), settings);
    let admin = |world: &mut World<S>, command| {
        ready_queues(world, |batch: &mut Batch| batch.admin.push(command))
    };
    assert_eq!(admin(&mut world, set(running_at_most(1))), ["q"]);
    assert_eq!(admin(&mut world, Admin::Pause(name())), [""; 0]);
    assert_eq!(admin(&mut world, set(NO_SETTINGS)), [""; 0]);
    assert_eq!(admin(&mut world, Admin::Resume(name())), ["q"]);
}

pub fn what_makes_nothing_claimable_makes_no_queue_ready<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    let old = world.done(NewJob { kind: kind("other"), ..work() });
    let waiting = world.enqueue(work_in("q"));
    let nothing = [""; 0];
    let names = ready_queues(&mut world, |batch| {
        batch.enqueues.extend([work(), later()]);
        batch.heartbeats.push(Heartbeat { token, extend: None, progress: None });
        batch.admin.extend([Admin::Cancel(waiting), Admin::Delete(old)]);
    });
    assert_eq!(names, nothing, "an enqueue is known to who made it");
    let names = ready_queues(&mut world, |batch| {
        batch.claims.push(claim_for(main_work(), "w2", 1));
        batch.purge = Some(Purge { retention: keep_all_for(Millis::ZERO), limit: 10 });
        batch.reap = Some(reap_up_to(10));
        batch.promote = Some(10);
    });
    assert_eq!(names, nothing);
}
