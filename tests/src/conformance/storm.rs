//! Random batches through several handles at once: whatever the order of the commits, no invariant
//! breaks. `PROPTEST_RNG_SEED` sets what is drawn; how the threads interleave differs in each run.

use std::collections::{BTreeMap, BTreeSet};
use std::panic;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use proptest::prelude::Rng;
use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestRng, TestRunner};
use windlass_core::store::{
    Admin, Batch, DeadFilter, Dump, Heartbeat, Outcomes, Purge, Reader, Settle, Store, audit,
};
use windlass_core::{
    BatchId, IdempotencyKey, JobId, LeaseToken, Millis, NewJob, Policy, ProcessId, QueueName,
    QueueSettings, RetryPolicy, Strategy, Verdict, View, Wall, When,
};

use crate::concurrent::ConcurrentSubject;
use crate::fixture::*;

const HANDLES: u64 = 4;
/// Batches that each handle commits.
const BATCHES: u64 = 60;

/// Has a concurrency limit that never changes; is paused and resumed.
const NARROW: &str = "narrow";
const MOST_RUNNING: usize = 3;
/// Has a limit of waiting jobs that never changes. No job of it waits again once it was claimed:
/// such a job would be taken back beyond the limit.
const BOUNDED: &str = "bounded";
const MOST_WAITING: usize = 8;
/// Has limits that change all the time.
const OPEN: &str = "open";
const QUEUES: [&str; 3] = [NARROW, BOUNDED, OPEN];

pub fn random_batches_through_four_handles_break_no_invariant<S: ConcurrentSubject>() {
    let seed = seed();
    show(seed);
    let mut world = World::<S>::new();
    world.admin(set(NARROW, Some(MOST_RUNNING), None)).expect("a limit can be set");
    world.admin(set(BOUNDED, None, Some(MOST_WAITING))).expect("a limit can be set");
    let clock = Arc::new(AtomicI64::new(world.now().get()));
    let known = Arc::new(Mutex::new(Known::default()));
    let start = |number: u64| {
        let mut client = Client {
            store: world.handle(),
            process: ProcessId(10 + number),
            seq: 0,
            rng: rng(seed, number),
            clock: Arc::clone(&clock),
            known: Arc::clone(&known),
        };
        thread::spawn(move || client.run())
    };
    let threads: Vec<_> = (0..HANDLES).map(start).collect();
    for thread in threads {
        thread.join().unwrap_or_else(|panicked| panic::resume_unwind(panicked));
    }
    world.check();
    lock(&known).check(&world.dump());
}

/// What is given, else a drawn one.
fn seed() -> u64 {
    let config = Config::default();
    match config.rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => TestRunner::new(config).rng().next_u64(),
    }
}

#[expect(clippy::print_stdout, reason = "shown with a test that fails")]
fn show(seed: u64) {
    println!("PROPTEST_RNG_SEED={seed}");
}

/// The random numbers of one handle.
fn rng(seed: u64, handle: u64) -> TestRng {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..16].copy_from_slice(&handle.to_le_bytes());
    TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)
}

/// What all handles were answered.
#[derive(Debug, Default)]
struct Known {
    /// Every job that was acknowledged, with its queue.
    jobs: BTreeMap<JobId, QueueName>,
    removed: BTreeSet<JobId>,
    keys: BTreeMap<IdempotencyKey, JobId>,
    /// Every token, with the verdict that was accepted.
    tokens: BTreeMap<LeaseToken, Option<Verdict>>,
}

impl Known {
    fn learn(&mut self, batch: &Batch, out: &Outcomes) {
        for (new, result) in batch.enqueues.iter().zip(&out.enqueues) {
            let Ok(receipt) = result else { continue };
            let made = !receipt.duplicate;
            if made {
                let again = self.jobs.insert(receipt.id, new.queue.clone());
                assert_eq!(again, None, "id {} was given out twice", receipt.id);
            }
            if let Some(idempotency) = &new.idempotency {
                let key = &idempotency.key;
                let id = *self.keys.entry(key.clone()).or_insert(receipt.id);
                assert_eq!(id, receipt.id, "key {key} made two jobs");
            }
        }
        for leased in out.claims.iter().flat_map(|claimed| &claimed.jobs) {
            let token = leased.job.token();
            let again = self.tokens.insert(token, None);
            assert_eq!(again, None, "token {token:?} was given out twice");
        }
        for (settle, result) in batch.settles.iter().zip(&out.settles) {
            if result.is_err() {
                continue;
            }
            let accepted = self.tokens.entry(settle.token).or_default();
            let accepted = accepted.get_or_insert_with(|| settle.verdict.clone());
            assert_eq!(*accepted, settle.verdict, "{:?} had two verdicts", settle.token);
        }
        let removed = out.changes.iter().filter(|change| change.to.is_none());
        self.removed.extend(removed.map(|change| change.id));
    }

    /// Compares it with what is stored in the end.
    fn check(&self, dump: &Dump) {
        assert!(!self.tokens.is_empty() && !self.removed.is_empty(), "nothing has happened");
        let stored: BTreeSet<JobId> = dump.jobs.iter().map(|row| row.job.id).collect();
        for id in self.jobs.keys() {
            let removed = self.removed.contains(id);
            assert!(stored.contains(id) != removed, "job {id} was lost, or came back");
        }
        for job in dump.jobs.iter().map(|row| &row.job) {
            if self.jobs.contains_key(&job.id) {
                let claims = self.tokens.keys().filter(|token| token.job == job.id).count() as u64;
                assert_eq!(job.epoch.get(), claims, "job {}: one epoch per claim", job.id);
            }
        }
        for record in &dump.keys {
            let known = self.keys.get(&record.key);
            assert!(known.is_none_or(|id| *id == record.job), "key {} names another", record.key);
        }
    }
}

/// One handle with its thread.
struct Client<H> {
    store: H,
    process: ProcessId,
    seq: u64,
    rng: TestRng,
    clock: Arc<AtomicI64>,
    known: Arc<Mutex<Known>>,
}

impl<H: Store> Client<H> {
    fn run(&mut self) {
        for _ in 0..BATCHES {
            let batch = self.batch();
            let step = i64::try_from(self.below(40)).unwrap_or(0);
            let now = Wall::new(self.clock.fetch_add(step, Ordering::Relaxed));
            let out = self.store.commit(now, &batch);
            let out = out.expect("a commit that meets others is not a failure");
            lock(&self.known).learn(&batch, &out);
            let dump = self.store.reader().and_then(|mut reader| reader.dump());
            check_snapshot(&dump.expect("a healthy store can be dumped"));
        }
    }

    fn batch(&mut self) -> Batch {
        self.seq += 1;
        let id = BatchId { process: self.process, seq: self.seq };
        let window = Policy { idempotency_window: Millis::days(1), ..Policy::default() };
        let mut batch = Batch::new(id, window);
        for _ in 0..=self.below(3) {
            self.add_command(&mut batch);
        }
        batch
    }

    fn add_command(&mut self, batch: &mut Batch) {
        match self.below(13) {
            0..3 => batch.enqueues.push(self.new_job()),
            3..6 => {
                let names = [&QUEUES[self.below(3)..][..1], &QUEUES].map(<[_]>::to_vec);
                let demand = work_of_queues(&names[self.below(2)]);
                batch.claims.push(claim_for(demand, "w1", 1 + self.below(3)));
            }
            6..8 => batch.settles.extend(self.settle()),
            8 => {
                let token = self.token();
                let heartbeat = |token| Heartbeat { token, extend: None, progress: None };
                batch.heartbeats.extend(token.map(|(token, _)| heartbeat(token)));
            }
            9 => batch.admin.extend(self.on_a_job()),
            10 => batch.admin.push(self.on_a_queue()),
            11 => batch.reap = Some(reap_up_to(5)),
            _ => {
                batch.promote = Some(5);
                batch.purge = Some(Purge { retention: keep_all_for(Millis::new(500)), limit: 3 });
            }
        }
    }

    fn new_job(&mut self) -> NewJob {
        let name = QUEUES[self.below(3)];
        let wait = Millis::new(100);
        let retry = RetryPolicy::new(Strategy::Fixed, wait, wait, 0);
        let visibility = if name == BOUNDED { Millis::hours(10) } else { Millis::seconds(1) };
        let new = NewJob {
            retry: Some(retry.expect("a tenth of a second is a fine wait")),
            visibility_timeout: Some(lease(visibility)),
            ..work_in(name)
        };
        match self.below(4) {
            0 => keyed(&format!("{name}-{}", self.below(10)), new),
            1 => NewJob { when: When::After(delay(wait)), ..new },
            _ => new,
        }
    }

    /// A verdict on any token, given already or not.
    fn settle(&mut self) -> Option<Settle> {
        let (token, queue_name) = self.token()?;
        let verdict = match self.below(4) {
            0 if queue_name != queue(BOUNDED) => fail("x"),
            1 if queue_name != queue(BOUNDED) => fail_for_good("x"),
            2 if queue_name != queue(BOUNDED) => Verdict::Release,
            _ => complete(),
        };
        Some(Settle { token, verdict })
    }

    /// Mostly one of the latest tokens, with the queue of its job.
    fn token(&mut self) -> Option<(LeaseToken, QueueName)> {
        let back = self.below(12);
        let known = lock(&self.known);
        let token = *known.tokens.keys().rev().nth(back)?;
        Some((token, known.jobs.get(&token.job)?.clone()))
    }

    fn on_a_job(&mut self) -> Option<Admin> {
        let (back, what) = (self.below(20), self.below(4));
        let known = lock(&self.known);
        let (id, name) = known.jobs.iter().rev().nth(back)?;
        Some(match what {
            0 => Admin::Delete(*id),
            1 if *name != queue(BOUNDED) => Admin::Replay(*id),
            _ => Admin::Cancel(*id),
        })
    }

    fn on_a_queue(&mut self) -> Admin {
        let limit = [None, Some(2), Some(10)][self.below(3)];
        match self.below(6) {
            0 => Admin::pause(queue(NARROW)),
            1 | 2 => Admin::Resume(queue(NARROW)),
            3 => set(OPEN, limit, None),
            4 => set(OPEN, None, limit),
            _ => {
                let name = [NARROW, OPEN][self.below(2)];
                let filter = DeadFilter { queue: Some(queue(name)), ..DeadFilter::default() };
                Admin::ReplayDead { filter, after: None, limit: 3 }
            }
        }
    }

    fn below(&mut self, end: u64) -> usize {
        usize::try_from(self.rng.next_u64() % end).unwrap_or(0)
    }
}

/// What holds in every committed state.
fn check_snapshot(dump: &Dump) {
    let found = audit(dump);
    assert!(found.is_empty(), "the store contradicts itself: {found:#?}\n{dump}");
    let count = |name: &str, views: &[View]| {
        let jobs = dump.jobs.iter().map(|row| &row.job);
        jobs.filter(|job| job.queue == queue(name) && views.contains(&job.state.view())).count()
    };
    let running = count(NARROW, &[View::Processing]);
    assert!(running <= MOST_RUNNING, "{running} jobs run in a queue of {MOST_RUNNING}");
    let waiting = count(BOUNDED, &[View::Queued, View::Scheduled]);
    assert!(waiting <= MOST_WAITING, "{waiting} jobs wait in a queue of {MOST_WAITING}");
}

fn set(name: &str, running: Option<usize>, waiting: Option<usize>) -> Admin {
    let concurrency = running.map(|most| max_running(u32::try_from(most).unwrap_or(1)));
    let max_queued = waiting.map(|most| max_queued(most as u64));
    let settings = QueueSettings { concurrency, max_queued, ..QueueSettings::default() };
    Admin::set_queue(queue(name), settings)
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}
