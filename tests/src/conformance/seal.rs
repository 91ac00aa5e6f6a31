//! A store with a mark takes no batches but those that write the mark, from every handle.

use windlass_core::store::{Admin, CommitError, CopyId, Seal, Store};

use crate::fixture::*;

/// Commits a batch with this command; the refusal as text.
fn commit<S: Subject>(world: &mut World<S>, command: Admin) -> Result<(), String> {
    let batch = world.batch(|batch| batch.admin.push(command));
    let now = world.now();
    match world.store().commit(now, &batch) {
        Ok(_) => Ok(()),
        Err(CommitError::NotCommitted(cause)) => Err(cause.to_string()),
        Err(other) => panic!("{other}"),
    }
}

fn moved() -> Seal {
    Seal::Moved { copy: CopyId(5), to: "elsewhere".into() }
}

pub fn a_store_with_a_mark_takes_no_batches_until_the_mark_is_removed<S: Subject>() {
    let mut world = World::<S>::new();
    let pause = || Admin::pause(queue("q"));
    assert_eq!(commit(&mut world, pause()), Ok(()));
    assert_eq!(commit(&mut world, Seal::command(Some(&moved()))), Ok(()));
    let before = world.dump();
    // Twice, so that a store in two hands is asked by both.
    for _ in 0..2 {
        let error = commit(&mut world, pause()).expect_err("it is refused");
        assert!(error.contains("was moved to elsewhere"), "{error}");
        let batch = world.batch(|batch| batch.enqueues.push(work()));
        let now = world.now();
        let refused = world.store().commit(now, &batch);
        assert!(matches!(refused, Err(CommitError::NotCommitted(_))), "{refused:?}");
    }
    assert_eq!(world.dump(), before, "a refused batch changed something");
    assert_eq!(commit(&mut world, Seal::command(None)), Ok(()));
    assert_eq!(commit(&mut world, pause()), Ok(()));
    world.enqueue(work());
}

pub fn a_mark_is_there_after_a_crash<S: Subject>() {
    let mut world = World::<S>::new();
    assert_eq!(commit(&mut world, Seal::command(Some(&moved()))), Ok(()));
    world.reopen();
    let error = commit(&mut world, Admin::pause(queue("q"))).expect_err("it is refused");
    assert!(error.contains("was moved to elsewhere"), "{error}");
    assert_eq!(Seal::of(&world.dump().settings), Some(moved()));
}
