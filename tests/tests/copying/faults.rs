//! Commits that fail while a copy is on its way, at either end: the next run ends it.

use windlass_core::store::{CommitError, CopyError, Seal};
use windlass_store_memory::{Fault, MemoryStore};
use windlass_tests::copying::{begin, copied, dump, ends, rich, steps};

const FAULTS: [Fault; 6] = [
    Fault::NotCommitted,
    Fault::Full,
    Fault::UnknownCommitted,
    Fault::UnknownNotCommitted,
    Fault::FatalCommitted,
    Fault::FatalNotCommitted,
];

/// Runs a copy whose `nth` commit at one end fails; returns whether it failed.
fn run(
    source: &MemoryStore,
    target: &MemoryStore,
    at_source: bool,
    nth: usize,
    fault: Fault,
) -> bool {
    let (mut from, mut to) = (source.another(), target.another());
    let failing = if at_source { &mut from } else { &mut to };
    (0..nth).for_each(|_| failing.pass_next());
    failing.fail_next(fault);
    let ended = begin(ends(from, to), 1).and_then(|copy| steps(&mut copy.pages(9), usize::MAX));
    match ended {
        Ok(done) => {
            assert!(done.is_some());
            false
        }
        Err(CopyError::Write { error, .. }) => {
            assert!(!matches!(error, CommitError::Corrupt(_)), "{error}");
            true
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_copy_whose_commit_fails_anywhere_is_ended_by_the_next_run() {
    let rich = rich(MemoryStore::new());
    let before = copied(&rich);
    let mut failed = 0;
    for fault in FAULTS {
        for at_source in [true, false] {
            for nth in 0.. {
                let (source, target) = (rich.crash_image(), MemoryStore::new());
                if run(&source, &target, at_source, nth, fault) {
                    failed += 1;
                    let copy = begin(ends(source.another(), target.another()), 2);
                    let ended = copy.and_then(|mut copy| steps(&mut copy, usize::MAX));
                    let ended = matches!(ended, Ok(Some(_)) | Err(CopyError::AlreadyMoved { .. }));
                    assert!(ended, "{fault:?} at {nth}");
                } else if nth > 30 || at_source {
                    assert!(fault == Fault::UnknownCommitted || nth >= 2, "{fault:?} {nth}");
                    break;
                }
                assert_eq!(copied(&target), before, "{fault:?} at {nth}");
                assert_eq!(Seal::of(&dump(&target).settings), None, "it can be used");
                assert!(target.verify().is_empty());
            }
        }
    }
    assert!(failed > 60, "{failed} commits failed");
}
