//! I21: a handler whose lease was taken away by another process, cancelled or reaped, is asked to
//! stop within two change checks while its process is well, also while that process drains.

use super::{Seen, Watched};
use crate::ledger::Ledger;

/// Looks for a handler that runs without its lease.
pub(super) fn check(ledger: &Ledger, seen: &Seen<'_>) -> Option<String> {
    let Seen::Watched(watched) = seen else { return None };
    let running = watched.alive.iter().filter(|token| !watched.stopped.contains(token));
    running.copied().find_map(|token| {
        let held =
            ledger.row(token.job).is_some_and(|job| job.lease().is_some() && job.token() == token);
        let ended = ledger.life(token.job).filter(|_| !held)?.lease_ended;
        let Watched { at, since, stop_limit_ms, .. } = *watched;
        let late = at.saturating_sub(ended.max(since));
        (late > stop_limit_ms)
            .then(|| format!("#{token} is lost for {late} ms, its handler runs on"))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::testing::{Scene, detail, leased};
    use super::super::{Seen, Watched};

    #[test]
    fn a_handler_that_runs_on_without_its_lease_is_caught() {
        let mut scene = Scene::new();
        scene.store(detail(1));
        let token = leased(1, 1, 5_000).job.token();
        let (alive, none) = (BTreeSet::from([token]), BTreeSet::new());
        let at = scene.at;
        let life = scene.ledger.life_mut(token.job).unwrap();
        life.lease_ended = at - 1_001;
        let watched = |since, stopped| {
            Seen::Watched(Watched { at, since, alive: &alive, stopped, stop_limit_ms: 1_000 })
        };
        assert!(scene.catches("I21", &watched(0, &none)));
        assert!(scene.allows(&watched(0, &alive)), "it has the stop signal");
        assert!(scene.allows(&watched(at - 1_000, &none)), "its process was not well");
    }
}
