//! Random traces: few names, tiny limits and short times, so that commands meet each other.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use windlass_core::bulk::Action;
use windlass_core::limits::{ERROR_GROUPS, QUEUES};
use windlass_core::store::{
    ClaimFor, DeadFilter, ExpectedSetting, Instance, Purge, Retention, Taker, Worker, WorkerKind,
};
use windlass_core::{Aging, Flow, KindConcurrency, KindLimits, Rate};
use windlass_core::{
    Delay, Demand, Excerpt, Failure, FailureKind, Fingerprint, Idempotency, IdempotencyKey,
    JobTimeout, Kind, Kinds, LeaseLength, MaxQueued, MaxRetries, MaxRunning, Millis, NewJob,
    Payload, Policy, Priority, QueueName, QueueSettings, Queues, RetryPolicy, SettingKey,
    SettingValue, Strategy as Growth, Verdict, View, Wall, When, WorkerId, WorkerVersion,
};
use windlass_core::{ErrorGroup, ErrorText, GroupId};

use super::START;
use super::bulk::BulkPlan;
use super::plan::{
    AdminPlan, EnqueuePlan, Expected, HeartbeatPlan, Pick, ReapPlan, SettlePlan, Step, TokenPlan,
    Trace, Variation,
};

const IN_RANGE: &str = "the generator stays within bounds";
const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// Random traces of up to 14 batches.
pub fn trace() -> impl Strategy<Value = Trace> {
    (policy(), vec(step(), 1..=14)).prop_map(|(policy, steps)| Trace { policy, steps })
}

/// One job that fails a hundred times: more attempts than are kept.
pub fn grinding_trace() -> Trace {
    let policy = Policy { max_retries: MaxRetries::MAX, ..Policy::default() };
    let failure = Failure { retry_in: Some(Delay::MIN), ..Failure::new("again") };
    let settle = SettlePlan {
        job: Pick::Id(1),
        token: TokenPlan::Latest,
        verdict: Verdict::Fail(Box::new(failure)),
        twice: false,
    };
    let taker = Taker { worker: worker_id("w1"), max: 1, length: None };
    let claim = ClaimFor { demand: Demand::ALL, takers: vec![taker] };
    let new = NewJob::new(Kind::default(), Payload::null());
    let first = Step {
        enqueues: vec![EnqueuePlan::New(new)],
        claims: vec![claim.clone()],
        ..Step::default()
    };
    let again =
        Step { clock_ms: 10, settles: vec![settle], claims: vec![claim], ..Step::default() };
    let steps = std::iter::once(first).chain(std::iter::repeat_n(again, 100)).collect();
    Trace { policy, steps }
}

fn policy() -> impl Strategy<Value = Policy> {
    let limits = (select(vec![2, QUEUES]), select(vec![2, ERROR_GROUPS]));
    let window = select(vec![0_u64, 5_000, 60_000]);
    (0..=2_u32, window, retry(), lease_length(), limits).prop_map(
        |(retries, window, retry, visibility_timeout, (max_queues, max_error_groups))| Policy {
            max_retries: MaxRetries::new(retries).expect(IN_RANGE),
            timeout: None,
            visibility_timeout,
            retry,
            idempotency_window: Millis::new(window),
            max_queues,
            max_error_groups,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let reports = (vec(settle(), 0..=3), vec(heartbeat(), 0..=2), admins());
    let sweeps = (
        option::weighted(0.5, reap()),
        option::weighted(0.6, 1..=3_usize),
        option::weighted(0.25, purge()),
        option::weighted(0.2, 1..=3_usize),
    );
    let ends = (vec(claim(), 0..=2), any::<bool>(), option::weighted(0.6, 0..=3_usize));
    (clock(), 1..=2_u64, reports, enqueues(), sweeps, ends).prop_map(
        |(clock_ms, process, reports, enqueues, sweeps, (claims, figures, bulk))| {
            let (settles, heartbeats, admin) = reports;
            let (reap, promote, purge, queue_sweep) = sweeps;
            Step {
                clock_ms,
                process,
                settles,
                heartbeats,
                admin,
                bulk,
                enqueues,
                reap,
                promote,
                purge,
                queue_sweep,
                claims,
                figures,
            }
        },
    )
}

/// Mostly small steps, often just as long as something lasts; some back, a few far.
fn clock() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => Just(0_i64),
        4 => 1..500_i64,
        4 => select(vec![1_i64, 500, 1_000, 2_500, 3_000, 5_000, 10_000, 30_000]),
        4 => 1_000..6_000_i64,
        2 => 20_000..120_000_i64,
        2 => -6_000..0_i64,
        1 => select(vec![2 * DAY_MS, 4_000 * DAY_MS, -DAY_MS]),
    ]
}

fn pick() -> impl Strategy<Value = Pick> {
    prop_oneof![
        2 => (1..=8_u64).prop_map(Pick::Id),
        2 => (0..3_usize).prop_map(Pick::Running),
        1 => (0..3_usize).prop_map(Pick::Dead),
        1 => (0..2_usize).prop_map(Pick::Cancelled),
        1 => (0..3_usize).prop_map(Pick::Finished),
    ]
}

fn token() -> impl Strategy<Value = TokenPlan> {
    prop_oneof![
        8 => Just(TokenPlan::Latest),
        2 => (1..=2_u64).prop_map(TokenPlan::Older),
        1 => Just(TokenPlan::Invented),
    ]
}

fn running() -> impl Strategy<Value = Pick> {
    prop_oneof![3 => (0..3_usize).prop_map(Pick::Running), 2 => pick()]
}

fn settle() -> impl Strategy<Value = SettlePlan> {
    (running(), token(), verdict(), prop::bool::weighted(0.15))
        .prop_map(|(job, token, verdict, twice)| SettlePlan { job, token, verdict, twice })
}

fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        3 => option::of(payload()).prop_map(|result| Verdict::Complete { result }),
        5 => failure().prop_map(|failure| Verdict::Fail(Box::new(failure))),
        1 => delay().prop_map(|delay| Verdict::Snooze { delay }),
        1 => Just(Verdict::Release),
    ]
}

fn failure() -> impl Strategy<Value = Failure> {
    let kinds = select(vec![FailureKind::Failed, FailureKind::TimedOut, FailureKind::Panicked]);
    let retry_in = option::weighted(0.2, delay());
    (
        kinds,
        select(vec!["refused", "gone", "no room for 12", ""]),
        any::<bool>(),
        retry_in,
        option::of(0..3_i32),
    )
        .prop_map(|(kind, error, retryable, retry_in, exit_code)| Failure {
            kind,
            retryable,
            retry_in,
            exit_code,
            stdout: exit_code.map(|_| Excerpt::tail("some output", 6)),
            stderr: exit_code.map(|_| Excerpt::tail("", 6)),
            ..Failure::new(error)
        })
}

fn heartbeat() -> impl Strategy<Value = HeartbeatPlan> {
    (running(), token(), option::weighted(0.3, lease_length()), option::weighted(0.3, payload()))
        .prop_map(|(job, token, extend, progress)| HeartbeatPlan { job, token, extend, progress })
}

/// Commands on any jobs, or several on one and the same.
fn admins() -> impl Strategy<Value = Vec<AdminPlan>> {
    prop_oneof![4 => vec(admin(), 0..=3), 1 => pick().prop_flat_map(admins_on)]
}

fn admins_on(job: Pick) -> impl Strategy<Value = Vec<AdminPlan>> {
    let all = DeadFilter::default();
    let one = prop_oneof![
        3 => Just(AdminPlan::Cancel(job)),
        3 => Just(AdminPlan::Replay(job)),
        1 => Just(AdminPlan::Delete(job)),
        2 => Just(AdminPlan::ReplayDead { filter: all.clone(), on: false, limit: 2 }),
        1 => Just(AdminPlan::DiscardDead { filter: all, limit: 2 }),
    ];
    vec(one, 2..=4)
}

fn admin() -> impl Strategy<Value = AdminPlan> {
    let setting = || SettingKey::new("s").expect(IN_RANGE);
    let value = || {
        let text = option::of(select(vec!["1", "2"]));
        text.prop_map(|text| text.map(|text| SettingValue::new(text).expect(IN_RANGE)))
    };
    let before = prop_oneof![
        1 => Just(ExpectedSetting::Any),
        2 => value().prop_map(ExpectedSetting::Exactly),
    ];
    prop_oneof![
        4 => pick().prop_map(AdminPlan::Cancel),
        4 => pick().prop_map(AdminPlan::Replay),
        3 => pick().prop_map(AdminPlan::Delete),
        3 => replay_dead(),
        1 => replay_dead().prop_map(discarded),
        1 => (queue(), option::of(select(vec!["ops", "a\0b"])))
            .prop_map(|(queue, by)| AdminPlan::Pause(queue, by.map(Into::into))),
        1 => queue().prop_map(AdminPlan::Resume),
        3 => (queue(), settings(), expected()).prop_map(|(queue, set, expected)| {
            AdminPlan::SetQueue(queue, set, expected)
        }),
        2 => queue().prop_map(AdminPlan::DeleteQueue),
        2 => (value(), before).prop_map(move |(value, expected)| {
            AdminPlan::SetSetting(setting(), value, expected)
        }),
        1 => worker().prop_map(AdminPlan::SeeWorker),
        1 => worker().prop_map(|worker| AdminPlan::RemoveWorker(worker.id)),
        1 => worker().prop_map(|worker| AdminPlan::StopWorker(worker.id)),
        1 => worker().prop_map(|worker| AdminPlan::LookAtWorker(worker.id)),
        5 => bulk().prop_map(AdminPlan::Bulk),
    ]
}

fn bulk() -> impl Strategy<Value = BulkPlan> {
    let views = option::weighted(0.8, select(View::ALL.to_vec()));
    let retry = (Just(Action::Retry), Just(Some(View::Failed)));
    let any = (select(Action::ALL.to_vec()), views);
    let what = prop_oneof![2 => retry, 1 => any];
    let bounds = (option::weighted(0.2, 1..=3_u64), option::weighted(0.6, 1..=2_u32));
    let searched = (vec(queue(), 0..=2), 0..=2_u32);
    let start = (what, option::weighted(0.2, queue()), option::weighted(0.3, searched), bounds);
    let start = start.prop_map(|((action, view), queue, searched, bounds)| BulkPlan::Start {
        action,
        view,
        queue,
        searched,
        most: bounds.0,
        canary: bounds.1,
    });
    let stop = (1..=3_u32).prop_map(BulkPlan::Stop);
    prop_oneof![4 => start, 2 => Just(BulkPlan::Continue), 1 => stop]
}

fn replay_dead() -> impl Strategy<Value = AdminPlan> {
    let text = option::weighted(0.3, select(vec!["refused", "lease"]));
    let filter = (option::weighted(0.3, queue()), option::weighted(0.3, kind()), text, group());
    (filter, any::<bool>(), 1..=2_usize).prop_map(|((queue, kind, text, group), on, limit)| {
        let error_contains = text.map(str::to_owned);
        let filter = DeadFilter { queue, kind, group, error_contains };
        AdminPlan::ReplayDead { filter, on, limit }
    })
}

/// The error group of some failures of a kind.
fn group() -> impl Strategy<Value = Option<GroupId>> {
    let text = ErrorText::of_message;
    let texts = select(vec![Some("refused"), Some("gone"), None]);
    let group = (kind(), texts).prop_map(move |(kind, error)| match error {
        Some(error) => ErrorGroup::of(&kind, &text(error)).id,
        None => ErrorGroup::other(&kind).id,
    });
    option::weighted(0.3, group)
}

/// The same dead letters, but they are not wanted any more.
fn discarded(plan: AdminPlan) -> AdminPlan {
    match plan {
        AdminPlan::ReplayDead { filter, limit, .. } => AdminPlan::DiscardDead { filter, limit },
        other => other,
    }
}

fn expected() -> impl Strategy<Value = Option<Expected>> {
    let these = settings().prop_map(Expected::These);
    option::weighted(0.4, prop_oneof![2 => Just(Expected::Stored), 1 => these])
}

fn settings() -> impl Strategy<Value = QueueSettings> {
    let limits = (option::of(1..=3_u64), option::of(1..=2_u32));
    let defaults = (
        option::weighted(0.2, lease_length()),
        option::weighted(0.2, 0..=1_u32),
        option::weighted(0.2, timeout()),
        option::weighted(0.2, retry()),
    );
    (limits, defaults, flow()).prop_map(|((most_queued, most_running), defaults, flow)| {
        let (visibility_timeout, retries, timeout, retry) = defaults;
        QueueSettings {
            max_queued: most_queued.map(|most| MaxQueued::new(most).expect(IN_RANGE)),
            concurrency: most_running.map(|most| MaxRunning::new(most).expect(IN_RANGE)),
            visibility_timeout,
            max_retries: retries.map(|retries| MaxRetries::new(retries).expect(IN_RANGE)),
            timeout,
            retry,
            flow,
        }
    })
}

/// Mostly none. The clock of a trace moves by milliseconds and seconds.
fn flow() -> impl Strategy<Value = Flow> {
    let aging = option::weighted(0.4, select(vec![1_u64, 500]));
    let some = (aging, option::weighted(0.5, rate()), vec((0..2_usize, kind_limits()), 0..=2));
    let some = some.prop_map(|(aging, rate, kinds)| {
        let kinds: BTreeMap<Kind, KindLimits> = kinds
            .into_iter()
            .map(|(at, limits)| (Kind::new(["x", "y"][at]).expect(IN_RANGE), limits))
            .filter(|(_, limits)| !limits.is_empty())
            .collect();
        let aging = aging.map(|aging| Aging::new(aging).expect(IN_RANGE));
        Flow { aging, rate, kinds: kinds.into_iter().collect() }
    });
    prop_oneof![2 => Just(Flow::NONE), 1 => some]
}

fn kind_limits() -> impl Strategy<Value = KindLimits> {
    let concurrency =
        option::of((0..=2_u32).prop_map(|most| KindConcurrency::new(most).expect(IN_RANGE)));
    (concurrency, option::weighted(0.4, rate()))
        .prop_map(|(concurrency, rate)| KindLimits { concurrency, rate })
}

fn rate() -> impl Strategy<Value = Rate> {
    let numbers = select(vec![(1, 2), (3, 1_000), (1, 1_000), (1_000, 1_000)]);
    (numbers, option::of(1..=2_u32))
        .prop_map(|((limit, per), burst)| Rate::new(limit, per, burst).expect(IN_RANGE))
}

/// Mostly a few at a time, now and then many.
fn enqueues() -> impl Strategy<Value = Vec<EnqueuePlan>> {
    prop_oneof![9 => vec(enqueue(), 0..=3), 1 => vec(enqueue(), 4..=9)]
}

fn enqueue() -> impl Strategy<Value = EnqueuePlan> {
    prop_oneof![
        5 => new_job().prop_map(EnqueuePlan::New),
        1 => (0..3_usize, variation())
            .prop_map(|(nth, variation)| EnqueuePlan::Again { nth, variation }),
    ]
}

fn variation() -> impl Strategy<Value = Variation> {
    prop_oneof![
        8 => Just(Variation::Nothing),
        2 => payload().prop_map(Variation::Spelling),
        1 => Just(Variation::Meaning(Fingerprint(3))),
        1 => queue().prop_map(Variation::Queue),
        1 => kind().prop_map(Variation::Kind),
        1 => Just(Variation::Priority(Priority::MAX)),
        1 => when().prop_map(Variation::When),
        1 => (0..=2_u32).prop_map(|n| Variation::Retries(MaxRetries::new(n).expect(IN_RANGE))),
        1 => timeout().prop_map(Variation::Timeout),
        1 => lease_length().prop_map(Variation::Visibility),
        1 => retry().prop_map(Variation::Retry),
    ]
}

fn new_job() -> impl Strategy<Value = NewJob> {
    let what = (queue(), kind(), payload_with_meaning());
    let options = (
        option::weighted(0.3, 0..=2_u32),
        option::weighted(0.1, timeout()),
        option::weighted(0.3, lease_length()),
        option::weighted(0.2, retry()),
    );
    let key = option::weighted(0.4, select(vec!["k1", "k2", "k3"]));
    (what, select(vec![0_i16, 1, -1]), when(), options, key, any::<bool>()).prop_map(
        |((queue, kind, (payload, meaning)), priority, when, options, key, echo)| {
            let (retries, timeout, visibility_timeout, retry) = options;
            NewJob {
                queue,
                kind,
                payload,
                priority: Priority::new(priority).expect(IN_RANGE),
                when,
                max_retries: retries.map(|retries| MaxRetries::new(retries).expect(IN_RANGE)),
                timeout,
                visibility_timeout,
                retry,
                idempotency: key.map(|key| Idempotency {
                    key: IdempotencyKey::new(key).expect(IN_RANGE),
                    payload: meaning,
                }),
                echo,
            }
        },
    )
}

/// The same JSON in two spellings, and another one.
fn payload_with_meaning() -> impl Strategy<Value = (Payload, Fingerprint)> {
    let texts = vec![(r#"{"a":1,"b":2}"#, 1_u128), (r#"{"b": 2, "a": 1}"#, 1), ("[3]", 2)];
    select(texts)
        .prop_map(|(text, meaning)| (Payload::new(text).expect(IN_RANGE), Fingerprint(meaning)))
}

fn payload() -> impl Strategy<Value = Payload> {
    select(vec!["1", "[2]"]).prop_map(|text| Payload::new(text).expect(IN_RANGE))
}

fn when() -> impl Strategy<Value = When> {
    prop_oneof![
        6 => Just(When::Now),
        3 => delay().prop_map(When::After),
        2 => (-20_000..100_000_i64).prop_map(|off| When::At(Wall::new(START.get() + off))),
        1 => Just(When::At(Wall::MAX)),
    ]
}

fn delay() -> impl Strategy<Value = Delay> {
    select(vec![0_u64, 1, 500, 3_000, 30_000]).prop_map(|ms| Delay::new(ms).expect(IN_RANGE))
}

fn timeout() -> impl Strategy<Value = JobTimeout> {
    select(vec![1_u64, 1_000]).prop_map(|ms| JobTimeout::new(ms).expect(IN_RANGE))
}

fn lease_length() -> impl Strategy<Value = LeaseLength> {
    select(vec![1_000_u64, 2_500, 10_000]).prop_map(|ms| LeaseLength::new(ms).expect(IN_RANGE))
}

fn retry() -> impl Strategy<Value = RetryPolicy> {
    let growth = select(vec![
        Growth::Fixed,
        Growth::Linear,
        Growth::Exponential { factor: 1_000 },
        Growth::Exponential { factor: 1_700 },
        Growth::Exponential { factor: 3_000 },
    ]);
    let initial = select(vec![0_u64, 1, 700, 2_000]);
    let cap = select(vec![0_u64, 1_500, 60_000]);
    let jitter = select(vec![0_u32, 250, 1_000]);
    (growth, initial, cap, jitter).prop_map(|(growth, initial, cap, jitter)| {
        let made = RetryPolicy::new(growth, Millis::new(initial), Millis::new(cap), jitter);
        made.expect(IN_RANGE)
    })
}

fn reap() -> impl Strategy<Value = ReapPlan> {
    let off = option::weighted(0.2, select(vec![0_i64, 1_000, -1_001, 1_001, i64::MAX]));
    let trusted = option::weighted(0.2, select(vec![0_i64, 1_000, 2_500]));
    let all = prop::bool::weighted(0.3);
    let parts = (1..=3_usize, any::<bool>(), all, off, trusted);
    parts.prop_map(|(limit, on, all, off_ms, trusted_for_ms)| ReapPlan {
        limit,
        on,
        all,
        off_ms,
        trusted_for_ms,
    })
}

fn purge() -> impl Strategy<Value = Purge> {
    let age = || option::of(select(vec![0_u64, 1_000, 10_000]).prop_map(Millis::new));
    (age(), age(), age(), 1..=2_usize).prop_map(|(done, failed, cancelled, limit)| Purge {
        retention: Retention { done, failed, cancelled },
        limit,
    })
}

fn claim() -> impl Strategy<Value = ClaimFor> {
    let taker = (select(vec!["w1", "w2"]), 0..=3_usize, option::weighted(0.2, lease_length()));
    let taker =
        taker.prop_map(|(worker, max, length)| Taker { worker: worker_id(worker), max, length });
    (demand(), vec(taker, 1..=2)).prop_map(|(demand, takers)| ClaimFor { demand, takers })
}

fn demand() -> impl Strategy<Value = Demand> {
    let queues = prop_oneof![
        2 => Just(Queues::All),
        1 => vec(queue(), 1..=2).prop_map(Queues::only),
    ];
    let kinds = prop_oneof![
        3 => Just(Kinds::All),
        1 => kind().prop_map(|kind| Kinds::only(vec![kind])),
        1 => kind().prop_map(|kind| Kinds::except(vec![kind])),
    ];
    (queues, kinds).prop_map(|(queues, kinds)| Demand { queues, kinds })
}

fn queue() -> impl Strategy<Value = QueueName> {
    select(vec!["a", "b", "c"]).prop_map(|name| QueueName::new(name).expect(IN_RANGE))
}

fn kind() -> impl Strategy<Value = Kind> {
    select(vec!["x", "y"]).prop_map(|name| Kind::new(name).expect(IN_RANGE))
}

fn worker() -> impl Strategy<Value = Worker> {
    let id = select(vec!["w1", "w2", "w3"]);
    (id, option::of(1..3_u32), demand(), 0..3_usize).prop_map(|(id, pid, demand, slots)| Worker {
        pid,
        instance: pid.and_then(|pid| Instance::new("boot", pid.into())),
        version: (slots > 0).then(|| WorkerVersion::new(&format!("{slots}.0")).expect(IN_RANGE)),
        server: pid.map(|pid| worker_id(&format!("w{pid}"))),
        demand,
        slots,
        ..Worker::new(worker_id(id), "host", WorkerKind::Local)
    })
}

fn worker_id(name: &str) -> WorkerId {
    WorkerId::new(name).expect(IN_RANGE)
}
