//! Counters of what the machine has seen; they only grow.

/// Totals since the machine was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Batches committed.
    pub commits: u64,
    /// Commands in them.
    pub commands: u64,
    /// Commits that failed in any way.
    pub failed_commits: u64,
    /// Commits whose outcome was not known at first.
    pub unknown_commits: u64,
    /// New jobs stored.
    pub enqueued: u64,
    /// Enqueues answered with the job of an earlier request.
    pub deduplicated: u64,
    /// Local jobs started.
    pub started: u64,
    /// Reports refused because their lease was lost.
    pub stale_reports: u64,
    /// Leases that ran out and were taken back.
    pub leases_expired: u64,
    /// Steps of the wall clock noticed.
    pub clock_steps: u64,
    /// Requests refused because a limit was reached.
    pub overloaded: u64,
    /// Inputs about something unknown: late, repeated, or never ours.
    pub ignored: u64,
}
