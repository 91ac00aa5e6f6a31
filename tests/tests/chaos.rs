//! The machine under arbitrary inputs: late, repeated, unknown, in any order, over a store that
//! fails in every way. It never panics, answers each request once, starts nothing twice, keeps its
//! slots and its latch, and always comes to its end.

use std::collections::BTreeSet;

use proptest::prelude::*;
use windlass_core::machine::{
    Answer, Config, Effect, Health, Input, Limits, Phase, Poll, Request, StopReason, StoreCall,
};
use windlass_core::store::{
    Admin, Cause, CommitError, DeadFilter, Heartbeat, Reader, Retention, Settle, Store, Worker,
    WorkerKind, audit,
};
use windlass_core::{
    BatchId, Delay, Epoch, Failure, Fingerprint, Gauge, Gauges, Idempotency, IdempotencyKey, JobId,
    JobTimeout, LeaseLength, LeaseToken, MaxRetries, Millis, NewJob, Payload, Policy, ProcessId,
    QueueName, Receipt, RequestId, StateName, Verdict, When, WorkerId,
};
use windlass_store_memory::{Fault, MemoryStore};
use windlass_tests::stage::{Stage, config, job, worker_named};

const SLOTS: usize = 2;

/// Something done to the machine.
#[derive(Debug, Clone)]
enum Act {
    Request(Request),
    Input(Input),
    /// One of the local runs ends, by itself or stopped.
    EndRun(usize, Option<Verdict>),
    Fault(Fault),
    Pass(u64),
    StepWall(i64),
    /// The driver takes a call and does not answer it yet.
    TakeCall,
    /// The driver answers the call it took.
    MakeCall,
    /// An answer to a call that was never made.
    StrayAnswer(u64),
}

struct Chaos {
    stage: Stage<MemoryStore>,
    held: Option<StoreCall>,
    requests: BTreeSet<RequestId>,
    gone: BTreeSet<RequestId>,
    answered: BTreeSet<RequestId>,
    started: BTreeSet<LeaseToken>,
    running: Vec<LeaseToken>,
    /// The run that ended in this act. Its stop may still be asked for: the machine looks at the
    /// clock before it takes in the end.
    ended: Option<LeaseToken>,
    slots: usize,
    asked: bool,
}

impl Chaos {
    fn new() -> Self {
        let retention = Retention { cancelled: Some(Millis::seconds(5)), ..Retention::default() };
        let limits = Limits { waiting_admin: 5, page: 2, batch: 3, tries: 2, ..Limits::default() };
        let presence = Some(Millis::seconds(5));
        let change_check = Some(Millis::seconds(1));
        let config = Config { retention, limits, presence, change_check, ..config(SLOTS) };
        Self {
            stage: Stage::with(MemoryStore::new(), config),
            held: None,
            requests: BTreeSet::new(),
            gone: BTreeSet::new(),
            answered: BTreeSet::new(),
            started: BTreeSet::new(),
            running: Vec::new(),
            ended: None,
            slots: SLOTS,
            asked: false,
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Request(request) => {
                let id = self.stage.request(request);
                self.requests.insert(id);
            }
            Act::Input(Input::Gone(id)) => {
                self.gone.insert(id);
                self.stage.input(Input::Gone(id));
            }
            Act::Input(input) => {
                if let Input::Slots(slots) = input {
                    self.slots = slots;
                }
                self.stage.input(input);
            }
            Act::EndRun(which, verdict) => self.end_run(which, verdict),
            Act::Fault(fault) => self.stage.store.fail_next(fault),
            Act::Pass(ms) if self.held.is_none() => self.stage.pass(Millis::new(ms)),
            Act::Pass(ms) => drop(self.stage.idle(Millis::new(ms))),
            Act::StepWall(by) => self.stage.step_wall(by),
            Act::TakeCall if self.held.is_none() => self.held = self.take_call(),
            Act::TakeCall => assert_eq!(self.take_call(), None, "one call at a time"),
            Act::MakeCall => self.make_call(),
            Act::StrayAnswer(seq) => self.stray_answer(seq),
        }
        self.check();
    }

    fn end_run(&mut self, which: usize, verdict: Option<Verdict>) {
        if self.running.is_empty() {
            return;
        }
        let token = self.running.remove(which % self.running.len());
        self.ended = Some(token);
        self.stage.input(match verdict {
            Some(verdict) => Input::Report { token, verdict },
            None => Input::Stopped { token, reason: None },
        });
    }

    fn take_call(&mut self) -> Option<StoreCall> {
        let latched = self.stage.machine.phase() != Phase::Running;
        let free = self.slots.saturating_sub(self.running.len());
        let call = self.stage.take_call();
        if let Some(StoreCall::Commit(batch)) = &call {
            assert!(!latched || batch.claims.is_empty(), "a claim after the latch");
            let takers = batch.claims.iter().flat_map(|claim| &claim.takers);
            let own = takers.filter(|taker| taker.worker.as_str() == "here");
            assert!(own.map(|taker| taker.max).sum::<usize>() <= free, "more than there are slots");
        }
        call
    }

    fn make_call(&mut self) {
        if let Some(call) = self.held.take().or_else(|| self.take_call()) {
            self.stage.make_call(call);
        }
    }

    fn stray_answer(&mut self, seq: u64) {
        let (now, id) = (self.stage.now, BatchId { process: ProcessId(9), seq });
        let batch = windlass_core::store::Batch::new(id, Policy::default());
        let error = CommitError::NotCommitted(Cause::new("stray"));
        let machine = &mut self.stage.machine;
        machine.handle_committed(now, batch, Err(error));
        machine.handle_was_committed(now, id, Ok(true));
    }

    fn check(&mut self) {
        let effects = self.stage.take_effects();
        let changes = effects.iter().filter_map(|effect| match effect {
            Effect::Changed { jobs, .. } => Some(jobs),
            _ => None,
        });
        let gone = changes.flatten().filter(|change| change.to.is_none());
        let removed: BTreeSet<JobId> = gone.map(|change| change.id).collect();
        for effect in effects {
            match effect {
                Effect::Reply { request, answer } => {
                    assert!(self.answered.insert(request), "{request:?} was answered twice");
                    self.check_answer(&answer, &removed);
                }
                Effect::Run { run, .. } => {
                    let token = run.job.token();
                    assert!(self.started.insert(token), "{token} was started twice");
                    self.running.push(token);
                }
                Effect::Stop { token, .. } => {
                    let runs = self.running.contains(&token) || self.ended == Some(token);
                    assert!(runs, "{token} does not run");
                }
                Effect::StopAsked => {
                    assert!(!self.asked, "it was asked to stop twice");
                    self.asked = true;
                }
                Effect::Changed { .. } | Effect::Extended { .. } => {}
            }
        }
        self.ended = None;
        assert_eq!(self.stage.machine.running(), self.running.len());
        assert!(self.running.len() <= SLOTS);
        let mut reader = self.stage.store.reader().expect("a reader");
        assert_eq!(audit(&reader.dump().expect("it dumps")), []);
        assert_eq!(self.stage.store.verify(), Vec::<String>::new());
    }

    /// Every job that was acknowledged is in what a crash now would leave, unless it is known to
    /// have been removed since. A duplicate may name a job that is gone, while its key is kept.
    fn check_answer(&self, answer: &Answer, removed: &BTreeSet<JobId>) {
        let receipts: Vec<&Receipt> = match answer {
            Answer::Enqueued(Ok(receipt)) => vec![receipt],
            Answer::EnqueuedMany(all) => all.iter().flatten().collect(),
            _ => return,
        };
        let mut reader = self.stage.store.crash_image().reader().expect("a reader");
        let dump = reader.dump().expect("it dumps");
        for Receipt { id, duplicate, .. } in receipts {
            let stored = dump.jobs.iter().any(|job| job.job.id == *id);
            let known = *duplicate && dump.keys.iter().any(|key| key.job == *id);
            let removed = removed.contains(id);
            assert!(stored || known || removed, "job {id} was acknowledged and is not stored");
        }
    }

    /// Faults off, workers obey: the machine must come to its end, and leave nothing behind.
    fn finish(mut self) {
        self.stage.store.clear_faults();
        self.act(Act::MakeCall);
        self.act(Act::Input(Input::Drain { deadline: Millis::seconds(60) }));
        for _ in 0..100 {
            if self.stage.machine.phase() == Phase::Stopped {
                break;
            }
            self.act(Act::EndRun(0, None));
            self.act(Act::MakeCall);
            self.act(Act::Pass(700));
        }
        let machine = &self.stage.machine;
        assert_eq!(machine.phase(), Phase::Stopped, "stuck:\n{}", self.stage.log());
        let unanswered: Vec<&RequestId> =
            self.requests.difference(&self.answered).filter(|id| !self.gone.contains(id)).collect();
        assert!(unanswered.is_empty(), "{unanswered:?} unanswered:\n{}", self.stage.log());
        let lost = matches!(machine.health(), Health::Lost(_));
        let left = machine.shutdown_report();
        if !lost && !left.forced {
            assert_eq!(left.left, [], "left behind:\n{}", self.stage.log());
            assert_eq!(self.held_here(), 0, "leases without a holder:\n{}", self.stage.log());
        }
    }

    /// Leases in the store that name this process's own worker.
    fn held_here(&self) -> usize {
        let mut reader = self.stage.store.reader().expect("a reader");
        let jobs = reader.dump().expect("it dumps").jobs;
        let mine = |lease: &windlass_core::Lease| lease.worker.as_str() == "here";
        jobs.iter().filter(|row| row.job.lease().is_some_and(mine)).count()
    }
}

fn any_token() -> impl Strategy<Value = LeaseToken> {
    (1_u64..6, 0_u64..4).prop_map(|(job, epoch)| LeaseToken {
        job: JobId::new(job).expect("it is not zero"),
        epoch: Epoch::new(epoch),
    })
}

fn any_verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        4 => Just(Verdict::Complete { result: None }),
        2 => Just(Verdict::Fail(Failure::new("no").into())),
        1 => Just(Verdict::Fail(Failure::new("never").permanent().into())),
        1 => Just(Verdict::Snooze { delay: Delay::new(500).expect("a delay") }),
        1 => Just(Verdict::Release),
    ]
}

fn any_job() -> impl Strategy<Value = NewJob> {
    let when = prop_oneof![
        3 => Just(When::Now),
        1 => (0_u64..3_000).prop_map(|ms| When::After(Delay::new(ms).expect("a delay"))),
    ];
    let key = prop::option::weighted(0.3, 0_u8..3);
    (when, key, 0_u32..3, prop::option::weighted(0.2, 1_u64..3_000)).prop_map(
        |(when, key, retries, timeout)| NewJob {
            when,
            idempotency: key.map(|key| Idempotency {
                key: IdempotencyKey::new(&format!("key-{key}")).expect("a key"),
                payload: Fingerprint::of(b"null"),
            }),
            max_retries: MaxRetries::new(retries).ok(),
            timeout: timeout.and_then(|ms| JobTimeout::new(ms).ok()),
            visibility_timeout: LeaseLength::new(3_000).ok(),
            ..job()
        },
    )
}

fn any_admin() -> impl Strategy<Value = Admin> {
    let id = (1_u64..6).prop_map(|id| JobId::new(id).expect("it is not zero"));
    prop_oneof![
        id.clone().prop_map(Admin::Cancel),
        id.clone().prop_map(Admin::Replay),
        id.prop_map(Admin::Delete),
        Just(Admin::pause(QueueName::default())),
        Just(Admin::Resume(QueueName::default())),
        Just(Admin::ReplayDead { filter: DeadFilter::default(), after: None, limit: 2 }),
        prop::sample::select(vec!["here", "remote-0"])
            .prop_map(|who| { Admin::StopWorker(WorkerId::new(who).expect("a name")) }),
    ]
}

fn any_request() -> impl Strategy<Value = Request> {
    let settle = || (any_token(), any_verdict());
    let settle = || settle().prop_map(|(token, verdict)| Settle { token, verdict });
    prop_oneof![
        6 => any_job().prop_map(Request::Enqueue),
        1 => prop::collection::vec(any_job(), 0..5).prop_map(Request::EnqueueMany),
        2 => settle().prop_map(Request::Settle),
        1 => prop::collection::vec(settle(), 0..3).prop_map(Request::SettleMany),
        1 => any_token().prop_map(|token| {
            Request::Heartbeat(Heartbeat { token, extend: None, progress: Some(Payload::null()) })
        }),
        2 => any_admin().prop_map(Request::Admin),
        2 => (0_u64..3_000, 0_usize..3, 0_u8..2).prop_map(|(wait, max, who)| Request::Poll(Poll {
            worker: Worker {
                slots: max,
                ..worker_named(&format!("remote-{who}"), WorkerKind::Remote)
            },
            wait: Millis::new(wait),
            length: LeaseLength::new(2_000).ok(),
        })),
    ]
}

fn any_input() -> impl Strategy<Value = Input> {
    prop_oneof![
        4 => (1_u64..30).prop_map(|id| Input::Gone(RequestId(id))),
        1 => prop::collection::vec(any_token(), 0..3).prop_map(Input::Undelivered),
        2 => any_token().prop_map(|token| Input::Progress { token, progress: Payload::null() }),
        2 => Just(Input::Changed),
        1 => Just(Input::Started),
        1 => (0_u64..9).prop_map(|queued| Input::Gauges(waiting(queued))),
        1 => Just(Input::Retention(Retention { done: Some(Millis::ZERO), ..Retention::default() })),
        2 => (0..=SLOTS).prop_map(Input::Slots),
        1 => prop::option::of((0_u64..9_000).prop_map(Millis::new)).prop_map(Input::Presence),
        1 => Just(Input::Policy(Policy { max_retries: MaxRetries::MIN, ..Policy::default() })),
        1 => (0_u64..2_000).prop_map(|ms| Input::Drain { deadline: Millis::new(ms) }),
        1 => Just(Input::Force),
    ]
}

fn waiting(queued: u64) -> Gauges {
    Gauges { all: Some(Gauge { queued, ..Gauge::default() }), ..Gauges::default() }
}

fn any_fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        4 => Just(Fault::NotCommitted),
        2 => Just(Fault::Full),
        3 => Just(Fault::UnknownCommitted),
        3 => Just(Fault::UnknownNotCommitted),
        2 => Just(Fault::FatalCommitted),
        2 => Just(Fault::FatalNotCommitted),
        2 => Just(Fault::FatalBefore),
    ]
}

fn any_step() -> impl Strategy<Value = i64> {
    prop_oneof![Just(3_600_000_i64), Just(-3_600_000), -300_i64..300]
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => any_request().prop_map(Act::Request),
        2 => any_input().prop_map(Act::Input),
        4 => (0_usize..2, prop::option::of(any_verdict())).prop_map(|(at, v)| Act::EndRun(at, v)),
        2 => any_fault().prop_map(Act::Fault),
        4 => (0_u64..4_000).prop_map(Act::Pass),
        1 => any_step().prop_map(Act::StepWall),
        4 => Just(Act::TakeCall),
        8 => Just(Act::MakeCall),
        1 => (0_u64..9).prop_map(Act::StrayAnswer),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(1_500),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_happens_the_machine_keeps_its_word_and_comes_to_its_end(
        acts in prop::collection::vec(any_act(), 1..60),
    ) {
        let mut chaos = Chaos::new();
        for act in acts {
            chaos.act(act);
        }
        chaos.finish();
    }

    #[test]
    fn a_lost_store_ends_everything_with_an_answer(
        acts in prop::collection::vec(any_act(), 1..30),
        more in prop::collection::vec(any_act(), 1..10),
    ) {
        let mut chaos = Chaos::new();
        for act in acts {
            chaos.act(act);
        }
        chaos.stage.store.clear_faults();
        chaos.stage.store.fail_next(Fault::Corrupt);
        for act in more {
            chaos.act(act);
        }
        chaos.finish();
    }
}

#[test]
fn a_run_that_ends_at_the_deadline_may_be_asked_to_stop_too() {
    let mut chaos = Chaos::new();
    chaos.act(Act::Request(Request::Enqueue(job())));
    chaos.stage.settle();
    chaos.check();
    let token = *chaos.running.first().expect("it runs");
    chaos.act(Act::Input(Input::Drain { deadline: Millis::ZERO }));
    chaos.stage.input(Input::Stopped { token, reason: None });
    let stop = Effect::Stop { token, reason: StopReason::Shutdown };
    assert!(chaos.stage.effects.contains(&stop), "{}", chaos.stage.log());
    assert_eq!(chaos.stage.machine.running(), 0);
    chaos.running.clear();
    chaos.ended = Some(token);
    chaos.finish();
}

#[test]
fn a_job_reported_by_an_unknown_worker_stays_as_it_is() {
    let mut chaos = Chaos::new();
    chaos.act(Act::Request(Request::Enqueue(job())));
    chaos.stage.settle();
    let token = LeaseToken { job: JobId::FIRST, epoch: Epoch::new(7) };
    let verdict = Verdict::Complete { result: None };
    chaos.stage.input(Input::Report { token, verdict });
    assert_eq!(chaos.stage.machine.stats().ignored, 1);
    let mut reader = chaos.stage.store.reader().expect("a reader");
    let found = reader.jobs(&[JobId::FIRST]).expect("it reads");
    let state = found[0].as_ref().map(|row| row.job.state.name());
    assert_eq!(state, Some(StateName::Processing));
}
