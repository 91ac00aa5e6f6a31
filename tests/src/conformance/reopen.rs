//! A crash after an acknowledged commit loses nothing and brings nothing back.

use windlass_core::StaleReason::Expired;
use windlass_core::store::{Admin, Heartbeat, JobRefused, Store};
use windlass_core::{JobId, Millis, NewJob, QueueSettings, StateName, Verdict, When};

use super::{ids, stale};
use crate::fixture::*;

/// Crashes, and checks that everything is as it was.
#[track_caller]
fn crash<S: Subject>(world: &mut World<S>) {
    let before = world.dump();
    world.reopen();
    let after = world.dump();
    assert_eq!(after, before, "the crash changed something");
    assert_eq!(after.to_string(), before.to_string());
}

/// Something of everything a store can hold.
fn full_house<S: Subject>() -> World<S> {
    let mut world = World::<S>::new();
    world.done(work_keyed("done"));
    world.dead(work(), "no use");
    world.cancelled(work());
    let gone = world.done(work_keyed("orphaned"));
    world.enqueue(NewJob { when: When::After(delay(Millis::hours(1))), ..work_keyed("later") });
    let token = world.running(work()).job.token();
    world.commit(|batch| {
        let progress = Some(text("{\"percent\": 20}"));
        batch.heartbeats.push(Heartbeat { token, extend: None, progress });
        batch.admin.push(Admin::Delete(gone));
        batch.admin.push(Admin::pause(queue("paused")));
        let concurrency = Some(max_running(3));
        let settings = QueueSettings { concurrency, ..QueueSettings::default() };
        batch.admin.push(Admin::set_queue(queue("slow"), settings));
        batch.admin.push(Admin::set_setting(setting("colour"), Some(value("green"))));
        batch.admin.push(Admin::SeeWorker(announced("w1")));
    });
    let token = world.running_by("w2", work_of("other")).job.token();
    world.settle(token, fail("broken")).expect("the holder's verdict counts");
    world
}

pub fn everything_is_there_after_a_crash<S: Subject>() {
    let mut world = full_house::<S>();
    crash(&mut world);
    world.enqueue(work());
    crash(&mut world);
}

pub fn an_empty_store_is_empty_after_a_crash<S: Subject>() {
    let mut world = World::<S>::alone();
    crash(&mut world);
    assert!(world.dump().jobs.is_empty());
    assert_eq!(world.enqueue(work()), JobId::FIRST);
}

pub fn a_healthy_store_may_be_reopened<S: Subject>() {
    let mut world = full_house::<S>();
    let before = world.dump();
    world.store().reopen().expect("a healthy store opens");
    world.store().reopen().expect("a healthy store opens");
    assert_eq!(world.dump(), before);
    world.check();
    world.enqueue(work());
}

pub fn ids_are_not_given_out_again<S: Subject>() {
    let mut world = World::<S>::alone();
    let mut last = world.enqueue(work());
    for crashes in [false, true, true] {
        world.commit(|batch| batch.admin.extend([Admin::Cancel(last), Admin::Delete(last)]));
        if crashes {
            crash(&mut world);
        }
        let next = world.enqueue(work());
        assert_eq!(next, last.plus(1), "the newest job was deleted, its id is not free");
        last = next;
    }
    crash(&mut world);
    assert_eq!(world.enqueue(work()), last.plus(1));
}

pub fn a_holder_goes_on_after_a_crash<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    crash(&mut world);
    world.assert_nothing_to_claim();
    world.heartbeat(token, None).expect("the heartbeat of the holder counts");
    crash(&mut world);
    assert_eq!(world.settle(token, complete_with("1")), Ok(StateName::Done));
    crash(&mut world);
    assert_eq!(world.detail(token.job).result, Some(text("1")));
}

pub fn a_stale_token_is_still_stale_after_a_crash<S: Subject>() {
    let mut world = World::<S>::new();
    let first = world.running(work()).job.token();
    world.settle(first, Verdict::Release).expect("the holder's verdict counts");
    let second = world.claim_one("w2").job.token();
    crash(&mut world);
    assert_eq!(world.settle(first, complete()), stale(Expired, StateName::Processing, 2));
    assert_eq!(world.heartbeat(first, None), stale(Expired, StateName::Processing, 2));
    assert_eq!(world.settle(second, complete()), Ok(StateName::Done));
}

pub fn a_report_sent_again_after_a_crash_gets_its_first_answer<S: Subject>() {
    let mut world = World::<S>::new();
    let last = NewJob { max_retries: Some(retries(0)), ..work() };
    let reports = [
        (work(), complete(), StateName::Done),
        (work(), fail("broken"), StateName::Queued),
        (last, fail("broken"), StateName::Failed),
        (work(), fail_for_good("no use"), StateName::Failed),
        (work(), snooze(Millis::hours(1)), StateName::Queued),
        (work(), Verdict::Release, StateName::Queued),
    ];
    for (new, verdict, state) in reports {
        let token = world.running(new).job.token();
        assert_eq!(world.settle(token, verdict.clone()), Ok(state));
        crash(&mut world);
        assert_eq!(world.settle(token, verdict), Ok(state));
        if state == StateName::Queued {
            world.admin(Admin::Cancel(token.job)).expect("a waiting job can be cancelled");
        }
    }
}

pub fn a_key_is_remembered_after_a_crash<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.enqueue(work_keyed("k"));
    let gone = world.done(work_of("other"));
    world.admin(Admin::Delete(gone)).expect("a finished job can be deleted");
    crash(&mut world);
    let receipt = world.try_enqueue(work_keyed("k")).expect("it is known");
    assert_eq!((receipt.id, receipt.duplicate), (id, true));
    assert!(world.try_enqueue(keyed("k", work_at(3))).is_err(), "another request conflicts");
}

pub fn a_batch_is_found_after_a_crash<S: Subject>() {
    let mut world = World::<S>::new();
    world.enqueue(work());
    let sent = world.latest_batch();
    crash(&mut world);
    assert_eq!(world.store().was_committed(sent), Ok(true));
    let next = windlass_core::BatchId { seq: sent.seq + 1, ..sent };
    assert_eq!(world.store().was_committed(next), Ok(false));
}

pub fn ready_jobs_come_in_the_same_order_after_a_crash<S: Subject>() {
    let mut world = World::<S>::new();
    let low = world.enqueue(work_at(-1));
    let first = world.enqueue(work());
    let second = world.enqueue(work_of("other"));
    let high = world.enqueue(work_at(1));
    crash(&mut world);
    assert_eq!(ids(&world.claim(main_work(), "w1", 2)), [high, first]);
    crash(&mut world);
    assert_eq!(ids(&world.claim(main_work(), "w1", 9)), [second, low]);
}

pub fn jobs_for_later_fall_due_after_a_crash<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.enqueue(NewJob { when: When::After(delay(Millis::hours(1))), ..work() });
    crash(&mut world);
    world.assert_nothing_to_claim();
    world.advance(Millis::hours(1));
    assert_eq!(world.promote(9).count, 1);
    crash(&mut world);
    assert_eq!(world.claim_one("w1").job.id, id);
}

pub fn leases_run_out_after_a_crash<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    crash(&mut world);
    world.advance(Millis::hours(1));
    world.reap(reap_up_to(9));
    crash(&mut world);
    let job = world.claim_one("w2").job;
    assert_eq!((job.id, job.attempts), (token.job, 2));
}

pub fn a_paused_queue_is_paused_after_a_crash<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.enqueue(work());
    world.admin(Admin::pause(queue("main"))).expect("the queue is paused");
    crash(&mut world);
    world.assert_nothing_to_claim();
    world.admin(Admin::Resume(queue("main"))).expect("the queue is resumed");
    crash(&mut world);
    assert_eq!(world.claim_one("w1").job.id, id);
}

pub fn a_deleted_job_stays_away_after_a_crash<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    world.settle(token, fail_for_good("no use")).expect("the holder's verdict counts");
    world.admin(Admin::Delete(token.job)).expect("a finished job can be deleted");
    crash(&mut world);
    assert_eq!(world.find(token.job), None);
    assert_eq!(world.attempts(token.job), []);
    let refused = world.settle(token, complete());
    assert_eq!(refused, Err(JobRefused::NotFound(token.job)));
}
