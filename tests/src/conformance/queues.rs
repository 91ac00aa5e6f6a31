//! Queues: pause, settings, defaults, and which become ready.

use windlass_core::limits::QUEUES;
use windlass_core::store::{
    Admin, AdminDone, AdminRefused, Batch, DeadFilter, Heartbeat, Purge, Settle, TooManyQueues,
};
use windlass_core::{
    Aging, EnqueueRefused, Flow, JobId, JobTimeout, KindConcurrency, KindLimits, LeaseLength,
    Millis, NewJob, Pause, Queue, QueueName, QueueSettings, Rate, RetryPolicy, StateName, Strategy,
    Verdict, When,
};

use crate::fixture::{
    RETRY_WAIT, Subject, World, claim_for, complete, delay, fail_for, fail_for_good, keep_all_for,
    kind, lease, main_work, max_queued, max_running, queue, reap_up_to, retries, snooze, work,
    work_in, work_of_queues,
};

pub(super) const NO_SETTINGS: QueueSettings = QueueSettings {
    flow: Flow::NONE,
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
pub(super) fn set<S: Subject>(world: &mut World<S>, name: &str, settings: QueueSettings) -> Queue {
    change(world, Admin::set_queue(queue(name), settings))
}

fn replaced(expected: QueueSettings, settings: QueueSettings) -> Admin {
    Admin::SetQueue { name: queue("q"), settings, expected: Some(Box::new(expected)) }
}

pub(super) fn waiting_at_most(number: u64) -> QueueSettings {
    QueueSettings { max_queued: Some(max_queued(number)), ..NO_SETTINGS }
}

pub(super) fn running_at_most(number: u32) -> QueueSettings {
    QueueSettings { concurrency: Some(max_running(number)), ..NO_SETTINGS }
}

pub(super) fn later() -> NewJob {
    NewJob { when: When::After(delay(Millis::hours(1))), ..work_in("q") }
}

pub(super) fn full(limit: u64) -> EnqueueRefused {
    EnqueueRefused::QueueFull { queue: queue("q"), limit: max_queued(limit) }
}

/// Claims all jobs of this queue that can be; returns their number.
pub(super) fn claimable<S: Subject>(world: &mut World<S>, name: &str) -> usize {
    world.claim(work_of_queues(&[name]), "w1", 100).len()
}

// Pause.

pub fn a_paused_queue_takes_jobs_but_hands_out_none_until_it_is_resumed<S: Subject>() {
    let mut world = World::<S>::new();
    let before = world.enqueue(work());
    assert!(change(&mut world, Admin::pause(queue("main"))).is_paused());
    let after = world.enqueue(work());
    world.assert_nothing_to_claim();
    assert!(!change(&mut world, Admin::Resume(queue("main"))).is_paused());
    assert_eq!(world.claim_one("w1").job.id, before);
    assert_eq!(world.claim_one("w1").job.id, after);
}

pub fn a_pause_tells_since_when_and_by_whom_until_the_queue_is_resumed<S: Subject>() {
    let mut world = World::<S>::alone();
    let pause = |by: &str| Admin::Pause { name: queue("q"), by: Some(by.into()) };
    let first = Some(Pause { at: Some(world.now()), by: Some("ops".into()) });
    assert_eq!(change(&mut world, pause("ops")).paused, first);
    world.advance(Millis::seconds(9));
    assert_eq!(change(&mut world, pause("late")).paused, first, "it was paused already");
    assert_eq!(set(&mut world, "q", running_at_most(1)).paused, first);
    world.reopen();
    assert_eq!(world.dump().queues[0].queue.paused, first);
    assert_eq!(change(&mut world, Admin::Resume(queue("q"))).paused, None);
    let again = change(&mut world, pause("a\0b")).paused.expect("it is paused again");
    let by = "a\u{1a}b".into();
    assert_eq!(again, Pause { at: Some(world.now()), by: Some(by) }, "a NUL cannot be stored");
}

pub fn pause_and_resume_count_for_the_claims_of_their_own_batch<S: Subject>() {
    let mut world = World::<S>::new();
    world.enqueue(work());
    let claim = |batch: &mut Batch| batch.claims.push(claim_for(main_work(), "w1", 1));
    let out = world.commit(|batch| {
        batch.admin.push(Admin::pause(queue("main")));
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
    change(&mut world, Admin::pause(queue("main")));
    assert_eq!(world.job(running.id), running);
    let claimed = world.claim(work_of_queues(&["main", "other"]), "w1", 10);
    let claimed: Vec<JobId> = claimed.iter().map(|leased| leased.job.id).collect();
    assert_eq!(claimed, [other]);
    assert!(world.heartbeat(running.token(), None).is_ok());
    assert_eq!(world.settle(running.token(), complete()), Ok(StateName::Done));
}

pub fn a_command_on_an_unknown_queue_makes_it<S: Subject>() {
    let mut world = World::<S>::new();
    let settings = waiting_at_most(3);
    let plain = |name| Queue::new(queue(name));
    let paused = change(&mut world, Admin::pause(queue("paused")));
    let pause = Pause { at: Some(world.now()), by: None };
    assert_eq!(paused, Queue { paused: Some(pause), ..plain("paused") });
    assert_eq!(change(&mut world, Admin::Resume(queue("resumed"))), plain("resumed"));
    assert_eq!(set(&mut world, "set", settings.clone()), Queue { settings, ..plain("set") });
    world.enqueue(work_in("paused"));
    assert_eq!(claimable(&mut world, "paused"), 0);
}

pub fn there_are_no_more_queues_than_there_may_be<S: Subject>() {
    let mut world = World::<S>::alone();
    let names: Vec<QueueName> = (0..QUEUES).map(|n| queue(&format!("q{n}"))).collect();
    let one_too_many = || Admin::pause(queue("one-too-many"));
    let too_many = || TooManyQueues { limit: QUEUES };
    let out = world.load(|batch| {
        batch.admin.extend(names.iter().cloned().map(Admin::Resume));
        batch.admin.push(one_too_many());
    });
    assert!(out.admin[..QUEUES].iter().all(Result::is_ok), "all but the last are made");
    assert_eq!(out.admin[QUEUES], Err(too_many().into()));
    let out = world.load(|batch| {
        batch.admin.extend([one_too_many(), Admin::pause(names[0].clone())]);
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
        flow: every_flow(),
    }
}

fn every_flow() -> Flow {
    let rate = |limit| Some(Rate::new(limit, 1_000, Some(limit)).expect("a fine rate"));
    let limits = |concurrency: Option<u32>, rate| KindLimits {
        concurrency: concurrency.map(|most| KindConcurrency::new(most).expect("a fine limit")),
        rate,
    };
    Flow {
        aging: Some(Aging::new(60_000).expect("a fine aging")),
        rate: rate(1_000),
        kinds: vec![
            (kind("a-kind:1"), limits(Some(0), None)),
            (kind("b"), limits(Some(7), rate(5))),
            (kind("c"), limits(None, rate(6))),
        ],
    }
}

pub fn settings_are_replaced_only_if_they_are_the_expected_ones<S: Subject>() {
    let mut world = World::<S>::alone();
    let changed = |settings| Err(AdminRefused::SettingsChanged(Box::new(settings)));
    let (one, two) = (|| running_at_most(1), || running_at_most(2));
    assert_eq!(world.admin(replaced(one(), two())), changed(NO_SETTINGS));
    assert_eq!(world.dump().queues, [], "a refused command makes no queue");
    assert_eq!(change(&mut world, replaced(NO_SETTINGS, one())).settings, one());
    world.reopen();
    assert_eq!(world.admin(replaced(NO_SETTINGS, two())), changed(one()));
    assert_eq!(world.dump().queues[0].queue.settings, one());
    let out = world.commit(|batch| {
        batch.admin.extend([replaced(one(), every_setting()), replaced(one(), two())]);
    });
    assert_eq!(out.admin[1], changed(every_setting()), "the first of the batch counts");
    change(&mut world, Admin::pause(queue("q")));
    let after = change(&mut world, replaced(every_setting(), two())).settings;
    assert_eq!(after, two(), "not the pause");
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
    assert_eq!(change(&mut world, Admin::pause(queue("q"))).settings, every_setting());
    assert!(set(&mut world, "q", running_at_most(1)).is_paused());
    assert_eq!(change(&mut world, Admin::Resume(queue("q"))).settings, running_at_most(1));
}

pub fn the_defaults_of_a_queue_fill_in_what_a_job_does_not_say<S: Subject>() {
    let mut world = World::<S>::new();
    let settings = every_setting();
    let bare = |name: &str| NewJob { retry: None, ..work_in(name) };
    let out = world.commit(|batch| {
        batch.admin.push(Admin::set_queue(queue("q"), settings.clone()));
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
    let set = |settings| Admin::set_queue(name(), settings);
    let admin = |world: &mut World<S>, command| {
        ready_queues(world, |batch: &mut Batch| batch.admin.push(command))
    };
    assert_eq!(admin(&mut world, set(running_at_most(1))), ["q"]);
    assert_eq!(admin(&mut world, Admin::pause(name())), [""; 0]);
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
