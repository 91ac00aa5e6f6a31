//! The guard against a stepped wall clock.
//!
//! Stored instants are wall time, timers are monotonic. When the two disagree on how long ago the
//! last commit was, the wall clock was set: leases given before that count their length
//! again from there, so that no healthy job is reaped for it.

use crate::limits::CLOCK_STEP;
use crate::store::ClockView;
use crate::{Mono, Now, Wall};

/// Compares the store's wall clock with the monotonic clock, commit by commit.
#[derive(Debug, Default)]
pub(super) struct ClockGuard {
    /// The store's clock at the last commit that was quick.
    anchor: Option<Now>,
    /// This process's own wall clock at the last commit.
    own: Option<Now>,
    /// Whether this process's own wall clock was seen stepped since the last commit.
    own_stepped: bool,
    trusted_since: Option<Wall>,
}

impl ClockGuard {
    /// The expected reading of the store's clock.
    fn expected(&self, mono: Mono) -> Option<Wall> {
        self.anchor.map(|anchor| anchor.wall.plus(mono.since(anchor.mono)))
    }

    /// The clock view of a batch made now.
    pub(super) fn view(&self, mono: Mono) -> ClockView {
        ClockView { expected: self.expected(mono), trusted_since: self.trusted_since }
    }

    /// Whether a batch made now may reap: not between a step that this process has seen and the
    /// commit that updates `trusted_since` for it.
    pub(super) fn may_reap(&self) -> bool {
        !self.own_stepped
    }

    /// Notes the store's clock as a commit read it, at some moment between its begin and its end.
    /// Returns the direction of the clock step, if there was one.
    pub(super) fn observe(&mut self, store: Wall, started: Now, ended: Mono) -> Option<Stepped> {
        let earliest = self.expected(started.mono).map(|at| at.minus(CLOCK_STEP));
        let latest = self.expected(ended).map(|at| at.plus(CLOCK_STEP));
        let stepped = match (earliest, latest) {
            (Some(earliest), _) if store < earliest => Some(Stepped::Back),
            (_, Some(latest)) if store > latest => Some(Stepped::Forward),
            // The clock was set and set back between two commits. Leases that other processes wrote
            // in between end too early or too late, like after a step forward or back.
            _ if self.own_stepped => Some(Stepped::Back),
            _ => None,
        };
        if stepped.is_some() {
            self.trusted_since = Some(store);
        }
        // A slow commit does not tell when in its course the clock was read: taken for an anchor,
        // it would hide a later step of its own length. It becomes one only where there is none,
        // or none that holds; then as read at its end, so that a step forward still shows.
        let slow = ended.since(started.mono) > CLOCK_STEP.part(4);
        if !slow {
            self.anchor = Some(Now::new(store, started.mono));
        } else if stepped.is_some() || self.anchor.is_none() {
            self.anchor = Some(Now::new(store, ended));
        }
        self.own = Some(started);
        self.own_stepped = false;
        stepped
    }

    /// Whether this process's own wall clock was found to be stepped since the last commit. True
    /// once until the next commit.
    pub(super) fn own_step(&mut self, now: Now) -> bool {
        let stepped = self.own.is_some_and(|own| {
            let expected = own.wall.plus(now.mono.since(own.mono));
            expected.distance(now.wall) > CLOCK_STEP
        });
        let first = stepped && !self.own_stepped;
        self.own_stepped |= stepped;
        first
    }

    /// The monotonic instant of a stored one.
    pub(super) fn mono(&self, at: Wall) -> Option<Mono> {
        self.anchor.map(|anchor| anchor.mono.plus(at.since(anchor.wall)))
    }
}

/// The direction of a clock step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stepped {
    Forward,
    Back,
}
