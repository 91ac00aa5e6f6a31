//! What the core costs: one transition, one batch of a thousand commands on the memory store, and
//! whole lifecycles through the machine and the memory store.
//!
//! `cargo bench -p windlass-bench`; the figures are elements per second.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use windlass_core::machine::{Config, Effect, Input, Machine, Request, StoreCall};
use windlass_core::store::{Batch, ClaimFor, Outcomes, Settle, Store, Taker, Worker, WorkerKind};
use windlass_core::{
    BatchId, Claim, Demand, Event, Gate, Job, JobId, Kind, LeaseToken, Millis, Mono, NewJob, Now,
    Payload, Policy, ProcessId, QueueSettings, RequestId, Step, Verdict, Wall, WorkerId,
    transition,
};
use windlass_store_memory::MemoryStore;

const BATCH: usize = 1_000;

fn new_job() -> NewJob {
    let payload = Payload::new(&format!("\"{}\"", "x".repeat(98))).expect("it is small");
    NewJob::new(Kind::default(), payload)
}

fn worker_id() -> WorkerId {
    WorkerId::new("bench").expect("a name")
}

fn now(tick: u64) -> Now {
    Now::new(Wall::new(1_000_000).plus(Millis::new(tick)), Mono::new(tick))
}

fn transitions(criterion: &mut Criterion) {
    let new = new_job();
    let terms = new.terms(&QueueSettings::default(), &Policy::default());
    let queued = new.admit(JobId::FIRST, terms, Wall::new(0)).expect("it is admitted");
    let claim =
        Claim { worker: worker_id(), length: None, stop_grace: Millis::ZERO, gate: Gate::Open };
    let complete = Verdict::Complete { result: None };
    let step = |job: &Job, event: Event<'_>| match transition(job, event, Wall::new(1)) {
        Ok(Step::Moved(job)) => job,
        other => panic!("the job moves, not {other:?}"),
    };
    let mut group = criterion.benchmark_group("transition");
    group.throughput(Throughput::Elements(2));
    group.bench_function("claim and complete", |bencher| {
        bencher.iter(|| {
            let claimed = step(black_box(&queued), Event::Claim(&claim));
            let event = Event::Settle { epoch: claimed.epoch, verdict: &complete };
            step(&claimed, event)
        });
    });
    group.finish();
}

/// A store with this many jobs waiting.
fn stored(jobs: usize) -> MemoryStore {
    let mut store = MemoryStore::new();
    for seq in 0..jobs / BATCH {
        store.commit(Wall::new(0), &enqueues(seq as u64 + 1)).expect("it commits");
    }
    store
}

fn batch(seq: u64) -> Batch {
    Batch::new(BatchId { process: ProcessId(1), seq }, Policy::default())
}

fn enqueues(seq: u64) -> Batch {
    Batch { enqueues: vec![new_job(); BATCH], ..batch(seq) }
}

fn claims(seq: u64) -> Batch {
    let taker = Taker { worker: worker_id(), max: BATCH, length: None };
    let claim = ClaimFor { demand: Demand::ALL, takers: vec![taker] };
    Batch { claims: vec![claim], ..batch(seq) }
}

fn settles(seq: u64, claimed: &Outcomes) -> Batch {
    let tokens = claimed.claims[0].jobs.iter().map(|leased| leased.job.token());
    let settle = |token| Settle { token, verdict: Verdict::Complete { result: None } };
    Batch { settles: tokens.map(settle).collect(), ..batch(seq) }
}

fn batches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("batch of 1000 on memory");
    group.throughput(Throughput::Elements(BATCH as u64));
    for backlog in [10_000, 1_000_000] {
        let mut store = stored(backlog);
        let mut seq = 1_000_000;
        group.bench_function(
            format!("enqueue, claim and complete, {backlog} waiting"),
            |bencher| {
                bencher.iter(|| {
                    seq += 3;
                    store.commit(Wall::new(0), &enqueues(seq)).expect("it commits");
                    let claimed = store.commit(Wall::new(0), &claims(seq + 1)).expect("it commits");
                    store.commit(Wall::new(0), &settles(seq + 2, &claimed)).expect("it commits")
                });
            },
        );
    }
    group.finish();
}

/// A machine over a memory store, with handlers that end at once.
struct World {
    machine: Machine,
    store: MemoryStore,
    tick: u64,
    ended: Vec<LeaseToken>,
}

impl World {
    fn new(slots: usize) -> Self {
        let worker = Worker::new(worker_id(), "host", WorkerKind::Local);
        let machine = Machine::new(Config::new(ProcessId(1), worker, slots));
        Self { machine, store: MemoryStore::new(), tick: 0, ended: Vec::new() }
    }

    /// Enqueues jobs one by one and runs until all of them are done.
    fn run(&mut self, jobs: u64) {
        let job = new_job();
        for request in 0..jobs {
            let request = Input::Request(RequestId(request), Request::Enqueue(job.clone()));
            self.machine.handle(now(self.tick), request);
        }
        loop {
            self.tick += 1;
            let now = now(self.tick);
            for token in std::mem::take(&mut self.ended) {
                let verdict = Verdict::Complete { result: None };
                self.machine.handle(now, Input::Report { token, verdict });
            }
            let Some(call) = self.machine.poll_store(now) else { break };
            let StoreCall::Commit(batch) = call else { panic!("the store is well") };
            let result = self.store.commit(now.wall, &batch);
            self.machine.handle_committed(now, batch, result);
            while let Some(effect) = self.machine.poll_effect() {
                if let Effect::Run { run, .. } = &effect {
                    self.ended.push(run.job.token());
                }
                black_box(effect);
            }
        }
    }
}

fn lifecycles(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lifecycle through the machine");
    for (producers, slots) in [(64, 64), (1_000, 1_000), (10_000, 1_000)] {
        group.throughput(Throughput::Elements(producers));
        group.bench_function(format!("{producers} at once, {slots} slots"), |bencher| {
            bencher.iter_custom(|rounds| {
                let mut world = World::new(slots);
                world.run(producers);
                let start = clock();
                for _ in 0..rounds {
                    world.run(producers);
                }
                clock().duration_since(start)
            });
        });
    }
    group.finish();
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}

criterion_group!(benches, transitions, batches, lifecycles);
criterion_main!(benches);
