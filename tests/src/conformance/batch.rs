//! Several commands in one batch: the order of its sections, and that none spoils another.

use windlass_core::StaleReason::{Expired, Settled};
use windlass_core::limits::MAX_AHEAD;
use windlass_core::store::{
    Admin, AdminDone, AdminRefused, Heartbeat, JobRefused, Next, Purge, Reaped, Settle,
};
use windlass_core::{
    Demand, EnqueueRefused, EventName, JobId, LeaseToken, Millis, NewJob, QueueSettings, Rejected,
    StateName, Verdict, View, When,
};

use super::{commit_idle, ids, stale};
use crate::fixture::*;

/// A lease of [`work`] has run out by then.
const LONG: Millis = Millis::hours(1);

fn heartbeat(token: LeaseToken) -> Heartbeat {
    Heartbeat { token, extend: None, progress: Some(text("\"still there\"")) }
}

/// The settings of a queue with this `max_queued`.
fn at_most(waiting: u64) -> QueueSettings {
    QueueSettings { max_queued: Some(max_queued(waiting)), ..QueueSettings::default() }
}

// The order of sections. Each batch is filled against that order.

pub fn reports_come_before_heartbeats<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    let out = world.commit(|batch| {
        batch.heartbeats.push(heartbeat(token));
        batch.settles.push(Settle { token, verdict: complete() });
    });
    assert_eq!(out.settles, [Ok(StateName::Done)]);
    assert_eq!(out.heartbeats, [stale(Settled, StateName::Done, 1)]);
    assert_eq!(world.detail(token.job).progress, None);
}

pub fn reports_come_before_operators<S: Subject>() {
    let mut world = World::<S>::new();
    let done = world.running(work()).job.token();
    let dead = world.running(work()).job.token();
    let out = world.commit(|batch| {
        batch.admin.extend([Admin::Cancel(done.job), Admin::Replay(dead.job)]);
        batch.settles.push(Settle { token: done, verdict: complete() });
        batch.settles.push(Settle { token: dead, verdict: fail_for_good("no use") });
    });
    assert_eq!(out.settles, [Ok(StateName::Done), Ok(StateName::Failed)]);
    let (event, state) = (EventName::Cancel, StateName::Done);
    let refused = JobRefused::from(Rejected::Illegal { event, state });
    assert_eq!(out.admin[0], Err(AdminRefused::Job(refused)));
    assert_eq!(world.job(dead.job).generation, 1, "what failed in this batch is replayed in it");
}

pub fn heartbeats_come_before_operators<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    let out = world.commit(|batch| {
        batch.admin.push(Admin::Cancel(token.job));
        batch.heartbeats.push(heartbeat(token));
    });
    assert!(out.heartbeats[0].is_ok(), "it was still running: {:?}", out.heartbeats[0]);
    assert_eq!(world.job(token.job).state.name(), StateName::Cancelled);
}

pub fn operators_come_before_new_jobs<S: Subject>() {
    let mut world = World::<S>::new();
    let waiting = world.enqueue(work_in("small"));
    let out = world.commit(|batch| {
        batch.enqueues.extend([work_in("small"), work_in("small")]);
        batch.admin.push(Admin::set_queue(queue("small"), at_most(1)));
        batch.admin.push(Admin::Cancel(waiting));
    });
    assert!(out.enqueues[0].is_ok(), "the cancelled job made room: {:?}", out.enqueues[0]);
    let refused = EnqueueRefused::QueueFull { queue: queue("small"), limit: max_queued(1) };
    assert_eq!(out.enqueues[1], Err(refused));
}

pub fn new_jobs_come_before_leases_that_ran_out<S: Subject>() {
    let mut world = World::<S>::new();
    world.admin(Admin::set_queue(queue("small"), at_most(1))).expect("the queue takes settings");
    world.running(work_in("small"));
    world.advance(LONG);
    let out = world.commit(|batch| {
        batch.reap = Some(reap_up_to(9));
        batch.enqueues.push(work_in("small"));
    });
    assert!(out.enqueues[0].is_ok(), "nothing waited yet: {:?}", out.enqueues[0]);
    assert_eq!(out.reaped, Some(Reaped::Page { requeued: 1, failed: 0, next: None }));
}

pub fn a_job_reported_in_time_for_the_batch_is_not_reaped<S: Subject>() {
    let mut world = World::<S>::new();
    let tokens: Vec<LeaseToken> = (0..4).map(|_| world.running(work()).job.token()).collect();
    world.advance(LONG);
    let out = world.commit(|batch| {
        batch.reap = Some(reap_up_to(9));
        batch.admin.push(Admin::Cancel(tokens[2].job));
        batch.heartbeats.push(heartbeat(tokens[1]));
        batch.settles.push(Settle { token: tokens[0], verdict: complete() });
    });
    assert_eq!(out.reaped, Some(Reaped::Page { requeued: 1, failed: 0, next: None }));
    let states: Vec<StateName> =
        tokens.iter().map(|token| world.job(token.job).state.name()).collect();
    let expected =
        [StateName::Done, StateName::Processing, StateName::Cancelled, StateName::Queued];
    assert_eq!(states, expected);
}

pub fn what_an_operator_did_in_the_batch_is_not_undone_by_time<S: Subject>() {
    let mut world = World::<S>::new();
    let due = world.enqueue(NewJob { when: When::After(delay(TICK)), ..work() });
    let old = world.dead(work(), "no use");
    world.advance(LONG);
    let out = world.commit(|batch| {
        batch.purge = Some(Purge { retention: keep_all_for(TICK), limit: 9 });
        batch.promote = Some(9);
        batch.admin.extend([Admin::Cancel(due), Admin::Replay(old)]);
    });
    assert_eq!(out.promoted.map(|promoted| promoted.count), Some(0));
    assert_eq!(out.purged.map(|purged| purged.count), Some(0));
    assert_eq!(world.job(due).state.name(), StateName::Cancelled);
    assert_eq!(world.job(old).state.view(), View::Queued);
}

/// One job that each section makes ready, in the order of their ids.
pub fn claims_come_last_and_see_what_every_section_made_ready<S: Subject>() {
    let mut world = World::<S>::new();
    let released = world.running(work()).job.token();
    let replayed = world.dead(work(), "no use");
    let reaped = world.running(work()).job.token().job;
    let promoted = world.enqueue(NewJob { when: When::After(delay(LONG)), ..work() });
    world.advance(LONG);
    let out = world.commit(|batch| {
        batch.claims.push(claim_for(main_work(), "w2", 99));
        batch.promote = Some(9);
        batch.reap = Some(reap_up_to(9));
        batch.enqueues.push(work());
        batch.admin.push(Admin::Replay(replayed));
        batch.settles.push(Settle { token: released, verdict: Verdict::Release });
    });
    let new = out.enqueues[0].as_ref().expect("it is accepted").id;
    let expected = [released.job, replayed, reaped, promoted, new];
    assert_eq!(ids(&out.claims[0].jobs), expected);
}

pub fn claims_see_the_gates_that_operators_set<S: Subject>() {
    let mut world = World::<S>::new();
    world.enqueue(work_in("shut"));
    world.enqueue(work_in("open"));
    world.admin(Admin::pause(queue("open"))).expect("the queue is paused");
    let out = world.commit(|batch| {
        batch.claims.push(claim_for(work_of_queues(&["shut", "open"]), "w1", 9));
        batch.admin.extend([Admin::pause(queue("shut")), Admin::Resume(queue("open"))]);
    });
    let queues: Vec<_> = out.claims[0].jobs.iter().map(|leased| &leased.job.queue).collect();
    assert_eq!(queues, [&queue("open")]);
}

pub fn commands_of_a_section_are_applied_in_their_order<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.enqueue(work());
    let mut generation = |commands: Vec<Admin>| {
        let out = world.commit(|batch| batch.admin.extend(commands));
        let done = out.admin.iter().map(Result::is_ok).collect::<Vec<bool>>();
        (done, world.job(id).generation, world.job(id).state.name())
    };
    let there_and_back = vec![Admin::Cancel(id), Admin::Replay(id)];
    assert_eq!(generation(there_and_back), (vec![true, true], 1, StateName::Queued));
    let back_and_there = vec![Admin::Replay(id), Admin::Cancel(id)];
    assert_eq!(generation(back_and_there), (vec![false, true], 1, StateName::Cancelled));
}

// One job, several commands.

pub fn a_job_changed_many_times_in_a_batch_ends_where_the_last_change_put_it<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    world.advance(Millis::seconds(1));
    let out = world.commit(|batch| {
        batch.settles.push(Settle { token, verdict: fail("broken") });
        batch.admin.extend([Admin::Cancel(token.job), Admin::Replay(token.job)]);
        batch.claims.push(claim_for(main_work(), "w2", 9));
    });
    assert_eq!(ids(&out.claims[0].jobs), [token.job]);
    let detail = world.detail(token.job);
    assert_eq!((detail.job.attempts, detail.job.generation), (1, 1));
    assert_eq!(detail.job.epoch, token.epoch.next());
    assert_eq!(detail.job.lease().map(|lease| lease.worker.clone()), Some(worker("w2")));
    assert_eq!(world.attempts(token.job).len(), 1, "what went wrong on the way is remembered");
    let found: Vec<_> =
        out.changes.iter().map(|change| (change.id, change.from, change.to)).collect();
    let processing = Some(StateName::Processing);
    assert_eq!(found, [(token.job, processing, processing)], "it has another holder now");
}

/// Found by this case: the texts of the report were written behind the removal of their job.
pub fn a_job_that_reported_and_was_deleted_in_one_batch_leaves_nothing<S: Subject>() {
    let mut world = World::<S>::new();
    let done = world.running(work()).job.token();
    let dead = world.running(work()).job.token();
    let stopped = world.running(work()).job.token();
    let gone = [done, dead, stopped].map(|token| token.job);
    let out = world.commit(|batch| {
        batch.settles.push(Settle { token: done, verdict: complete_with("1") });
        batch.settles.push(Settle { token: dead, verdict: fail_for_good("no use") });
        batch.heartbeats.push(heartbeat(stopped));
        batch.admin.push(Admin::Cancel(stopped.job));
        batch.admin.extend(gone.map(Admin::Delete));
    });
    assert_eq!(out.settles, [Ok(StateName::Done), Ok(StateName::Failed)]);
    assert_eq!(out.admin[1..], [const { Ok(AdminDone::Deleted) }; 3]);
    for id in gone {
        assert_eq!(world.find(id), None);
        assert_eq!(world.attempts(id), []);
    }
    world.reopen();
}

// Refusals.

/// One refused command in each section.
pub fn refused_commands_do_not_spoil_the_others<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    let extended = world.running(work()).job.token();
    let waiting = world.enqueue(work_at(-1));
    let wrong = LeaseToken { epoch: token.epoch.next(), ..token };
    let unknown = JobId::LAST;
    let too_far = When::At(world.now().plus(MAX_AHEAD).plus(TICK));
    let out = world.commit(|batch| {
        batch.settles.push(Settle { token: wrong, verdict: complete() });
        batch.settles.push(Settle { token, verdict: complete() });
        batch.heartbeats.push(heartbeat(LeaseToken { job: unknown, ..token }));
        batch.heartbeats.push(heartbeat(extended));
        batch.admin.extend([Admin::Cancel(unknown), Admin::Cancel(waiting)]);
        batch.admin.push(Admin::Delete(extended.job));
        batch.enqueues.push(NewJob { when: too_far, ..work() });
        batch.enqueues.push(work());
        batch.claims.push(claim_for(work_of_queues(&["unknown"]), "w2", 1));
        batch.claims.push(claim_for(main_work(), "w2", 1));
    });
    assert_eq!(out.settles, [stale(Expired, StateName::Processing, 1), Ok(StateName::Done)]);
    assert_eq!(out.heartbeats[0], Err(JobRefused::NotFound(unknown)));
    assert!(out.heartbeats[1].is_ok());
    assert_eq!(out.admin[0], Err(JobRefused::NotFound(unknown).into()));
    assert!(matches!(&out.admin[1], Ok(AdminDone::Job(job)) if job.id == waiting));
    let (event, state) = (EventName::Delete, StateName::Processing);
    let refused = JobRefused::from(Rejected::Illegal { event, state });
    assert_eq!(out.admin[2], Err(refused.into()));
    assert!(matches!(out.enqueues[0], Err(EnqueueRefused::TooFarAhead { .. })));
    let new = out.enqueues[1].as_ref().expect("it is accepted").id;
    assert_eq!((out.claims[0].jobs.len(), ids(&out.claims[1].jobs)), (0, vec![new]));
}

pub fn a_batch_of_refusals_alone_leaves_no_trace<S: Subject>() {
    let mut world = World::<S>::new();
    let held = world.running(work()).job.token();
    let wrong = LeaseToken { epoch: held.epoch.next(), ..held };
    let too_far = When::At(world.now().plus(MAX_AHEAD).plus(TICK));
    let out = commit_idle(&mut world, |batch| {
        batch.settles.push(Settle { token: wrong, verdict: complete_with("1") });
        batch.settles.push(Settle { token: wrong, verdict: fail("broken") });
        batch.heartbeats.push(heartbeat(wrong));
        batch.admin.extend([Admin::Replay(held.job), Admin::Delete(held.job)]);
        batch.enqueues.push(keyed("k", NewJob { when: too_far, ..work_in("never-seen") }));
    });
    assert_eq!(out.settles.iter().filter(|answer| answer.is_ok()).count(), 0);
    assert_eq!(out.admin.iter().filter(|answer| answer.is_ok()).count(), 0);
    assert!(out.changes.is_empty() && out.ready_queues.is_empty());
}

// The answer.

pub fn answers_stand_in_the_order_of_their_commands<S: Subject>() {
    let mut world = World::<S>::new();
    let running: Vec<LeaseToken> = (0..4).map(|_| world.running(work()).job.token()).collect();
    let verdicts = [complete(), fail_for_good("no use"), Verdict::Release, complete()];
    let reports = running.iter().rev().zip(verdicts);
    let out = world.commit(|batch| {
        let reports = reports.map(|(token, verdict)| Settle { token: *token, verdict });
        batch.settles.extend(reports);
    });
    let expected = [StateName::Done, StateName::Failed, StateName::Queued, StateName::Done];
    assert_eq!(out.settles, expected.map(Ok));
    let changed: Vec<JobId> = out.changes.iter().map(|change| change.id).collect();
    let jobs: Vec<JobId> = running.iter().map(|token| token.job).collect();
    assert_eq!(changed, jobs, "changes are sorted by id");
}

pub fn a_batch_tells_when_what_it_wrote_is_next_due<S: Subject>() {
    let mut world = World::<S>::alone();
    let out = commit_idle(&mut world, |_| {});
    assert_eq!((out.next_due, out.next_expiry), (Next::Written(None), Next::Written(None)));
    let later = NewJob { when: When::After(delay(LONG)), ..work() };
    let out = world.commit(|batch| {
        batch.enqueues.extend([later, work()]);
        batch.claims.push(claim_for(Demand::ALL, "w", 1));
    });
    let leased = out.claims[0].jobs[0].job.lease().map(|lease| lease.until);
    assert_eq!(out.next_due, Next::Written(Some(world.now().plus(LONG))));
    assert_eq!(out.next_expiry, Next::Written(leased));
    assert!(leased.is_some());
}

pub fn a_large_batch_of_everything_keeps_the_store_in_agreement<S: Subject>() {
    let mut world = World::<S>::alone();
    let kinds = ["a", "b", "c"];
    let queues = ["q1", "q2", "q3", "q4"];
    let mut held: Vec<LeaseToken> = Vec::new();
    for round in 0..12_usize {
        world.advance(Millis::seconds(20));
        let out = world.commit(|batch| {
            for (at, token) in held.drain(..).enumerate() {
                let verdict = match (at + round) % 6 {
                    0 => fail("broken"),
                    1 => Verdict::Release,
                    2 => snooze(Millis::seconds(30)),
                    3 => fail_for_good("no use"),
                    4 => continue,
                    _ => complete_with("1"),
                };
                batch.settles.push(Settle { token, verdict });
            }
            for at in 0..10 {
                let rank = i16::try_from(at * round % 7).unwrap_or(0);
                let new = NewJob { kind: kind(kinds[at % 3]), priority: priority(rank), ..work() };
                batch.enqueues.push(NewJob { queue: queue(queues[(at + round) % 4]), ..new });
            }
            batch.reap = Some(reap_up_to(3));
            batch.promote = Some(4);
            let retention = keep_all_for(Millis::minutes(2));
            batch.purge = Some(Purge { retention, limit: 5 });
            batch.claims.push(claim_for(work_of_queues(&["q1", "q3"]), "w1", 4));
            batch.claims.push(claim_for(work_of_queues(&queues), "w2", 5));
        });
        let claimed = out.claims.iter().flat_map(|claim| &claim.jobs);
        held.extend(claimed.map(|leased| leased.job.token()));
        assert!(!held.is_empty(), "there is always something to claim");
    }
    world.reopen();
}
