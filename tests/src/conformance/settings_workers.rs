//! What is kept beside jobs: settings by name, and workers with what they hold.

use windlass_core::limits::{DEMAND_NAMES, SETTING_VALUE_BYTES, SLOTS, VERSION_BYTES};
use windlass_core::store::{
    Admin, AdminDone, AdminRefused, ExpectedSetting, Instance, Reader, Worker, WorkerKind,
    WorkerRow,
};
use windlass_core::{
    Demand, JobId, Kinds, LeaseLength, Millis, Queues, StateName, Wall, WorkerVersion,
};

use crate::fixture::{
    Subject, UNUSUAL_TEXTS, World, announced, complete, kind, main_work, queue, reap_up_to,
    setting, value, work, worker,
};

fn set(name: &str, text: &str) -> Admin {
    Admin::set_setting(setting(name), Some(value(text)))
}

fn unset(name: &str) -> Admin {
    Admin::set_setting(setting(name), None)
}

#[track_caller]
fn note<S: Subject>(world: &mut World<S>, commands: impl IntoIterator<Item = Admin>) {
    let out = world.commit(|batch| batch.admin.extend(commands));
    assert!(out.admin.iter().all(Result::is_ok), "{:?}", out.admin);
}

fn settings<S: Subject>(world: &mut World<S>) -> Vec<(String, String)> {
    let rows = world.reader().settings().expect("a healthy store can be read");
    let text = |name: &str| name.to_owned();
    rows.iter().map(|(name, value)| (text(name.as_str()), text(value.as_str()))).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[track_caller]
fn see<S: Subject>(world: &mut World<S>, worker: Worker) {
    note(world, [Admin::SeeWorker(worker)]);
}

fn row<S: Subject>(world: &mut World<S>, name: &str) -> Option<WorkerRow> {
    let rows = world.reader().workers().expect("a healthy store can be read");
    rows.into_iter().find(|row| row.worker.id == worker(name))
}

#[track_caller]
fn seen<S: Subject>(world: &mut World<S>, name: &str) -> (Wall, Wall) {
    let row = row(world, name).expect("the worker is known");
    (row.started_at, row.last_seen)
}

#[track_caller]
fn running<S: Subject>(world: &mut World<S>, name: &str) -> Vec<JobId> {
    row(world, name).expect("the worker is known").running
}

// Settings.

pub fn a_setting_is_kept_then_replaced_then_forgotten<S: Subject>() {
    let mut world = World::<S>::new();
    assert_eq!(settings(&mut world), []);
    note(&mut world, [set("b", "1")]);
    note(&mut world, [set("a", "2")]);
    assert_eq!(settings(&mut world), pairs(&[("a", "2"), ("b", "1")]), "by name");
    note(&mut world, [set("b", "3")]);
    assert_eq!(settings(&mut world), pairs(&[("a", "2"), ("b", "3")]));
    note(&mut world, [unset("a")]);
    assert_eq!(settings(&mut world), pairs(&[("b", "3")]), "the other is untouched");
    note(&mut world, [unset("a"), unset("never-set")]);
    assert_eq!(settings(&mut world), pairs(&[("b", "3")]));
}

pub fn of_several_values_in_one_batch_the_last_counts<S: Subject>() {
    let mut world = World::<S>::new();
    note(&mut world, [set("gone", "1")]);
    note(
        &mut world,
        [
            set("twice", "1"),
            set("twice", "2"),
            unset("gone"),
            set("back", "1"),
            unset("back"),
            set("back", "3"),
            set("fleeting", "1"),
            unset("fleeting"),
        ],
    );
    assert_eq!(settings(&mut world), pairs(&[("back", "3"), ("twice", "2")]));
}

pub fn the_value_of_a_setting_is_kept_byte_for_byte_and_survives_a_crash<S: Subject>() {
    let mut world = World::<S>::new();
    for text in UNUSUAL_TEXTS.into_iter().filter(|text| !text.is_empty()) {
        note(&mut world, [set("s", text)]);
        world.reopen();
        assert_eq!(settings(&mut world), pairs(&[("s", text)]));
    }
    let long = "x".repeat(SETTING_VALUE_BYTES);
    note(&mut world, [set("s", &long)]);
    world.reopen();
    assert_eq!(settings(&mut world), pairs(&[("s", &long)]));
}

pub fn a_setting_is_replaced_or_deleted_only_if_it_has_the_expected_value<S: Subject>() {
    let mut world = World::<S>::new();
    let from = |before: Option<&str>, after: Option<&str>| Admin::SetSetting {
        key: setting("s"),
        value: after.map(value),
        expected: ExpectedSetting::Exactly(before.map(value)),
    };
    let changed = |now: Option<&str>| {
        Err(AdminRefused::SettingChanged { key: setting("s"), value: now.map(value) })
    };
    note(&mut world, [set("other", "0")]);
    assert_eq!(world.admin(from(Some("1"), Some("2"))), changed(None));
    note(&mut world, [from(None, Some("1"))]);
    world.reopen();
    for before in [None, Some("2"), Some("0"), Some("1 ")] {
        for after in [Some("3"), None] {
            let out = world.commit(|batch| batch.admin.push(from(before, after)));
            assert_eq!((out.admin[0].clone(), out.wrote), (changed(Some("1")), false));
        }
    }
    assert_eq!(settings(&mut world), pairs(&[("other", "0"), ("s", "1")]));
    let out = world.commit(|batch| {
        batch.admin.extend([from(Some("1"), Some("2")), from(Some("1"), Some("3"))]);
        batch.admin.extend([unset("s"), from(Some("2"), Some("4")), from(None, Some("5"))]);
    });
    assert_eq!(out.admin[1], changed(Some("2")), "the first of the batch counts");
    assert_eq!(out.admin[3], changed(None), "it was deleted before");
    assert_eq!(settings(&mut world), pairs(&[("other", "0"), ("s", "5")]));
    note(&mut world, [from(Some("5"), None), from(None, None)]);
    assert_eq!(settings(&mut world), pairs(&[("other", "0")]));
}

// Workers.

pub fn a_worker_is_known_from_when_it_was_first_seen<S: Subject>() {
    let mut world = World::<S>::new();
    assert_eq!(row(&mut world, "w1"), None);
    let first = world.now();
    see(&mut world, announced("w1"));
    assert_eq!(seen(&mut world, "w1"), (first, first));
    world.advance(Millis::seconds(5));
    see(&mut world, announced("w2"));
    assert_eq!(seen(&mut world, "w1"), (first, first), "the other was seen, not this one");
    see(&mut world, announced("w1"));
    assert_eq!(seen(&mut world, "w1"), (first, world.now()));
    assert_eq!(seen(&mut world, "w2"), (world.now(), world.now()));
    world.advance(Millis::seconds(5));
    see(&mut world, announced("w1"));
    assert_eq!(seen(&mut world, "w1"), (first, world.now()), "it starts once");
}

pub fn a_worker_is_kept_as_it_last_described_itself<S: Subject>() {
    let mut world = World::<S>::new();
    for kind in WorkerKind::ALL {
        for pid in [None, Some(1), Some(u32::MAX)] {
            for instance in [Instance::new("boot/pid:[1]", u64::MAX), None] {
                let host = "höst 2".into();
                let described = Worker { host, pid, instance, kind, ..announced("w1") };
                see(&mut world, described.clone());
                world.reopen();
                assert_eq!(row(&mut world, "w1").map(|row| row.worker), Some(described));
            }
        }
    }
}

pub fn the_version_and_the_server_of_a_worker_are_kept_and_replaced<S: Subject>() {
    let mut world = World::<S>::new();
    see(&mut world, announced("w2"));
    let longest = "~ ".repeat(VERSION_BYTES / 2);
    for given in [Some("0.1.0"), None, Some(longest.as_str())] {
        for name in [None, Some("s1"), Some("s2")] {
            let version = given.map(|text| WorkerVersion::new(text).expect("a version"));
            let (server, kind) = (name.map(worker), WorkerKind::Remote);
            let described = Worker { version, server: server.clone(), kind, ..announced("w1") };
            see(&mut world, described.clone());
            world.reopen();
            let kept = row(&mut world, "w1").expect("it is known").worker;
            assert_eq!((kept.node(), &kept), (server.as_ref(), &described));
        }
    }
    let other = row(&mut world, "w2").expect("it is known").worker;
    assert_eq!((other.version, other.server), (None, None), "the other said nothing of it");
}

pub fn what_a_worker_would_run_is_kept_and_replaced<S: Subject>() {
    let mut world = World::<S>::new();
    let queues = |names: &[&str]| Queues::only(names.iter().map(|name| queue(name)).collect());
    let kinds = || vec![kind("k1"), kind("k.2:x_y-z")];
    for demand in [
        Demand { queues: queues(&["q1", "q.2"]), kinds: Kinds::only(kinds()) },
        Demand { queues: Queues::All, kinds: Kinds::except(kinds()) },
        Demand { queues: queues(&[]), kinds: Kinds::only(Vec::new()) },
        Demand { queues: queues(&["q1"]), kinds: Kinds::All },
        Demand::ALL,
    ] {
        for (slots, presence) in [(0, 1), (7, 5_000), (SLOTS, u64::MAX)] {
            let (demand, presence) = (demand.clone(), Millis::new(presence));
            let described = Worker { demand, slots, presence, ..announced("w1") };
            see(&mut world, described.clone());
            world.reopen();
            assert_eq!(row(&mut world, "w1").map(|row| row.worker), Some(described));
        }
    }
}

pub fn a_worker_that_names_more_than_is_kept_is_taken_to_run_all<S: Subject>() {
    let mut world = World::<S>::new();
    let named = |count: usize| {
        let names = || (0..count).map(|at| format!("n{at:0>120}"));
        let queues = Queues::only(names().map(|name| queue(&name)).collect());
        Demand { queues, kinds: Kinds::only(names().map(|name| kind(&name)).collect()) }
    };
    let most = named(DEMAND_NAMES);
    for (given, kept) in [(most.clone(), most), (named(DEMAND_NAMES + 1), Demand::ALL)] {
        see(&mut world, Worker { demand: given, slots: usize::MAX, ..announced("w1") });
        let worker = row(&mut world, "w1").expect("it is known").worker;
        assert_eq!((worker.demand, worker.slots), (kept, SLOTS));
    }
}

// Asking a worker to stop.

#[track_caller]
fn is_stopping<S: Subject>(world: &mut World<S>, command: Admin) -> bool {
    match world.admin(command) {
        Ok(AdminDone::Worker { id, stopping }) if id == worker("w1") => stopping,
        other => panic!("not an answer to a worker: {other:?}"),
    }
}

pub fn a_worker_asked_to_stop_learns_it_when_it_is_next_seen<S: Subject>() {
    let mut world = World::<S>::new();
    let see = |name| Admin::SeeWorker(announced(name));
    note(&mut world, [see("w2")]);
    assert!(!is_stopping(&mut world, see("w1")));
    assert!(!is_stopping(&mut world, Admin::LookAtWorker(worker("w1"))));
    assert!(is_stopping(&mut world, Admin::StopWorker(worker("w1"))));
    world.reopen();
    assert!(is_stopping(&mut world, Admin::LookAtWorker(worker("w1"))));
    assert!(is_stopping(&mut world, see("w1")), "it was seen, and is still to stop");
    assert!(is_stopping(&mut world, see("w1")), "until it goes");
    assert!(
        is_stopping(&mut world, Admin::StopWorker(worker("w1"))),
        "asking twice is asking once"
    );
    let marks = ["w1", "w2"].map(|name| row(&mut world, name).map(|row| row.stopping));
    assert_eq!(marks, [Some(true), Some(false)], "the other was not asked");
}

pub fn asking_a_worker_to_stop_touches_nothing_else_of_it<S: Subject>() {
    let mut world = World::<S>::new();
    see(&mut world, announced("w1"));
    let held = world.running_by("w1", work()).job;
    let before = row(&mut world, "w1").expect("it is known");
    world.advance(Millis::seconds(5));
    note(&mut world, [Admin::StopWorker(worker("w1"))]);
    assert_eq!(row(&mut world, "w1"), Some(WorkerRow { stopping: true, ..before }));
    assert_eq!(world.job(held.id), held, "what it runs goes on");
    world.heartbeat(held.token(), None).expect("its heartbeats are accepted");
    assert_eq!(row(&mut world, "w1").map(|row| (row.stopping, row.last_seen)), {
        Some((true, world.now()))
    });
}

pub fn a_worker_that_is_not_there_cannot_be_asked_to_stop<S: Subject>() {
    let mut world = World::<S>::new();
    note(&mut world, [Admin::SeeWorker(announced("gone"))]);
    note(&mut world, [Admin::RemoveWorker(worker("gone"))]);
    for name in ["never", "gone"] {
        for ask in [Admin::StopWorker(worker(name)), Admin::LookAtWorker(worker(name))] {
            assert_eq!(world.admin(ask), Err(AdminRefused::NoWorker(worker(name))));
        }
        assert_eq!(row(&mut world, name), None, "asking makes no worker");
    }
}

pub fn a_worker_that_was_removed_starts_without_the_mark<S: Subject>() {
    let mut world = World::<S>::new();
    let see = || Admin::SeeWorker(announced("w1"));
    let (stop, remove) = (|| Admin::StopWorker(worker("w1")), || Admin::RemoveWorker(worker("w1")));
    note(&mut world, [see()]);
    note(&mut world, [stop()]);
    note(&mut world, [remove()]);
    assert!(!is_stopping(&mut world, see()));
    note(&mut world, [stop(), remove(), see()]);
    assert!(!is_stopping(&mut world, see()), "in one batch too");
    note(&mut world, [remove(), see(), stop()]);
    assert!(is_stopping(&mut world, see()), "what was asked last counts");
    let out = world.commit(|batch| batch.admin.extend([remove(), stop()]));
    assert_eq!(out.admin[1], Err(AdminRefused::NoWorker(worker("w1"))));
    assert_eq!(row(&mut world, "w1"), None);
}

pub fn looking_at_a_worker_writes_nothing<S: Subject>() {
    let mut world = World::<S>::new();
    note(&mut world, [Admin::SeeWorker(announced("w1"))]);
    note(&mut world, [Admin::StopWorker(worker("w1"))]);
    for command in [Admin::LookAtWorker(worker("w1")), Admin::StopWorker(worker("w1"))] {
        let out = world.commit(|batch| batch.admin.push(command));
        assert!(!out.wrote, "{:?}", out.admin);
    }
}

pub fn a_worker_seen_twice_in_one_batch_is_one_worker<S: Subject>() {
    let mut world = World::<S>::new();
    let second = Worker { pid: Some(8), ..announced("w1") };
    note(&mut world, [Admin::SeeWorker(announced("w1")), Admin::SeeWorker(second.clone())]);
    assert_eq!(row(&mut world, "w1").map(|row| row.worker), Some(second));
}

pub fn a_removed_worker_is_gone_and_the_others_are_not<S: Subject>() {
    let mut world = World::<S>::new();
    note(&mut world, ["w1", "w2"].map(|name| Admin::SeeWorker(announced(name))));
    note(&mut world, [Admin::RemoveWorker(worker("w1"))]);
    assert_eq!(row(&mut world, "w1"), None);
    assert!(row(&mut world, "w2").is_some());
    note(&mut world, [Admin::RemoveWorker(worker("w1")), Admin::RemoveWorker(worker("never"))]);
    world.advance(Millis::seconds(5));
    see(&mut world, announced("w1"));
    assert_eq!(seen(&mut world, "w1"), (world.now(), world.now()), "it starts again");
}

/// Once, a worker removed and then seen again in one batch was gone.
pub fn of_seen_and_removed_in_one_batch_the_last_counts<S: Subject>() {
    let mut world = World::<S>::new();
    let see = |name| Admin::SeeWorker(announced(name));
    let remove = |name| Admin::RemoveWorker(worker(name));
    note(&mut world, [see("known"), see("back")]);
    note(&mut world, [see("known"), remove("known"), see("new"), remove("new")]);
    note(&mut world, [remove("back"), see("back"), remove("never"), see("never")]);
    let known = ["known", "new", "back", "never"].map(|name| row(&mut world, name).is_some());
    assert_eq!(known, [false, false, true, true]);
}

pub fn a_worker_lists_exactly_the_jobs_it_holds<S: Subject>() {
    let mut world = World::<S>::new();
    note(&mut world, ["w1", "w2"].map(|name| Admin::SeeWorker(announced(name))));
    let first = world.running_by("w1", work()).job;
    let other = world.running_by("w2", work()).job;
    let second = world.running_by("w1", work()).job;
    world.enqueue(work());
    assert_eq!(running(&mut world, "w1"), [first.id, second.id]);
    assert_eq!(running(&mut world, "w2"), [other.id]);
    world.settle(first.token(), complete()).expect("the holder reports");
    assert_eq!(running(&mut world, "w1"), [second.id]);
    world.admin(Admin::Cancel(second.id)).expect("a running job can be cancelled");
    assert_eq!(running(&mut world, "w1"), []);
    world.advance(LeaseLength::DEFAULT.millis());
    world.reap(reap_up_to(10));
    assert_eq!(running(&mut world, "w2"), []);
    let again = world.claim(main_work(), "w1", 2);
    let again: Vec<JobId> = again.iter().map(|leased| leased.job.id).collect();
    assert_eq!(again.len(), 2);
    let mut listed = running(&mut world, "w1");
    listed.sort();
    let mut expected = again;
    expected.sort();
    assert_eq!(listed, expected, "another worker's job of before is its own now");
}

pub fn a_worker_that_never_announced_itself_holds_jobs_and_is_not_listed<S: Subject>() {
    let mut world = World::<S>::new();
    let held = world.running_by("w-unknown", work()).job;
    assert_eq!(row(&mut world, "w-unknown"), None);
    see(&mut world, announced("w-unknown"));
    assert_eq!(running(&mut world, "w-unknown"), [held.id]);
}

pub fn removing_a_worker_leaves_its_leases_to_run<S: Subject>() {
    let mut world = World::<S>::new();
    see(&mut world, announced("w1"));
    let held = world.running_by("w1", work()).job;
    note(&mut world, [Admin::RemoveWorker(worker("w1"))]);
    assert_eq!(world.job(held.id), held);
    assert_eq!(world.settle(held.token(), complete()), Ok(StateName::Done));
}

pub fn the_host_of_a_worker_is_kept_without_characters_that_a_store_cannot_hold<S: Subject>() {
    let mut world = World::<S>::new();
    see(&mut world, Worker { host: "a\0b".into(), ..announced("w1") });
    let kept = row(&mut world, "w1").expect("the worker is known");
    assert_eq!(&*kept.worker.host, "a\u{1a}b");
}
