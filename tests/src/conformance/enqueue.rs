//! New jobs: what is stored of them, what is filled in, and which are refused.

use windlass_core::limits::{KINDS_PER_QUEUE, MAX_AHEAD, NAME_BYTES, PAYLOAD_BYTES};
use windlass_core::store::Admin;
use windlass_core::{
    Delay, EnqueueRefused, Epoch, Job, JobId, JobTimeout, Kind, LeaseLength, MaxRetries, Millis,
    NewJob, Policy, Priority, QueueSettings, Rank, Receipt, RetryPolicy, State, Strategy, View,
    When,
};

use super::commit_idle;
use crate::fixture::*;

pub fn a_job_is_stored_with_every_option_as_it_was_given<S: Subject>() {
    let mut world = World::<S>::new();
    let retry = RetryPolicy::new(
        Strategy::Exponential { factor: 1_501 },
        Millis::new(7),
        Millis::hours(2),
        333,
    );
    let retry = retry.expect("a fine policy");
    let timeout = JobTimeout::new(98_765).expect("in bounds");
    let new = NewJob {
        priority: priority(-7),
        when: When::After(delay(Millis::minutes(5))),
        max_retries: Some(retries(11)),
        timeout: Some(timeout),
        visibility_timeout: Some(lease(Millis::new(12_345))),
        retry: Some(retry),
        ..work_keyed("order-1")
    };
    let id = world.enqueue(new);
    let stored = world.detail(id);
    let expected = Job {
        id,
        queue: queue("main"),
        kind: kind("work"),
        priority: priority(-7),
        rank: Rank::new(priority(-7), world.now().plus(Millis::minutes(5)), id),
        state: State::Queued { ready: false, last_verdict: None },
        attempts: 0,
        max_retries: retries(11),
        epoch: Epoch::NEVER,
        generation: 0,
        run_at: world.now().plus(Millis::minutes(5)),
        timeout: Some(timeout),
        visibility_timeout: lease(Millis::new(12_345)),
        retry,
        idempotency_key: Some(key("order-1")),
        payload_bytes: stored.payload.bytes(),
        created_at: world.now(),
        updated_at: world.now(),
        started_at: None,
    };
    assert_eq!(stored.job, expected);
    assert_eq!((stored.result, stored.progress, stored.last_error), (None, None, None));
}

pub fn options_at_their_bounds_are_stored_as_given<S: Subject>() {
    let mut world = World::<S>::new();
    let least = NewJob {
        priority: Priority::MIN,
        max_retries: Some(MaxRetries::MIN),
        timeout: Some(JobTimeout::MIN),
        visibility_timeout: Some(LeaseLength::MIN),
        ..work()
    };
    let most = NewJob {
        priority: Priority::MAX,
        when: When::After(Delay::MAX),
        max_retries: Some(MaxRetries::MAX),
        timeout: Some(JobTimeout::MAX),
        visibility_timeout: Some(LeaseLength::MAX),
        ..work()
    };
    for new in [least, most] {
        let id = world.enqueue(new.clone());
        let job = world.job(id);
        assert_eq!(job.priority, new.priority);
        assert_eq!(Some(job.max_retries), new.max_retries);
        assert_eq!(job.timeout, new.timeout);
        assert_eq!(Some(job.visibility_timeout), new.visibility_timeout);
    }
}

pub fn every_strategy_of_retrying_is_stored_as_given<S: Subject>() {
    let mut world = World::<S>::new();
    let strategies = [Strategy::Fixed, Strategy::Linear, Strategy::Exponential { factor: 100_000 }];
    for strategy in strategies {
        let (initial, cap) = (Millis::ZERO, Millis::days(365));
        let retry = RetryPolicy::new(strategy, initial, cap, 1_000).expect("a fine policy");
        let id = world.enqueue(NewJob { retry: Some(retry), ..work() });
        assert_eq!(world.job(id).retry, retry);
    }
}

pub fn what_a_job_does_not_say_its_queue_says_and_else_the_policy<S: Subject>() {
    let mut world = World::<S>::new();
    let retry = |length| RetryPolicy::new(Strategy::Linear, Millis::new(length), Millis::new(9), 0);
    let timeout = |length| JobTimeout::new(length).ok();
    world.policy = Policy {
        max_retries: retries(21),
        timeout: timeout(22),
        visibility_timeout: lease(Millis::new(23_000)),
        retry: retry(4).expect("a fine policy"),
        ..Policy::default()
    };
    let settings = QueueSettings {
        max_retries: Some(retries(31)),
        timeout: timeout(32),
        visibility_timeout: Some(lease(Millis::new(33_000))),
        retry: retry(5).ok(),
        ..QueueSettings::default()
    };
    let given = NewJob {
        max_retries: Some(retries(41)),
        timeout: timeout(42),
        visibility_timeout: Some(lease(Millis::new(43_000))),
        retry: retry(6).ok(),
        ..work()
    };
    let silent = |name: &str| NewJob { retry: None, ..work_in(name) };
    world.admin(Admin::set_queue(queue("main"), settings)).expect("the queue takes settings");
    let ids = [silent("plain"), silent("main"), given].map(|new| world.enqueue(new));
    let [policy, queue, job] = ids.map(|id| {
        let job = world.job(id);
        let timeout = job.timeout.map(JobTimeout::get);
        let (lease, wait) = (job.visibility_timeout.get(), job.retry.initial().get());
        (job.max_retries.get(), timeout, lease, wait)
    });
    assert_eq!(policy, (21, Some(22), 23_000, 4), "neither says: the policy");
    assert_eq!(queue, (31, Some(32), 33_000, 5), "the job does not say: the queue");
    assert_eq!(job, (41, Some(42), 43_000, 6), "the job says");
}

pub fn a_payload_comes_back_byte_for_byte<S: Subject>() {
    let mut world = World::<S>::new();
    let new = |payload: &&str| NewJob { payload: text(payload), ..work() };
    let out = world.commit(|batch| batch.enqueues.extend(UNUSUAL_TEXTS.iter().map(new)));
    let given: Vec<JobId> =
        out.enqueues.iter().map(|done| done.as_ref().expect("it is accepted").id).collect();
    world.reopen();
    for (id, payload) in given.iter().zip(UNUSUAL_TEXTS) {
        assert_eq!(world.detail(*id).payload.as_str(), payload);
    }
    let claimed = world.claim(main_work(), "w1", UNUSUAL_TEXTS.len());
    let payloads: Vec<&str> = claimed.iter().map(|leased| leased.payload.as_str()).collect();
    assert_eq!(payloads, UNUSUAL_TEXTS, "a claim hands out what was enqueued");
}

pub fn a_payload_claimed_in_its_own_batch_comes_back_byte_for_byte<S: Subject>() {
    let mut world = World::<S>::new();
    for payload in UNUSUAL_TEXTS {
        let leased = world.running(NewJob { payload: text(payload), ..work() });
        assert_eq!(leased.payload.as_str(), payload);
    }
}

pub fn a_payload_of_the_greatest_length_comes_back_whole<S: Subject>() {
    let mut world = World::<S>::alone();
    let long = "Größe ".repeat(PAYLOAD_BYTES / "Größe ".len());
    let out = world.load(|batch| {
        batch.enqueues.push(NewJob { payload: text(&long), ..work() });
    });
    let id = out.enqueues[0].as_ref().expect("it is accepted").id;
    assert!(world.detail(id).payload.as_str() == long, "the payload changed");
    let out = world.load(|batch| batch.claims.push(claim_for(main_work(), "w1", 1)));
    assert!(out.claims[0].jobs[0].payload.as_str() == long, "the payload changed");
}

pub fn equal_jobs_without_a_key_are_different_jobs<S: Subject>() {
    let mut world = World::<S>::new();
    let first = world.enqueue(work());
    let second = world.enqueue(work());
    assert_ne!(first, second);
    assert_eq!(world.claim(main_work(), "w1", 9).len(), 2);
}

pub fn ids_are_given_in_the_order_of_the_batch<S: Subject>() {
    let mut world = World::<S>::new();
    let new = [work_at(-5), work_in("other"), work_at(900), work_of("mail"), work()];
    let out = world.commit(|batch| batch.enqueues.extend(new));
    let given: Vec<JobId> = out.enqueues.into_iter().flatten().map(|receipt| receipt.id).collect();
    assert_eq!(given.len(), 5);
    assert!(given.is_sorted(), "{given:?}");
    assert_eq!(world.job(given[2]).priority, priority(900));
    assert_eq!(world.job(given[3]).kind, kind("mail"));
}

pub fn a_delay_counts_from_the_instant_of_the_batch<S: Subject>() {
    let mut world = World::<S>::new();
    world.advance(Millis::hours(3));
    let wait = Millis::minutes(10);
    let id = world.enqueue(NewJob { when: When::After(delay(wait)), ..work() });
    let job = world.job(id);
    assert_eq!(job.run_at, world.now().plus(wait));
    assert_eq!(job.state.view(), View::Scheduled);
    world.assert_nothing_to_claim();
}

pub fn a_job_due_now_is_ready_and_one_due_a_tick_later_is_not<S: Subject>() {
    let mut world = World::<S>::new();
    let now = world.now();
    for when in [When::Now, When::After(Delay::MIN), When::At(now)] {
        let id = world.enqueue(NewJob { when, ..work() });
        assert_eq!(world.job(id).state.view(), View::Queued, "{when:?}");
    }
    for when in [When::After(delay(TICK)), When::At(now.plus(TICK))] {
        let id = world.enqueue(NewJob { when, ..work() });
        let job = world.job(id);
        assert_eq!((job.state.view(), job.run_at), (View::Scheduled, now.plus(TICK)), "{when:?}");
    }
}

pub fn an_instant_in_the_past_means_now<S: Subject>() {
    let mut world = World::<S>::new();
    let past = world.now().minus(Millis::days(400));
    let id = world.enqueue(NewJob { when: When::At(past), ..work() });
    let job = world.job(id);
    assert_eq!((job.run_at, job.state.view()), (world.now(), View::Queued));
    let older = world.enqueue(work());
    let claimed = super::ids(&world.claim(main_work(), "w1", 2));
    assert_eq!(claimed, [id, older], "it does not overtake by its age");
}

pub fn an_instant_too_far_ahead_is_refused<S: Subject>() {
    let mut world = World::<S>::new();
    world.enqueue(work());
    let latest = world.now().plus(MAX_AHEAD);
    let given = latest.plus(TICK);
    let out = commit_idle(&mut world, |batch| {
        batch.enqueues.push(NewJob { when: When::At(given), ..work() });
    });
    assert_eq!(out.enqueues, [Err(EnqueueRefused::TooFarAhead { given, latest })]);
    let id = world.enqueue(NewJob { when: When::At(latest), ..work() });
    assert_eq!(world.job(id).run_at, latest, "the latest instant is allowed");
}

/// Found by this case: the queue was made before the job was refused, and stayed.
pub fn a_refused_job_does_not_leave_a_queue_behind<S: Subject>() {
    let mut world = World::<S>::new();
    let when = When::At(world.now().plus(MAX_AHEAD).plus(TICK));
    let out = commit_idle(&mut world, |batch| {
        batch.enqueues.push(NewJob { when, ..work_in("never-seen") });
    });
    assert!(matches!(out.enqueues[0], Err(EnqueueRefused::TooFarAhead { .. })));
    assert!(world.dump().queues.iter().all(|row| row.queue.name != queue("never-seen")));
}

pub fn a_refused_job_uses_no_id<S: Subject>() {
    let mut world = World::<S>::new();
    let first = world.enqueue(work());
    let too_far = When::At(world.now().plus(MAX_AHEAD).plus(TICK));
    let out = world.commit(|batch| {
        batch.enqueues.push(NewJob { when: too_far, ..work() });
        batch.enqueues.push(work());
        batch.enqueues.push(NewJob { when: too_far, ..work() });
        batch.enqueues.push(work());
    });
    let given: Vec<Option<JobId>> =
        out.enqueues.iter().map(|answer| answer.as_ref().ok().map(|receipt| receipt.id)).collect();
    assert_eq!(given, [None, Some(first.plus(1)), None, Some(first.plus(2))]);
}

/// A queue `full` with as many kinds as it may hold, one job each.
fn with_all_kinds<S: Subject>() -> (World<S>, Vec<JobId>) {
    let mut world = World::<S>::alone();
    let of = |number| NewJob { kind: numbered_kind(number), ..work_in("full") };
    let out = world.load(|batch| batch.enqueues.extend((0..KINDS_PER_QUEUE).map(of)));
    let ids = out.enqueues.into_iter().map(|answer| answer.expect("there is room").id).collect();
    (world, ids)
}

fn numbered_kind(number: usize) -> Kind {
    kind(&format!("kind-{number}"))
}

pub fn a_kind_too_many_is_refused_while_known_kinds_are_taken<S: Subject>() {
    let (mut world, _) = with_all_kinds::<S>();
    let one_more = NewJob { kind: kind("one-more"), ..work_in("full") };
    let out = commit_idle(&mut world, |batch| batch.enqueues.push(one_more.clone()));
    assert_eq!(out.enqueues, [Err(EnqueueRefused::TooManyKinds { queue: queue("full") })]);
    world.enqueue(NewJob { kind: numbered_kind(0), ..work_in("full") });
    world.enqueue(NewJob { kind: numbered_kind(KINDS_PER_QUEUE - 1), ..work_in("full") });
    world.enqueue(NewJob { queue: queue("roomy"), ..one_more });
}

pub fn kinds_are_counted_within_a_batch_too<S: Subject>() {
    let mut world = World::<S>::alone();
    let of = |number| NewJob { kind: numbered_kind(number), ..work_in("full") };
    let out = world.load(|batch| batch.enqueues.extend((0..=KINDS_PER_QUEUE).map(of)));
    let refused = out.enqueues.iter().filter(|answer| answer.is_err()).count();
    assert_eq!(refused, 1);
    let last = out.enqueues.last().expect("there are answers");
    assert_eq!(*last, Err(EnqueueRefused::TooManyKinds { queue: queue("full") }));
}

pub fn a_kind_whose_jobs_are_all_gone_makes_room_for_another<S: Subject>() {
    let (mut world, ids) = with_all_kinds::<S>();
    world.load(|batch| {
        batch.admin.push(Admin::Cancel(ids[7]));
        batch.admin.push(Admin::Delete(ids[7]));
    });
    world.enqueue(NewJob { kind: kind("one-more"), ..work_in("full") });
}

pub fn names_that_differ_by_case_or_length_are_distinguished<S: Subject>() {
    let mut world = World::<S>::new();
    let longest = "q".repeat(NAME_BYTES);
    let names = ["a", "A", "aa", "a.b", "a-b", "a_b", &longest];
    for name in names {
        for of in names {
            world.enqueue(NewJob { kind: kind(of), ..work_in(name) });
        }
    }
    for name in names {
        let new = NewJob { kind: kind(name), ..work_in(name) };
        let found = world.claim(demand_for(&new), "w1", 9);
        assert_eq!(found.len(), 1, "{name}");
        assert_eq!((&found[0].job.queue, &found[0].job.kind), (&new.queue, &new.kind));
    }
}

// Receipts.

pub fn a_receipt_carries_the_row_only_if_it_was_asked_for<S: Subject>() {
    let mut world = World::<S>::new();
    let later = NewJob { when: When::After(delay(TICK)), echo: true, ..work() };
    let out = world.commit(|batch| {
        batch.enqueues.extend([work(), NewJob { echo: true, ..work() }, later]);
    });
    let receipts: Vec<Receipt> = out.enqueues.into_iter().flatten().collect();
    assert_eq!(receipts[0].row, None);
    for receipt in &receipts[1..] {
        assert_eq!(receipt.row.as_deref(), Some(&world.job(receipt.id)));
    }
}

pub fn a_receipt_carries_the_row_as_its_batch_left_it<S: Subject>() {
    let mut world = World::<S>::new();
    let out = world.commit(|batch| {
        batch.enqueues.push(NewJob { echo: true, ..work() });
        batch.claims.push(claim_for(main_work(), "w1", 1));
    });
    let receipt = out.enqueues[0].as_ref().expect("it is accepted");
    assert_eq!(receipt.row.as_deref(), Some(&out.claims[0].jobs[0].job));
    assert_eq!(receipt.row.as_deref(), Some(&world.job(receipt.id)));
}
