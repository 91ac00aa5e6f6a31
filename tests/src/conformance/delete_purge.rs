//! Finished jobs go: on demand or past their age. What stays of them is their key, for its window.

use windlass_core::limits::SILENT_KEPT;
use windlass_core::store::{
    Admin, AdminDone, AdminRefused, Heartbeat, JobRefused, Outcomes, Purge, Purged, Retention,
    Settle, Store,
};
use windlass_core::{
    BatchId, EnqueueRefused, Epoch, EventName, JobId, KeyRecord, LeaseToken, Millis, NewJob,
    Receipt, Rejected, StateName, Verdict, When,
};

use crate::fixture::{
    Subject, TICK, World, announced, complete, complete_with, delay, fail, fail_for_good,
    keep_all_for, keyed, kind, text, work, work_keyed,
};

const AGE: Millis = Millis::hours(1);
const PURGE: Purge = Purge {
    retention: Retention { done: Some(AGE), failed: Some(AGE), cancelled: Some(AGE) },
    limit: 10,
};

fn purged(count: usize) -> Purged {
    Purged { count, more: false, next: None }
}

#[track_caller]
fn delete<S: Subject>(world: &mut World<S>, id: JobId) {
    assert_eq!(world.admin(Admin::Delete(id)), Ok(AdminDone::Deleted));
}

/// One job done, one failed and one cancelled, all now.
#[track_caller]
fn one_of_each<S: Subject>(world: &mut World<S>) -> [JobId; 3] {
    [world.done(work()), world.dead(work(), "broken"), world.cancelled(work())]
}

fn left<S: Subject>(world: &mut World<S>, ids: &[JobId]) -> Vec<JobId> {
    ids.iter().copied().filter(|id| world.find(*id).is_some()).collect()
}

fn key_record<S: Subject>(world: &mut World<S>, name: &str) -> Option<KeyRecord> {
    world.dump().keys.into_iter().find(|record| record.key.as_str() == name)
}

/// The same key with another request.
fn other_request(name: &str) -> NewJob {
    keyed(name, NewJob { payload: text(r#"{"n":2}"#), ..work() })
}

/// While its window runs, the key of a job that is gone still knows it; at its end it is free.
#[track_caller]
fn assert_key_outlives<S: Subject>(world: &mut World<S>, name: &str, gone: JobId) {
    assert_eq!(world.find(gone), None);
    let record = key_record(world, name).expect("the key is kept");
    let end = record.created_at.plus(world.policy.idempotency_window);
    assert_eq!((record.job, record.orphan_until), (gone, Some(end)));
    world.set_clock(end.minus(TICK));
    let known = Receipt::new(gone, true);
    assert_eq!(world.try_enqueue(work_keyed(name)), Ok(known));
    let conflict = EnqueueRefused::IdempotencyConflict { existing: gone };
    assert_eq!(world.try_enqueue(other_request(name)), Err(conflict));
    world.set_clock(end);
    let id = world.enqueue(other_request(name));
    let record = key_record(world, name).expect("the key is taken over");
    assert_eq!((record.job, record.orphan_until), (id, None));
}

// Delete.

pub fn a_live_job_is_not_deleted<S: Subject>() {
    let mut world = World::<S>::new();
    let running = world.running(work()).job.id;
    let waiting = world.enqueue(work());
    let later = world.enqueue(NewJob { when: When::After(delay(AGE)), ..work() });
    let cases = [
        (running, StateName::Processing),
        (waiting, StateName::Queued),
        (later, StateName::Queued),
    ];
    for (id, state) in cases {
        let before = world.detail(id);
        let rejected = Rejected::Illegal { event: EventName::Delete, state };
        let refused: AdminRefused = JobRefused::from(rejected).into();
        assert_eq!(world.admin(Admin::Delete(id)), Err(refused));
        assert_eq!(world.detail(id), before);
    }
}

pub fn a_finished_job_is_deleted_with_its_documents_and_attempts<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    let progress = Some(text("1"));
    world.commit(|batch| batch.heartbeats.push(Heartbeat { token, extend: None, progress }));
    world.settle(token, complete_with("2")).expect("the holder reports");
    let dead = world.dead(work(), "broken");
    let cancelled = world.cancelled(work());
    for id in [token.job, dead, cancelled] {
        delete(&mut world, id);
        assert_eq!(world.find(id), None);
        assert_eq!(world.attempts(id), []);
    }
}

pub fn a_job_deleted_twice_is_not_found_the_second_time<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.done(work());
    let out = world.commit(|batch| batch.admin.extend([Admin::Delete(id), Admin::Delete(id)]));
    let not_found: AdminRefused = JobRefused::NotFound(id).into();
    assert_eq!(out.admin, [Ok(AdminDone::Deleted), Err(not_found.clone())]);
    for command in [Admin::Delete(id), Admin::Replay(id), Admin::Cancel(id)] {
        assert_eq!(world.admin(command), Err(not_found.clone()));
    }
    let token = LeaseToken { job: id, epoch: Epoch::new(1) };
    assert_eq!(world.settle(token, complete()), Err(JobRefused::NotFound(id)));
}

/// Once, what the verdict left beside the row was written after the row was gone.
pub fn a_job_deleted_in_the_batch_that_finished_it_leaves_nothing<S: Subject>() {
    let mut world = World::<S>::new();
    let verdicts = [complete_with("1"), fail_for_good("broken"), Verdict::Release];
    for verdict in verdicts {
        let token = world.running(work()).job.token();
        let out = world.commit(|batch| {
            batch.settles.push(Settle { token, verdict });
            batch.admin.extend([Admin::Cancel(token.job), Admin::Delete(token.job)]);
        });
        assert_eq!(out.admin[1], Ok(AdminDone::Deleted));
        assert_eq!(world.find(token.job), None);
        assert_eq!(world.attempts(token.job), []);
        let [change] = &out.changes[..] else { panic!("one job changed: {:?}", out.changes) };
        assert_eq!((change.from, change.to), (Some(StateName::Processing), None));
    }
}

pub fn the_id_of_a_deleted_job_is_not_given_out_again<S: Subject>() {
    let mut world = World::<S>::new();
    let first = world.done(work());
    delete(&mut world, first);
    world.reopen();
    assert_eq!(world.enqueue(work()), first.plus(1));
}

pub fn the_key_of_a_deleted_job_is_kept_until_its_window_ends<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.done(work_keyed("k"));
    world.advance(AGE);
    delete(&mut world, id);
    assert_key_outlives(&mut world, "k", id);
}

pub fn a_job_deleted_in_the_same_batch_is_still_known_by_its_key<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.done(work_keyed("k"));
    let out = world.commit(|batch| {
        batch.admin.push(Admin::Delete(id));
        batch.enqueues.extend([work_keyed("k"), other_request("k")]);
    });
    let conflict = EnqueueRefused::IdempotencyConflict { existing: id };
    assert_eq!(out.enqueues, [Ok(Receipt::new(id, true)), Err(conflict)]);
}

pub fn a_key_whose_window_is_over_goes_with_its_job<S: Subject>() {
    let mut world = World::<S>::new();
    let deleted = world.done(work_keyed("deleted"));
    world.done(work_keyed("purged"));
    world.advance(world.policy.idempotency_window);
    delete(&mut world, deleted);
    assert_eq!(key_record(&mut world, "deleted"), None);
    assert_eq!(world.purge(keep_all_for(AGE), 10).count, 1);
    assert_eq!(key_record(&mut world, "purged"), None);
}

// Purge: which.

pub fn each_state_has_an_age_of_its_own<S: Subject>() {
    let mut world = World::<S>::new();
    let ids = one_of_each(&mut world);
    let retention = Retention {
        done: Some(Millis::hours(1)),
        failed: Some(Millis::hours(2)),
        cancelled: Some(Millis::hours(3)),
    };
    for rest in [&ids[1..], &ids[2..], &[]] {
        world.advance(Millis::hours(1));
        assert_eq!(world.purge(retention, 10).count, 1);
        assert_eq!(left(&mut world, &ids), rest);
    }
}

pub fn a_state_without_an_age_is_kept_forever<S: Subject>() {
    let mut world = World::<S>::new();
    let [done, dead, cancelled] = one_of_each(&mut world);
    world.advance(Millis::days(3_650));
    assert_eq!(world.purge(Retention::default(), 10), purged(0));
    let only = Retention { failed: Some(AGE), ..Retention::default() };
    assert_eq!(world.purge(only, 10).count, 1);
    assert_eq!(left(&mut world, &[done, dead, cancelled]), [done, cancelled]);
}

pub fn a_finished_job_is_purged_at_the_very_end_of_its_age_and_not_before<S: Subject>() {
    let mut world = World::<S>::new();
    let ids = one_of_each(&mut world);
    world.advance(Millis::new(AGE.get() - TICK.get()));
    let out = world.commit(|batch| batch.purge = Some(PURGE));
    assert_eq!((out.purged.map(|purged| purged.count), out.wrote), (Some(0), false));
    assert_eq!(left(&mut world, &ids), ids);
    world.advance(TICK);
    assert_eq!(world.purge(keep_all_for(AGE), 10).count, 3);
    assert_eq!(left(&mut world, &ids), []);
    assert_eq!(ids.map(|id| world.attempts(id).len()), [0; 3]);
}

pub fn the_age_counts_from_the_end_of_a_job_and_not_from_its_creation<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    world.advance(AGE);
    world.settle(token, complete()).expect("the holder reports");
    assert_eq!(world.purge(keep_all_for(AGE), 10).count, 0);
    world.advance(AGE);
    assert_eq!(world.purge(keep_all_for(AGE), 10).count, 1);
}

pub fn a_live_job_is_never_purged<S: Subject>() {
    let mut world = World::<S>::alone();
    let running = world.running(work()).job.id;
    let token = world.running(work()).job.token();
    world.settle(token, fail("once")).expect("the holder reports");
    let waiting = world.enqueue(work());
    let later = world.enqueue(NewJob { when: When::After(delay(Millis::days(999))), ..work() });
    let replayed = world.dead(NewJob { kind: kind("other"), ..work() }, "broken");
    world.admin(Admin::Replay(replayed)).expect("a dead letter can be replayed");
    let ids = [running, token.job, waiting, later, replayed];
    world.advance(Millis::days(365));
    assert_eq!(world.purge(keep_all_for(Millis::ZERO), 10), purged(0));
    assert_eq!(left(&mut world, &ids), ids);
}

pub fn a_job_replayed_in_the_same_batch_is_not_purged<S: Subject>() {
    let mut world = World::<S>::new();
    let [done, dead, cancelled] = one_of_each(&mut world);
    world.advance(AGE);
    let out = world.commit(|batch| {
        batch.admin.extend([Admin::Replay(dead), Admin::Replay(cancelled)]);
        batch.purge = Some(PURGE);
    });
    assert_eq!(out.purged.map(|purged| purged.count), Some(1));
    assert_eq!(left(&mut world, &[done, dead, cancelled]), [dead, cancelled]);
}

/// Once, it was purged by the age of its first end.
pub fn a_job_that_ended_again_in_the_same_batch_is_not_purged<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.cancelled(work());
    world.advance(AGE);
    let out = world.commit(|batch| {
        batch.admin.extend([Admin::Replay(id), Admin::Cancel(id)]);
        batch.purge = Some(PURGE);
    });
    assert_eq!(out.purged.map(|purged| purged.count), Some(0));
    assert_eq!(world.job(id).finished_at(), Some(world.now()));
}

pub fn a_job_deleted_in_the_same_batch_is_not_counted_as_purged<S: Subject>() {
    let mut world = World::<S>::new();
    let [done, ..] = one_of_each(&mut world);
    world.advance(AGE);
    let out: Outcomes = world.commit(|batch| {
        batch.admin.push(Admin::Delete(done));
        batch.purge = Some(PURGE);
    });
    assert_eq!(out.purged.map(|purged| purged.count), Some(2));
    assert_eq!(out.changes.len(), 3, "each went once: {:?}", out.changes);
}

// Purge: pages, and when there is more to do.

pub fn a_purge_removes_no_more_than_it_may_and_says_that_there_is_more<S: Subject>() {
    let mut world = World::<S>::new();
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(world.done(work()));
        world.advance(Millis::seconds(1));
    }
    ids.extend([world.dead(work(), "broken"), world.cancelled(work())]);
    world.advance(AGE);
    let page = |world: &mut World<S>| {
        let purged = world.purge(keep_all_for(AGE), 2);
        (purged.count, purged.more)
    };
    assert_eq!(page(&mut world), (2, true));
    assert_eq!(left(&mut world, &ids), ids[2..], "the oldest go first");
    assert_eq!(page(&mut world), (2, true), "a page is shared by all states");
    assert_eq!(page(&mut world), (1, false));
    assert_eq!(left(&mut world, &ids), []);
    assert_eq!(page(&mut world), (0, false));
}

pub fn a_purge_tells_when_the_next_job_is_past_its_age<S: Subject>() {
    let mut world = World::<S>::alone();
    let next = |world: &mut World<S>, retention| world.purge(retention, 10).next;
    assert_eq!(next(&mut world, keep_all_for(AGE)), None, "nothing is finished");
    let start = world.now();
    world.done(work());
    world.advance(Millis::minutes(10));
    let dead = world.dead(work(), "broken");
    world.cancelled(work());
    let at = |minutes| Some(start.plus(Millis::minutes(minutes)));
    assert_eq!(next(&mut world, keep_all_for(AGE)), at(60));
    let dead_first = Retention { failed: Some(Millis::minutes(5)), ..keep_all_for(AGE) };
    assert_eq!(next(&mut world, dead_first), at(15), "the earliest of all states");
    let only_dead = Retention { failed: Some(AGE), ..Retention::default() };
    assert_eq!(next(&mut world, only_dead), at(70));
    assert_eq!(next(&mut world, Retention::default()), None, "all are kept forever");
    world.admin(Admin::Replay(dead)).expect("a dead letter can be replayed");
    assert_eq!(next(&mut world, only_dead), None);
    world.advance(Millis::minutes(50));
    let out = world.purge(keep_all_for(AGE), 10);
    assert_eq!(out, Purged { count: 1, more: false, next: at(70) }, "what is left is reported");
}

pub fn a_page_that_left_some_behind_tells_an_instant_that_has_passed<S: Subject>() {
    let mut world = World::<S>::alone();
    for _ in 0..3 {
        world.done(work());
    }
    let due = world.now().plus(AGE);
    world.advance(AGE.plus(AGE));
    let page = world.purge(keep_all_for(AGE), 2);
    assert_eq!(page, Purged { count: 2, more: true, next: Some(due) });
    assert_eq!(world.purge(keep_all_for(AGE), 2), purged(1));
}

// Purge: keys.

pub fn the_key_of_a_purged_job_is_kept_until_its_window_ends<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.done(work_keyed("k"));
    world.advance(AGE);
    assert_eq!(world.purge(keep_all_for(AGE), 10).count, 1);
    assert_key_outlives(&mut world, "k", id);
}

pub fn an_orphaned_key_is_removed_by_a_later_purge_and_not_before<S: Subject>() {
    let mut world = World::<S>::new();
    let end = world.now().plus(world.policy.idempotency_window);
    world.done(work_keyed("k"));
    world.advance(AGE);
    world.purge(keep_all_for(AGE), 10);
    world.set_clock(end.minus(TICK));
    world.purge(keep_all_for(AGE), 10);
    assert!(key_record(&mut world, "k").is_some(), "its window still runs");
    world.set_clock(end);
    assert_eq!(world.purge(keep_all_for(AGE), 10).count, 0, "a key is not a job");
    assert_eq!(key_record(&mut world, "k"), None);
    world.enqueue(work_keyed("k"));
}

pub fn orphaned_keys_are_removed_page_by_page<S: Subject>() {
    let mut world = World::<S>::alone();
    for name in ["a", "b", "c"] {
        let id = world.done(work_keyed(name));
        delete(&mut world, id);
    }
    world.advance(world.policy.idempotency_window);
    let page = world.purge(keep_all_for(AGE), 2);
    assert_eq!((page.count, page.more), (0, true));
    assert_eq!(world.dump().keys.len(), 1);
    assert_eq!(world.purge(keep_all_for(AGE), 2), purged(0));
    assert_eq!(world.dump().keys, []);
}

pub fn an_orphaned_key_taken_over_in_the_batch_of_the_purge_is_kept<S: Subject>() {
    let mut world = World::<S>::new();
    let first = world.done(work_keyed("k"));
    delete(&mut world, first);
    world.advance(world.policy.idempotency_window);
    let out = world.commit(|batch| {
        batch.enqueues.push(work_keyed("k"));
        batch.purge = Some(PURGE);
    });
    let second = out.enqueues[0].as_ref().expect("the window was over").id;
    assert_eq!(key_record(&mut world, "k").map(|record| record.job), Some(second));
    let known = Receipt::new(second, true);
    assert_eq!(world.try_enqueue(work_keyed("k")), Ok(known));
}

pub fn a_key_taken_over_by_a_later_job_is_not_removed_with_the_earlier_one<S: Subject>() {
    let mut world = World::<S>::new();
    let deleted = world.done(work_keyed("deleted"));
    let purged = world.done(work_keyed("purged"));
    world.advance(world.policy.idempotency_window);
    let later = ["deleted", "purged"].map(|name| world.enqueue(work_keyed(name)));
    delete(&mut world, deleted);
    assert_eq!(world.purge(keep_all_for(AGE), 10).count, 1);
    assert_eq!(left(&mut world, &[deleted, purged]), []);
    for (name, id) in ["deleted", "purged"].into_iter().zip(later) {
        let known = Receipt::new(id, true);
        assert_eq!(world.try_enqueue(work_keyed(name)), Ok(known));
    }
}

// Purge: who has long been silent.

pub fn a_purge_removes_processes_and_workers_silent_for_longer_than_they_are_kept<S: Subject>() {
    let mut world = World::<S>::new();
    world.act_as(2);
    world.admin(Admin::SeeWorker(announced("w-silent"))).expect("a worker is noted");
    let silent: BatchId = world.latest_batch();
    world.act_as(1);
    world.admin(Admin::SeeWorker(announced("w-seen"))).expect("a worker is noted");
    let known = |world: &mut World<S>| {
        let rows = world.dump().workers;
        let names = rows.iter().map(|row| row.worker.id.as_str().to_owned());
        let names: Vec<String> = names.filter(|name| name != "w-bystander").collect();
        let committed = world.store().was_committed(silent).expect("a healthy store can be asked");
        (names.join(" "), committed)
    };
    let purge_one = |world: &mut World<S>| {
        world.done(work());
        assert_eq!(world.purge(keep_all_for(Millis::ZERO), 10).count, 1);
    };
    world.advance(SILENT_KEPT);
    purge_one(&mut world);
    assert_eq!(known(&mut world), ("w-seen w-silent".into(), true), "a day is not too long");
    world.admin(Admin::SeeWorker(announced("w-seen"))).expect("a worker is noted");
    world.advance(TICK);
    purge_one(&mut world);
    assert_eq!(known(&mut world), ("w-seen".into(), false));
    let own = world.latest_batch();
    assert_eq!(world.store().was_committed(own), Ok(true), "the purge itself is known");
}

pub fn removing_a_silent_worker_leaves_what_it_holds<S: Subject>() {
    let mut world = World::<S>::new();
    world.admin(Admin::SeeWorker(announced("w1"))).expect("a worker is noted");
    let held = world.running(work()).job;
    world.advance(SILENT_KEPT.plus(TICK));
    let done = NewJob { kind: kind("other"), ..work() };
    world.done(done);
    assert_eq!(world.purge(keep_all_for(Millis::ZERO), 10).count, 1);
    assert!(world.dump().workers.iter().all(|row| row.worker.id.as_str() != "w1"));
    assert_eq!(world.job(held.id), held);
}
