//! Power cuts at every operation, with torn sectors; and that the checks can fail.

use std::collections::BTreeSet;
use std::ops::Range;

use tempfile::TempDir;
use windlass_store_sqlite::{OpenError, SqliteStore};
use windlass_store_sqlite_vfs::{Disk, Weakened};

use crate::story::story;
use crate::watch::{Played, fates, play, seeds};

/// Cuts the power before and after every operation of the steps with these names.
fn cut_power_in(names: &[&str]) {
    let played = play(&story(), |_| {});
    let seeds = seeds(10);
    let mut images = 0;
    for range in places(&played, names) {
        let (cut, broken) = cut_power_at(&played, range, seeds);
        assert!(broken.is_empty(), "{} promises are broken: {}", broken.len(), broken[0]);
        images += cut;
    }
    assert!(images > 40, "only {images} different images: the crashes are not what they were");
}

/// From where a step began to where it was acknowledged.
fn places(played: &Played, names: &[&str]) -> Vec<Range<usize>> {
    let begins = [0].into_iter().chain(played.steps.iter().map(|step| step.at));
    let steps = begins.zip(&played.steps).filter(|(_, step)| names.contains(&step.name));
    steps.map(|(begin, step)| begin..step.at + 1).collect()
}

/// How many different images there were, and which promises they broke.
fn cut_power_at(played: &Played, range: Range<usize>, seeds: u64) -> (usize, Vec<String>) {
    let mut seen = BTreeSet::new();
    let mut broken = Vec::new();
    for at in range {
        for fate in fates(at, seeds) {
            let image = played.disk.image(at, fate);
            if !seen.insert((played.next(at), image.fingerprint())) {
                continue;
            }
            if let Err(what) = played.check(at, &image) {
                broken.push(format!("at operation {at}, {fate:?}: {what}"));
            }
        }
    }
    (seen.len(), broken)
}

#[test]
fn a_power_cut_while_a_store_is_made_leaves_an_empty_store_or_none() {
    cut_power_in(&["open"]);
}

#[test]
fn a_power_cut_loses_no_acknowledged_enqueue_and_leaves_no_half_of_another() {
    cut_power_in(&["enqueue"]);
}

#[test]
fn a_power_cut_leaves_a_claim_a_settlement_or_a_reaping_done_or_undone() {
    cut_power_in(&["claim", "settle", "reap", "heartbeat", "purge"]);
}

#[test]
fn a_power_cut_while_the_log_is_moved_into_the_database_loses_nothing() {
    cut_power_in(&["reopen", "close"]);
}

#[test]
fn every_commit_is_synced_before_it_is_acknowledged() {
    let played = play(&story(), |_| {});
    for pair in played.steps.windows(2) {
        let [before, step] = pair else { continue };
        let syncs = played.disk.syncs(before.at, step.at);
        let expected = if matches!(step.name, "reopen" | "close") { 2 } else { 1 };
        assert!(syncs >= expected, "{}: {syncs} syncs", step.name);
    }
}

/// The same story and the same checks, with less than is needed: the checks must see it.
#[track_caller]
fn promises_are_broken_with(level: u8) {
    let played = play(&story(), |disk| disk.weaken(Weakened { level, admitted: false }));
    let mut broken = Vec::new();
    for range in places(&played, &["enqueue"]) {
        // The place of the acknowledgement is where it hurts.
        broken.extend(cut_power_at(&played, range.end - 1..range.end, 2).1);
    }
    let lost = broken.iter().filter(|what| what.contains("acknowledged job")).count();
    assert!(lost > 0, "synchronous={level} lost nothing: the checks see nothing");
}

#[test]
fn with_synchronous_normal_acknowledged_jobs_are_seen_to_be_lost() {
    promises_are_broken_with(1);
}

#[test]
fn with_synchronous_off_acknowledged_jobs_are_seen_to_be_lost() {
    promises_are_broken_with(0);
}

#[test]
fn a_store_whose_synchronous_does_not_take_is_refused() {
    let (disk, dir) = (Disk::new(), TempDir::new().expect("a directory"));
    disk.weaken(Weakened { level: 1, admitted: true });
    let opened = SqliteStore::open_with_vfs(dir.path().join("jobs.db"), disk.vfs());
    let Err(OpenError::Pragma { pragma, found, needed, .. }) = opened else {
        panic!("a store without durability must not open: {opened:?}");
    };
    assert_eq!((pragma, found.as_str(), needed), ("synchronous", "1", "2"));
}
