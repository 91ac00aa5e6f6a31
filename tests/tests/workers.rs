//! Workers as the store knows them, and settings that change while the machine runs.

use windlass_core::limits::SLOTS;
use windlass_core::machine::{Config, Effect, Input, Limits, Poll, Request, StoreCall};
use windlass_core::store::{Admin, Reader, Retention, Store, Worker, WorkerKind, WorkerRow};
use windlass_core::{
    Demand, JobId, Kind, Kinds, MaxRetries, Millis, Policy, ProcessId, WorkerId, WorkerVersion,
};
use windlass_store_memory::MemoryStore;
use windlass_tests::stage::{Stage, config, job, worker_named};

/// A stage that has called its empty store once.
fn stage_with(config: Config) -> Stage<MemoryStore> {
    let mut stage = Stage::with(MemoryStore::new(), config);
    stage.settle();
    stage
}

const PRESENCE: Millis = Millis::seconds(10);

fn noted(slots: usize) -> Stage<MemoryStore> {
    stage_with(Config { presence: Some(PRESENCE), ..config(slots) })
}

fn row(store: &MemoryStore, name: &str) -> Option<WorkerRow> {
    let rows = store.reader().expect("a reader").workers().expect("it reads");
    rows.into_iter().find(|row| row.worker.id.as_str() == name)
}

fn kinds(name: &str) -> Demand {
    Demand { kinds: Kinds::only(vec![Kind::new(name).expect("a name")]), ..Demand::ALL }
}

fn poll(stage: &mut Stage<MemoryStore>, demand: Demand, wait: Millis) {
    let worker = Worker { demand, slots: 3, ..worker_named("remote", WorkerKind::Remote) };
    stage.request(Request::Poll(Poll { worker, wait, length: None }));
    stage.settle();
}

#[test]
fn a_remote_worker_is_known_with_the_commit_that_first_claims_for_it() {
    let mut stage = noted(0);
    stage.settle();
    let before = stage.machine.stats().commits;
    poll(&mut stage, kinds("a"), Millis::seconds(30));
    assert_eq!(stage.machine.stats().commits, before + 1);
    let row = row(&stage.store, "remote").expect("it is known");
    assert_eq!((row.worker.demand, row.worker.slots), (kinds("a"), 3));
}

#[test]
fn a_remote_worker_is_known_with_its_version_and_the_process_that_it_polled_last() {
    let mut stage = noted(0);
    let worker = |version: &str| Worker {
        version: WorkerVersion::new(version).ok(),
        ..worker_named("remote", WorkerKind::Remote)
    };
    let poll = |version: &str| {
        Request::Poll(Poll { worker: worker(version), wait: Millis::ZERO, length: None })
    };
    let known = |store: &MemoryStore| {
        let worker = row(store, "remote").expect("it is known").worker;
        let node = worker.node().map(|node| node.as_str().to_owned());
        (worker.version.map(|version| version.as_str().to_owned()), node)
    };
    stage.request(poll("1"));
    stage.settle();
    assert_eq!(known(&stage.store), (Some("1".into()), Some("here".into())));
    let own = row(&stage.store, "here").expect("it is known").worker;
    assert_eq!((own.node(), &own.server), (Some(&own.id), &None));
    let there = Config::new(ProcessId(2), worker_named("there", WorkerKind::Local), 0);
    let there = Config { presence: Some(PRESENCE), ..there };
    let mut other = Stage::with(stage.store.another(), there);
    other.request(poll("2"));
    other.settle();
    assert_eq!(known(&stage.store), (Some("2".into()), Some("there".into())));
    stage.pass(PRESENCE);
    stage.request(poll("2"));
    stage.settle();
    assert_eq!(known(&stage.store), (Some("2".into()), Some("here".into())), "it is back");
}

/// While it waits it sends nothing; so the interval of its polls depends on how long it waits.
#[test]
fn a_remote_worker_that_waits_for_long_does_not_count_as_gone_meanwhile() {
    let mut stage = noted(0);
    stage.settle();
    for _ in 0..5 {
        poll(&mut stage, kinds("a"), Millis::seconds(30));
        for _ in 0..30 {
            stage.pass(Millis::seconds(1));
            let row = row(&stage.store, "remote").expect("it is known");
            assert!(row.is_alive(stage.now.wall), "{row:?} at {:?}", stage.now.wall);
        }
    }
    stage.pass(Millis::minutes(2));
    assert!(!row(&stage.store, "remote").expect("it is known").is_alive(stage.now.wall));
}

#[test]
fn a_remote_worker_that_wants_something_else_is_noted_again_but_not_with_every_poll() {
    let mut stage = noted(0);
    stage.settle();
    poll(&mut stage, kinds("a"), Millis::ZERO);
    stage.pass(Millis::seconds(2));
    poll(&mut stage, kinds("b"), Millis::ZERO);
    let wants = |stage: &Stage<MemoryStore>| {
        row(&stage.store, "remote").expect("it is known").worker.demand
    };
    assert_eq!(wants(&stage), kinds("b"));
    poll(&mut stage, kinds("a"), Millis::ZERO);
    assert_eq!(wants(&stage), kinds("b"), "not twice in a second");
    stage.pass(Millis::seconds(2));
    poll(&mut stage, kinds("a"), Millis::ZERO);
    assert_eq!(wants(&stage), kinds("a"));
    let seen = row(&stage.store, "remote").map(|row| row.last_seen);
    stage.pass(Millis::seconds(5));
    poll(&mut stage, kinds("a"), Millis::ZERO);
    assert_eq!(row(&stage.store, "remote").map(|row| row.last_seen), seen, "nothing is new");
}

#[test]
fn a_process_that_asks_its_own_worker_to_stop_learns_it_with_that_commit() {
    let mut stage = noted(1);
    stage.settle();
    stage.admin(Admin::StopWorker(WorkerId::new("here").expect("a name")));
    stage.settle();
    assert!(stage.effects.contains(&Effect::StopAsked));
}

#[test]
fn a_worker_that_another_one_was_asked_to_stop_does_not_take_it_for_itself() {
    let mut stage = noted(1);
    poll(&mut stage, Demand::ALL, Millis::ZERO);
    stage.admin(Admin::StopWorker(WorkerId::new("remote").expect("a name")));
    stage.settle();
    poll(&mut stage, Demand::ALL, Millis::ZERO);
    stage.pass(Millis::minutes(1));
    assert!(!stage.effects.contains(&Effect::StopAsked));
}

/// Without a check for changes the mark is found when the worker is next noted.
#[test]
fn a_worker_learns_that_it_is_to_stop_at_the_latest_when_it_is_next_noted() {
    let mut stage = noted(1);
    stage.settle();
    let process = ProcessId(2);
    let mut other = Stage::with(stage.store.another(), Config { process, ..config(0) });
    other.admin(Admin::StopWorker(WorkerId::new("here").expect("a name")));
    other.settle();
    stage.pass(PRESENCE);
    assert!(stage.effects.contains(&Effect::StopAsked));
    let asked = stage.effects.iter().filter(|effect| **effect == Effect::StopAsked);
    assert_eq!(asked.count(), 1);
}

#[test]
fn more_slots_claim_what_waits_at_once_and_no_number_is_too_large() {
    let mut stage = noted(0);
    for _ in 0..3 {
        stage.enqueue(job());
    }
    stage.settle();
    assert_eq!(stage.started(), []);
    stage.input(Input::Slots(2));
    stage.settle();
    assert_eq!(stage.started().len(), 2);
    stage.input(Input::Slots(usize::MAX));
    stage.settle();
    assert_eq!((stage.started().len(), stage.machine.slots()), (3, SLOTS));
    assert_eq!(row(&stage.store, "here").map(|row| row.worker.slots), Some(SLOTS));
}

#[test]
fn a_presence_of_no_time_at_all_does_not_make_the_machine_spin() {
    let mut stage = stage_with(Config { presence: Some(Millis::ZERO), ..config(1) });
    stage.pass(Millis::seconds(1));
    stage.input(Input::Presence(Some(Millis::ZERO)));
    stage.pass(Millis::seconds(1));
    assert!(stage.machine.stats().commits < 30, "{:?}", stage.machine.stats());
}

// Settings.

#[test]
fn new_defaults_hold_for_the_next_job_and_not_for_those_stored() {
    let mut stage = stage_with(config(0));
    stage.enqueue(job());
    stage.settle();
    let max_retries = MaxRetries::new(7).expect("it is in bounds");
    stage.input(Input::Policy(Policy { max_retries, ..Policy::default() }));
    stage.enqueue(job());
    stage.settle();
    let mut reader = stage.store.reader().expect("a reader");
    let found = reader.jobs(&[JobId::FIRST, JobId::FIRST.plus(1)]).expect("it reads");
    let retries = found.into_iter().flatten().map(|row| row.job.max_retries);
    assert_eq!(retries.collect::<Vec<_>>(), [Policy::default().max_retries, max_retries]);
}

fn jobs(store: &MemoryStore) -> usize {
    store.reader().and_then(|mut reader| reader.dump()).expect("it dumps").jobs.len()
}

/// Stores this number of cancelled jobs.
fn cancelled(stage: &mut Stage<MemoryStore>, count: u64) {
    for at in 0..count {
        stage.enqueue(job());
        stage.settle();
        stage.admin(Admin::Cancel(JobId::FIRST.plus(at)));
    }
    stage.settle();
}

#[test]
fn a_new_retention_purges_at_once_and_not_when_the_old_one_would_have() {
    let hour = Retention { cancelled: Some(Millis::hours(1)), ..Retention::default() };
    let mut stage = stage_with(Config { retention: hour, ..config(0) });
    cancelled(&mut stage, 3);
    stage.pass(Millis::minutes(1));
    assert_eq!(jobs(&stage.store), 3);
    let second = Retention { cancelled: Some(Millis::seconds(1)), ..Retention::default() };
    stage.input(Input::Retention(second));
    stage.settle();
    assert_eq!(jobs(&stage.store), 0, "no time has passed");
}

/// A process without workers of its own purges too, page by page: no commit removes more than a
/// page, however much there is.
#[test]
fn a_process_without_workers_purges_in_pages() {
    let limits = Limits { page: 4, ..Limits::default() };
    let retention = Retention { cancelled: Some(Millis::minutes(5)), ..Retention::default() };
    let mut stage = stage_with(Config { limits, retention, ..config(0) });
    cancelled(&mut stage, 30);
    assert_eq!(jobs(&stage.store), 30);
    stage.pass(Millis::minutes(4));
    assert_eq!(jobs(&stage.store), 30, "none is old enough");
    let (mut left, mut commits) = (jobs(&stage.store), 0);
    let mut next = stage.idle(Millis::minutes(2));
    while let Some(call) = next {
        assert!(matches!(call, StoreCall::Commit(_)), "{call:?}");
        stage.make_call(call);
        next = stage.take_call();
        let now = jobs(&stage.store);
        assert!(left - now <= 4, "{} jobs in one commit", left - now);
        (left, commits) = (now, commits + 1);
    }
    assert_eq!(left, 0);
    assert!(commits >= 8, "{commits} commits");
}

/// Several processes on one store with the same retention: what one has purged the others leave
/// alone, and no process makes commits for it without end.
#[test]
fn processes_that_purge_one_store_do_not_fight() {
    let retention = Retention { cancelled: Some(Millis::seconds(30)), ..Retention::default() };
    let limits = Limits { page: 4, ..Limits::default() };
    let mut first = stage_with(Config { limits, retention, ..config(0) });
    let process = ProcessId(2);
    let second = Config { process, limits, retention, ..config(0) };
    let mut second = Stage::with(first.store.another(), second);
    cancelled(&mut first, 20);
    second.settle();
    for _ in 0..60 {
        first.pass(Millis::seconds(1));
        second.now = first.now;
        second.pass(Millis::ZERO);
    }
    assert_eq!(jobs(&first.store), 0);
    let commits = [&first, &second].map(|stage| stage.machine.stats().commits);
    first.pass(Millis::minutes(9));
    second.now = first.now;
    second.settle();
    let later = [&first, &second].map(|stage| stage.machine.stats().commits);
    assert!(later[0] - commits[0] <= 2 && later[1] - commits[1] <= 2, "{commits:?} {later:?}");
}

#[test]
fn what_is_alive_is_never_purged_however_short_the_retention() {
    let none = Some(Millis::ZERO);
    let retention = Retention { done: none, failed: none, cancelled: none };
    let mut stage = stage_with(Config { retention, ..config(1) });
    for _ in 0..3 {
        stage.enqueue(job());
    }
    stage.settle();
    stage.pass(Millis::hours(2));
    assert_eq!(jobs(&stage.store), 3, "one runs, two wait");
    stage.complete("1.1");
    stage.settle();
    stage.pass(Millis::seconds(5));
    assert_eq!(jobs(&stage.store), 2);
}
