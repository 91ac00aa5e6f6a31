//! Every option of a run, all drawn from its seed, and what a person may set instead.

use std::fmt::{self, Write as _};

use crate::faults::{Fault, FaultSet};
use crate::rng::Rng;

/// What a person, or the shrinking of a failure, sets instead of what the seed says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overrides {
    /// These faults are off.
    pub off: FaultSet,
    /// So many jobs.
    pub jobs: Option<u64>,
    /// Faults for so long.
    pub millis: Option<u64>,
    /// So many processes.
    pub processes: Option<u64>,
    /// So many remote workers.
    pub remotes: Option<u64>,
    /// Each commit happens at one instant.
    pub atomic: bool,
}

/// Every option of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where all of it comes from.
    pub seed: u64,
    /// What may go wrong.
    pub faults: FaultSet,
    /// How often, where a fault has no pace of its own: out of a thousand occasions.
    pub rate: u64,
    /// Processes over the shared store.
    pub processes: u64,
    /// Slots of each.
    pub slots: u64,
    /// Remote workers.
    pub remotes: u64,
    /// Clients that enqueue.
    pub producers: u64,
    /// Jobs they want to enqueue.
    pub jobs: u64,
    /// How long things go wrong.
    pub millis: u64,
    /// The shortest and the longest lease.
    pub lease_ms: (u64, u64),
    /// How often processes look for what others have written.
    pub change_check_ms: u64,
    /// How often they note that they are there, if at all.
    pub presence_ms: Option<u64>,
    /// How long finished jobs are kept, if not for ever.
    pub retention_ms: Option<u64>,
    /// How long an idempotency key counts.
    pub window_ms: u64,
    /// Commands of one family in a batch.
    pub batch: u64,
    /// Rows of one sweep.
    pub page: u64,
    /// Tries of a request.
    pub tries: u64,
    /// Queues.
    pub queues: u64,
    /// Kinds of jobs.
    pub kinds: u64,
    /// The most retries of a job.
    pub retries: u64,
    /// How long a commit takes at most, if nothing is wrong.
    pub commit_ms: u64,
    /// How long a message takes at most, if nothing is wrong.
    pub network_ms: u64,
    /// How long a handler runs at most, if nothing is wrong.
    pub run_ms: u64,
    /// Whether a monotonic clock stands still while its process does.
    pub mono_sleeps: bool,
    /// After how many commits everything stored is looked at.
    pub audit_every: u64,
    /// Whether commits go step by step, beside those of other processes, by the store's own clock.
    pub interleaved: bool,
    /// Whether such a store locks no rows that it finds, but checks them when it commits.
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
    /// As options of the command line, each with a space before it.
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
