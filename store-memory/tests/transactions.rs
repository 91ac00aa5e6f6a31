//! Several handles that commit at once: what one transaction holds, others wait for or leave out.

use std::sync::mpsc;
use std::thread;

use windlass_core::store::{
    Admin, Batch, ClaimFor, CommitError, CommitPoint, Outcomes, Settle, Store, StoreError, Taker,
};
use windlass_core::{
    Apply, ApplyStep, BatchId, Demand, Fingerprint, Idempotency, IdempotencyKey, Kind, LeaseToken,
    NewJob, Payload, Policy, ProcessId, Verdict, Wall, WorkerId,
};
use windlass_store_memory::{Asked, Conflict, Holding, MemoryStore, Transaction};

fn batch(process: u64, seq: u64) -> Batch {
    Batch::new(BatchId { process: ProcessId(process), seq }, Policy::default())
}

fn new_job() -> NewJob {
    NewJob::new(Kind::default(), Payload::null())
}

fn claim(process: u64, seq: u64) -> Batch {
    let mut batch = batch(process, seq);
    let worker = WorkerId::new(&format!("p{process}")).expect("this step succeeds");
    let takers = vec![Taker { worker, max: 1, length: None }];
    batch.claims.push(ClaimFor { demand: Demand::ALL, takers });
    batch
}

/// A store with this number of ready jobs.
fn store_with(jobs: usize) -> MemoryStore {
    let mut store = MemoryStore::new();
    let mut first = batch(9, 1);
    first.enqueues = vec![new_job(); jobs];
    store.commit(Wall::new(0), &first).expect("this step succeeds");
    store
}

/// Takes a batch through a transaction up to its commit; nothing if it has to wait.
fn staged(store: &MemoryStore, batch: &Batch) -> Option<(Transaction, Outcomes)> {
    let mut transaction = store.begin(batch.id.process);
    let (mut apply, mut asked) = Apply::new(batch);
    loop {
        let Asked::Answers(answers) = transaction.ask(&asked, Wall::new(1)) else { return None };
        match apply.answer(answers).expect("this step succeeds") {
            ApplyStep::Ask(more) => asked = more,
            ApplyStep::Write(changes) => {
                transaction.write(changes).expect("this step succeeds");
                return Some((transaction, apply.finish()));
            }
        }
    }
}

fn tokens(outcomes: &Outcomes) -> Vec<LeaseToken> {
    let leased = outcomes.claims.iter().flat_map(|claimed| &claimed.jobs);
    leased.map(|leased| leased.job.token()).collect()
}

#[test]
fn a_candidate_that_another_transaction_holds_is_left_out_and_reported_as_news() {
    let store = store_with(2);
    let mut other = store.another();
    let _ = other.news(&[]).expect("this step succeeds");
    let (first, one) = staged(&store, &claim(1, 1)).expect("this step succeeds");
    let (second, two) = staged(&other, &claim(2, 1)).expect("this step succeeds");
    assert_ne!(tokens(&one), tokens(&two));
    assert_eq!(second.skipped(), [tokens(&one)[0].job]);
    drop((first, second));
    assert!(
        other.news(&[]).expect("this step succeeds").wrote,
        "the first was rolled back, so its job can be claimed"
    );
    assert!(!other.news(&[]).expect("this step succeeds").wrote);
}

#[test]
fn a_store_that_locks_no_candidate_refuses_the_second_of_two_claims() {
    let mut store = store_with(1);
    store.hold(Holding::Optimistic);
    let (first, one) = staged(&store, &claim(1, 1)).expect("this step succeeds");
    let (second, two) = staged(&store, &claim(2, 1)).expect("this step succeeds");
    assert_eq!(tokens(&one), tokens(&two));
    assert!(store.finish(first, one, None).expect("this step succeeds").is_ok());
    assert_eq!(second.commit(true), Err(Conflict));
    assert_eq!(store.verify(), Vec::<String>::new());
}

#[test]
fn an_absent_key_is_held_until_the_transaction_ends() {
    let mut store = store_with(0);
    let key = IdempotencyKey::new("k").expect("this step succeeds");
    let idempotency = Some(Idempotency { key, payload: Fingerprint(1) });
    let new = NewJob { idempotency, ..new_job() };
    let (mut one, mut two) = (batch(1, 1), batch(2, 1));
    // The queue exists already, so that only the key stands between the two.
    one.admin.push(Admin::Resume(new.queue.clone()));
    store.commit(Wall::new(0), &one).expect("this step succeeds");
    let mut one = batch(1, 2);
    one.enqueues.push(new.clone());
    two.enqueues.push(new);
    let (first, outcomes) = staged(&store, &one).expect("this step succeeds");
    assert!(staged(&store, &two).is_none(), "it waits");
    let id = outcomes.enqueues[0].as_ref().expect("this step succeeds").id;
    store.finish(first, outcomes, None).expect("this step succeeds").expect("this step succeeds");
    let again = store.commit(Wall::new(2), &two).expect("this step succeeds");
    let receipt = again.enqueues[0].as_ref().expect("this step succeeds");
    assert_eq!((receipt.id, receipt.duplicate), (id, true));
}

#[test]
fn a_queue_is_not_paused_while_a_claim_of_it_is_under_way() {
    let mut store = store_with(1);
    let (first, outcomes) = staged(&store, &claim(1, 1)).expect("this step succeeds");
    let mut pause = batch(2, 1);
    pause.admin.push(Admin::pause(new_job().queue));
    assert!(staged(&store, &pause).is_none(), "it waits");
    store.finish(first, outcomes, None).expect("this step succeeds").expect("this step succeeds");
    assert!(staged(&store, &pause).is_some());
}

#[test]
fn was_committed_is_not_answered_before_the_transaction_is_over() {
    let mut store = store_with(1);
    let (first, _) = staged(&store, &claim(1, 1)).expect("this step succeeds");
    let id = BatchId { process: ProcessId(1), seq: 1 };
    assert!(matches!(store.was_committed(id), Err(StoreError::Busy(_))));
    first.commit(true).expect("this step succeeds");
    assert_eq!(store.was_committed(id), Ok(true));
}

#[test]
fn two_transactions_get_different_ids() {
    let store = store_with(1);
    let ids = |outcomes: &Outcomes| outcomes.enqueues[0].as_ref().expect("this step succeeds").id;
    let (mut one, mut two) = (batch(1, 1), batch(2, 1));
    one.enqueues.push(new_job());
    two.enqueues.push(new_job());
    let (first, before) = staged(&store, &one).expect("this step succeeds");
    let (second, after) = staged(&store, &two).expect("this step succeeds");
    assert!(ids(&before) < ids(&after));
    second.commit(true).expect("this step succeeds");
    first.commit(true).expect("this step succeeds");
    assert_eq!(store.verify(), Vec::<String>::new());
}

#[test]
fn a_commit_waits_on_its_thread_until_the_row_is_free() {
    let mut store = store_with(1);
    let claimed = store.commit(Wall::new(1), &claim(1, 1)).expect("this step succeeds");
    let token = tokens(&claimed)[0];
    let settle = |process| {
        let mut batch = batch(process, 2);
        batch.settles.push(Settle { token, verdict: Verdict::Complete { result: None } });
        batch
    };
    let (first, outcomes) = staged(&store, &settle(1)).expect("this step succeeds");
    let (waits, waiting) = mpsc::channel();
    let mut other = store.another();
    other.on_commit(move |point| waits.send(point).unwrap_or_default());
    let late = settle(2);
    let thread = thread::spawn(move || other.commit(Wall::new(2), &late));
    assert_eq!(waiting.recv(), Ok(CommitPoint::Waiting));
    store.finish(first, outcomes, None).expect("this step succeeds").expect("this step succeeds");
    let repeated = thread.join().expect("this step succeeds").expect("this step succeeds");
    assert!(repeated.settles[0].is_ok() && !repeated.wrote, "the same verdict was stored before");
    assert_eq!(waiting.iter().last(), Some(CommitPoint::Answered));
}

/// Commits as the machine does: a commit whose tries are used up by conflicts is tried again. Where
/// nothing is locked, other threads may win every try.
fn commit_as_machine(store: &mut MemoryStore, batch: &Batch) -> Outcomes {
    loop {
        match store.commit(Wall::new(1), batch) {
            Err(CommitError::NotCommitted(_)) => thread::yield_now(),
            result => return result.expect("this step succeeds"),
        }
    }
}

#[test]
fn handles_on_many_threads_claim_each_job_once() {
    for holding in [Holding::Locking, Holding::Optimistic] {
        let store = store_with(200);
        store.hold(holding);
        let threads = (1..=4).map(|process| {
            let mut store = store.another();
            thread::spawn(move || {
                let mut all = Vec::new();
                for seq in 1..=50 {
                    all.extend(tokens(&commit_as_machine(&mut store, &claim(process, seq))));
                }
                all
            })
        });
        let threads: Vec<_> = threads.collect();
        let mut all: Vec<LeaseToken> = Vec::new();
        for thread in threads {
            all.extend(thread.join().expect("this step succeeds"));
        }
        let given = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), given, "no token is given out twice");
        assert_eq!(store.verify(), Vec::<String>::new());
    }
}
