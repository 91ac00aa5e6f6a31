//! Copies from one store to another, as tests make them: a rich source, a copy that stops where it
//! is asked to, and the comparison of what both hold.

use windlass_core::store::{
    Admin, Batch, ClaimFor, CopyDone, CopyEnd, CopyError, CopyId, CopyStep, Copying, Dump,
    Outcomes, Purge, Reader, Reap, Retention, Store, Taker, is_seal,
};
use windlass_core::{
    BatchId, Demand, Fingerprint, Idempotency, IdempotencyKey, Kind, Millis, NewJob, Payload,
    Policy, ProcessId, View, Wall, WorkerId,
};

use crate::differential::fill;

/// When copies are made: after everything in the stores.
pub const LATER: Wall = Wall::new(1_900_000_000_000);

/// A store with rows in every state.
pub fn rich<S: Store>(mut store: S) -> S {
    fill(&mut store, has_everything).unwrap_or_else(|why| panic!("{why}"));
    let mut seq = 0;
    let mut commit = |fill: &dyn Fn(&mut Batch)| {
        seq += 1;
        let id = BatchId { process: ProcessId(98), seq };
        let mut batch = Batch::new(id, Policy::default());
        fill(&mut batch);
        store.commit(LATER.minus(Millis::hours(1)), &batch).expect("it commits")
    };
    // A key whose job is gone.
    let kind = Kind::new("gone").expect("a kind");
    let key = IdempotencyKey::new("orphan").expect("a key");
    let idempotency = Some(Idempotency { key, payload: Fingerprint::of(b"1") });
    let payload = Payload::new("1").expect("a payload");
    let new = NewJob { idempotency, ..NewJob::new(kind, payload) };
    let done = commit(&|batch| batch.enqueues.push(new.clone()));
    let id = done.enqueues[0].as_ref().expect("it is stored").id;
    commit(&|batch| batch.admin.push(Admin::Cancel(id)));
    commit(&|batch| batch.admin.push(Admin::Delete(id)));
    let orphaned = dump(&store).keys.into_iter().any(|record| record.orphan_until.is_some());
    assert!(orphaned, "a key outlives its job");
    store
}

/// Whether there are jobs in every state, and something of everything else.
fn has_everything(all: &Dump) -> bool {
    let in_view = |view| all.queues.iter().any(|row| row.total().get(view) > 0);
    View::ALL.into_iter().all(in_view)
        && all.jobs.len() >= 30
        && all.jobs.iter().any(|row| row.progress.is_some())
        && all.jobs.iter().any(|row| row.result.is_some())
        && [all.attempts.len(), all.figures.len()].iter().all(|rows| *rows > 2)
        && !all.settings.is_empty()
}

/// Both ends of a copy.
pub fn ends<A, B>(source: A, target: B) -> (CopyEnd<A>, CopyEnd<B>) {
    let source = CopyEnd { store: source, name: "the source".into() };
    (source, CopyEnd { store: target, name: "the target".into() })
}

/// Begins a copy, or goes on with one. Workers of the source do not count.
pub fn begin<A: Store, B: Store>(
    (source, target): (CopyEnd<A>, CopyEnd<B>),
    run: u64,
) -> Result<Copying<A, B>, CopyError> {
    // A process that is none of those that filled the source.
    let ids = (CopyId(run), ProcessId(1_000_000 + run));
    Copying::begin(source, target, ids, LATER, &|_| true)
}

/// Takes at most `steps` steps of a copy; returns what was copied if it has finished.
pub fn steps<A: Store, B: Store>(
    copy: &mut Copying<A, B>,
    steps: usize,
) -> Result<Option<CopyDone>, CopyError> {
    for _ in 0..steps {
        if let CopyStep::Finished(done) = copy.step(LATER)? {
            return Ok(Some(done));
        }
    }
    Ok(None)
}

/// Every row, in the canonical form.
pub fn dump<S: Store>(store: &S) -> Dump {
    store.reader().and_then(|mut reader| reader.dump()).expect("it can be read")
}

/// What a copy takes along.
pub fn copied<S: Store>(store: &S) -> String {
    let mut all = dump(store);
    all.workers.clear();
    all.markers.clear();
    all.bulk.clear();
    all.settings.retain(|(key, _)| !is_seal(key));
    for row in &mut all.queues {
        row.kinds.retain(|(_, counts)| !counts.is_empty());
    }
    all.to_string()
}

/// Ends the leases of all jobs that run, makes due ones ready, and claims what can be claimed: what
/// the indexes of a store find.
pub fn drain<S: Store>(store: &mut S) -> Vec<Outcomes> {
    let claim = |seq: u64| {
        let id = BatchId { process: ProcessId(99), seq };
        let mut batch = Batch::new(id, Policy::default());
        let limit = 1_000;
        match seq {
            1 => batch.reap = Some(Reap { limit, after: None, all: false }),
            2 => batch.promote = Some(limit),
            3 => {
                let age = Some(Millis::days(1));
                let retention = Retention { done: age, failed: None, cancelled: age };
                batch.purge = Some(Purge { retention, limit });
            }
            _ => {
                let worker = WorkerId::new("drain").expect("a name");
                let takers = vec![Taker { worker, max: limit, length: None }];
                batch.claims.push(ClaimFor { demand: Demand::ALL, takers });
            }
        }
        batch
    };
    let outcomes = (1..=5).map(|seq| store.commit(LATER, &claim(seq)).expect("it commits"));
    outcomes.collect()
}
