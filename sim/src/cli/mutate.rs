//! The command `mutants`, and its output.

use std::io::{Write as _, stdout};
use std::path::Path;
use std::process::ExitCode;

use windlass_sim::mutants::{MOST_SEEDS, MUTANTS, Mutant, Workshop};

use super::{Mutants, json_text, real_now};

/// A mutant with the result of each round: the seeds it took, `None` if it was not found.
struct Hunted {
    mutant: &'static Mutant,
    rounds: Vec<Option<(u64, String)>>,
}

pub(super) fn mutants(asked: &Mutants) -> ExitCode {
    let started = real_now();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let wanted = |mutant: &&Mutant| {
        asked.only.is_empty()
            || asked.only.iter().any(|name| name.eq_ignore_ascii_case(mutant.name))
    };
    let wanted: Vec<&'static Mutant> = MUTANTS.iter().filter(wanted).collect();
    if wanted.is_empty() {
        eprintln!("there is no such mutant; they are M1 to M{}", MUTANTS.len());
        return ExitCode::from(2);
    }
    let hunted = match hunt(&root, &wanted, asked) {
        Ok(hunted) => hunted,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let found = hunted.iter().filter(|one| one.is_found()).count();
    if asked.json {
        let all: Vec<String> = hunted.iter().map(Hunted::json).collect();
        println!(
            "{{\"found\":{found},\"of\":{},\"millis\":{},\"mutants\":[{}]}}",
            hunted.len(),
            started.elapsed().as_millis(),
            all.join(",")
        );
    } else {
        println!("{found} of {} found, in {} s", hunted.len(), started.elapsed().as_secs());
    }
    if found == hunted.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn hunt(root: &Path, wanted: &[&'static Mutant], asked: &Mutants) -> Result<Vec<Hunted>, String> {
    let workshop = Workshop::new(root)?;
    let starts = (0..asked.rounds.max(1)).map(|round| asked.first + round * 1_000_000);
    workshop.control(starts.clone())?;
    let mut hunted = Vec::new();
    for mutant in wanted {
        let rounds = workshop.try_out(mutant, starts.clone())?;
        let one = Hunted { mutant, rounds };
        if !asked.json {
            println!("{}", one.line());
            let _ = stdout().flush();
        }
        hunted.push(one);
    }
    Ok(hunted)
}

impl Hunted {
    fn is_found(&self) -> bool {
        self.rounds.iter().all(Option::is_some)
    }

    /// Median of the seeds until it was found; a round that did not find it counts as more than
    /// were tried.
    fn median(&self) -> u64 {
        let seeds = |round: &Option<(u64, String)>| {
            round.as_ref().map_or(MOST_SEEDS + 1, |(seeds, _)| *seeds)
        };
        let mut all: Vec<u64> = self.rounds.iter().map(seeds).collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied().unwrap_or(MOST_SEEDS + 1)
    }

    fn rule(&self) -> &str {
        self.rounds.iter().flatten().next().map_or("", |(_, rule)| rule)
    }

    fn line(&self) -> String {
        let Mutant { name, what, .. } = self.mutant;
        if self.is_found() {
            format!(
                "{name:<4} found after {:>4} seeds by {:<22} {what}",
                self.median(),
                self.rule()
            )
        } else {
            format!("{name:<4} NOT FOUND in {MOST_SEEDS} seeds {what}")
        }
    }

    fn json(&self) -> String {
        let seeds: Vec<String> = self
            .rounds
            .iter()
            .map(|round| round.as_ref().map_or("null".into(), |(seeds, _)| seeds.to_string()))
            .collect();
        format!(
            "{{\"name\":{},\"what\":{},\"found\":{},\"median_seeds\":{},\"seeds\":[{}],\
             \"rule\":{}}}",
            json_text(self.mutant.name),
            json_text(self.mutant.what),
            self.is_found(),
            self.median(),
            seeds.join(","),
            json_text(self.rule())
        )
    }
}
