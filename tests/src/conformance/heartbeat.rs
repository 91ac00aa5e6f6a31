//! Heartbeats: a lease lasts as long as its holder sends heartbeats.

use windlass_core::StaleReason::{Cancelled, Expired, Settled};
use windlass_core::store::{Admin, Heartbeat, JobRefused, LeaseExtended, Reaped};
use windlass_core::{Epoch, LeaseLength, LeaseToken, Millis, NewJob, StateName, Verdict, Wall};

use super::{commit_idle, stale};
use crate::fixture::*;

const MINUTE: Millis = Millis::minutes(1);

/// A job held for a minute at a time.
fn held<S: Subject>(world: &mut World<S>) -> LeaseToken {
    let new = NewJob { visibility_timeout: Some(lease(MINUTE)), ..work() };
    world.running(new).job.token()
}

fn note(token: LeaseToken, progress: &str) -> Heartbeat {
    Heartbeat { token, extend: None, progress: Some(text(progress)) }
}

/// What a heartbeat that must write nothing is answered.
#[track_caller]
fn answer<S: Subject>(
    world: &mut World<S>,
    token: LeaseToken,
) -> Result<LeaseExtended, JobRefused> {
    let heartbeat = Heartbeat { extend: Some(LeaseLength::MAX), ..note(token, "\"refused\"") };
    commit_idle(world, |batch| batch.heartbeats.push(heartbeat)).heartbeats.remove(0)
}

pub fn a_heartbeat_extends_the_lease_from_now<S: Subject>() {
    let mut world = World::<S>::new();
    let token = held(&mut world);
    world.advance(Millis::seconds(50));
    let expected = world.now().plus(MINUTE);
    assert_eq!(world.heartbeat(token, None), Ok(LeaseExtended { until: expected }));
    let job = world.job(token.job);
    assert_eq!(job.lease().map(|lease| lease.until), Some(expected));
    world.advance(Millis::seconds(59));
    let reaped = world.reap(reap_up_to(9));
    assert_eq!(reaped, Reaped::Page { requeued: 0, failed: 0, next: None });
}

pub fn a_heartbeat_changes_nothing_but_the_lease<S: Subject>() {
    let mut world = World::<S>::new();
    let token = held(&mut world);
    let before = world.detail(token.job);
    world.advance(Millis::seconds(7));
    world.heartbeat(token, None).expect("the heartbeat of the holder counts");
    let after = world.detail(token.job);
    let (attempts, epoch) = (after.job.attempts, after.job.epoch);
    assert_eq!((attempts, epoch), (before.job.attempts, before.job.epoch));
    assert_eq!(after.job.started_at, before.job.started_at);
    assert_eq!(after.job.run_at, before.job.run_at);
    assert_eq!(after.job.updated_at, world.now());
    let worker = |lease: &windlass_core::Lease| lease.worker.clone();
    assert_eq!(after.job.lease().map(worker), before.job.lease().map(worker));
    assert_eq!((after.progress, after.result), (None, None));
}

pub fn a_new_length_holds_for_later_heartbeats_too<S: Subject>() {
    let mut world = World::<S>::new();
    let token = held(&mut world);
    let longer = lease(Millis::minutes(20));
    let until =
        |now: Wall, length: LeaseLength| Ok(LeaseExtended { until: now.plus(length.millis()) });
    assert_eq!(world.heartbeat(token, Some(longer)), until(world.now(), longer));
    world.advance(MINUTE);
    assert_eq!(world.heartbeat(token, None), until(world.now(), longer));
    let (shorter, promised) = (LeaseLength::MIN, world.now());
    assert_eq!(
        world.heartbeat(token, Some(shorter)),
        until(promised, longer),
        "it never moves back"
    );
    world.advance(longer.millis());
    assert_eq!(world.heartbeat(token, None), until(world.now(), shorter));
}

pub fn a_new_length_ends_with_its_lease<S: Subject>() {
    let mut world = World::<S>::new();
    let token = held(&mut world);
    world.heartbeat(token, Some(LeaseLength::MAX)).expect("the heartbeat of the holder counts");
    world.settle(token, Verdict::Release).expect("the holder's verdict counts");
    let job = world.claim_one("w2").job;
    let lease = job.lease().expect("a claimed job is leased");
    assert_eq!(lease.until, world.now().plus(MINUTE));
}

pub fn a_late_heartbeat_counts_as_long_as_no_process_took_the_lease_back<S: Subject>() {
    let mut world = World::<S>::new();
    let token = held(&mut world);
    world.advance(Millis::days(1));
    let until = world.now().plus(MINUTE);
    assert_eq!(world.heartbeat(token, None), Ok(LeaseExtended { until }));
    assert_eq!(world.job(token.job).state.name(), StateName::Processing);
}

pub fn a_note_on_progress_is_kept_until_the_next_one<S: Subject>() {
    let mut world = World::<S>::new();
    let token = held(&mut world);
    for progress in ["1", "{\"percent\": 20}"] {
        world.commit(|batch| batch.heartbeats.push(note(token, progress)));
        assert_eq!(world.detail(token.job).progress, Some(text(progress)));
        world.heartbeat(token, None).expect("the heartbeat of the holder counts");
        assert_eq!(world.detail(token.job).progress, Some(text(progress)), "silence keeps it");
    }
    world.settle(token, complete_with("\"a result\"")).expect("the holder's verdict counts");
    let detail = world.detail(token.job);
    assert_eq!(detail.progress, Some(text("{\"percent\": 20}")));
    assert_eq!(detail.result, Some(text("\"a result\"")), "the one does not replace the other");
}

pub fn a_note_on_progress_comes_back_byte_for_byte<S: Subject>() {
    let mut world = World::<S>::new();
    let token = held(&mut world);
    for progress in UNUSUAL_TEXTS {
        world.commit(|batch| batch.heartbeats.push(note(token, progress)));
        let stored = world.detail(token.job).progress.expect("there is a note");
        assert_eq!(stored.as_str(), progress);
    }
}

pub fn of_several_heartbeats_in_one_batch_the_last_stands<S: Subject>() {
    let mut world = World::<S>::new();
    let token = held(&mut world);
    let (first, second) = (lease(Millis::minutes(9)), lease(Millis::minutes(2)));
    let out = world.commit(|batch| {
        batch.heartbeats.push(Heartbeat { extend: Some(first), ..note(token, "1") });
        batch.heartbeats.push(Heartbeat { extend: Some(second), ..note(token, "2") });
        batch.heartbeats.push(Heartbeat { token, extend: None, progress: None });
    });
    let until = Ok(LeaseExtended { until: world.now().plus(first.millis()) });
    assert_eq!(out.heartbeats, [until; 3], "a lease never ends sooner than was promised");
    let length = world.job(token.job).lease().map(|lease| lease.length);
    assert_eq!(length, Some(second), "the length is that of the last");
    assert_eq!(world.detail(token.job).progress, Some(text("2")));
}

pub fn a_heartbeat_by_a_clock_a_moment_behind_does_not_shorten_a_lease<S: Subject>() {
    let mut world = World::<S>::new();
    let token = held(&mut world);
    let until = world.now().plus(MINUTE);
    world.set_back(Millis::new(900));
    assert_eq!(world.heartbeat(token, None), Ok(LeaseExtended { until }));
}

pub fn a_heartbeat_by_a_clock_that_was_set_back_replaces_an_end_that_means_nothing<S: Subject>() {
    let mut world = World::<S>::new();
    let token = held(&mut world);
    world.set_back(Millis::hours(1));
    let until = world.now().plus(MINUTE);
    assert_eq!(world.heartbeat(token, None), Ok(LeaseExtended { until }));
}

pub fn a_stale_token_does_not_heartbeat<S: Subject>() {
    let mut world = World::<S>::new();
    let first = held(&mut world);
    world.settle(first, Verdict::Release).expect("the holder's verdict counts");
    world.advance(Millis::seconds(1));
    let second = world.claim_one("w2").job;
    assert_eq!(answer(&mut world, first), stale(Expired, StateName::Processing, 2));
    assert_eq!(world.job(first.job), second, "the new holder is untouched");
    assert_eq!(world.detail(first.job).progress, None, "a refused heartbeat leaves no note");
    world.heartbeat(second.token(), None).expect("the heartbeat of the new holder counts");
}

pub fn a_token_that_was_never_given_out_does_not_heartbeat<S: Subject>() {
    let mut world = World::<S>::new();
    let token = held(&mut world);
    let ahead = LeaseToken { epoch: token.epoch.next(), ..token };
    assert_eq!(answer(&mut world, ahead), stale(Expired, StateName::Processing, 1));
    let waiting = LeaseToken { job: world.enqueue(work()), epoch: Epoch::NEVER };
    assert_eq!(answer(&mut world, waiting), stale(Expired, StateName::Queued, 0));
    let unknown = LeaseToken { job: world.dump().next_id, ..token };
    assert_eq!(answer(&mut world, unknown), Err(JobRefused::NotFound(unknown.job)));
}

pub fn a_settled_job_takes_no_heartbeat<S: Subject>() {
    let mut world = World::<S>::new();
    let ends = [
        (complete(), StateName::Done),
        (fail("broken"), StateName::Queued),
        (fail_for_good("no use"), StateName::Failed),
        (snooze(MINUTE), StateName::Queued),
    ];
    for (verdict, state) in ends {
        let token = held(&mut world);
        world.settle(token, verdict).expect("the holder's verdict counts");
        assert_eq!(answer(&mut world, token), stale(Settled, state, 1));
    }
}

pub fn a_heartbeat_learns_that_its_job_was_cancelled<S: Subject>() {
    let mut world = World::<S>::new();
    let token = held(&mut world);
    world.admin(Admin::Cancel(token.job)).expect("a running job can be cancelled");
    assert_eq!(answer(&mut world, token), stale(Cancelled, StateName::Cancelled, 1));
}

pub fn a_heartbeat_learns_that_its_lease_was_taken_back<S: Subject>() {
    let mut world = World::<S>::new();
    let token = held(&mut world);
    world.advance(MINUTE);
    world.reap(reap_up_to(9));
    assert_eq!(answer(&mut world, token), stale(Expired, StateName::Queued, 1));
}
