//! Crashes that follow each other: of the recovery itself, and of the power after the process.

use std::collections::BTreeSet;

use windlass_core::store::Dump;
use windlass_store_sqlite_vfs::{Breakdown, Disk, Fate, Fault};

use crate::story::{Act, perform, short_story};
use crate::watch::{Played, Watched, compare, dump, fates, play, recover, seeds};

/// A store opened on what a crash left, and closed again, on a disk that was watched meanwhile.
struct Recovered {
    disk: Disk,
    /// Where the files lay there already.
    begun: usize,
    /// What it showed, and from which place on.
    shown: Dump,
    from: usize,
}

fn open_after_crash(played: &Played, at: usize, fate: Fate) -> Recovered {
    let mut watched = Watched::after(&played.disk.image(at, fate));
    let begun = watched.disk.now();
    watched.open();
    let from = watched.disk.now();
    let shown = watched.dump();
    watched.store = None;
    Recovered { disk: watched.disk, begun, shown, from }
}

/// Crashes a recovery at every operation; what it has shown stays, whatever happens then.
fn crash_again(played: &Played, at: usize, fate: Fate) -> usize {
    let (before, after) = played.allowed(at);
    let recovered = open_after_crash(played, at, fate);
    let mut seen = BTreeSet::new();
    for again in recovered.begun..=recovered.disk.now() {
        for second in fates(again, 1) {
            let image = recovered.disk.image(again, second);
            let shown = again >= recovered.from;
            if !seen.insert((shown, image.fingerprint())) {
                continue;
            }
            let expected = if shown { [&recovered.shown; 2] } else { [before, after] };
            let kept = recover(&image).and_then(|dump| compare(&dump, expected[0], expected[1]));
            let kept =
                kept.map_err(|what| format!("{at} {fate:?}, then {again} {second:?}: {what}"));
            assert_eq!(kept, Ok(()));
        }
    }
    seen.len()
}

#[test]
fn a_second_crash_during_recovery_changes_nothing() {
    let played = play(&short_story(), |_| {});
    let mut images = 0;
    for step in &played.steps[1..] {
        // In the middle of its writes, between the last of them and the sync, and behind it.
        for at in [step.at.saturating_sub(9), step.at - 2, step.at - 1, step.at] {
            images += crash_again(&played, at, Fate::KeepAll);
            for seed in 0..seeds(1).min(8) {
                images += crash_again(&played, at, Fate::Seed(seed));
            }
        }
    }
    assert!(images > 500, "only {images} different images: the crashes are not what they were");
}

/// A process is killed at some call, and comes back on the same disk, whose power then fails.
/// What the second process showed must be there.
fn kill_then_cut_power(story: &[Act], killed_at: u64) {
    let mut watched = Watched::closed();
    watched.disk.break_down(Breakdown::new(Fault::Error).after(killed_at).lasting());
    // A process that can write nothing any more is as good as dead.
    let path = watched.dir.path().join("jobs.db");
    let opened = windlass_store_sqlite::SqliteStore::open_with_vfs(path, watched.disk.vfs());
    if let Ok(mut store) = opened {
        let _ = story.iter().try_for_each(|act| perform(&mut store, act));
    }
    watched.disk.clear_breakdown();
    watched.open();
    let shown = dump(watched.store());
    let image = watched.disk.image(watched.disk.now(), Fate::LoseAll);
    let kept = recover(&image).and_then(|dump| compare(&dump, &shown, &shown));
    assert_eq!(kept, Ok(()), "killed at call {killed_at}");
}

/// A batch whose log was written but not synced when its process was killed is there for the next
/// process. It may answer from it: "this key is taken by job 7". So it must be durable by then.
#[test]
fn what_is_seen_after_a_kill_survives_a_power_cut() {
    let story = short_story();
    let calls = play(&story, |_| {}).disk.calls();
    for killed_at in 0..calls {
        kill_then_cut_power(&story, killed_at);
    }
}
