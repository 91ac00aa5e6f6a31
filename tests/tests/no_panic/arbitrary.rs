//! Arbitrary values of the core's types, the extremes among them.

use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use windlass_core::GroupId;
use windlass_core::{
    Claim, Delay, Epoch, Excerpt, Failure, FailureKind, Gate, Job, JobId, JobTimeout, Kind,
    LastVerdict, Lease, LeaseLength, MaxRetries, Millis, Payload, Priority, QueueName, Rank,
    RetryPolicy, State, Strategy as Growth, Verdict, Wall, WorkerId,
};

const IN_RANGE: &str = "the generator stays within bounds";

/// This number of cases, unless the environment says otherwise; what fails is pinned as its own
/// test, not in a file of seeds. Some tests pass over a part of their cases: the more, the longer
/// they run.
pub(crate) fn config(cases: u32) -> ProptestConfig {
    let max_global_rejects = 1_000_000;
    let failure_persistence = None;
    ProptestConfig { cases, max_global_rejects, failure_persistence, ..ProptestConfig::default() }
}

/// Any instant, mostly near enough to others to matter.
pub(crate) fn wall() -> impl Strategy<Value = Wall> {
    prop_oneof![
        4 => (-3_i64..100_000).prop_map(Wall::new),
        1 => any::<i64>().prop_map(Wall::new),
        1 => select(vec![i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX])
            .prop_map(Wall::new),
    ]
}

pub(crate) fn millis() -> impl Strategy<Value = Millis> {
    prop_oneof![
        any::<u64>().prop_map(Millis::new),
        select(vec![0, 1, u64::MAX - 1, u64::MAX]).prop_map(Millis::new),
    ]
}

pub(crate) fn epoch() -> impl Strategy<Value = Epoch> {
    prop_oneof![
        4 => (0..4_u64).prop_map(Epoch::new),
        1 => select(vec![u64::MAX - 1, u64::MAX]).prop_map(Epoch::new),
    ]
}

pub(crate) fn job_id() -> impl Strategy<Value = JobId> {
    (1..=i64::MAX.unsigned_abs()).prop_map(|number| JobId::new(number).expect(IN_RANGE))
}

pub(crate) fn growth() -> impl Strategy<Value = Growth> {
    prop_oneof![
        Just(Growth::Fixed),
        Just(Growth::Linear),
        (1_000..=100_000_u32).prop_map(|factor| Growth::Exponential { factor }),
        select(vec![1_000, 1_001, 100_000]).prop_map(|factor| Growth::Exponential { factor }),
    ]
}

pub(crate) fn retry() -> impl Strategy<Value = RetryPolicy> {
    let year = 365 * 24 * 60 * 60 * 1_000_u64;
    let length = move || {
        let some = prop_oneof![0..100_000_u64, 0..=year, select(vec![0, 1, year])];
        some.prop_map(Millis::new)
    };
    let jitter = prop_oneof![0..=1_000_u32, select(vec![0, 1_000])];
    (growth(), length(), length(), jitter).prop_map(|(growth, initial, cap, jitter)| {
        RetryPolicy::new(growth, initial, cap, jitter).expect(IN_RANGE)
    })
}

pub(crate) fn delay() -> impl Strategy<Value = Delay> {
    let some = prop_oneof![0..100_000_u64, Just(Delay::MAX.get())];
    some.prop_map(|ms| Delay::new(ms).expect(IN_RANGE))
}

pub(crate) fn lease_length() -> impl Strategy<Value = LeaseLength> {
    let some = prop_oneof![1_000..60_000_u64, Just(LeaseLength::MAX.get())];
    some.prop_map(|ms| LeaseLength::new(ms).expect(IN_RANGE))
}

fn last_verdict() -> impl Strategy<Value = Option<LastVerdict>> {
    option::of(select(LastVerdict::ALL.to_vec()))
}

fn state() -> impl Strategy<Value = State> {
    let lease = (wall(), lease_length());
    let worker = WorkerId::new("worker").expect(IN_RANGE);
    prop_oneof![
        3 => (any::<bool>(), last_verdict()).prop_map(|(ready, last_verdict)| {
            State::Queued { ready, last_verdict }
        }),
        3 => lease.prop_map(move |(until, length)| {
            State::Processing(Lease { worker: worker.clone(), until, length })
        }),
        1 => wall().prop_map(|finished_at| State::Done { finished_at }),
        1 => (wall(), last_verdict()).prop_map(|(finished_at, last_verdict)| {
            State::Failed { finished_at, last_verdict, group: GroupId::LOST }
        }),
        1 => (wall(), last_verdict()).prop_map(|(finished_at, last_verdict)| {
            State::Cancelled { finished_at, last_verdict }
        }),
    ]
}

/// Any job whose numbers a store could hold.
pub(crate) fn job() -> impl Strategy<Value = Job> {
    let numbers = (0..=4_u32, 0..=3_u32, epoch(), prop_oneof![0..3_u32, Just(u32::MAX)]);
    let instants = (wall(), wall(), option::of(wall()));
    let options = (lease_length(), option::of(1..=JobTimeout::MAX.get()), retry());
    (job_id(), state(), numbers, instants, options, -1_000..=1_000_i16).prop_map(
        |(id, state, (attempts, retries, epoch, generation), instants, options, priority)| {
            let (run_at, created_at, started_at) = instants;
            let (visibility_timeout, timeout, retry) = options;
            let priority = Priority::new(priority).expect(IN_RANGE);
            Job {
                id,
                queue: QueueName::default(),
                kind: Kind::default(),
                priority,
                rank: Rank::new(priority, run_at, id),
                state,
                attempts,
                max_retries: MaxRetries::new(retries).expect(IN_RANGE),
                epoch,
                generation,
                run_at,
                timeout: timeout.map(|ms| JobTimeout::new(ms).expect(IN_RANGE)),
                visibility_timeout,
                retry,
                idempotency_key: None,
                payload_bytes: 0,
                created_at,
                updated_at: created_at,
                started_at,
            }
        },
    )
}

pub(crate) fn verdict() -> impl Strategy<Value = Verdict> {
    let kinds = select(vec![FailureKind::Failed, FailureKind::TimedOut, FailureKind::Panicked]);
    let failure = (kinds, any::<bool>(), option::of(delay()), ".{0,8}");
    prop_oneof![
        Just(Verdict::Complete { result: Some(Payload::null()) }),
        failure.prop_map(|(kind, retryable, retry_in, error)| {
            let error = Excerpt::head(&error, 4);
            let failure = Failure { kind, retryable, retry_in, error, ..Failure::new("") };
            Verdict::Fail(Box::new(failure))
        }),
        delay().prop_map(|delay| Verdict::Snooze { delay }),
        Just(Verdict::Release),
    ]
}

pub(crate) fn claim() -> impl Strategy<Value = Claim> {
    let gate = select(vec![Gate::Open, Gate::Open, Gate::Paused, Gate::Full]);
    (gate, option::of(lease_length())).prop_map(|(gate, length)| Claim {
        worker: WorkerId::new("other").expect(IN_RANGE),
        length,
        stop_grace: Millis::seconds(30),
        gate,
    })
}
