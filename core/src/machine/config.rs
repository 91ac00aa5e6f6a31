//! The configuration of a machine.

use crate::store::{Retention, Worker};
use crate::{Millis, Policy, ProcessId, limits};

/// Set once, when the machine is constructed; some of it can be changed by inputs later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Unique per boot.
    pub process: ProcessId,
    /// Who runs the local jobs, which of them, and how many at once. Its id is unique per boot too;
    /// how often it is noted stands in `presence`.
    pub worker: Worker,
    /// Defaults for jobs that do not say.
    pub policy: Policy,
    /// The age at which finished jobs are purged.
    pub retention: Retention,
    /// How often this worker, and remote ones that poll here, are noted as alive; never if not
    /// set.
    pub presence: Option<Millis>,
    /// How often to check whether other processes have written; never if not set.
    pub change_check: Option<Millis>,
    /// How long before the deadline of a shutdown what still runs gets the stop signal; at once if
    /// the deadline is closer.
    pub stop_grace: Millis,
    /// How long after the deadline, or after [`Input::Force`](super::Input::Force), the ends of
    /// stopped runs may take to be recorded.
    pub force_grace: Millis,
    /// Limits on what waits in memory.
    pub limits: Limits,
}

impl Config {
    /// The usual, for this process and worker, which runs `slots` jobs at once.
    pub fn new(process: ProcessId, worker: Worker, slots: usize) -> Self {
        Self {
            process,
            worker: Worker { slots, ..worker },
            policy: Policy::default(),
            retention: Retention::default(),
            presence: None,
            change_check: None,
            stop_grace: Millis::ZERO,
            force_grace: Millis::new(500),
            limits: Limits::default(),
        }
    }
}

/// Limits on what waits in a machine; beyond them it refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Reports and heartbeats of remote workers that wait for their commit.
    pub waiting_reports: usize,
    /// Operators' commands that wait for their commit.
    pub waiting_admin: usize,
    /// Remote workers that wait for jobs.
    pub waiting_polls: usize,
    /// Commands of one kind in one batch, unless a single request has more; and claimed jobs.
    pub batch: usize,
    /// Rows that one reaping, one promotion or one purge touches.
    pub page: usize,
    /// Number of commits that a request is tried in before it is refused.
    pub tries: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            waiting_reports: 20_000,
            waiting_admin: 1_000,
            waiting_polls: 10_000,
            batch: 10_000,
            page: limits::PAGE_ROWS,
            tries: 5,
        }
    }
}
