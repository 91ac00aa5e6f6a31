//! Every row comes back as it went, and damaged ones are refused.

use proptest::prelude::*;
use windlass_core::{
    GroupId, Job, Kind, Kinds, LastVerdict, Lease, Priority, QueueName, Queues, Rank, Rate,
    RetryPolicy, State,
};

use super::*;
use crate::job_row::{JOB_VERSION, RANKED};

fn job() -> impl Strategy<Value = Job> {
    let words = (
        1..=i64::MAX.unsigned_abs(),
        -1_000_i16..=1_000,
        any::<u32>(),
        0..=1_000_u32,
        any::<u64>(),
        any::<u32>(),
        1_000..=43_200_000_u64,
        prop::option::of(1..=604_800_000_u64),
    );
    let instants = (any::<i64>(), any::<i64>(), any::<i64>(), prop::option::of(any::<i64>()));
    // In one half of the cases a rank that is written out.
    let rank = prop::option::of((any::<i16>(), any::<u64>(), any::<i64>()));
    let beside = (prop::option::of("[!-~]{1,40}"), rank, any::<u32>());
    (words, instants, states(), beside).prop_map(
        |(words, (created, run, updated, started), state, (key, rank, payload_bytes))| Job {
            id: id(words.0),
            queue: QueueName::default(),
            kind: Kind::default(),
            priority: priority(words.1),
            rank: rank.map_or(Rank::new(priority(words.1), Wall::new(run), id(words.0)), |rank| {
                Rank { class: rank.0, turn: rank.1, due: Wall::new(rank.2), id: id(words.0) }
            }),
            state,
            attempts: words.2,
            max_retries: MaxRetries::new(words.3).expect("it is in bounds"),
            epoch: Epoch::new(words.4),
            generation: words.5,
            run_at: Wall::new(run),
            timeout: words.7.map(|millis| JobTimeout::new(millis).expect("it is in bounds")),
            visibility_timeout: LeaseLength::new(words.6).expect("it is in bounds"),
            retry: retry(),
            idempotency_key: key.map(|key| IdempotencyKey::new(&key).expect("it is a key")),
            payload_bytes,
            created_at: Wall::new(created),
            updated_at: Wall::new(updated),
            started_at: started.map(Wall::new),
        },
    )
}

fn id(number: u64) -> JobId {
    JobId::new(number).expect("it is an id")
}

fn priority(number: i16) -> Priority {
    Priority::new(number).expect("it is in bounds")
}

fn retry() -> RetryPolicy {
    let second = Millis::seconds(1);
    RetryPolicy::new(windlass_core::Strategy::Fixed, second, second, 0).expect("it is in bounds")
}

fn states() -> impl Strategy<Value = State> {
    let last_verdict = prop::option::of(prop::sample::select(&LastVerdict::ALL[..]));
    (0..6, any::<i64>(), last_verdict).prop_map(|(which, at, last_verdict)| {
        let at = Wall::new(at);
        match which {
            0 => State::Queued { ready: true, last_verdict },
            1 => State::Queued { ready: false, last_verdict },
            2 => State::Processing(lease(at)),
            3 => State::Done { finished_at: at },
            4 => State::Failed { finished_at: at, last_verdict, group: GroupId([7; 16]) },
            _ => State::Cancelled { finished_at: at, last_verdict },
        }
    })
}

fn lease(until: Wall) -> Lease {
    let worker = WorkerId::new("w").expect("it is a name");
    Lease { worker, until, length: LeaseLength::DEFAULT }
}

fn excerpt() -> impl Strategy<Value = Option<Excerpt>> {
    prop::option::of((".{0,40}", any::<bool>()).prop_map(|(text, cut)| Excerpt::stored(&text, cut)))
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut row = Vec::new();
    write(&mut row);
    row
}

/// A row reads back, but not if it is cut short, too long, or of another version.
fn check<T: PartialEq + std::fmt::Debug>(
    row: &[u8],
    expected: &T,
    whole: bool,
    read: impl Fn(&[u8]) -> Found<T>,
) -> Result<(), TestCaseError> {
    prop_assert_eq!(&read(row).expect("the row is sound"), expected);
    let mut other = row.to_vec();
    other[0] = 9;
    prop_assert!(read(&other).is_err(), "another version was read");
    prop_assert!(read(&[]).is_err(), "an empty row was read");
    if whole {
        prop_assert!(read(&row[..row.len() - 1]).is_err(), "a row cut short was read");
        other[0] = row[0];
        other.push(0);
        prop_assert!(read(&other).is_err(), "a row too long was read");
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_job_comes_back_as_it_went(job in job(), queue: u32, kind: u32, retry: u32) {
        let numbers = Numbers { queue, kind, retry };
        let row = written(|out| put_job(out, &job, numbers));
        let found = job_row(&row).expect("the row is sound");
        prop_assert_eq!(found.numbers, numbers);
        prop_assert_eq!(found.view, job.state.view());
        prop_assert_eq!(found.at, job.index_key().at);
        if job.lease().is_none() {
            let group = job.state.group().unwrap_or(GroupId::LOST);
            prop_assert_eq!(state(&found, group), Some(job.state.clone()));
        }
        prop_assert_eq!(found.priority, job.priority);
        prop_assert_eq!(found.rank(job.id), job.rank);
        prop_assert_eq!(found.payload_bytes, job.payload_bytes);
        prop_assert_eq!(found.attempts, job.attempts);
        prop_assert_eq!(found.max_retries, job.max_retries);
        prop_assert_eq!(found.epoch, job.epoch);
        prop_assert_eq!(found.generation, job.generation);
        prop_assert_eq!(found.visibility_timeout, job.visibility_timeout);
        prop_assert_eq!(found.timeout, job.timeout);
        prop_assert_eq!(found.created_at, job.created_at);
        prop_assert_eq!(found.run_at, job.run_at);
        prop_assert_eq!(found.updated_at, job.updated_at);
        prop_assert_eq!(found.started_at, job.started_at);
        prop_assert_eq!(&found.idempotency_key, &job.idempotency_key);
        check(&row, &found, job.idempotency_key.is_none(), job_row)?;
    }

    /// A row of the first two schemas is that of today without the length of the payload.
    #[test]
    fn an_old_job_comes_back_with_the_length_of_its_payload(job in job(), queue: u32) {
        let numbers = Numbers { queue, ..Numbers::default() };
        let rank = Rank::new(job.priority, job.run_at, job.id);
        let job = Job { rank, payload_bytes: 0, ..job };
        let mut old = written(|out| put_job(out, &job, numbers));
        prop_assert_eq!(old.remove(3), 0, "the length of the payload");
        old[0] = VERSION;
        let upgraded = |old: &[u8], bytes: u32| -> Found<Vec<u8>> {
            let mut row = Vec::new();
            put_second_job(&mut row, old, bytes)?;
            Ok(row)
        };
        let job = Job { payload_bytes: 300, ..job };
        let row = written(|out| put_job(out, &job, numbers));
        prop_assert_eq!(upgraded(&old, 300).expect("the row is sound"), row.clone());
        prop_assert!(upgraded(&row, 300).is_err(), "a row of today was taken for an old one");
        prop_assert!(upgraded(&old[..2], 300).is_err(), "a row cut short was read");
        old[1] |= RANKED;
        prop_assert!(upgraded(&old, 300).is_err(), "no old row has a rank of its own");
    }

    #[test]
    fn an_attempt_comes_back_as_it_went(
        started: i64, ended: i64, outcome in prop::sample::select(&AttemptOutcome::ALL[..]),
        exit_code: Option<i32>, error in excerpt(), stdout in excerpt(), stderr in excerpt(),
    ) {
        let (job, epoch) = (JobId::FIRST, Epoch::new(7));
        let attempt = Attempt {
            job,
            epoch,
            worker: WorkerId::new("w1").expect("it is a name"),
            started_at: Wall::new(started),
            ended_at: Wall::new(ended),
            outcome,
            error,
            exit_code,
            stdout,
            stderr,
        };
        let row = written(|out| put_attempt(out, &attempt));
        check(&row, &attempt, true, |row| super::attempt(job, epoch, row))?;
    }

    #[test]
    fn a_key_a_worker_and_a_marker_come_back_as_they_went(
        job in 1..=i64::MAX.unsigned_abs(), request: u128, at: i64, until: Option<i64>,
        seq: u64, process: u64, pid: Option<u32>, started: Option<u64>, host in ".{0,40}",
        kind in prop::sample::select(&WorkerKind::ALL[..]), slots: u16, presence: u64,
        stopping: bool, version in prop::option::of("[ -~]{1,64}"),
        server in prop::option::of("[a-z0-9]{1,40}"),
    ) {
        let key = IdempotencyKey::new("k").expect("it is a key");
        let record = KeyRecord {
            key: key.clone(),
            job: JobId::new(job).expect("it is an id"),
            request: Fingerprint(request),
            created_at: Wall::new(at),
            orphan_until: until.map(Wall::new),
        };
        let row = written(|out| put_key(out, &record));
        check(&row, &record, true, |row| key_record(key.clone(), row))?;

        let id = WorkerId::new("w").expect("it is a name");
        let queues = Queues::only(vec![QueueName::new("a.b").expect("it is a name")]);
        let demand = Demand { queues, kinds: Kinds::All };
        let (slots, presence) = (slots.into(), Millis::new(presence));
        let new = Worker::new(id.clone(), &host, kind);
        let instance = started.and_then(|started| Instance::new("boot/pid:[1]", started));
        let version = version.map(|text| WorkerVersion::new(&text).expect("it is printable"));
        let server = server.map(|name| WorkerId::new(&name).expect("it is a name"));
        let worker = Worker { pid, instance, version, server, demand, slots, presence, ..new };
        let seen = Seen { worker, first: Wall::new(at), last: Wall::new(at), stopping };
        let row = written(|out| put_worker(out, &seen));
        check(&row, &seen, false, |row| super::worker(id.clone(), row))?;

        let batch = BatchId { process: ProcessId(process), seq };
        let marker = Marker { batch, at: Wall::new(at) };
        let row = written(|out| put_marker(out, &marker));
        check(&row, &marker, true, |row| super::marker(process, row))?;
    }

    #[test]
    fn a_queue_and_its_counters_come_back_as_they_went(
        at in prop::option::of(any::<Option<i64>>()), by in prop::option::of(".{0,9}"),
        most in prop::option::of(1..=1_000_000_u32), retry: Option<u32>,
        millis in prop::option::of(1_000..=43_200_000_u64), counts: [u64; 6],
        retrying: u64,
        retries in prop::option::of(0..=1_000_u32), rate in prop::option::of(1..=1_000_000_u32),
    ) {
        let rate = rate.map(|limit| Rate::new(limit, 1_000, None).expect("it is in bounds"));
        let queue = QueueBytes {
            flow: Flow { rate, ..Flow::NONE },
            paused: at.map(|at| Pause { at: at.map(Wall::new), by: by.map(Into::into) }),
            max_queued: most.map(|most| MaxQueued::new(most.into()).expect("it is in bounds")),
            concurrency: most.map(|most| MaxRunning::new(most).expect("it is in bounds")),
            visibility_timeout: millis.map(|n| LeaseLength::new(n).expect("it is in bounds")),
            max_retries: retries.map(|n| MaxRetries::new(n).expect("it is in bounds")),
            timeout: millis.map(|n| JobTimeout::new(n).expect("it is in bounds")),
            retry,
        };
        let row = written(|out| put_queue(out, &queue));
        check(&row, &queue, true, super::queue)?;
        let counts = Counts::new(counts).with_retrying(retrying);
        let row = written(|out| put_counts(out, &counts));
        check(&row, &counts, true, super::counts)?;
    }

    #[test]
    fn a_holder_and_an_error_come_back_as_they_went(
        name in "[a-z0-9]{1,40}", millis in 1_000..=43_200_000_u64, text in ".{0,40}", cut: bool,
    ) {
        let worker = WorkerId::new(&name).expect("it is a name");
        let length = LeaseLength::new(millis).expect("it is in bounds");
        let row = written(|out| put_holder(out, &worker, length));
        check(&row, &(worker, length), false, |row| holder(row, None))?;
        let error = Excerpt::stored(&text, cut);
        let row = written(|out| put_error(out, &error));
        check(&row, &error, false, super::error)?;
    }

    #[test]
    fn any_bytes_are_read_or_refused(row in prop::collection::vec(any::<u8>(), 0..80)) {
        let mut row = row;
        for version in [VERSION, JOB_VERSION] {
            if let Some(first) = row.first_mut() {
                *first = version;
            }
            let _ = job_row(&row);
            let _ = put_second_job(&mut Vec::new(), &row, 1);
        }
        if let Some(first) = row.first_mut() {
            *first = VERSION;
        }
        let id = || WorkerId::new("w").expect("it is a name");
        let key = IdempotencyKey::new("k").expect("it is a key");
        let _ = attempt(JobId::FIRST, Epoch::NEVER, &row);
        let _ = key_record(key, &row);
        let _ = queue(&row);
        let _ = counts(&row);
        let _ = old_counts(&row);
        let _ = worker(id(), &row);
        let _ = marker(1, &row);
        let _ = holder(&row, None);
        let _ = error(&row);
    }
}

#[test]
fn a_pause_that_the_eighth_schema_has_written_is_one_of_which_nothing_is_known() {
    let row = queue(&[VERSION, 1, 0, 0, 0, 0, 0, 0]).expect("the row is sound");
    assert_eq!(row.paused, Some(Pause::default()));
    let row = queue(&[VERSION, 0, 0, 0, 0, 0, 0, 0]).expect("the row is sound");
    assert_eq!(row.paused, None);
}

/// Written by the code of the second schema: priority -5, a timeout, a key, due at once.
#[test]
fn a_row_that_the_second_schema_has_written_is_converted() {
    let old = [
        1, 96, 0, 1, 1, 1, 9, 0, 3, 0, 0, 176, 234, 1, 224, 212, 3, 128, 160, 171, 254, 249, 98,
        128, 128, 128, 128, 0, 128, 128, 128, 128, 0, 128, 128, 128, 128, 0, 128, 128, 128, 128, 0,
        107, 101, 121,
    ];
    let mut new = Vec::new();
    put_second_job(&mut new, &old, 300).expect("the row is sound");
    let now = Wall::new(1_700_000_000_000);
    let expected = JobRow {
        view: View::Queued,
        at: now,
        last_verdict: None,
        payload_bytes: 300,
        numbers: Numbers { queue: 1, kind: 1, retry: 1 },
        priority: priority(-5),
        class: 5,
        turn: 0,
        due: now,
        attempts: 0,
        max_retries: MaxRetries::DEFAULT,
        epoch: Epoch::NEVER,
        generation: 0,
        visibility_timeout: LeaseLength::DEFAULT,
        timeout: Some(JobTimeout::new(60_000).expect("it is in bounds")),
        created_at: now,
        run_at: now,
        updated_at: now,
        started_at: None,
        idempotency_key: Some(IdempotencyKey::new("key").expect("it is a key")),
    };
    assert_eq!(job_row(&new).expect("the row is sound"), expected);
}

#[test]
fn a_row_keeps_its_length_when_its_job_is_claimed_and_done() {
    let now = Wall::new(1_700_000_000_000);
    let later = Wall::new(now.get() + 86_400_000);
    let mut job = Job {
        id: JobId::FIRST,
        queue: QueueName::default(),
        kind: Kind::default(),
        priority: Priority::DEFAULT,
        rank: Rank::new(Priority::DEFAULT, now, JobId::FIRST),
        state: State::Queued { ready: true, last_verdict: None },
        attempts: 0,
        max_retries: MaxRetries::DEFAULT,
        epoch: Epoch::NEVER,
        generation: 0,
        run_at: now,
        timeout: None,
        visibility_timeout: LeaseLength::DEFAULT,
        retry: retry(),
        idempotency_key: None,
        payload_bytes: 1_000,
        created_at: now,
        updated_at: now,
        started_at: None,
    };
    let length = |job: &Job| written(|out| put_job(out, job, Numbers::default())).len();
    let first = length(&job);
    job.state = State::Processing(lease(later));
    (job.attempts, job.epoch, job.started_at, job.updated_at) =
        (1, Epoch::new(1), Some(later), later);
    assert_eq!(length(&job), first);
    job.state = State::Done { finished_at: later };
    assert_eq!(length(&job), first);
    assert!(first < 48, "a plain row takes {first} bytes");
}
