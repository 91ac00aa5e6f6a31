//! The work that the crash tests interrupt: a store with jobs in every state, and batches of each
//! kind to run on it. A memory store runs along and says what should be there.

use windlass_core::store::{
    Admin, Batch, ClaimFor, Instance, Outcomes, Purge, Reader, Reap, Retention, Settle,
    SlotFigures, Store, Taker, Worker, WorkerKind,
};
use windlass_core::{
    BatchId, Demand, Failure, FigureSet, Figures, Fingerprint, Idempotency, IdempotencyKey, JobId,
    Kind, LeaseToken, Millis, NewJob, Payload, Policy, Priority, ProcessId, QueueName, Span,
    Verdict, Wall, When, WorkerId, WorkerVersion,
};
use windlass_store_memory::MemoryStore;
use windlass_store_redb::RedbStore;

use super::Disk;

/// The wall clock at the first batch.
pub(crate) const START: Wall = Wall::new(1_700_000_000_000);

/// The batches of one kind that a crash test interrupts.
pub(crate) const KINDS: [&str; 7] =
    ["enqueue", "claim", "settle", "reap", "promote", "purge", "mixed"];

/// Opens the store on a disk.
pub(crate) fn open(disk: &Disk) -> Result<RedbStore, String> {
    let at = disk.clone();
    let opened = RedbStore::open_with("the disk", move || Ok(at.clone()));
    opened.map_err(|error| error.to_string())
}

/// Everything a store holds, as text.
pub(crate) fn dump<S: Store>(store: &S) -> Result<String, String> {
    let dump = store.reader().and_then(|mut reader| reader.dump());
    dump.map(|dump| dump.to_string()).map_err(|error| error.to_string())
}

/// What should be in the store, and the batches to come.
#[derive(Debug)]
pub(crate) struct Work {
    /// Runs along, and cannot fail.
    pub(crate) shadow: MemoryStore,
    now: Wall,
    seq: u64,
    held: Vec<LeaseToken>,
}

impl Work {
    pub(crate) fn new() -> Self {
        Self { shadow: MemoryStore::new(), now: START, seq: 0, held: Vec::new() }
    }

    /// What it would be if nothing of the latest batch had happened.
    pub(crate) fn fork(&self) -> Self {
        let shadow = self.shadow.crash_image();
        Self { shadow, now: self.now, seq: self.seq, held: self.held.clone() }
    }

    /// The next batch of a kind, and when to run it.
    pub(crate) fn batch(&mut self, kind: &str, size: usize) -> (Wall, Batch) {
        self.seq += 1;
        self.now = self.now.plus(Millis::new(10));
        let id = BatchId { process: ProcessId(1), seq: self.seq };
        let mut batch = Batch::new(id, Policy::default());
        if matches!(kind, "settle" | "mixed") {
            let held = self.held.drain(..size.min(self.held.len()));
            batch.settles.extend(held.enumerate().map(|(at, token)| settle(at, token)));
        }
        if matches!(kind, "enqueue" | "mixed") {
            batch.enqueues.extend((0..size).map(|at| new_job(self.seq, at)));
        }
        if matches!(kind, "claim" | "mixed") {
            batch.claims.push(claim(size));
        }
        if matches!(kind, "promote" | "mixed") {
            batch.figures.push(figures(self.now));
        }
        if kind == "reap" {
            self.now = self.now.plus(Millis::minutes(2));
            let all = false;
            batch.reap = Some(Reap { limit: size, after: None, all });
        }
        if kind == "promote" {
            self.now = self.now.plus(Millis::hours(2));
            batch.promote = Some(size);
        }
        if kind == "purge" {
            self.now = self.now.plus(Millis::days(3));
            let age = Some(Millis::days(1));
            let retention = Retention { done: age, failed: age, cancelled: age };
            batch.purge = Some(Purge { retention, limit: size });
        }
        (self.now, batch)
    }

    /// Runs a batch on the shadow, and says what should come of it.
    pub(crate) fn follow(&mut self, now: Wall, batch: &Batch) -> Outcomes {
        let out = self.shadow.commit(now, batch).expect("memory does not fail");
        let leased = out.claims.iter().flat_map(|claimed| &claimed.jobs);
        self.held.extend(leased.map(|leased| leased.job.token()));
        out
    }

    /// Fills a store with jobs in every state, and a worker.
    pub(crate) fn settle_in(&mut self, store: &mut RedbStore) {
        for (kind, size) in
            [("enqueue", 48), ("claim", 20), ("settle", 12), ("enqueue", 24), ("claim", 16)]
        {
            let (now, mut batch) = self.batch(kind, size);
            if kind == "settle" {
                batch.admin.extend(JobId::new(45).map(Admin::Cancel));
                batch.admin.push(Admin::SeeWorker(remote_worker()));
            }
            store.commit(now, &batch).expect("the disk is well");
            self.follow(now, &batch);
        }
        assert_eq!(dump(store), dump(&self.shadow));
    }
}

/// A worker of which everything is known.
pub(crate) fn remote_worker() -> Worker {
    let id = |name: &str| WorkerId::new(name).expect("it is a name");
    Worker {
        pid: Some(7),
        instance: Instance::new("boot/pid:[1]", 300),
        version: WorkerVersion::new("2.0").ok(),
        server: Some(id("s1")),
        ..Worker::new(id("w9"), "host", WorkerKind::Remote)
    }
}

fn new_job(seq: u64, at: usize) -> NewJob {
    let name = |text: &str| QueueName::new(text).expect("it is a name");
    let kind = Kind::new(["mail", "image"][at % 2]).expect("it is a name");
    let text = format!("{{\"batch\":{seq},\"at\":{at},\"pad\":\"{}\"}}", "x".repeat(at * 7));
    let mut new = NewJob::new(kind, Payload::new(&text).expect("it is small"));
    new.queue = name(["fast", "slow", "bulk"][at % 3]);
    new.priority = Priority::new([0, 7, -7][at % 7 % 3]).expect("it is in bounds");
    if at % 4 == 3 {
        new.when = When::At(START.plus(Millis::hours(1)));
    }
    if at.is_multiple_of(5) {
        let key = IdempotencyKey::new(&format!("key-{seq}-{at}")).expect("it is a key");
        let payload = Fingerprint::of(text.as_bytes());
        new.idempotency = Some(Idempotency { key, payload });
    }
    new
}

fn settle(at: usize, token: LeaseToken) -> Settle {
    let verdict = match at % 4 {
        0 | 1 => Verdict::Complete { result: Payload::new("\"well\"").ok() },
        2 => Verdict::Fail(Box::new(Failure::new("it broke"))),
        _ => Verdict::Fail(Box::new(Failure::new("it broke for good").permanent())),
    };
    Settle { token, verdict }
}

fn figures(now: Wall) -> SlotFigures {
    let mut figures = FigureSet::default();
    figures.count(&QueueName::default(), &Figures { done: 7, ..Figures::default() });
    SlotFigures { slot: Span::Live.slot(now), figures }
}

fn claim(max: usize) -> ClaimFor {
    let worker = WorkerId::new("w1").expect("it is a name");
    ClaimFor { demand: Demand::ALL, takers: vec![Taker { worker, max, length: None }] }
}
