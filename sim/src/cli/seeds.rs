//! The commands that run seeds, and their output.

use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{IsTerminal, Write as _, stderr};
use std::process::ExitCode;
use std::time::Duration;

use windlass_sim::disk::StoreKind;
use windlass_sim::options::{Options, Overrides};
use windlass_sim::run::{Batch, Failure, Plan, run_many, run_seed};
use windlass_sim::shrink;
use windlass_sim::trace::history;

use super::{Hunt, Run, Set, Trace, json_text, real_now};

/// One of this number of passing seeds runs twice.
const TWICE_EVERY: u64 = 16;
/// Number of seeds from which on every fault, move and refusal must have occurred.
const WHOLE_BATCH: u64 = 1_000;
/// Lines of the trace that are printed of a failing run.
const LINES_SHOWN: usize = 60;
/// Start of the command that is printed with a failure.
const PROGRAM: &str = "cargo run --release -p windlass-sim --";
/// Drawn first seeds are at least this, and less than this plus `DRAWN_RANGE`. Seeds that tests, CI
/// and the documentation name are far below.
const DRAWN_FROM: u64 = 1_000_000_000_000_000;
const DRAWN_RANGE: u64 = 1_000_000_000_000_000;

pub(super) fn run(run: &Run, with_counts: bool) -> ExitCode {
    let (first, seeds) = match run.seed {
        Some(seed) => (seed, 1),
        None => (run.first.unwrap_or_else(draw_first), run.seeds),
    };
    if run.seed.or(run.first).is_none() {
        let drawn =
            format!("first seed {first}, drawn at random; to repeat this run, add --first {first}");
        if run.json { eprintln!("{drawn}") } else { println!("{drawn}") }
    }
    let set = run.set.overrides();
    let plan = Plan { store: run.set.store(), set, first, seeds, twice_every: TWICE_EVERY };
    let started = real_now();
    let mut batch = Batch::default();
    match run.minutes {
        None => batch = run_shown(&plan, run.json),
        Some(minutes) => {
            let end = Duration::from_secs(60 * minutes);
            let mut plan = Plan { seeds: 200, ..plan };
            while batch.failure.is_none() && started.elapsed() < end {
                batch.join(run_shown(&plan, true));
                plan.first += plan.seeds;
            }
        }
    }
    let took = started.elapsed();
    let whole = batch.seeds >= WHOLE_BATCH && set == Overrides::default();
    let interleaved = plan.store == StoreKind::Memory;
    let missing = if whole { batch.coverage.missing(interleaved) } else { Vec::new() };
    if run.json {
        println!("{}", json(first, &batch, took, &missing, with_counts));
    } else {
        print_summary(first, &batch, took, &missing, with_counts);
    }
    match &batch.failure {
        Some(failure) => {
            show(failure, &plan, run.json);
            ExitCode::FAILURE
        }
        None if missing.is_empty() => ExitCode::SUCCESS,
        None => ExitCode::from(2),
    }
}

/// Draws a first seed at random: which seeds run, not what happens in one.
#[expect(clippy::disallowed_types, reason = "it only picks the seeds, and is printed")]
fn draw_first() -> u64 {
    let drawn = std::hash::RandomState::new().build_hasher().finish();
    DRAWN_FROM + drawn % DRAWN_RANGE
}

fn run_shown(plan: &Plan, quietly: bool) -> Batch {
    let shown = !quietly && stderr().is_terminal();
    let batch = run_many(plan, |done| {
        if shown && done.is_multiple_of(20) {
            let _ = write!(stderr(), "\r{done} of {} seeds", plan.seeds);
        }
    });
    if shown {
        let _ = write!(stderr(), "\r\x1b[K");
    }
    batch
}

fn rates(batch: &Batch, took: Duration) -> (u128, u128) {
    let millis = took.as_millis().max(1);
    let per_second = u128::from(batch.seeds) * 10_000 / millis;
    (per_second, u128::from(batch.coverage.millis) / millis)
}

fn print_summary(first: u64, batch: &Batch, took: Duration, missing: &[String], counts: bool) {
    let (per_second, speed) = rates(batch, took);
    let seen = &batch.coverage;
    println!(
        "{} seeds from {first} on in {} ms: {}.{} seeds/s, \
         {speed} simulated seconds per second",
        batch.seeds,
        took.as_millis(),
        per_second / 10,
        per_second % 10
    );
    println!(
        "{} jobs, {} runs, {} commits, {} events, {} simulated hours",
        seen.jobs,
        seen.executions,
        seen.commits,
        seen.events,
        seen.millis / 3_600_000
    );
    if counts {
        for (family, name, count) in seen.counts() {
            println!("{count:>10}  {family} {name}");
        }
    }
    for name in missing {
        println!("never occurred: {name}");
    }
    match (&batch.failure, missing) {
        (Some(_), _) => println!("FAILED"),
        (None, []) => println!("green"),
        (None, _) => println!("INVALID: what never occurred was not tested"),
    }
}

fn json(first: u64, batch: &Batch, took: Duration, missing: &[String], counts: bool) -> String {
    let (per_second, speed) = rates(batch, took);
    let seen = &batch.coverage;
    let failure = match &batch.failure {
        None => "null".to_owned(),
        Some(failure) => format!(
            "{{\"seed\":{},\"rule\":{},\"what\":{}}}",
            failure.seed,
            json_text(failure.violation.rule),
            json_text(&failure.violation.what)
        ),
    };
    let missing: Vec<String> = missing.iter().map(|name| json_text(name)).collect();
    let counts = seen.counts().into_iter().filter(|_| counts);
    let counts: Vec<String> = counts
        .map(|(family, name, count)| format!("{}:{count}", json_text(&format!("{family} {name}"))))
        .collect();
    format!(
        "{{\"first\":{first},\"seeds\":{},\"millis\":{},\"seeds_per_second\":{}.{},\
         \"simulated_seconds_per_second\":{speed},\"jobs\":{},\"runs\":{},\"commits\":{},\
         \"events\":{},\"simulated_millis\":{},\"missing\":[{}],\"counts\":{{{}}},\
         \"failure\":{failure}}}",
        batch.seeds,
        took.as_millis(),
        per_second / 10,
        per_second % 10,
        seen.jobs,
        seen.executions,
        seen.commits,
        seen.events,
        seen.millis,
        missing.join(","),
        counts.join(",")
    )
}

/// Prints a shrunk failure with the command that prints its whole trace.
fn show(failure: &Failure, plan: &Plan, json: bool) {
    let rule = failure.violation.rule;
    let small = shrink::shrink(failure.seed, &plan.set, plan.store, rule);
    let command = format!(
        "{PROGRAM} trace --seed {} --store {}{}",
        failure.seed,
        plan.store.word(),
        small.flags()
    );
    if json {
        eprintln!("{command}");
        return;
    }
    let outcome = run_seed(failure.seed, &small, plan.store, true);
    println!("\n{}", Options::draw(failure.seed, &small));
    println!("{}\n", shrink::words(failure.seed, &small));
    let from = outcome.lines.len().saturating_sub(LINES_SHOWN);
    for line in &outcome.lines[from..] {
        println!("{line}");
    }
    let shown = outcome.violation.as_ref().unwrap_or(&failure.violation);
    print_history(&outcome.lines, &shown.what);
    let (first, seeds, store) = (plan.first, plan.seeds, plan.store.word());
    println!("\nviolated: {shown}\nshow it:  {command}");
    println!(
        "run all:  {PROGRAM} run --first {first} --seeds {seeds} --store {store}{}",
        plan.set.flags()
    );
}

/// Prints the history of the first job that a text names.
fn print_history(lines: &[String], text: &str) {
    let number = text
        .split('#')
        .nth(1)
        .map(|rest| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
    let Some(job) = number.and_then(|number| number.parse().ok()) else { return };
    println!("\nthe history of #{job}:");
    for line in history(lines, job) {
        println!("{line}");
    }
}

pub(super) fn trace(trace: &Trace) -> ExitCode {
    let seed = trace.seed.or(trace.number).unwrap_or(1);
    let set: &Set = &trace.set;
    let outcome = run_seed(seed, &set.overrides(), set.store(), !trace.quiet);
    println!("{}\n", Options::draw(seed, &set.overrides()));
    match trace.job {
        Some(job) => history(&outcome.lines, job).iter().for_each(|line| println!("{line}")),
        None => outcome.lines.iter().for_each(|line| println!("{line}")),
    }
    println!("hash {:016x}", outcome.hash);
    match outcome.violation {
        None => {
            println!("green");
            ExitCode::SUCCESS
        }
        Some(violation) => {
            print_history(&outcome.lines, &violation.what);
            println!("violated: {violation}");
            ExitCode::FAILURE
        }
    }
}

/// Prints after how many seeds one failed, in the form that `mutants` parses.
pub(super) fn hunt(hunt: &Hunt) -> ExitCode {
    let set = Overrides::default();
    let store = StoreKind::Memory;
    let (first, seeds) = (hunt.first, hunt.seeds);
    let plan = Plan { store, set, first, seeds, twice_every: u64::MAX };
    match run_many(&plan, |_| ()).failure {
        Some(failure) => {
            let after = failure.seed.wrapping_sub(first) + 1;
            println!("found {after} {}", failure.violation.rule);
        }
        None => println!("none"),
    }
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_drawn_first_seeds_differ() {
        let (one, other) = (draw_first(), draw_first());
        assert_ne!(one, other);
        assert!(one.min(other) >= DRAWN_FROM);
    }
}
