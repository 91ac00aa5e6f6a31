//! I12: the leases of a process are its runs in memory, its runs are no more than its slots, and a
//! run whose handler has returned gets no more heartbeats.

use super::{Made, Quiet, Seen};
use crate::ledger::Ledger;

/// Compares leases, runs and slots.
pub(super) fn check(ledger: &Ledger, seen: &Seen<'_>) -> Option<String> {
    match seen {
        Seen::Quiet(quiet) => slots(quiet).or_else(|| leases(ledger, quiet)),
        Seen::Made(made) => heartbeats(made),
        Seen::Started(started) => {
            let (slots, busy) = (started.slots, started.alive.len());
            let run = started.run.job.token();
            (busy >= slots).then(|| format!("#{run} started, {busy} of {slots} slots taken"))
        }
        _ => None,
    }
}

fn slots(quiet: &Quiet<'_>) -> Option<String> {
    let (busy, alive, slots) = (quiet.busy, quiet.alive.len(), quiet.slots);
    let wrong = busy != alive || busy > slots;
    wrong.then(|| format!("{busy} of {slots} slots taken, {alive} handlers run"))
}

fn leases(ledger: &Ledger, quiet: &Quiet<'_>) -> Option<String> {
    let mut held = ledger.held_by(quiet.worker).filter(|_| quiet.settled);
    let leaked = held.find(|token| !quiet.leases.contains(token))?;
    Some(format!("{} holds #{leaked} without knowing it", quiet.worker))
}

fn heartbeats(made: &Made<'_>) -> Option<String> {
    // Progress that a handler reported before it ended may be sent after.
    let plain = made.batch.heartbeats.iter().filter(|heartbeat| heartbeat.progress.is_none());
    let mut tokens = plain.map(|heartbeat| heartbeat.token);
    let ended = tokens.find(|token| made.ended.contains(token))?;
    Some(format!("a heartbeat for #{ended}, whose handler has returned"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use windlass_core::machine::Phase;
    use windlass_core::store::Heartbeat;

    use super::super::testing::{Scene, leased, quiet, worker};
    use super::super::{Made, Seen};

    #[test]
    fn a_slot_that_leaks_and_a_lease_that_is_unknown_are_caught() {
        let mut scene = Scene::new();
        let (one, none) = (worker("one"), BTreeSet::new());
        let mut seen = quiet(&one, &none);
        assert!(scene.allows(&Seen::Quiet(quiet(&one, &none))));
        seen.busy = 1;
        assert!(scene.catches("I12", &Seen::Quiet(seen)));
        scene.store(leased(1, 1, 5_000));
        assert!(scene.catches("I12", &Seen::Quiet(quiet(&one, &none))));
    }

    #[test]
    fn a_heartbeat_for_a_handler_that_has_returned_is_caught() {
        let mut scene = Scene::new();
        let token = leased(1, 1, 5_000).job.token();
        scene.batch.heartbeats.push(Heartbeat { token, extend: None, progress: None });
        let (alive, ended) = (BTreeSet::new(), BTreeSet::from([token]));
        let (phase, batch) = (Phase::Running, &scene.batch);
        let made = Made { phase, batch, alive: &alive, ended: &ended };
        assert!(scene.catches("I12", &Seen::Made(made)));
        let made = Made { phase, batch, alive: &alive, ended: &alive };
        assert!(scene.allows(&Seen::Made(made)));
    }
}
