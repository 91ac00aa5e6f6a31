//! The options of a run, drawn from its seed, and overrides from the command line.

use std::fmt::{self, Write as _};

use crate::faults::{Fault, FaultSet};
use crate::rng::Rng;

/// Options that the command line, or the shrinking of a failure, sets in place of the seed's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overrides {
    /// Faults that are switched off.
    pub off: FaultSet,
    /// Number of jobs.
    pub jobs: Option<u64>,
    /// Duration of the phase with faults, in ms.
    pub millis: Option<u64>,
    /// Number of processes.
    pub processes: Option<u64>,
    /// Number of remote workers.
    pub remotes: Option<u64>,
    /// Whether each commit takes place at one instant, not step by step.
    pub atomic: bool,
}

/// Every option of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Seed from which all options are drawn.
    pub seed: u64,
    /// Faults that may be injected.
    pub faults: FaultSet,
    /// Probability of faults without a rate of their own, per thousand occasions.
    pub rate: u64,
    /// Number of processes on the shared store.
    pub processes: u64,
    /// Slots of each process.
    pub slots: u64,
    /// Number of remote workers.
    pub remotes: u64,
    /// Number of clients that enqueue.
    pub producers: u64,
    /// Number of jobs that clients enqueue.
    pub jobs: u64,
    /// Duration of the phase with faults, in ms.
    pub millis: u64,
    /// Shortest and longest lease.
    pub lease_ms: (u64, u64),
    /// Interval at which processes check for writes of others.
    pub change_check_ms: u64,
    /// Interval at which workers update their row; `None` for never.
    pub presence_ms: Option<u64>,
    /// Retention of finished jobs; `None` for ever.
    pub retention_ms: Option<u64>,
    /// Idempotency window.
    pub window_ms: u64,
    /// Maximum commands of one family in a batch.
    pub batch: u64,
    /// Maximum rows of one sweep.
    pub page: u64,
    /// Maximum tries of a request.
    pub tries: u64,
    /// Number of queues that clients use.
    pub queues: u64,
    /// Number of kinds of jobs.
    pub kinds: u64,
    /// Maximum retries of a job.
    pub retries: u64,
    /// Longest commit without a fault.
    pub commit_ms: u64,
    /// Longest delay of a message without a fault.
    pub network_ms: u64,
    /// Longest run of a handler without a fault.
    pub run_ms: u64,
    /// Whether the monotonic clock of a suspended process stops too.
    pub mono_sleeps: bool,
    /// Number of commits between two audits of the whole store.
    pub audit_every: u64,
    /// Whether commits of several processes interleave, and use the store's own clock.
    pub interleaved: bool,
    /// Whether such a store locks no rows, but checks them when it commits.
    pub optimistic: bool,
}

impl Options {
    /// The options of a seed.
    pub fn draw(seed: u64, set: &Overrides) -> Self {
        let mut rng = Rng::new(seed, 0);
        let rng = &mut rng;
        let faults = FaultSet::draw(rng).without(set.off);
        let low = rng.range(2, 10) * 1_000;
        let mut options = Self {
            seed,
            faults,
            rate: [2, 5, 10, 20, 40, 80][usize::try_from(rng.below(6)).unwrap_or(0)],
            processes: rng.range(1, 4),
            slots: rng.range(1, 6),
            remotes: rng.below(5),
            producers: rng.range(1, 4),
            jobs: rng.range(60, 260),
            millis: rng.range(15, 60) * 1_000,
            lease_ms: (low, low + rng.below(20_000)),
            change_check_ms: rng.range(100, 800),
            presence_ms: rng.chance(500).then(|| rng.range(1_000, 10_000)),
            retention_ms: None,
            window_ms: rng.range(5, 300) * 1_000,
            batch: [1, 3, 10, 1_000][usize::try_from(rng.below(4)).unwrap_or(0)],
            page: [1, 2, 5, 1_000][usize::try_from(rng.below(4)).unwrap_or(0)],
            tries: rng.range(1, 5),
            queues: rng.range(1, 4),
            kinds: rng.range(1, 4),
            retries: rng.range(0, 6),
            commit_ms: rng.range(1, 20),
            network_ms: rng.range(1, 50),
            run_ms: rng.range(10, 2_000),
            mono_sleeps: rng.chance(500),
            audit_every: rng.range(50, 200),
            interleaved: false,
            optimistic: false,
        };
        let retention = rng.range(1, 40) * 1_000;
        (options.interleaved, options.optimistic) = (rng.chance(667), rng.chance(500));
        options.interleaved &= !set.atomic;
        options.retention_ms = faults.has(Fault::Purges).then_some(retention);
        options.jobs = set.jobs.unwrap_or(options.jobs);
        options.millis = set.millis.unwrap_or(options.millis);
        options.processes = set.processes.unwrap_or(options.processes).max(1);
        options.remotes = set.remotes.unwrap_or(options.remotes);
        options
    }
}

impl Options {
    fn store_words(&self) -> &'static str {
        match (self.interleaved, self.optimistic) {
            (false, _) => "atomic commits",
            (true, false) => "interleaved commits, found rows locked",
            (true, true) => "interleaved commits, found rows checked",
        }
    }
}

impl Overrides {
    /// The options as flags of the command line, each with a space before it.
    pub fn flags(&self) -> String {
        let mut text = String::new();
        if self.off != FaultSet::default() {
            let _ = write!(text, " --off {}", self.off);
        }
        let numbers = [
            ("jobs", self.jobs),
            ("millis", self.millis),
            ("processes", self.processes),
            ("remotes", self.remotes),
        ];
        if self.atomic {
            text.push_str(" --atomic");
        }
        for (name, number) in numbers {
            if let Some(number) = number {
                let _ = write!(text, " --{name} {number}");
            }
        }
        text
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, faults {} in a thousand: {}", self.seed, self.rate, self.faults)?;
        writeln!(
            f,
            "{} processes × {} slots, {} remote workers, {} producers, {} jobs, {} ms of faults",
            self.processes, self.slots, self.remotes, self.producers, self.jobs, self.millis
        )?;
        writeln!(
            f,
            "leases {}–{} ms, change check {} ms, presence {:?}, retention {:?}, key window {} ms",
            self.lease_ms.0,
            self.lease_ms.1,
            self.change_check_ms,
            self.presence_ms,
            self.retention_ms,
            self.window_ms
        )?;
        write!(
            f,
            "batch {}, page {}, tries {}, {} queues, {} kinds, ≤{} retries, commit ≤{} ms, \
             network ≤{} ms, run ≤{} ms, monotonic clock sleeps: {}, audit every {}, {}",
            self.batch,
            self.page,
            self.tries,
            self.queues,
            self.kinds,
            self.retries,
            self.commit_ms,
            self.network_ms,
            self.run_ms,
            self.mono_sleeps,
            self.audit_every,
            self.store_words()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_by_hand_goes_before_what_the_seed_says() {
        let off = FaultSet::all();
        let set = Overrides { off, jobs: Some(3), millis: Some(5), ..Overrides::default() };
        let options = Options::draw(11, &set);
        assert_eq!((options.jobs, options.millis), (3, 5));
        assert_eq!(options.faults, FaultSet::default());
        assert_eq!(options.slots, Options::draw(11, &Overrides::default()).slots);
    }
}
