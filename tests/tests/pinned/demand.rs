//! Those who ask: requests, polls, and what other processes have written for them.

use windlass_core::limits::CLAIM_BYTES;
use windlass_core::machine::{
    Answer, Config, Effect, Input, Limits, Phase, Poll, Request, StoreCall,
};
use windlass_core::store::{Batch, Heartbeat, Reader, Store, Worker, WorkerKind};
use windlass_core::{
    BatchId, Delay, Demand, Kind, Kinds, Millis, NewJob, Now, Payload, Policy, ProcessId,
    RequestId, StateName, When,
};
use windlass_store_memory::MemoryStore;
use windlass_tests::stage::{Stage, config, job, token, worker_named};

use crate::{stage, stage_with, state};

/// Takes the next call, which is a commit.
fn take_batch(stage: &mut Stage<MemoryStore>) -> Batch {
    match stage.take_call() {
        Some(StoreCall::Commit(batch)) => batch,
        other => panic!("a commit was expected, not {other:?}"),
    }
}

/// The number of jobs that the claims of a batch ask for.
fn asked(batch: &Batch) -> usize {
    batch.claims.iter().flat_map(|claim| &claim.takers).map(|taker| taker.max).sum()
}

/// A bulk request without jobs made an empty batch; an empty batch is not committed, so its caller
/// waited for ever. Found by `chaos`.
#[test]
fn a_bulk_request_for_nothing_is_answered() {
    let mut stage = stage(1);
    let enqueue = stage.request(Request::EnqueueMany(Vec::new()));
    let settle = stage.request(Request::SettleMany(Vec::new()));
    stage.settle();
    assert_eq!(stage.answer(enqueue), Some(&Answer::EnqueuedMany(Vec::new())));
    assert_eq!(stage.answer(settle), Some(&Answer::SettledMany(Vec::new())));
}

/// A process looked whether others had written only when it had nothing to commit: under steady
/// load of its own it never did, and their jobs waited for as long as that lasted. Found by a
/// review.
#[test]
fn steady_load_does_not_keep_a_process_from_noticing_what_others_have_written() {
    let other_kind = Kind::new("other").expect("a name");
    let demand = Demand { kinds: Kinds::only(vec![other_kind.clone()]), ..Demand::ALL };
    let change_check = Some(Millis::new(100));
    let usual = config(1);
    let worker = Worker { demand, ..usual.worker.clone() };
    let mut stage = stage_with(Config { worker, change_check, ..usual });
    let id = BatchId { process: ProcessId(9), seq: 1 };
    let mut written = Batch::new(id, Policy::default());
    written.enqueues.push(job());
    written.enqueues[0].kind = other_kind;
    stage.store.another().commit(stage.now.wall, &written).expect("it commits");
    stage.enqueue(job());
    for _ in 0..50 {
        let call = stage.take_call().expect("there is always something to do");
        stage.pass(Millis::new(10));
        stage.enqueue(job());
        stage.make_call(call);
    }
    assert_eq!(stage.started(), [token("1.1")], "half a second of load");
}

/// Every poll for a thousand jobs was given room in one batch, whatever that added up to:
/// one transaction claimed tens of thousands of jobs. Found by a review.
#[test]
fn the_claims_of_one_batch_ask_for_no_more_than_a_batch_holds() {
    let limits = Limits { batch: 100, ..Limits::default() };
    let mut stage = stage_with(Config { limits, ..config(0) });
    let mut polls = Vec::new();
    for at in 0..30 {
        let slots = 10;
        let worker = Worker { slots, ..worker_named(&format!("w{at}"), WorkerKind::Remote) };
        let wait = Millis::seconds(30);
        let poll = Poll { worker, wait, length: None };
        polls.push(stage.request(Request::Poll(poll)));
    }
    stage.request(Request::EnqueueMany(vec![job(); 300]));
    let batch = take_batch(&mut stage);
    assert_eq!(asked(&batch), 100);
    stage.make_call(StoreCall::Commit(batch));
    stage.settle();
    let served = |poll: &&RequestId| match stage.answer(**poll) {
        Some(Answer::Jobs(jobs)) => jobs.len() == 10,
        _ => false,
    };
    assert_eq!(polls.iter().filter(served).count(), 30, "those without room came next");
}

/// The bound above was soft: a poller that still found room asked for all it wanted, and the local
/// slots did not count. Found while pinning the one above.
#[test]
fn the_last_claim_of_a_batch_asks_for_no_more_than_the_room_that_is_left() {
    let limits = Limits { batch: 100, ..Limits::default() };
    let mut stage = stage_with(Config { limits, ..config(1) });
    for at in 0..2 {
        let slots = 60;
        let worker = Worker { slots, ..worker_named(&format!("w{at}"), WorkerKind::Remote) };
        let wait = Millis::seconds(30);
        let poll = Poll { worker, wait, length: None };
        stage.request(Request::Poll(poll));
    }
    stage.request(Request::EnqueueMany(vec![job(); 300]));
    assert_eq!(asked(&take_batch(&mut stage)), 100);
}

/// A page of jobs fell due, and every waiting poll took part in the batch that promoted it: ten
/// thousand pollers for a single job. Found by a review.
#[test]
fn a_promotion_wakes_only_as_many_as_it_may_serve() {
    let limits = Limits { page: 10, ..Limits::default() };
    let mut stage = stage_with(Config { limits, ..config(0) });
    let mut new = job();
    new.when = When::After(Delay::new(1_000).expect("a delay"));
    stage.enqueue(new);
    for at in 0..50 {
        stage.poll(&format!("w{at}"), Millis::seconds(30));
    }
    stage.settle();
    let second = Millis::seconds(1);
    stage.now = Now::new(stage.now.wall.plus(second), stage.now.mono.plus(second));
    let batch = take_batch(&mut stage);
    assert_eq!((batch.promote, asked(&batch)), (Some(10), 10));
    stage.make_call(StoreCall::Commit(batch));
    stage.settle();
    let served = |effect: &&Effect| matches!(effect, Effect::Reply { answer: Answer::Jobs(_), .. });
    assert_eq!(stage.effects.iter().filter(served).count(), 1);
}

/// A poll whose caller had gone was answered all the same when its claim came back to a machine
/// that was draining. Found by a review.
#[test]
fn a_poll_whose_caller_is_gone_is_not_answered_in_a_shutdown_either() {
    let mut stage = stage(0);
    stage.enqueue(job());
    let poll = stage.poll("remote", Millis::seconds(10));
    let call = stage.take_call().expect("a claim");
    stage.input(Input::Gone(poll));
    stage.input(Input::Drain { deadline: Millis::seconds(30) });
    stage.make_call(call);
    stage.settle();
    assert_eq!(stage.answer(poll), None);
    assert_eq!((state(&stage.store), stage.machine.phase()), (StateName::Queued, Phase::Stopped));
}

/// A remote worker was noted as alive when it polled, and not by its heartbeats: one with a long
/// job looked dead while it worked. Found by a review.
#[test]
fn a_remote_worker_that_sends_heartbeats_is_seen_alive() {
    let mut stage = stage_with(Config { presence: Some(Millis::seconds(10)), ..config(0) });
    stage.enqueue(job());
    stage.poll("remote", Millis::ZERO);
    stage.settle();
    for _ in 0..10 {
        stage.pass(Millis::seconds(10));
        let heartbeat = Heartbeat { token: token("1.1"), extend: None, progress: None };
        stage.request(Request::Heartbeat(heartbeat));
        stage.settle();
    }
    let rows = stage.store.reader().expect("a reader").workers().expect("it reads");
    let remote = rows.iter().find(|row| row.worker.id.as_str() == "remote").expect("it is known");
    assert_eq!(remote.last_seen, stage.now.wall);
}

/// A poll behind others whose jobs fill what one claim may bring got nothing, and the answer said
/// that there is nothing, though its job was there.
#[test]
fn a_poll_behind_one_that_fills_the_claim_is_served_by_the_next_commit() {
    let mut stage = stage(0);
    let large = Payload::new(&"7".repeat(CLAIM_BYTES / 2)).expect("it is not too large");
    for _ in 0..5 {
        stage.enqueue(NewJob { payload: large.clone(), ..job() });
    }
    stage.settle();
    let polls: Vec<RequestId> =
        (1..=5).map(|n| stage.poll(&format!("w{n}"), Millis::ZERO)).collect();
    let mut commits = 0;
    while let Some(call) = stage.take_call() {
        commits += 1;
        assert!(commits < 10, "it does not come to rest");
        stage.make_call(call);
    }
    for poll in polls {
        let answer = stage.answer(poll);
        assert!(matches!(answer, Some(Answer::Jobs(jobs)) if jobs.len() == 1), "{poll:?}");
    }
    assert_eq!(commits, 3, "two jobs fit into one");
}

/// The local slots that a full claim leaves empty are filled at once, not when a run has ended.
#[test]
fn slots_that_a_full_claim_leaves_empty_are_filled_by_the_next_commit() {
    let mut stage = stage(3);
    let large = Payload::new(&"7".repeat(CLAIM_BYTES / 2)).expect("it is not too large");
    for _ in 0..4 {
        stage.enqueue(NewJob { payload: large.clone(), ..job() });
    }
    stage.settle();
    assert_eq!(stage.machine.running(), 3);
}
