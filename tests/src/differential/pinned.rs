//! Traces on which a store once disagreed with the model, each with its story. They never go.

use windlass_core::store::{ClaimFor, Purge, Retention, Taker, Worker, WorkerKind};
use windlass_core::{
    Demand, Failure, Kind, Millis, NewJob, Payload, Policy, QueueName, Verdict, Wall, When,
    WorkerId,
};

use super::plan::{AdminPlan, EnqueuePlan, Pick, SettlePlan, Step, TokenPlan, Trace};

/// Every pinned trace, by what it shows.
pub fn pinned() -> Vec<(&'static str, Trace)> {
    vec![
        ("a job that failed and was deleted in one batch leaves no attempt", failed_and_deleted()),
        ("a refused job does not leave a new queue behind", refused_in_a_new_queue()),
        ("a worker removed and seen in one batch is there", removed_and_seen()),
        ("a job cancelled anew is as old as its new cancellation", cancelled_anew()),
    ]
}

/// The attempt, the error and the result of a job went to the store apart from its row. When the
/// row was removed by a later command of the same batch, they came back as orphans.
fn failed_and_deleted() -> Trace {
    let settle = SettlePlan {
        job: Pick::Id(1),
        token: TokenPlan::Latest,
        verdict: Verdict::Fail(Box::new(Failure::new("gone").permanent())),
        twice: false,
    };
    let delete = vec![AdminPlan::Delete(Pick::Id(1))];
    steps(vec![
        Step { enqueues: vec![enqueue()], claims: vec![claim()], ..Step::default() },
        Step { settles: vec![settle], admin: delete, ..Step::default() },
    ])
}

/// The queue was made before the job was found to lie too far ahead.
fn refused_in_a_new_queue() -> Trace {
    let mut new = NewJob::new(Kind::default(), Payload::null());
    new.queue = QueueName::new("new").expect("it is a name");
    new.when = When::At(Wall::MAX);
    steps(vec![Step { enqueues: vec![EnqueuePlan::New(new)], ..Step::default() }])
}

/// All workers seen were written before all workers removed, whatever their order.
fn removed_and_seen() -> Trace {
    let id = worker_id();
    let worker = Worker::new(id.clone(), "host", WorkerKind::Local);
    let see = || AdminPlan::SeeWorker(worker.clone());
    let remove = || AdminPlan::RemoveWorker(id.clone());
    steps(vec![
        Step { admin: vec![remove(), see()], ..Step::default() },
        Step { clock_ms: 1_000, admin: vec![remove(), see()], ..Step::default() },
        Step { clock_ms: 1_000, admin: vec![see(), remove()], ..Step::default() },
    ])
}

/// A cancelled job past its age, replayed and cancelled again in the batch that purges, was
/// purged for the age of its first cancellation.
fn cancelled_anew() -> Trace {
    let cancel = || AdminPlan::Cancel(Pick::Id(1));
    let retention = Retention { cancelled: Some(Millis::new(1_000)), ..Retention::default() };
    steps(vec![
        Step { enqueues: vec![enqueue()], ..Step::default() },
        Step { admin: vec![cancel()], ..Step::default() },
        Step {
            clock_ms: 1_000,
            admin: vec![AdminPlan::Replay(Pick::Id(1)), cancel()],
            purge: Some(Purge { retention, limit: 10 }),
            ..Step::default()
        },
    ])
}

fn steps(steps: Vec<Step>) -> Trace {
    Trace { policy: Policy::default(), steps }
}

fn enqueue() -> EnqueuePlan {
    EnqueuePlan::New(NewJob::new(Kind::default(), Payload::null()))
}

fn claim() -> ClaimFor {
    let taker = Taker { worker: worker_id(), max: 1, length: None };
    ClaimFor { demand: Demand::ALL, takers: vec![taker] }
}

fn worker_id() -> WorkerId {
    WorkerId::new("w").expect("it is a name")
}
