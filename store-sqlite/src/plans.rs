//! Every statement the store runs seeks: none walks a table of jobs, none sorts beside an index.
//!
//! A script is run with a trace on the connections of a store; each statement seen is then
//! explained by SQLite itself. A new statement that scans fails here without being listed.

use std::cell::RefCell;
use std::collections::BTreeSet;

use rusqlite::trace::{TraceEvent, TraceEventCodes};
use rusqlite::{Connection, StatementStatus, types::Value};
use tempfile::TempDir;
use windlass_core::store::{
    Admin, Batch, ClaimFor, Cursor, DeadFilter, Filter, Heartbeat, Purge, Reader, Reap, Retention,
    Settle, SlotFigures, Store, Taker, Worker, WorkerKind,
};
use windlass_core::{
    BatchId, Delay, Demand, Failure, FigureSet, Figures, Fingerprint, GroupId, Idempotency,
    IdempotencyKey, JobId, Kind, LeaseToken, Millis, NewJob, Payload, Policy, ProcessId, QueueName,
    QueueSettings, SettingKey, SettingValue, Verdict, View, Wall, When, WorkerId,
};

use crate::SqliteStore;

thread_local! {
    static SEEN: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
    static RECOMPILED: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
}

fn note(event: TraceEvent<'_>) {
    if let TraceEvent::Stmt(statement, _) = event {
        let sql = statement.sql().into_owned();
        if statement.get_status(StatementStatus::RePrepare) > 0 {
            RECOMPILED.with_borrow_mut(|all| all.insert(sql.clone()));
        }
        SEEN.with_borrow_mut(|seen| seen.insert(sql));
    }
}

fn trace(conn: &mut Connection) {
    conn.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(note));
}

/// Tables that stay small whatever the number of jobs: names, queues, workers, one row each.
const SMALL: [&str; 9] =
    ["queues", "kinds", "counts", "workers", "markers", "settings", "meta", "error_groups", "bulk"];

#[test]
fn every_statement_seeks_and_none_sorts_or_is_compiled_twice() {
    let dir = TempDir::new().expect("a directory");
    let mut store = SqliteStore::open(dir.path().join("jobs.db")).expect("it opens");
    trace(store.conn.as_mut().expect("it is open"));
    live(&mut store);
    read(&store);
    let conn = store.conn.as_ref().expect("it is open");
    let seen = SEEN.with_borrow(Clone::clone);
    assert!(seen.len() > 45, "the script runs {} statements only", seen.len());
    let mut found = Vec::new();
    for sql in seen.iter().filter(|sql| is_query(sql)) {
        found.extend(
            plan(conn, sql)
                .into_iter()
                .filter(|step| is_bad(step))
                .map(|step| format!("{step}\n    in {sql}")),
        );
    }
    assert!(found.is_empty(), "these do not seek:\n{}", found.join("\n"));
    let recompiled = RECOMPILED.with_borrow(Clone::clone);
    assert!(
        recompiled.is_empty(),
        "these are compiled again for other parameters: {recompiled:#?}"
    );
}

#[test]
fn a_statement_that_scans_would_be_found() {
    let dir = TempDir::new().expect("a directory");
    let store = SqliteStore::open(dir.path().join("jobs.db")).expect("it opens");
    let conn = store.conn.as_ref().expect("it is open");
    for sql in [
        "SELECT id FROM jobs WHERE worker = 'w'",
        "SELECT id FROM jobs WHERE view = 0 ORDER BY class",
        "DELETE FROM errors WHERE text = ''",
    ] {
        assert!(plan(conn, sql).iter().any(|step| is_bad(step)), "{sql}");
    }
}

fn is_query(sql: &str) -> bool {
    ["SELECT", "UPDATE", "DELETE", "INSERT"].iter().any(|verb| sql.starts_with(verb))
}

fn is_bad(step: &str) -> bool {
    let scans = step.strip_prefix("SCAN ").and_then(|rest| rest.split(' ').next());
    // This index holds leased jobs only: as many as run.
    let leases = step.contains(" USING INDEX leased");
    let small = |table: &str| SMALL.contains(&table) || table == "CONSTANT" || leases;
    let large = scans.is_some_and(|table| !small(table));
    // The rows of a VALUES clause are always scanned.
    (large && !step.ends_with("VALUES CLAUSE")) || step.contains("TEMP B-TREE")
}

fn plan(conn: &Connection, sql: &str) -> Vec<String> {
    let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect(sql);
    let nothing = vec![Value::Null; statement.parameter_count()];
    let rows = statement.query_map(rusqlite::params_from_iter(nothing), |row| row.get(3));
    rows.expect(sql).collect::<rusqlite::Result<_>>().expect(sql)
}

struct Script<'a> {
    store: &'a mut SqliteStore,
    seq: u64,
}

impl Script<'_> {
    fn commit(&mut self, fill: impl FnOnce(&mut Batch)) -> Vec<LeaseToken> {
        self.seq += 1;
        let id = BatchId { process: ProcessId(1), seq: self.seq };
        let mut batch = Batch::new(id, Policy::default());
        fill(&mut batch);
        let now = Wall::new(i64::try_from(self.seq).expect("small") * 100_000_000);
        let out = self.store.commit(now, &batch).expect("it commits");
        let jobs = out.claims.iter().flat_map(|claimed| &claimed.jobs);
        jobs.map(|leased| leased.job.token()).collect()
    }
}

fn claim(max: usize) -> ClaimFor {
    let worker = WorkerId::new("w").expect("a name");
    let takers = (0..2).map(|_| Taker { worker: worker.clone(), max, length: None });
    ClaimFor { demand: Demand::ALL, takers: takers.collect() }
}

/// A script with every kind of command.
fn live(store: &mut SqliteStore) {
    let mut script = Script { store, seq: 0 };
    let new = NewJob::new(Kind::default(), Payload::null());
    let key = IdempotencyKey::new("k").expect("a key");
    let keyed = Idempotency { key, payload: Fingerprint::of(b"null") };
    let later = When::After(Delay::new(1).expect("a delay"));
    script.commit(|batch| {
        batch.enqueues = vec![new.clone(); 9];
        batch.enqueues.push(NewJob { idempotency: Some(keyed), ..new.clone() });
        batch.enqueues.push(NewJob { when: later, ..new.clone() });
    });
    let held = script.commit(|batch| {
        batch.promote = Some(5);
        batch.claims.push(claim(3));
    });
    let fail = |error: &str| Verdict::Fail(Failure::new(error).permanent().into());
    let result = Some(Payload::null());
    script.commit(|batch| {
        let verdicts = [Verdict::Complete { result }, fail("no"), fail("no"), Verdict::Release];
        let settles = held.iter().zip(verdicts);
        batch.settles.extend(settles.map(|(token, verdict)| Settle { token: *token, verdict }));
        let progress = Some(Payload::null());
        batch.heartbeats.push(Heartbeat { token: held[4], extend: None, progress });
    });
    let worker = WorkerId::new("w").expect("a name");
    let queue = QueueName::default();
    script.commit(|batch| {
        let reap = Reap { limit: 5, after: None, all: false };
        batch.reap = Some(reap);
        let dead = Admin::ReplayDead { filter: DeadFilter::default(), after: None, limit: 1 };
        let seen = Worker::new(worker.clone(), "h", WorkerKind::Local);
        let setting = SettingKey::new("s").expect("a name");
        let value = SettingValue::new("v").ok();
        batch.admin = vec![
            dead,
            Admin::Cancel(JobId::new(9).expect("an id")),
            Admin::pause(queue.clone()),
            Admin::Resume(queue.clone()),
            Admin::set_queue(queue, QueueSettings::default()),
            Admin::set_setting(setting.clone(), value),
            Admin::set_setting(setting, None),
            Admin::SeeWorker(seen),
            Admin::StopWorker(worker.clone()),
        ];
    });
    let kept = SettingKey::new("t").expect("a name");
    script.commit(|batch| {
        batch.admin.push(Admin::set_setting(kept, SettingValue::new("v").ok()));
    });
    let queue = QueueName::default();
    let mut figures = FigureSet::default();
    figures.count(&queue, &Figures { done: 1, ..Figures::default() });
    script.commit(|batch| batch.figures.push(SlotFigures { slot: Wall::new(0), figures }));
    let age = Some(Millis::ZERO);
    let retention = Retention { done: age, failed: age, cancelled: age };
    script.commit(|batch| {
        batch.purge = Some(Purge { retention, limit: 5 });
        batch.admin.push(Admin::RemoveWorker(worker));
    });
}

/// Every read but the dump, which looks at all rows by design.
fn read(store: &SqliteStore) {
    let mut reader = store.reader().expect("a reader");
    trace(reader.connection());
    let id = JobId::new(5).expect("an id");
    reader.jobs(&[id]).expect("it reads");
    for view in [None].into_iter().chain(View::ALL.map(Some)) {
        let all = Filter { view, ..Filter::default() };
        let (queue, kind) = (Some(QueueName::default()), Some(Kind::default()));
        for filter in [
            Filter { queue: queue.clone(), kind: kind.clone(), ..all.clone() },
            Filter { queue, ..all.clone() },
            Filter { kind, ..all.clone() },
            Filter { key: IdempotencyKey::new("k").ok(), ..all.clone() },
            Filter { id: Some(id), ..all.clone() },
            Filter { group: Some(GroupId::LOST), ..all.clone() },
            all,
        ] {
            reader.list(&filter, None, 2).expect("it reads");
            let after = Some(Cursor { at: Wall::new(i64::MAX), id });
            reader.list(&filter, after, 2).expect("it reads");
        }
    }
    reader.queues().expect("it reads");
    reader.queue(&QueueName::default()).expect("it reads");
    reader.oldest_ready(&QueueName::default()).expect("it reads");
    reader.next_due().expect("it reads");
    reader.attempts(id).expect("it reads");
    reader.workers().expect("it reads");
    reader.settings().expect("it reads");
    reader.error_groups().expect("it reads");
    reader.error_group(GroupId::LOST).expect("it reads");
    FigureSet::totals(&mut reader).expect("it reads");
    FigureSet::last_minute(&mut reader, Wall::new(0)).expect("it reads");
    store.reader().expect("a reader");
}
