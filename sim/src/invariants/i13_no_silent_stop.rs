//! I13: where there is a claimable job and a free slot, a batch, a wake or a timer is pending, and
//! the two come together before long. Nor does a machine go in circles: its reaper comes to an end.

use windlass_core::Millis;

use super::{Calm, Seen};
use crate::ledger::{Barren, Ledger};

/// Checks that a machine with a free slot does not overlook a job.
pub(super) fn check(ledger: &Ledger, seen: &Seen<'_>) -> Option<String> {
    let quiet = match seen {
        Seen::Quiet(quiet) => quiet,
        Seen::Commit(commit) => {
            let Barren { commits, leases } = commit.barren;
            let most = MOST_BARREN.max(2 * leases + 8);
            let circles = usize::try_from(commits).is_ok_and(|commits| commits > most);
            return circles.then(|| {
                format!("{commits} reaping commits in a row wrote nothing, for {leases} leases")
            });
        }
        Seen::Calm(calm) => return unpromoted(ledger, *calm),
        _ => return None,
    };
    let (worker, hungry_ms) = (quiet.worker, quiet.hungry_ms);
    if !quiet.hungry {
        return None;
    }
    if quiet.wakeup.is_none() {
        return Some(format!("{worker} has a free slot and a job, and nothing will wake it"));
    }
    // Nothing can be claimed from a store that fails, but it has to be tried again.
    if !quiet.good && quiet.sleeps_ms > LONGEST_RETRY {
        let sleeps_ms = quiet.sleeps_ms;
        return Some(format!("{worker} does not try its store again for {sleeps_ms} ms"));
    }
    let overlooked = hungry_ms > quiet.patience_ms;
    overlooked.then(|| format!("{worker} has overlooked a job for {hungry_ms} ms"))
}

/// A scheduled job that is due and lies, though some process has been well for long enough.
fn unpromoted(ledger: &Ledger, calm: Calm) -> Option<String> {
    let slack = Millis::new(calm.slack_ms);
    let long = calm.at - calm.since > calm.slack_ms;
    let id = ledger.scheduled_by(calm.wall.minus(slack)).next().filter(|_| long)?;
    Some(format!("#{id} fell due more than {slack} ago, and nobody has noticed"))
}

/// The longest pause before a store that fails is tried again.
const LONGEST_RETRY: u64 = 1_000;
/// A pass of the reaper in pages of one row takes as many commits as there are leases, and more if
/// some are extended meanwhile. Live holders have at most 36: six slots for each of four processes
/// and three for each of four remote workers. Processes that crashed have left more.
const MOST_BARREN: usize = 80;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use windlass_core::machine::{WakeReason, Wakeup};
    use windlass_core::{Mono, State, Wall};

    use super::super::testing::{Scene, detail, quiet, worker};
    use super::super::{Calm, Seen};
    use crate::ledger::Barren;

    #[test]
    fn a_machine_that_sleeps_beside_a_job_is_caught() {
        let scene = Scene::new();
        let (one, none) = (worker("one"), BTreeSet::new());
        let mut seen = quiet(&one, &none);
        seen.hungry = true;
        assert!(scene.catches("I13", &Seen::Quiet(seen)));
        let mut seen = quiet(&one, &none);
        let wakeup = Some(Wakeup { at: Mono::new(1), reason: WakeReason::ChangeCheck });
        (seen.hungry, seen.wakeup) = (true, wakeup);
        assert!(scene.allows(&Seen::Quiet(seen)));
        let mut seen = quiet(&one, &none);
        (seen.hungry, seen.wakeup, seen.hungry_ms) = (true, wakeup, 1_001);
        assert!(scene.catches("I13", &Seen::Quiet(seen)));
    }

    #[test]
    fn a_machine_that_does_not_try_a_failing_store_again_is_caught() {
        let scene = Scene::new();
        let (one, none) = (worker("one"), BTreeSet::new());
        let mut seen = quiet(&one, &none);
        let wakeup = Some(Wakeup { at: Mono::new(1), reason: WakeReason::StoreRetry });
        (seen.hungry, seen.wakeup, seen.good, seen.sleeps_ms) = (true, wakeup, false, 1_000);
        assert!(scene.allows(&Seen::Quiet(seen)));
        let mut seen = quiet(&one, &none);
        (seen.hungry, seen.wakeup, seen.good, seen.sleeps_ms) = (true, wakeup, false, 1_001);
        assert!(scene.catches("I13", &Seen::Quiet(seen)));
    }

    #[test]
    fn a_reaper_that_goes_in_circles_is_caught() {
        let mut scene = Scene::new();
        for (leases, most) in [(0, 80), (36, 80), (37, 82), (100, 208)] {
            scene.barren = Barren { commits: most, leases };
            assert!(scene.breaks_not("I13", scene.story(1, None, vec![])), "{leases} leases");
            scene.barren.commits += 1;
            assert!(scene.breaks("I13", scene.story(1, None, vec![])), "{leases} leases");
        }
    }

    #[test]
    fn a_scheduled_job_that_nobody_promotes_is_caught() {
        let mut scene = Scene::new();
        let mut late = detail(1);
        late.job.state = State::Queued { ready: false, spent: None };
        scene.store(late);
        let (at, since, slack_ms) = (10_000, 0, 1_000);
        let calm = |wall| Seen::Calm(Calm { at, since, wall: Wall::new(wall), slack_ms });
        assert!(scene.allows(&calm(999)));
        assert!(scene.catches("I13", &calm(1_000)));
    }
}
