//! What is kept beside jobs: settings by name, and workers with what they hold.

use windlass_core::limits::SETTING_VALUE_BYTES;
use windlass_core::store::{Admin, AdminDone, Reader, Worker, WorkerKind, WorkerRow};
use windlass_core::{JobId, LeaseLength, Millis, StateName, Wall};

use crate::fixture::{
    Subject, UNUSUAL_TEXTS, World, announced, complete, main_work, reap_up_to, setting, value,
    work, worker,
};

fn set(name: &str, text: &str) -> Admin {
    Admin::SetSetting(setting(name), Some(value(text)))
}

fn unset(name: &str) -> Admin {
    Admin::SetSetting(setting(name), None)
}

#[track_caller]
fn note<S: Subject>(world: &mut World<S>, commands: impl IntoIterator<Item = Admin>) {
    let out = world.commit(|batch| batch.admin.extend(commands));
    assert!(out.admin.iter().all(|done| *done == Ok(AdminDone::Noted)), "{:?}", out.admin);
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
            let described = Worker { host: "höst 2".into(), pid, kind, ..announced("w1") };
            see(&mut world, described.clone());
            world.reopen();
            assert_eq!(row(&mut world, "w1").map(|row| row.worker), Some(described));
        }
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
    assert_eq!(seen(&mut world, "w1"), (world.now(), world.now()), "it starts anew");
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
