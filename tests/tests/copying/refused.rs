//! Copies that are refused: nothing is written, and the refusal says why.

use windlass_core::store::{
    Admin, Batch, CopyEnd, CopyError, CopyId, Copying, Seal, Store, Worker, WorkerKind,
};
use windlass_core::{BatchId, Policy, ProcessId, SettingKey, SettingValue, WorkerId};
use windlass_store_memory::MemoryStore;
use windlass_tests::copying::{LATER, begin, copied, dump, ends, rich, steps};

fn commit(
    store: &mut MemoryStore,
    command: Admin,
) -> Result<(), windlass_core::store::CommitError> {
    let id = BatchId { process: ProcessId(77), seq: LATER.get().cast_unsigned() };
    let mut batch = Batch::new(id, Policy::default());
    batch.admin.push(command);
    store.commit(LATER, &batch).map(|_| ())
}

fn setting() -> Admin {
    let key = SettingKey::new("colour").expect("a name");
    Admin::set_setting(key, Some(SettingValue::new("green").expect("a value")))
}

/// Begins a copy that is refused, and makes sure that neither store has changed.
#[track_caller]
fn refused(source: &MemoryStore, target: &MemoryStore) -> CopyError {
    let before = (dump(source), dump(target));
    let error = begin(ends(source.another(), target.another()), 9).expect_err("it is refused");
    assert_eq!((dump(source), dump(target)), before, "something was written");
    error
}

#[track_caller]
fn moved(source: &MemoryStore, target: &MemoryStore) {
    let mut copy = begin(ends(source.another(), target.another()), 1).expect("it begins");
    steps(&mut copy, usize::MAX).expect("it is copied").expect("it ends");
}

#[test]
fn a_target_that_holds_anything_is_refused_and_nothing_is_written() {
    let source = rich(MemoryStore::new());
    let error = refused(&source, &rich(MemoryStore::new()));
    assert!(matches!(error, CopyError::NotEmpty { what: "queues", .. }), "{error}");
    let mut target = MemoryStore::new();
    commit(&mut target, setting()).expect("it is taken");
    let error = refused(&source, &target);
    assert!(matches!(error, CopyError::NotEmpty { what: "settings", .. }), "{error}");
}

#[test]
fn a_store_on_which_a_process_runs_is_refused_unless_that_is_known_to_be_dead() {
    for at_source in [true, false] {
        let (mut source, mut target) = (rich(MemoryStore::new()), MemoryStore::new());
        let used = if at_source { &mut source } else { &mut target };
        let id = WorkerId::new("w-running").expect("a name");
        let worker = Worker::new(id.clone(), "host", WorkerKind::Local);
        commit(used, Admin::SeeWorker(worker)).expect("it is taken");
        let run = |dead: bool| {
            let (source, target) = ends(source.another(), target.another());
            // Workers of the random source are dead in any case.
            let is_dead = |worker: &Worker| dead || worker.id != id;
            Copying::begin(source, target, (CopyId(1), ProcessId(1)), LATER, &is_dead)
        };
        let before = (dump(&source), dump(&target));
        let error = run(false).expect_err("it is refused");
        assert!(
            matches!(&error, CopyError::InUse { workers, .. } if *workers == [id.clone()]),
            "{error}"
        );
        assert_eq!((dump(&source), dump(&target)), before, "something was written");
        assert!(run(true).is_ok());
    }
}

#[test]
fn a_remote_worker_alone_does_not_keep_a_store_in_use() {
    let mut source = MemoryStore::new();
    let worker = WorkerId::new("far").expect("a name");
    let worker = Worker::new(worker, "elsewhere", WorkerKind::Remote);
    commit(&mut source, Admin::SeeWorker(worker)).expect("it is taken");
    let (source, target) = ends(source, MemoryStore::new());
    assert!(Copying::begin(source, target, (CopyId(1), ProcessId(1)), LATER, &|_| false).is_ok());
}

#[test]
fn from_its_first_step_on_neither_store_takes_batches_and_in_the_end_the_target_does() {
    let (mut source, mut target) = (rich(MemoryStore::new()), MemoryStore::new());
    let mut copy = begin(ends(source.another(), target.another()), 1).expect("it begins");
    let refusal = |store: &mut MemoryStore| commit(store, setting()).map_err(|e| e.to_string());
    let error = refusal(&mut source).expect_err("it is refused");
    assert!(error.contains("is being copied to the target"), "{error}");
    let error = refusal(&mut target).expect_err("it is refused");
    assert!(error.contains("unfinished copy of the source"), "{error}");
    steps(&mut copy, usize::MAX).expect("it is copied");
    let error = refusal(&mut source).expect_err("it is refused");
    assert!(error.contains("was moved to the target"), "{error}");
    assert_eq!(refusal(&mut target), Ok(()));
}

#[test]
fn a_store_that_was_moved_is_moved_no_further_unless_that_is_undone() {
    let (source, target) = (rich(MemoryStore::new()), MemoryStore::new());
    moved(&source, &target);
    let error = refused(&source, &target);
    assert!(matches!(error, CopyError::AlreadyMoved { .. }), "{error}");
    // The target is gone, and something else has its name.
    let error = refused(&source, &MemoryStore::new());
    assert!(matches!(error, CopyError::Sealed { seal: Seal::Moved { .. }, .. }), "{error}");
    let undo = || CopyEnd { store: source.another(), name: "it".into() }.undo(ProcessId(5), LATER);
    assert!(matches!(undo(), Ok(Some(Seal::Moved { .. }))));
    assert!(matches!(undo(), Ok(None)));
    moved(&source, &MemoryStore::new());
}

#[test]
fn a_target_that_was_given_up_half_way_is_neither_filled_further_nor_used() {
    let (source, mut target) = (rich(MemoryStore::new()), MemoryStore::new());
    let mut copy = begin(ends(source.another(), target.another()), 1).expect("it begins");
    steps(&mut copy, 2).expect("it is copied");
    let undo = |store: &MemoryStore| {
        CopyEnd { store: store.another(), name: "it".into() }.undo(ProcessId(5), LATER)
    };
    assert!(undo(&target).is_err(), "half a copy is not put into use");
    assert!(undo(&source).is_ok());
    let error = refused(&source, &target);
    assert!(matches!(error, CopyError::Leftover { .. }), "{error}");
    assert!(commit(&mut target, setting()).is_err());
    moved(&source, &MemoryStore::new());
}

#[test]
fn a_source_that_is_itself_half_a_copy_is_refused() {
    let (source, half) = (rich(MemoryStore::new()), MemoryStore::new());
    let mut copy = begin(ends(source, half.another()), 1).expect("it begins");
    steps(&mut copy, 2).expect("it is copied");
    let error = refused(&half, &MemoryStore::new());
    assert!(matches!(error, CopyError::Sealed { seal: Seal::Filling { .. }, .. }), "{error}");
}

#[test]
fn a_copy_that_is_not_what_it_was_made_of_is_not_put_into_use() {
    let (source, target) = (rich(MemoryStore::new()), MemoryStore::new());
    let mut copy = begin(ends(source.another(), target.another()), 1).expect("it begins");
    steps(&mut copy, 3).expect("it is copied");
    // A batch that writes the mark changes something else too, which no program of ours does.
    let mut liar = source.another();
    let id = BatchId { process: ProcessId(78), seq: 1 };
    let mut batch = Batch::new(id, Policy::default());
    let Some(seal) = Seal::of(&dump(&source).settings) else { panic!("it is marked") };
    batch.admin.push(Seal::command(Some(&seal)));
    let name = dump(&source).queues[0].queue.name.clone();
    let paused = dump(&source).queues[0].queue.is_paused();
    batch.admin.push(if paused { Admin::Resume(name) } else { Admin::pause(name) });
    liar.commit(LATER, &batch).expect("it is taken");
    let error = steps(&mut copy, usize::MAX).expect_err("it differs");
    assert!(matches!(error, CopyError::Differs { section: "queues", .. }), "{error}");
    assert!(Seal::of(&dump(&target).settings).is_some());
    assert!(copied(&source) != copied(&target));
}
