//! The timers of the machine: one instant for each reason to be called again, in one table.
//!
//! Runs and polls have a timer each; the table holds the earliest of them.

use super::input::{WakeReason, Wakeup};
use crate::Mono;

/// When the machine next does something by itself, for each reason.
#[derive(Debug, Default)]
pub(super) struct Timers {
    at: [Option<Mono>; WakeReason::ALL.len()],
    held_until: [Mono; WakeReason::ALL.len()],
}

impl Timers {
    /// When this timer goes off, if it is set.
    pub(super) fn get(&self, reason: WakeReason) -> Option<Mono> {
        self.at[reason as usize].map(|at| at.max(self.held_until[reason as usize]))
    }

    /// Sets or stops a timer.
    pub(super) fn set(&mut self, reason: WakeReason, at: Option<Mono>) {
        self.at[reason as usize] = at;
    }

    /// Sets a timer, unless it goes off sooner already.
    pub(super) fn bring_forward(&mut self, reason: WakeReason, to: Mono) {
        let at = &mut self.at[reason as usize];
        *at = Some(at.map_or(to, |at| at.min(to)));
    }

    /// From now on, a timer goes off no sooner than this, whatever it is set to.
    pub(super) fn hold(&mut self, reason: WakeReason, until: Mono) {
        self.held_until[reason as usize] = until;
    }

    /// Whether a timer cannot go off yet.
    pub(super) fn is_held(&self, reason: WakeReason, now: Mono) -> bool {
        now < self.held_until[reason as usize]
    }

    /// Whether a timer has gone off.
    pub(super) fn is_due(&self, reason: WakeReason, now: Mono) -> bool {
        self.get(reason).is_some_and(|at| at <= now)
    }

    /// The first timer to go off among those that count now.
    pub(super) fn next(&self, counts: impl Fn(WakeReason) -> bool) -> Option<Wakeup> {
        let set = WakeReason::ALL.into_iter().filter_map(|reason| {
            let at = self.get(reason).filter(|_| counts(reason))?;
            Some(Wakeup { at, reason })
        });
        set.min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_timer_of_its_own() {
        let mut timers = Timers::default();
        for (at, reason) in WakeReason::ALL.into_iter().enumerate() {
            timers.set(reason, Some(Mono::new(at as u64)));
        }
        for (at, reason) in WakeReason::ALL.into_iter().enumerate() {
            assert_eq!(timers.get(reason), Some(Mono::new(at as u64)), "{reason:?}");
        }
    }

    #[test]
    fn a_timer_that_is_held_goes_off_no_sooner_and_the_others_do() {
        let mut timers = Timers::default();
        timers.hold(WakeReason::Bulk, Mono::new(5));
        assert_eq!(timers.get(WakeReason::Bulk), None, "holding sets nothing");
        timers.set(WakeReason::Bulk, Some(Mono::new(3)));
        timers.bring_forward(WakeReason::Bulk, Mono::new(1));
        timers.set(WakeReason::Purge, Some(Mono::new(4)));
        let purge = Wakeup { at: Mono::new(4), reason: WakeReason::Purge };
        assert_eq!(timers.next(|_| true), Some(purge));
        assert!(!timers.is_due(WakeReason::Bulk, Mono::new(4)));
        assert!(timers.is_due(WakeReason::Bulk, Mono::new(5)));
        timers.hold(WakeReason::Bulk, Mono::new(2));
        assert_eq!(timers.get(WakeReason::Bulk), Some(Mono::new(2)));
    }

    #[test]
    fn the_first_that_counts_goes_off_and_one_that_is_stopped_does_not() {
        let mut timers = Timers::default();
        timers.set(WakeReason::Purge, Some(Mono::new(9)));
        timers.bring_forward(WakeReason::Purge, Mono::new(5));
        timers.bring_forward(WakeReason::Purge, Mono::new(7));
        timers.set(WakeReason::JobDue, Some(Mono::new(3)));
        let purge = Wakeup { at: Mono::new(5), reason: WakeReason::Purge };
        assert_eq!(timers.next(|reason| reason != WakeReason::JobDue), Some(purge));
        timers.set(WakeReason::JobDue, None);
        assert_eq!(timers.next(|_| true), Some(purge));
        assert!(timers.is_due(WakeReason::Purge, Mono::new(5)));
        assert!(!timers.is_due(WakeReason::Purge, Mono::new(4)));
    }
}
