//! Traces on which a store once disagreed with the model, each with its story. They never go.

use windlass_core::bulk::Action;
use windlass_core::store::{ClaimFor, Purge, Retention, Taker, Worker, WorkerKind};
use windlass_core::{
    Demand, Failure, Flow, Kind, Millis, NewJob, Payload, Policy, QueueName, QueueSettings, Rate,
    Verdict, View, Wall, When, WorkerId,
};

use super::bulk::BulkPlan;
use super::plan::{AdminPlan, EnqueuePlan, Pick, SettlePlan, Step, TokenPlan, Trace};

/// Every pinned trace, by what it shows.
pub fn pinned() -> Vec<(&'static str, Trace)> {
    vec![
        ("a job that failed and was deleted in one batch leaves no attempt", failed_and_deleted()),
        ("a refused job does not leave a new queue behind", refused_in_a_new_queue()),
        ("a worker removed and seen in one batch is there", removed_and_seen()),
        ("a job cancelled again is as old as its new cancellation", cancelled_again()),
        ("a queue that is made again begins with unused rates", rate_of_a_new_queue()),
        ("a canary takes no job twice when the clock is set back", canary_after_a_clock_step()),
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
fn cancelled_again() -> Trace {
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

/// A queue was deleted and made again with a rate, all in one batch, and kept the state of the old
/// rate.
fn rate_of_a_new_queue() -> Trace {
    let name = || QueueName::new("rated").expect("it is a name");
    let rate = Rate::new(1, 60_000, None).ok();
    let flow = Flow { rate, ..Flow::NONE };
    let settings = QueueSettings { flow, ..QueueSettings::default() };
    let set = || AdminPlan::SetQueue(name(), settings.clone(), None);
    let mut new = NewJob::new(Kind::default(), Payload::null());
    new.queue = name();
    let complete = SettlePlan {
        job: Pick::Id(1),
        token: TokenPlan::Latest,
        verdict: Verdict::Complete { result: None },
        twice: false,
    };
    let enqueues = || vec![EnqueuePlan::New(new.clone())];
    steps(vec![
        Step { admin: vec![set()], enqueues: enqueues(), claims: vec![claim()], ..Step::default() },
        Step {
            settles: vec![complete],
            admin: vec![AdminPlan::Delete(Pick::Id(1))],
            ..Step::default()
        },
        Step { admin: vec![AdminPlan::DeleteQueue(name()), set()], ..Step::default() },
        Step { enqueues: enqueues(), claims: vec![claim()], ..Step::default() },
        // The same where the rate alone goes and comes back.
        Step {
            admin: vec![AdminPlan::SetQueue(name(), QueueSettings::default(), None), set()],
            enqueues: enqueues(),
            claims: vec![claim()],
            ..Step::default()
        },
    ])
}

/// A job of a canary failed once more, earlier than the action began by a clock that was set back.
/// The action took it a second time, and its row could not be read from then on.
fn canary_after_a_clock_step() -> Trace {
    let fail = |job: Pick| SettlePlan {
        job,
        token: TokenPlan::Latest,
        verdict: Verdict::Fail(Box::new(Failure::new("refused").permanent())),
        twice: false,
    };
    let start = BulkPlan::Start {
        action: Action::Retry,
        view: Some(View::Failed),
        queue: None,
        searched: None,
        most: None,
        canary: Some(3),
    };
    let page = Step { bulk: Some(1), ..Step::default() };
    let enqueues = vec![enqueue(), enqueue()];
    steps(vec![
        Step { enqueues, claims: vec![claim(), claim()], ..Step::default() },
        Step { settles: vec![fail(Pick::Id(1)), fail(Pick::Id(2))], ..Step::default() },
        Step { admin: vec![AdminPlan::Bulk(start)], ..Step::default() },
        Step { claims: vec![claim()], ..page.clone() },
        Step { clock_ms: -2, settles: vec![fail(Pick::Running(0))], ..Step::default() },
        page.clone(),
        page,
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
