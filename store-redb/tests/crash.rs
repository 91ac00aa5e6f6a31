//! Power cuts at every sync, errors at every operation, disks that are full or lie: what was
//! acknowledged is there, what was not is wholly there or wholly absent, and nothing panics.
//!
//! The disk is [`disk`]: live and durable images, writes kept, dropped or torn at any byte. First
//! the syncs of a batch are counted, then the power is cut at each of them, for many choices of
//! what is left. `WINDLASS_CASES` sets another number of choices.

mod disk;
mod old_schema;

use disk::work::{KINDS, Work, dump, open};
use disk::{Chance, Disk, Fault};
use windlass_core::store::{CommitError, Reader, Store, StoreError};
use windlass_store_redb::RedbStore;

/// The number of choices for each sync, unless the environment says otherwise.
#[expect(clippy::disallowed_methods, reason = "a longer run is asked for at the edge of the test")]
fn cases(default: u64) -> u64 {
    std::env::var("WINDLASS_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// How many jobs the interrupted batches are about.
const SIZE: usize = 12;

/// A disk with a store in use, and what is in it. `closed` says that the store was closed before.
fn furnished(closed: bool) -> (Vec<u8>, Work) {
    let disk = Disk::new(Vec::new(), 0);
    let mut store = open(&disk).expect("an empty disk becomes a store");
    let mut work = Work::new();
    work.settle_in(&mut store);
    if closed {
        drop(store);
    }
    (disk.durable(), work)
}

/// Opens what a crash left, cutting the power again during recovery a few times first.
fn recover(mut image: Vec<u8>, chance: &mut Chance) -> Result<(RedbStore, Disk), String> {
    for _ in 0..chance.below(4) {
        let disk = Disk::new(image, chance.below(usize::MAX) as u64);
        disk.set(Some(Fault::CutAtSync(1 + chance.below(6) as u64)));
        let opened = open(&disk);
        let cut = disk.is_off();
        match opened {
            Err(error) if !cut => return Err(format!("it does not open again: {error}")),
            _ => image = disk.crash(),
        }
    }
    let disk = Disk::new(image, 0);
    let store = open(&disk).map_err(|error| format!("it does not open again: {error}"))?;
    Ok((store, disk))
}

/// What must hold of a store after a crash in a batch: it is as before or as after, and sound. Says
/// whether the batch is there.
fn check(store: &mut RedbStore, before: &str, after: &str) -> Result<bool, String> {
    let found = dump(store)?;
    let wrong = store.verify().map_err(|error| error.to_string())?;
    if !wrong.is_empty() {
        return Err(format!("it contradicts itself: {wrong:?}"));
    }
    match found {
        found if found == after => Ok(true),
        found if found == before => Ok(false),
        found => Err(format!("neither before nor after:\n{found}\n-- before\n{before}")),
    }
}

/// Cuts the power as `fault` says while a batch of a kind is committed, and checks what is left.
fn cut(base: &(Vec<u8>, Work), kind: &str, fault: Fault, seed: u64) -> Result<(), String> {
    let mut chance = Chance(seed);
    let disk = Disk::new(base.0.clone(), seed);
    let mut store = open(&disk)?;
    let mut work = base.1.fork();
    let (now, batch) = work.batch(kind, SIZE);
    let before = dump(&work.shadow)?;
    disk.set(Some(fault));
    let committed = store.commit(now, &batch);
    work.follow(now, &batch);
    let after = dump(&work.shadow)?;
    drop(store);
    let (mut store, _disk) = recover(disk.crash(), &mut chance)?;
    let there = check(&mut store, &before, &after)?;
    let marked = store.was_committed(batch.id).map_err(|error| error.to_string())?;
    match committed {
        Ok(_) if !there => Err("it was acknowledged, and is gone".into()),
        Err(CommitError::Fatal { outcomes: None, .. }) if there => {
            Err("it is there, though the commit was never reached".into())
        }
        _ if marked != there => Err("the marker says something else than the rows".into()),
        _ => Ok(()),
    }
}

/// How many syncs a batch of a kind makes.
fn syncs(base: &(Vec<u8>, Work), kind: &str) -> u64 {
    let disk = Disk::new(base.0.clone(), 0);
    let mut store = open(&disk).expect("the disk is well");
    let mut work = base.1.fork();
    let (now, batch) = work.batch(kind, SIZE);
    disk.set(None);
    let out = store.commit(now, &batch).expect("the disk is well");
    assert!(out.wrote, "a batch of kind {kind} writes something");
    disk.counts().syncs
}

#[test]
fn a_power_cut_at_any_sync_of_any_batch_leaves_it_wholly_there_or_wholly_absent() {
    for closed in [true, false] {
        let base = furnished(closed);
        for kind in KINDS {
            let syncs = syncs(&base, kind);
            assert!(syncs >= 2, "a commit in two phases syncs twice, not {syncs} times");
            for sync in 1..=syncs {
                // Behind a sync nothing is left to chance but the cuts during recovery.
                let after = (0..2).map(|seed| (Fault::CutAfterSync(sync), seed));
                let within = (0..cases(12)).map(|seed| (Fault::CutAtSync(sync), seed));
                for (fault, seed) in within.chain(after) {
                    cut(&base, kind, fault, seed).unwrap_or_else(|why| {
                        panic!("{kind}, {fault:?}, seed {seed}, closed {closed}: {why}")
                    });
                }
            }
        }
    }
}

/// Commits batches until the power is cut somewhere, again and again on one disk. `prepare` may
/// spoil the disk or the store.
fn survive(
    seed: u64,
    rounds: usize,
    prepare: impl Fn(&Disk, RedbStore) -> RedbStore,
) -> Result<(), String> {
    let mut chance = Chance(seed);
    let (mut image, mut work) = furnished(false);
    for _ in 0..rounds {
        let (store, disk) = recover(image, &mut chance)?;
        let mut store = prepare(&disk, store);
        disk.set(Some(Fault::CutAtSync(1 + chance.below(12) as u64)));
        let mut ends = (dump(&work.shadow)?, dump(&work.shadow)?);
        let mut next = work.fork();
        for _ in 0..20 {
            let kind = KINDS[chance.below(KINDS.len())];
            let (now, batch) = next.batch(kind, 1 + chance.below(SIZE));
            ends.0 = dump(&next.shadow)?;
            work = next.fork();
            let committed = store.commit(now, &batch);
            next.follow(now, &batch);
            ends.1 = dump(&next.shadow)?;
            if committed.is_ok() {
                ends.0.clone_from(&ends.1);
                work = next.fork();
            }
            if disk.is_off() {
                break;
            }
        }
        image = disk.crash();
        drop(store);
        let (mut store, _disk) = recover(image.clone(), &mut chance)?;
        if check(&mut store, &ends.0, &ends.1)? {
            work = next;
        }
    }
    Ok(())
}

#[test]
fn acknowledged_batches_survive_one_crash_after_the_other() {
    for seed in 0..cases(12) {
        survive(seed, 8, |_, store| store).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

/// Without this the tests above would show nothing.
#[test]
fn on_a_disk_that_lies_acknowledged_batches_are_lost_and_the_tests_notice() {
    let lost = |seed| {
        survive(seed, 8, |disk, store| {
            disk.lie();
            store
        })
    };
    // What such a disk leaves may be so wrong that redb panics: that is noticed as well.
    let noticed = |seed| !matches!(std::panic::catch_unwind(|| lost(seed)), Ok(Ok(())));
    assert!((0..8).any(noticed), "no loss was noticed");
}

#[test]
fn a_power_cut_at_any_sync_of_the_first_opening_leaves_a_store_or_nothing() {
    let disk = Disk::new(Vec::new(), 0);
    drop(open(&disk).expect("an empty disk becomes a store"));
    for sync in 1..=disk.counts().syncs {
        for seed in 0..cases(12) {
            let disk = Disk::new(Vec::new(), seed);
            disk.set(Some(Fault::CutAtSync(sync)));
            drop(open(&disk));
            let left = disk.crash();
            // A file gets its name only when it is whole: one without redb's mark is never opened.
            if left.starts_with(b"redb\x1a\x0a\xa9\x0d\x0a") {
                let disk = Disk::new(left, seed);
                let store = open(&disk).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
                assert_eq!(dump(&store), dump(&Work::new().shadow));
            }
        }
    }
}

// Errors.

/// Opens, commits one batch of each kind and reads, while something goes wrong once; then opens
/// again and checks. Returns whether anything failed.
fn stumble(base: &(Vec<u8>, Work), fault: Fault) -> Result<bool, String> {
    let disk = Disk::new(base.0.clone(), 7);
    disk.set(Some(fault));
    let mut work = base.1.fork();
    let (mut before, mut after) = (dump(&work.shadow)?, dump(&work.shadow)?);
    let named = |text: &str| match text {
        text if text.contains("injected") => Ok(()),
        text => Err(format!("the cause is not named: {text}")),
    };
    let mut failed = false;
    let mut store = match open(&disk) {
        Ok(store) => store,
        Err(error) => {
            named(&error)?;
            disk.set(None);
            failed = true;
            open(&disk)?
        }
    };
    for kind in KINDS {
        let (now, batch) = work.batch(kind, SIZE);
        let committed = store.commit(now, &batch);
        let mut next = work.fork();
        next.follow(now, &batch);
        (before, after) = (dump(&work.shadow)?, dump(&next.shadow)?);
        if let Err(error) = committed {
            failed = true;
            named(&error.to_string())?;
            refuses(&mut store, &error)?;
            break;
        }
        work = next;
        before.clone_from(&after);
        match store.reader().and_then(|mut reader| reader.dump()) {
            Ok(dump) if dump.to_string() == after => {}
            Ok(_) => return Err("what is read is not what was committed".into()),
            Err(error) => {
                failed = true;
                named(&error.to_string())?;
                let (now, batch) = work.fork().batch("enqueue", 0);
                store
                    .commit(now, &batch)
                    .map_or_else(|error| named(&error.to_string()), |_| Ok(()))?;
                break;
            }
        }
    }
    disk.set(None);
    store.reopen().map_err(|error| error.to_string())?;
    check(&mut store, &before, &after)?;
    Ok(failed)
}

/// After a fatal error nothing is committed or read, and the first cause is still named.
fn refuses(store: &mut RedbStore, error: &CommitError) -> Result<(), String> {
    if !matches!(error, CommitError::Fatal { .. }) {
        return Err(format!("an error of the disk is fatal, not {error:?}"));
    }
    let (now, batch) = Work::new().batch("enqueue", 1);
    match store.commit(now, &batch) {
        Err(CommitError::Fatal { cause, outcomes: None })
            if cause.to_string().contains("injected") => {}
        other => return Err(format!("a broken store answered {other:?}")),
    }
    match store.reader().and_then(|mut reader| reader.next_due()) {
        Err(StoreError::Fatal(cause)) if cause.to_string().contains("injected") => Ok(()),
        other => Err(format!("a broken store was read: {other:?}")),
    }
}

#[test]
fn an_error_at_any_operation_is_named_and_nothing_is_half_done() {
    let base = furnished(false);
    let mut operations = 0;
    loop {
        operations += 1;
        let went_wrong = stumble(&base, Fault::FailAt(operations))
            .unwrap_or_else(|why| panic!("operation {operations}: {why}"));
        if !went_wrong {
            break;
        }
    }
    assert!(operations > 100, "only {operations} operations were made to fail");
}

#[test]
fn a_disk_that_fails_for_good_at_any_operation_is_named_and_nothing_is_half_done() {
    let base = furnished(true);
    let mut operations = 0;
    loop {
        operations += 3;
        let went_wrong = stumble(&base, Fault::FailFrom(operations))
            .unwrap_or_else(|why| panic!("from operation {operations}: {why}"));
        if !went_wrong {
            break;
        }
    }
    assert!(operations > 100, "only {operations} operations were made to fail");
}

#[test]
fn a_sync_that_fails_once_acknowledges_nothing_and_what_is_read_after_reopening_is_durable() {
    let base = furnished(false);
    for kind in KINDS {
        for sync in 1..=syncs(&base, kind) {
            let disk = Disk::new(base.0.clone(), sync);
            let mut store = open(&disk).expect("the disk is well");
            let mut work = base.1.fork();
            let (now, batch) = work.batch(kind, SIZE);
            let before = dump(&work.shadow).expect("memory does not fail");
            disk.set(Some(Fault::LoseSync(sync)));
            let error = store.commit(now, &batch).expect_err("nothing is acknowledged");
            refuses(&mut store, &error).unwrap_or_else(|why| panic!("{kind}, {sync}: {why}"));
            store.reopen().expect("the disk is well again");
            work.follow(now, &batch);
            let after = dump(&work.shadow).expect("memory does not fail");
            let there = check(&mut store, &before, &after);
            let there = there.unwrap_or_else(|why| panic!("{kind}, {sync}: {why}"));
            // Whatever a power cut does now, that is what is left.
            for image in [disk.durable(), disk.crash()] {
                let mut store = open(&Disk::new(image, 0)).expect("it opens again");
                assert_eq!(check(&mut store, &before, &after), Ok(there), "{kind}, sync {sync}");
            }
        }
    }
}

#[test]
fn a_full_disk_refuses_what_does_not_fit_and_goes_on_by_itself_when_there_is_space() {
    let (image, mut work) = furnished(true);
    let disk = Disk::new(image, 1);
    let mut store = open(&disk).expect("the disk is well");
    disk.set_capacity(disk.used());
    let refused = (0..100).find_map(|_| {
        let (now, batch) = work.batch("enqueue", 200);
        match store.commit(now, &batch) {
            Ok(_) => {
                work.follow(now, &batch);
                None
            }
            Err(error) => Some(error),
        }
    });
    let refused = refused.expect("the disk was filled");
    assert!(matches!(refused, CommitError::Full(_)), "{refused:?}");
    assert_eq!(dump(&store), dump(&work.shadow), "nothing of it was written");
    let (now, batch) = work.batch("claim", 1);
    store.commit(now, &batch).expect("a job that is stored can still be run");
    work.follow(now, &batch);
    disk.set_capacity(usize::MAX);
    let (now, batch) = work.batch("enqueue", 200);
    store.commit(now, &batch).expect("there is space again");
    work.follow(now, &batch);
    assert_eq!(dump(&store), dump(&work.shadow));
    assert_eq!(store.verify(), Ok(Vec::new()));
}

#[test]
fn a_write_that_finds_no_space_is_refused_as_such_and_the_next_batch_works() {
    let base = furnished(false);
    for write in 1.. {
        let disk = Disk::new(base.0.clone(), write);
        let mut store = open(&disk).expect("the disk is well");
        let mut work = base.1.fork();
        disk.set(Some(Fault::FullAt(write)));
        let (now, batch) = work.batch("mixed", SIZE);
        match store.commit(now, &batch) {
            Ok(_) => drop(work.follow(now, &batch)),
            Err(CommitError::Full(cause)) => assert!(cause.to_string().contains("injected")),
            Err(error) => panic!("write {write}: {error:?}"),
        }
        assert_eq!(dump(&store), dump(&work.shadow), "write {write}");
        let writes = disk.counts().writes;
        disk.set(None);
        let (now, batch) = work.batch("enqueue", SIZE);
        store.commit(now, &batch).expect("there is space again");
        work.follow(now, &batch);
        assert_eq!(dump(&store), dump(&work.shadow), "write {write}");
        if writes < write {
            assert!(write > 10, "only {write} writes were made to fail");
            break;
        }
    }
}
