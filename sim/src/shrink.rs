//! Shrinks a failure before it is reported: fewer faults, jobs and processes, less time, as long as
//! the same invariant is violated.

use crate::disk::StoreKind;
use crate::faults::FaultSet;
use crate::options::{Options, Overrides};
use crate::run::run_seed;

/// Maximum runs to shrink one failure.
const MOST_RUNS: u32 = 200;

/// The smallest settings found with which a seed still violates this rule.
pub fn shrink(seed: u64, set: &Overrides, store: StoreKind, rule: &str) -> Overrides {
    let mut left = MOST_RUNS;
    let mut fails = |set: &Overrides| {
        if left == 0 {
            return false;
        }
        left -= 1;
        let violation = run_seed(seed, set, store, false).violation;
        violation.is_some_and(|violation| violation.rule == rule)
    };
    shrink_with(seed, *set, &mut fails)
}

fn shrink_with(
    seed: u64,
    mut set: Overrides,
    fails: &mut dyn FnMut(&Overrides) -> bool,
) -> Overrides {
    loop {
        let before = set;
        for fault in Options::draw(seed, &set).faults.iter() {
            let less = Overrides { off: set.off.with(fault), ..set };
            if fails(&less) {
                set = less;
            }
        }
        let options = Options::draw(seed, &set);
        let halves = [
            Overrides { millis: Some(options.millis / 2), ..set },
            Overrides { jobs: Some(options.jobs / 2), ..set },
            Overrides { remotes: Some(0), ..set },
            Overrides { processes: Some((options.processes - 1).max(1)), ..set },
        ];
        for (at, less) in halves.into_iter().enumerate() {
            // Each was made from the settings before the others were tried.
            let less = match at {
                0 => Overrides { millis: less.millis, ..set },
                1 => Overrides { jobs: less.jobs, ..set },
                2 => Overrides { remotes: less.remotes, ..set },
                _ => Overrides { processes: less.processes, ..set },
            };
            if less != set && fails(&less) {
                set = less;
            }
        }
        if set == before {
            return set;
        }
    }
}

/// Describes how much smaller the settings are than those of the seed.
pub fn words(seed: u64, set: &Overrides) -> String {
    let (whole, small) = (Options::draw(seed, &Overrides::default()), Options::draw(seed, set));
    let count = |faults: FaultSet| faults.iter().count();
    format!(
        "shrunk from {} faults, {} jobs, {} ms to {} faults, {} jobs, {} ms",
        count(whole.faults),
        whole.jobs,
        whole.millis,
        count(small.faults),
        small.jobs,
        small.millis
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Fault;

    #[test]
    fn a_failure_is_shrunk_to_what_it_needs_and_no_further() {
        let seed = (0..1_000).find(|seed| {
            let faults = Options::draw(*seed, &Overrides::default()).faults;
            faults.has(Fault::Crash) && faults.iter().count() > 20
        });
        let seed = seed.expect("some seed has many faults");
        let mut fails = |set: &Overrides| {
            let options = Options::draw(seed, set);
            options.faults.has(Fault::Crash) && options.jobs >= 10 && options.millis >= 1_000
        };
        let set = shrink_with(seed, Overrides::default(), &mut fails);
        let options = Options::draw(seed, &set);
        assert_eq!(options.faults.iter().collect::<Vec<_>>(), [Fault::Crash]);
        assert!((10..20).contains(&options.jobs), "{}", options.jobs);
        assert!((1_000..2_000).contains(&options.millis), "{}", options.millis);
    }
}
