//! Idempotent enqueue: one key, one job, for its window and always until that job is finished.

use windlass_core::limits::IDEMPOTENCY_KEY_BYTES;
use windlass_core::store::{Admin, Settle};
use windlass_core::{
    Delay, EnqueueRefused, Fingerprint, Idempotency, JobId, JobTimeout, Millis, NewJob, Policy,
    QueueSettings, Receipt, RetryPolicy, StateName, Strategy, Wall, When,
};

use super::commit_idle;
use crate::fixture::*;

const WINDOW: Millis = Millis::hours(1);

/// A world whose keys live for an hour.
fn world<S: Subject>() -> World<S> {
    let policy = Policy { idempotency_window: WINDOW, ..Policy::default() };
    let mut world = World::new();
    world.policy = policy;
    world
}

fn duplicate(id: JobId) -> Receipt {
    Receipt::new(id, true)
}

fn conflict(existing: JobId) -> Result<Receipt, EnqueueRefused> {
    Err(EnqueueRefused::IdempotencyConflict { existing })
}

/// What an enqueue that must write nothing is answered.
#[track_caller]
fn answer<S: Subject>(world: &mut World<S>, new: NewJob) -> Result<Receipt, EnqueueRefused> {
    commit_idle(world, |batch| batch.enqueues.push(new)).enqueues.remove(0)
}

pub fn the_same_request_finds_the_job_it_made<S: Subject>() {
    let mut world = world::<S>();
    let id = world.enqueue(work_keyed("k"));
    world.advance(Millis::minutes(59));
    assert_eq!(answer(&mut world, work_keyed("k")), Ok(duplicate(id)));
}

pub fn the_same_request_finds_the_job_in_every_state<S: Subject>() {
    let mut world = world::<S>();
    let later = NewJob { when: When::After(delay(WINDOW)), ..work_keyed("scheduled") };
    let made = [
        (world.done(work_keyed("done")), work_keyed("done")),
        (world.dead(work_keyed("dead"), "no use"), work_keyed("dead")),
        (world.cancelled(work_keyed("cancelled")), work_keyed("cancelled")),
        (world.running(work_keyed("running")).job.id, work_keyed("running")),
        (world.enqueue(later.clone()), later),
        (world.enqueue(work_keyed("queued")), work_keyed("queued")),
    ];
    for (id, new) in made {
        assert_eq!(answer(&mut world, new), Ok(duplicate(id)));
    }
}

pub fn the_receipt_of_a_duplicate_carries_the_row_of_the_job_that_is_there<S: Subject>() {
    let mut world = world::<S>();
    let echo = |name| NewJob { echo: true, ..work_keyed(name) };
    let kept = world.running(echo("kept")).job.id;
    let gone = world.done(echo("gone"));
    world.admin(Admin::Delete(gone)).expect("it is finished");
    let out = world.commit(|batch| {
        batch.admin.push(Admin::Cancel(kept));
        batch.enqueues.extend([echo("kept"), echo("gone")]);
    });
    let row = Some(Box::new(world.job(kept)));
    assert_eq!(out.enqueues, [Ok(Receipt { row, ..duplicate(kept) }), Ok(duplicate(gone))]);
}

pub fn the_same_key_twice_in_one_batch_makes_one_job<S: Subject>() {
    let mut world = world::<S>();
    let out = world.commit(|batch| {
        batch.enqueues.extend([work_keyed("k"), work_keyed("other"), work_keyed("k")]);
        batch.claims.push(claim_for(main_work(), "w1", 9));
    });
    let first = out.enqueues[0].as_ref().expect("it is new").id;
    assert_eq!(out.enqueues[2], Ok(duplicate(first)));
    assert_eq!(out.claims[0].jobs.len(), 2, "it is handed out once");
}

pub fn another_request_with_the_key_in_one_batch_is_a_conflict<S: Subject>() {
    let mut world = world::<S>();
    let out = world.commit(|batch| {
        batch.enqueues.push(work_keyed("k"));
        batch.enqueues.push(keyed("k", work_at(5)));
        batch.enqueues.push(work_keyed("k"));
    });
    let first = out.enqueues[0].as_ref().expect("it is new").id;
    assert_eq!(out.enqueues[1..], [conflict(first), Ok(duplicate(first))]);
    assert_eq!(world.claim(main_work(), "w1", 9).len(), 1);
}

/// A request with every option set, and requests that differ from it in one.
fn one_and_others() -> (NewJob, Vec<(&'static str, NewJob)>) {
    let retry = |strategy, initial, cap, jitter| {
        RetryPolicy::new(strategy, Millis::new(initial), Millis::new(cap), jitter).ok()
    };
    let timeout = |length| JobTimeout::new(length).ok();
    let doubling = Strategy::Exponential { factor: 2_000 };
    let one = NewJob {
        priority: priority(1),
        when: When::After(delay(Millis::new(5))),
        max_retries: Some(retries(2)),
        timeout: timeout(100),
        visibility_timeout: Some(lease(Millis::new(2_000))),
        retry: retry(doubling, 10, 20, 30),
        ..work()
    };
    let trebling = Strategy::Exponential { factor: 3_000 };
    let like = || one.clone();
    let others = vec![
        ("payload", NewJob { payload: text(r#"{"n":2}"#), ..like() }),
        ("queue", NewJob { queue: queue("other"), ..like() }),
        ("kind", NewJob { kind: kind("other"), ..like() }),
        ("priority", NewJob { priority: priority(2), ..like() }),
        ("sign of priority", NewJob { priority: priority(-1), ..like() }),
        ("delay", NewJob { when: When::After(delay(Millis::new(6))), ..like() }),
        ("no delay", NewJob { when: When::Now, ..like() }),
        ("instant", NewJob { when: When::At(START.plus(Millis::new(5))), ..like() }),
        ("instant of that number", NewJob { when: When::At(Wall::new(5)), ..like() }),
        ("retries", NewJob { max_retries: Some(retries(3)), ..like() }),
        ("timeout", NewJob { timeout: timeout(101), ..like() }),
        ("no timeout", NewJob { timeout: None, ..like() }),
        ("lease", NewJob { visibility_timeout: Some(lease(Millis::new(2_001))), ..like() }),
        ("strategy", NewJob { retry: retry(Strategy::Linear, 10, 20, 30), ..like() }),
        ("fixed", NewJob { retry: retry(Strategy::Fixed, 10, 20, 30), ..like() }),
        ("factor", NewJob { retry: retry(trebling, 10, 20, 30), ..like() }),
        ("first wait", NewJob { retry: retry(doubling, 11, 20, 30), ..like() }),
        ("longest wait", NewJob { retry: retry(doubling, 10, 21, 30), ..like() }),
        ("jitter", NewJob { retry: retry(doubling, 10, 20, 31), ..like() }),
        ("default policy", NewJob { retry: None, ..like() }),
    ];
    (one, others)
}

pub fn a_request_that_differs_in_one_option_conflicts_and_names_the_job<S: Subject>() {
    let mut world = world::<S>();
    let (one, others) = one_and_others();
    let id = world.enqueue(keyed("k", one.clone()));
    for (option, other) in others {
        assert_eq!(answer(&mut world, keyed("k", other)), conflict(id), "{option}");
    }
    assert_eq!(answer(&mut world, keyed("k", one)), Ok(duplicate(id)));
}

pub fn every_two_requests_that_differ_conflict_whichever_came_first<S: Subject>() {
    let (one, others) = one_and_others();
    let all: Vec<(&str, NewJob)> = [("none", one)].into_iter().chain(others).collect();
    for (first_at, (first, new)) in all.iter().enumerate() {
        let mut world = World::<S>::alone();
        let id = world.enqueue(keyed("k", new.clone()));
        let again = all.iter().map(|(_, new)| keyed("k", new.clone()));
        let out = commit_idle(&mut world, |batch| batch.enqueues.extend(again));
        for (at, answer) in out.enqueues.into_iter().enumerate() {
            let expected = if at == first_at { Ok(duplicate(id)) } else { conflict(id) };
            assert_eq!(answer, expected, "{first}, then {}", all[at].0);
        }
    }
}

pub fn the_same_json_written_otherwise_is_the_same_request<S: Subject>() {
    let mut world = world::<S>();
    let id = world.enqueue(work_keyed("k"));
    let first = world.detail(id).payload;
    let payload = Fingerprint::of(first.as_str().as_bytes());
    let idempotency = Some(Idempotency { key: key("k"), payload });
    let spaced = NewJob { payload: text(r#"{ "n": 1 }"#), idempotency, ..work() };
    assert_eq!(answer(&mut world, spaced), Ok(duplicate(id)));
    assert_eq!(world.detail(id).payload, first, "the first writing stays");
}

pub fn an_option_given_as_the_default_is_the_same_request<S: Subject>() {
    let mut world = world::<S>();
    let id = world.enqueue(work_keyed("k"));
    let spelled_out = NewJob {
        max_retries: Some(world.policy.max_retries),
        visibility_timeout: Some(world.policy.visibility_timeout),
        ..work_keyed("k")
    };
    assert_eq!(answer(&mut world, spelled_out), Ok(duplicate(id)));
}

/// A queue that takes no further job, with the keyed job that fills it.
fn full_queue<S: Subject>() -> (World<S>, JobId) {
    let mut world = world::<S>();
    let settings = QueueSettings { max_queued: Some(max_queued(1)), ..QueueSettings::default() };
    world.admin(Admin::set_queue(queue("small"), settings)).expect("the queue is made");
    let id = world.enqueue(keyed("k", work_in("small")));
    (world, id)
}

pub fn a_duplicate_is_recognised_in_a_full_queue<S: Subject>() {
    let (mut world, id) = full_queue::<S>();
    assert_eq!(answer(&mut world, keyed("k", work_in("small"))), Ok(duplicate(id)));
    let other = NewJob { priority: priority(3), ..work_in("small") };
    assert_eq!(answer(&mut world, keyed("k", other)), conflict(id));
}

pub fn a_refused_job_leaves_its_key_free<S: Subject>() {
    let (mut world, first) = full_queue::<S>();
    let refused = answer(&mut world, keyed("free", work_in("small")));
    assert!(matches!(refused, Err(EnqueueRefused::QueueFull { .. })), "{refused:?}");
    world.admin(Admin::Cancel(first)).expect("a waiting job can be cancelled");
    let id = world.enqueue(keyed("free", work_in("small")));
    assert_ne!(id, first);
}

pub fn a_key_lives_past_its_window_until_its_job_is_finished<S: Subject>() {
    let mut world = world::<S>();
    let later = NewJob { when: When::After(Delay::MAX), ..work_keyed("scheduled") };
    let made = [
        (world.running(work_keyed("running")).job.id, work_keyed("running")),
        (world.enqueue(later.clone()), later),
        (world.enqueue(work_keyed("queued")), work_keyed("queued")),
    ];
    world.advance(Millis::days(30));
    for (id, new) in made {
        assert_eq!(answer(&mut world, new.clone()), Ok(duplicate(id)));
        let other = NewJob { priority: priority(9), ..new };
        assert_eq!(answer(&mut world, other), conflict(id));
    }
}

pub fn the_key_of_a_finished_job_is_free_once_its_window_ends<S: Subject>() {
    let mut world = world::<S>();
    let made = [
        (world.done(work_keyed("done")), "done"),
        (world.dead(work_keyed("dead"), "no use"), "dead"),
        (world.cancelled(work_keyed("cancelled")), "cancelled"),
    ];
    world.set_clock(START.plus(WINDOW).minus(TICK));
    for (id, name) in &made {
        assert_eq!(answer(&mut world, work_keyed(name)), Ok(duplicate(*id)), "{name}");
    }
    world.set_clock(START.plus(WINDOW));
    for (id, name) in &made {
        let later = world.enqueue(work_keyed(name));
        assert!(later > *id, "{name}");
    }
}

pub fn a_window_counts_from_the_creation_of_the_job_not_from_its_end<S: Subject>() {
    let mut world = world::<S>();
    let leased = world.running(work_keyed("k"));
    world.advance(WINDOW);
    world.settle(leased.job.token(), complete()).expect("the holder's verdict counts");
    world.enqueue(work_keyed("k"));
}

pub fn a_job_finished_in_the_same_batch_has_freed_its_key<S: Subject>() {
    let mut world = world::<S>();
    let token = world.running(work_keyed("k")).job.token();
    world.advance(WINDOW);
    let out = world.commit(|batch| {
        batch.enqueues.push(work_keyed("k"));
        batch.settles.push(Settle { token, verdict: complete() });
    });
    assert_eq!(out.settles, [Ok(StateName::Done)]);
    let receipt = out.enqueues[0].as_ref().expect("the key is free");
    assert!(!receipt.duplicate);
}

pub fn a_key_taken_over_names_the_later_job<S: Subject>() {
    let mut world = world::<S>();
    let first = world.done(work_keyed("k"));
    world.advance(WINDOW);
    let second = world.enqueue(keyed("k", work_at(4)));
    assert_eq!(answer(&mut world, keyed("k", work_at(4))), Ok(duplicate(second)));
    assert_eq!(answer(&mut world, work_keyed("k")), conflict(second));
    world.admin(Admin::Delete(first)).expect("a finished job can be deleted");
    assert_eq!(answer(&mut world, keyed("k", work_at(4))), Ok(duplicate(second)));
}

pub fn a_key_taken_over_begins_a_window_of_its_own<S: Subject>() {
    let mut world = world::<S>();
    world.done(work_keyed("k"));
    world.advance(WINDOW);
    let second = world.done(work_keyed("k"));
    world.advance(Millis::minutes(59));
    assert_eq!(answer(&mut world, work_keyed("k")), Ok(duplicate(second)));
    world.advance(Millis::minutes(1));
    world.enqueue(work_keyed("k"));
}

pub fn a_key_outlives_its_deleted_job_for_its_window<S: Subject>() {
    let mut world = world::<S>();
    let id = world.done(work_keyed("k"));
    world.admin(Admin::Delete(id)).expect("a finished job can be deleted");
    assert_eq!(answer(&mut world, work_keyed("k")), Ok(duplicate(id)));
    assert_eq!(answer(&mut world, keyed("k", work_at(4))), conflict(id));
    world.advance(WINDOW);
    world.enqueue(work_keyed("k"));
}

pub fn the_key_of_a_replayed_job_lives_as_long_as_the_job_again<S: Subject>() {
    let mut world = world::<S>();
    let id = world.dead(work_keyed("k"), "no use");
    world.advance(Millis::days(2));
    world.admin(Admin::Replay(id)).expect("a failed job can be replayed");
    assert_eq!(answer(&mut world, work_keyed("k")), Ok(duplicate(id)));
}

pub fn a_replayed_job_does_not_take_its_key_back<S: Subject>() {
    let mut world = world::<S>();
    let first = world.dead(work_keyed("k"), "no use");
    world.advance(WINDOW);
    let second = world.enqueue(work_keyed("k"));
    world.admin(Admin::Replay(first)).expect("a failed job can be replayed");
    assert_eq!(answer(&mut world, work_keyed("k")), Ok(duplicate(second)));
}

pub fn keys_that_differ_by_case_or_length_are_distinguished<S: Subject>() {
    let mut world = world::<S>();
    let longest = "x".repeat(IDEMPOTENCY_KEY_BYTES);
    let shorter = "x".repeat(IDEMPOTENCY_KEY_BYTES - 1);
    let names = ["a", "A", "aa", "%", "_", "'", "\"", "\\", &shorter, &longest];
    let ids: Vec<JobId> = names.iter().map(|name| world.enqueue(work_keyed(name))).collect();
    for (id, name) in ids.into_iter().zip(names) {
        assert_eq!(answer(&mut world, work_keyed(name)), Ok(duplicate(id)), "{name}");
    }
}

pub fn one_key_is_one_key_in_all_queues<S: Subject>() {
    let mut world = world::<S>();
    let id = world.enqueue(keyed("k", work_in("here")));
    assert_eq!(answer(&mut world, keyed("k", work_in("there"))), conflict(id));
    let queues = world.dump().queues;
    let made = queues.iter().any(|row| row.queue.name == queue("there"));
    assert!(!made, "a refused job makes no queue");
}
