//! Queues and kinds without ready jobs cost a claim nothing: SQLite takes as many steps with
//! thousands of them as with none.

use std::cell::RefCell;
use std::collections::BTreeMap;

use rusqlite::StatementStatus;
use rusqlite::trace::{TraceEvent, TraceEventCodes};
use tempfile::TempDir;
use windlass_core::store::{Batch, ClaimFor, Settle, Store, Taker};
use windlass_core::{
    BatchId, Demand, Kind, NewJob, Payload, Policy, ProcessId, QueueName, Verdict, Wall, WorkerId,
};

use crate::SqliteStore;

/// The steps of a statement, all its executions together, by its text.
type Steps = BTreeMap<String, i32>;

thread_local! {
    static STEPS: RefCell<Steps> = const { RefCell::new(Steps::new()) };
}

/// A checkpoint of the WAL runs these too, after whichever commit fills it.
const OF_CHECKPOINTS: [&str; 2] = ["BEGIN IMMEDIATE", "ROLLBACK"];

fn note(event: TraceEvent<'_>) {
    if let TraceEvent::Profile(statement, _) = event
        && !OF_CHECKPOINTS.contains(&&*statement.sql())
    {
        let steps = statement.get_status(StatementStatus::VmStep);
        STEPS.with_borrow_mut(|all| all.insert(statement.sql().into_owned(), steps));
    }
}

fn steps() -> Steps {
    STEPS.with_borrow(Clone::clone)
}

/// What was added to the steps of each statement.
fn since(before: &Steps) -> Steps {
    let added = |(sql, steps): (String, i32)| {
        let by = steps - before.get(&sql).copied().unwrap_or(0);
        (by > 0).then_some((sql, by))
    };
    steps().into_iter().filter_map(added).collect()
}

struct Script {
    _dir: TempDir,
    store: SqliteStore,
    seq: u64,
    held: Vec<Settle>,
}

impl Script {
    fn new() -> Self {
        let dir = TempDir::new().expect("a directory");
        let mut store = SqliteStore::open(dir.path().join("jobs.db")).expect("it opens");
        let conn = store.conn.as_mut().expect("it is open");
        conn.trace_v2(TraceEventCodes::SQLITE_TRACE_PROFILE, Some(note));
        Self { _dir: dir, store, seq: 0, held: Vec::new() }
    }

    /// Completes what is held, stores these jobs, and claims up to `max`.
    fn step(&mut self, new: Vec<NewJob>, max: usize) {
        self.seq += 1;
        let id = BatchId { process: ProcessId(1), seq: self.seq };
        let mut batch = Batch::new(id, Policy::default());
        batch.settles = std::mem::take(&mut self.held);
        batch.enqueues = new;
        let taker = Taker { worker: WorkerId::new("w").expect("a name"), max, length: None };
        batch.claims.push(ClaimFor { demand: Demand::ALL, takers: vec![taker] });
        let out = self.store.commit(Wall::new(0), &batch).expect("it commits");
        let claimed = out.claims.iter().flat_map(|claimed| &claimed.jobs);
        let complete = |token| Settle { token, verdict: Verdict::Complete { result: None } };
        self.held = claimed.map(|one| complete(one.job.token())).collect();
    }

    /// The steps of a claim whose process knows nothing yet of the store, and of another one.
    fn claims(&mut self) -> [Steps; 2] {
        self.step(vec![job(0); 20], 0);
        self.store.cache.clear();
        [5, 5].map(|max| {
            let before = steps();
            self.step(Vec::new(), max);
            assert_eq!(self.held.len(), max);
            since(&before)
        })
    }
}

/// A job of a queue and a kind of its own.
fn job(number: usize) -> NewJob {
    let kind = Kind::new(&format!("kind-{number}")).expect("a kind");
    let queue = QueueName::new(&format!("queue-{number}")).expect("a name");
    NewJob { queue, ..NewJob::new(kind, Payload::null()) }
}

#[test]
fn queues_and_kinds_without_ready_jobs_cost_a_claim_nothing() {
    let alone = Script::new().claims();
    STEPS.take();
    let mut script = Script::new();
    script.step((0..2_000).map(job).collect(), 2_000);
    script.step(Vec::new(), 0);
    assert_eq!(script.claims(), alone);
}
