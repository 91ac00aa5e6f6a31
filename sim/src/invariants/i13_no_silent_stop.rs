//! I13: while there are a claimable job and a free slot, a batch, a wake or a timer is pending, and
//! the job is claimed within a limit. A machine does not loop either: its reaper comes to an end.

use windlass_core::Millis;

use super::{Seen, Steady};
use crate::ledger::{IdleReaps, Ledger};

/// Checks that a machine with a free slot does not overlook a job.
pub(super) fn check(ledger: &Ledger, seen: &Seen<'_>) -> Option<String> {
    let quiet = match seen {
        Seen::Quiet(quiet) => quiet,
        Seen::Commit(commit) => {
            let IdleReaps { commits, leases } = commit.idle_reaps;
            let most = MOST_BARREN.max(2 * leases + 8);
            let circles = usize::try_from(commits).is_ok_and(|commits| commits > most);
            return circles.then(|| {
                format!("{commits} reaping commits in a row wrote nothing, for {leases} leases")
            });
        }
        Seen::Steady(steady) => return unpromoted(ledger, *steady),
        _ => return None,
    };
    let (worker, unclaimed_ms) = (quiet.worker, quiet.unclaimed_ms);
    if !quiet.has_claimable_job {
        return None;
    }
    if quiet.wakeup.is_none() {
        return Some(format!("{worker} has a free slot, a claimable job, and no wake-up"));
    }
    // A store that fails has to be tried again.
    if !quiet.good && quiet.sleeps_ms > LONGEST_RETRY {
        let sleeps_ms = quiet.sleeps_ms;
        return Some(format!("{worker} does not try its store again for {sleeps_ms} ms"));
    }
    let overlooked = unclaimed_ms > quiet.unclaimed_limit_ms;
    overlooked.then(|| format!("{worker} has not claimed a claimable job for {unclaimed_ms} ms"))
}

/// Finds a due job that was not promoted in time.
fn unpromoted(ledger: &Ledger, steady: Steady) -> Option<String> {
    let slack = Millis::new(steady.slack_ms);
    let long = steady.at - steady.since > steady.slack_ms;
    let id = ledger.scheduled_by(steady.wall.minus(slack)).next().filter(|_| long)?;
    Some(format!("#{id} fell due more than {slack} ago, and no process has promoted it"))
}

/// The longest pause before a store that fails is tried again, in ms.
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
    use super::super::{Seen, Steady};
    use crate::ledger::IdleReaps;

    #[test]
    fn a_machine_that_sleeps_beside_a_job_is_caught() {
        let scene = Scene::new();
        let (one, none) = (worker("one"), BTreeSet::new());
        let mut seen = quiet(&one, &none);
        seen.has_claimable_job = true;
        assert!(scene.catches("I13", &Seen::Quiet(seen)));
        let mut seen = quiet(&one, &none);
        let wakeup = Some(Wakeup { at: Mono::new(1), reason: WakeReason::ChangeCheck });
        (seen.has_claimable_job, seen.wakeup) = (true, wakeup);
        assert!(scene.allows(&Seen::Quiet(seen)));
        let mut seen = quiet(&one, &none);
        (seen.has_claimable_job, seen.wakeup, seen.unclaimed_ms) = (true, wakeup, 1_001);
        assert!(scene.catches("I13", &Seen::Quiet(seen)));
    }

    #[test]
    fn a_machine_that_does_not_try_a_failing_store_again_is_caught() {
        let scene = Scene::new();
        let (one, none) = (worker("one"), BTreeSet::new());
        let mut seen = quiet(&one, &none);
        let wakeup = Some(Wakeup { at: Mono::new(1), reason: WakeReason::StoreRetry });
        (seen.has_claimable_job, seen.wakeup, seen.good, seen.sleeps_ms) =
            (true, wakeup, false, 1_000);
        assert!(scene.allows(&Seen::Quiet(seen)));
        let mut seen = quiet(&one, &none);
        (seen.has_claimable_job, seen.wakeup, seen.good, seen.sleeps_ms) =
            (true, wakeup, false, 1_001);
        assert!(scene.catches("I13", &Seen::Quiet(seen)));
    }

    #[test]
    fn a_reaper_that_goes_in_circles_is_caught() {
        let mut scene = Scene::new();
        for (leases, most) in [(0, 80), (36, 80), (37, 82), (100, 208)] {
            scene.idle_reaps = IdleReaps { commits: most, leases };
            assert!(scene.breaks_not("I13", scene.story(1, None, vec![])), "{leases} leases");
            scene.idle_reaps.commits += 1;
            assert!(scene.breaks("I13", scene.story(1, None, vec![])), "{leases} leases");
        }
    }

    #[test]
    fn a_scheduled_job_that_no_process_promotes_is_caught() {
        let mut scene = Scene::new();
        let mut late = detail(1);
        late.job.state = State::Queued { ready: false, last_verdict: None };
        scene.store(late);
        let (at, since, slack_ms) = (10_000, 0, 1_000);
        let steady = |wall| Seen::Steady(Steady { at, since, wall: Wall::new(wall), slack_ms });
        assert!(scene.allows(&steady(999)));
        assert!(scene.catches("I13", &steady(1_000)));
    }
}
