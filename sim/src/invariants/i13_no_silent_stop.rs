//! I13: where there is a claimable job and a free slot, a batch, a wake or a timer is pending, and
//! the two come together before long. Nor does a machine go in circles: its reaper comes to an end.

use super::Seen;
use crate::ledger::Ledger;

/// Checks that a machine with a free slot does not overlook a job.
pub(super) fn check(_: &Ledger, seen: &Seen<'_>) -> Option<String> {
    let quiet = match seen {
        Seen::Quiet(quiet) => quiet,
        Seen::Commit(commit) => {
            let barren = commit.barren;
            let circles = barren > MOST_BARREN;
            return circles.then(|| format!("{barren} reaping commits in a row wrote nothing"));
        }
        _ => return None,
    };
    let (worker, hungry_ms) = (quiet.worker, quiet.hungry_ms);
    if !quiet.hungry {
        return None;
    }
    if quiet.wakeup.is_none() {
        return Some(format!("{worker} has a free slot and a job, and nothing will wake it"));
    }
    let overlooked = hungry_ms > quiet.patience_ms;
    overlooked.then(|| format!("{worker} has overlooked a job for {hungry_ms} ms"))
}

/// A pass of the reaper in pages of one row takes as many commits as there are leases, which are
/// at most six slots for each of four processes and three for each of four remote workers.
const MOST_BARREN: u32 = 80;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use windlass_core::Mono;
    use windlass_core::machine::{WakeReason, Wakeup};

    use super::super::Seen;
    use super::super::testing::{Scene, quiet, worker};

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
    fn a_reaper_that_goes_in_circles_is_caught() {
        let mut scene = Scene::new();
        scene.barren = super::MOST_BARREN;
        assert!(scene.breaks_not("I13", scene.story(1, None, vec![])));
        scene.barren += 1;
        assert!(scene.breaks("I13", scene.story(1, None, vec![])));
    }
}
