//! Calls that fail: I/O errors, a full disk, half a write, a sync that lies.
//!
//! A story goes on over one fault at each of its calls. Whatever the store answers must be true:
//! nothing written, or unknown until it was reopened; and in the end nothing is missing.

use windlass_core::store::{CommitError, Dump, Store};
use windlass_store_sqlite::SqliteStore;
use windlass_store_sqlite_vfs::{Breakdown, Fate, Fault, FileKind};

use crate::story::{Act, fill, perform, short_story};
use crate::watch::{Watched, compare, play, recover};

/// The states a story goes through: first the empty one.
fn states(story: &[Act]) -> Vec<Dump> {
    play(story, |_| {}).steps.into_iter().map(|step| step.dump).collect()
}

/// Plays a story on a disk that fails at some call. Returns how often it failed.
fn play_over(story: &[Act], states: &[Dump], breakdown: Breakdown) -> u64 {
    let mut watched = Watched::closed();
    watched.disk.break_down(breakdown);
    let path = watched.dir.path().join("jobs.db");
    match SqliteStore::open_with_vfs(path, watched.disk.vfs()) {
        Ok(opened) => watched.store = Some(opened),
        Err(error) => {
            assert_names_the_cause(&error.to_string());
            watched.disk.clear_breakdown();
            watched.open();
        }
    }
    for (act, around) in story.iter().zip(states.windows(2)) {
        let [before, after] = around else { continue };
        if let Err(error) = perform(watched.store(), act) {
            put_right(&mut watched, act, &error, [before, after]);
        }
    }
    let fired = watched.disk.fired();
    watched.disk.clear_breakdown();
    assert_durable(&mut watched, &states[story.len()]);
    fired
}

/// Checks that an answer is true, and does what it asks for.
#[track_caller]
fn put_right(watched: &mut Watched, act: &Act, error: &CommitError, [before, after]: [&Dump; 2]) {
    assert_names_the_cause(&error.to_string());
    watched.disk.clear_breakdown();
    let committed = match error {
        CommitError::NotCommitted(_) | CommitError::Full(_) => false,
        CommitError::Fatal { outcomes, .. } => {
            let refused = refuses_until_reopened(watched.store(), act);
            assert!(refused, "a commit went on over {error}");
            watched.store().reopen().expect("a store on a repaired disk can be reopened");
            let committed = is_committed(watched.store(), act);
            assert!(outcomes.is_some() || !committed, "it said that nothing was written: {error}");
            committed
        }
        CommitError::Unknown { .. } | CommitError::Corrupt(_) => panic!("not for this: {error}"),
    };
    assert_durable(watched, if committed { after } else { before });
    if !committed {
        perform(watched.store(), act).expect("a repaired disk takes it");
    }
}

fn refuses_until_reopened(store: &mut SqliteStore, act: &Act) -> bool {
    let Act::Commit { now, batch, .. } = act else { return true };
    let again = store.commit(*now, batch);
    matches!(again, Err(CommitError::Fatal { outcomes: None, .. }))
}

fn is_committed(store: &mut SqliteStore, act: &Act) -> bool {
    let Act::Commit { batch, .. } = act else { return false };
    store.was_committed(batch.id).expect("a repaired disk can be read")
}

/// What can be seen is this, and would survive a power cut that loses all it can.
#[track_caller]
fn assert_durable(watched: &mut Watched, expected: &Dump) {
    let seen = watched.dump();
    assert_eq!(compare(&seen, expected, expected), Ok(()), "as it is seen");
    let image = watched.disk.image(watched.disk.now(), Fate::LoseAll);
    let kept = recover(&image).and_then(|dump| compare(&dump, expected, expected));
    assert_eq!(kept, Ok(()), "as it would be after a power cut");
}

#[track_caller]
fn assert_names_the_cause(text: &str) {
    let causes = ["disk I/O error", "unable to open database file", "database or disk is full"];
    assert!(causes.iter().any(|cause| text.contains(cause)), "the cause is not named: {text}");
}

/// Plays the short story over a fault at each call it concerns. Returns at how many there was one.
fn play_over_each(plan: impl Fn(u64) -> Breakdown) -> u64 {
    let story = short_story();
    let states = states(&story);
    for at in 0.. {
        if play_over(&story, &states, plan(at)) == 0 {
            return at;
        }
    }
    0
}

#[test]
fn a_failed_sync_is_never_acknowledged_and_what_is_seen_later_is_durable() {
    let syncs = play_over_each(|at| Breakdown::new(Fault::LyingSync).after(at));
    assert!(syncs > 8, "only {syncs} syncs");
}

#[test]
fn an_error_of_any_call_leaves_each_commit_done_or_undone() {
    let calls = play_over_each(|at| Breakdown::new(Fault::Error).after(at));
    assert!(calls > 200, "only {calls} calls");
}

#[test]
fn half_a_write_leaves_each_commit_done_or_undone() {
    let writes = play_over_each(|at| Breakdown::new(Fault::ShortWrite).after(at));
    assert!(writes > 100, "only {writes} writes");
}

#[test]
fn a_full_disk_refuses_commits_and_takes_them_again_once_there_is_space() {
    let writes = play_over_each(|at| Breakdown::new(Fault::Full).after(at).lasting());
    assert!(writes > 100, "only {writes} writes");
}

#[test]
fn a_commit_on_a_full_disk_fails_as_full_and_jobs_stored_before_can_be_read() {
    let story = short_story();
    let states = states(&story);
    let mut watched = Watched::fresh();
    perform(watched.store(), &story[0]).expect("there is space");
    for spared in 0..3 {
        watched.disk.break_down(Breakdown::new(Fault::Full).after(spared).lasting());
        let error = perform(watched.store(), &story[1]).expect_err("there is no space");
        assert!(matches!(error, CommitError::Full(_)), "{error}");
        assert_eq!(watched.dump(), states[1]);
    }
    watched.disk.clear_breakdown();
    perform(watched.store(), &story[1]).expect("there is space again");
    assert_durable(&mut watched, &states[2]);
}

/// The log grows past the size at which it is moved into the database.
fn outgrow_the_wal(watched: &mut Watched, seqs: std::ops::Range<u64>) {
    for seq in seqs {
        perform(watched.store(), &fill(seq, 6_000_000)).expect("the WAL takes it");
    }
}

#[test]
fn a_full_disk_under_the_move_of_the_log_costs_no_commit() {
    let mut watched = Watched::fresh();
    let full = Breakdown::new(Fault::Full).on(FileKind::Database).lasting();
    watched.disk.break_down(full);
    outgrow_the_wal(&mut watched, 1..5);
    assert!(watched.disk.fired() > 0, "the WAL was never checkpointed");
    let seen = watched.dump();
    assert_durable(&mut watched, &seen);
    watched.disk.clear_breakdown();
    outgrow_the_wal(&mut watched, 5..7);
    let seen = watched.dump();
    assert_durable(&mut watched, &seen);
}

/// Performs an act; a store that failed is reopened, as often as it asks for it.
fn carry_on(watched: &mut Watched, act: &Act) {
    while let Err(error) = perform(watched.store(), act) {
        assert!(matches!(error, CommitError::Fatal { .. }), "{error}");
        watched.store().reopen().expect("the store can be reopened");
        if is_committed(watched.store(), act) {
            return;
        }
    }
}

/// A connection that has read, and holds its snapshot until it is ended.
fn reader(watched: &Watched) -> rusqlite::Connection {
    let path = watched.dir.path().join("jobs.db");
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let reader = rusqlite::Connection::open_with_flags_and_vfs(path, flags, watched.disk.vfs())
        .expect("a reader can be opened");
    reader.execute_batch("BEGIN; SELECT * FROM jobs").expect("it can read");
    reader
}

/// A store whose log was moved in part while a reader stood in the way, and then to the end; but
/// the sync of that failed.
fn checkpointed_in_parts() -> Watched {
    let mut watched = Watched::fresh();
    outgrow_the_wal(&mut watched, 1..2);
    let reader = reader(&watched);
    outgrow_the_wal(&mut watched, 2..5);
    drop(reader);
    watched.disk.break_down(Breakdown::new(Fault::LyingSync).on(FileKind::Database));
    perform(watched.store(), &fill(5, 100)).expect("the commit itself is durable in the WAL");
    assert_eq!(watched.disk.fired(), 1, "a sync of the database failed");
    watched
}

/// Pages that were checkpointed while a reader was active are synced with those that were
/// checkpointed later. If that sync fails, a later one makes only the later pages durable: then the
/// WAL is reset, and the earlier pages are lost.
#[test]
fn a_failed_sync_of_a_wal_checkpointed_in_parts_loses_nothing() {
    let mut watched = checkpointed_in_parts();
    for seq in 6..9 {
        carry_on(&mut watched, &fill(seq, 100_000));
    }
    let seen = watched.dump();
    assert_durable(&mut watched, &seen);
}

#[test]
fn a_store_that_may_have_lost_pages_goes_on_only_when_it_is_alone() {
    let mut watched = checkpointed_in_parts();
    let other = reader(&watched);
    let error = perform(watched.store(), &fill(6, 100)).expect_err("a sync failed before");
    assert!(matches!(error, CommitError::Fatal { outcomes: None, .. }), "{error}");
    assert_names_the_cause(&error.to_string());
    let error = watched.store().reopen().expect_err("another has it open");
    assert!(error.to_string().contains("exclusive access"), "{error}");
    perform(watched.store(), &fill(6, 100)).expect_err("it was not reopened");
    drop(other);
    watched.store().reopen().expect("it is alone");
    perform(watched.store(), &fill(6, 100)).expect("it goes on");
    let seen = watched.dump();
    assert_durable(&mut watched, &seen);
}

/// A sync of the WAL fails, and the process ends. The next one reads the batch from the WAL, though
/// it is not on the disk, and no later sync of the WAL will bring it there.
#[test]
fn a_batch_found_in_a_log_that_was_not_synced_is_made_durable_before_it_is_shown() {
    let story = short_story();
    let states = states(&story);
    let mut watched = Watched::fresh();
    perform(watched.store(), &story[0]).expect("the disk is well");
    // An idle reader keeps the WAL from being removed with the connection that failed.
    assert_eq!(watched.dump(), states[1]);
    watched.disk.break_down(Breakdown::new(Fault::LyingSync).on(FileKind::Log));
    perform(watched.store(), &story[1]).expect_err("its sync failed");
    watched.disk.break_down(Breakdown::new(Fault::Error).lasting());
    watched.store = None;
    watched.disk.clear_breakdown();
    watched.open();
    assert_durable(&mut watched, &states[2]);
}
