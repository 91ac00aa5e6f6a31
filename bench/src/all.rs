//! `all`: a short form of every scenario, each in a process of its own, so that none inherits the
//! memory of another, and each can be repeated by hand. The lines become `RESULTS.md`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use serde_json::Value;

use crate::machine;
use crate::measure::{Outcome, time};
use crate::plot;
use crate::report;
use crate::sections::{SECTIONS, Section};

/// Options of `all`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Directory for `RESULTS.md` and the folder `results`.
    #[arg(long, default_value = "bench")]
    out: PathBuf,
    /// Directory for the stores; a temporary directory is created in it and removed.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Use tiny sizes, to test that everything runs; the figures mean nothing.
    #[arg(long)]
    quick: bool,
    /// Run only sections whose names begin with these, as in `--only backlog,soak`.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Print every line on standard output as well.
    #[arg(long)]
    json: bool,
}

/// One command and its output.
#[derive(Debug)]
pub(crate) struct Run {
    /// The command, as it is typed in a shell.
    pub(crate) command: String,
    /// Its lines, or its error.
    pub(crate) lines: Result<Vec<Value>, String>,
    /// Duration in seconds.
    pub(crate) seconds: f64,
}

/// Runs every section and writes the report; returns the lines if `--json` is given, else the names
/// of the written files.
pub(crate) fn run(options: &Options) -> Outcome<String> {
    let folder = options.out.join("results");
    std::fs::create_dir_all(&folder)?;
    let wanted = |section: &&Section| {
        options.only.is_empty() || options.only.iter().any(|name| section.name.starts_with(name))
    };
    let mut results: Vec<(&Section, Vec<Run>)> = Vec::new();
    for section in SECTIONS.iter().filter(wanted) {
        let runs = section.runs.iter().map(|run| one(options, section, run)).collect();
        results.push((section, runs));
    }
    // Before the report is written, which would change what is measured.
    let about = machine::about(&options.dir);
    let mut lines = String::new();
    for (section, runs) in &results {
        let values: Vec<&Value> = runs.iter().flat_map(|run| run.lines.iter().flatten()).collect();
        for value in &values {
            lines.push_str(&value.to_string());
            lines.push('\n');
        }
        for drawing in section.plots {
            plot::draw(drawing, &values, &folder.join(format!("{}.svg", drawing.file)))?;
        }
    }
    std::fs::write(folder.join("lines.jsonl"), &lines)?;
    let path = options.out.join("RESULTS.md");
    std::fs::write(&path, report::write(&about, &results, options.quick))?;
    // The other queues are left out unless they were built; the report says so.
    let ours = results.iter().filter(|(section, _)| !section.name.starts_with(PEERS));
    let failed: Vec<String> = ours.flat_map(|(_, runs)| runs).filter_map(failure).collect();
    if !failed.is_empty() {
        let count = failed.len();
        return Err(format!(
            "{} is written, but {count} did not run:\n{}",
            path.display(),
            failed.join("\n")
        )
        .into());
    }
    let written = format!("{} is written", path.display());
    Ok(if options.json { lines.trim_end().to_owned() } else { written })
}

fn failure(run: &Run) -> Option<String> {
    run.lines.as_ref().err().map(|error| format!("{}: {error}", run.command))
}

#[expect(clippy::print_stderr, reason = "it takes minutes, and says how far it is")]
fn one(options: &Options, section: &Section, template: &str) -> Run {
    let mut words = words(template, options.quick);
    let program = words.remove(0);
    let (mut command, shown) = if program == PEERS {
        let shown = format!("{PEERS_COMMAND} -- {}", words.join(" "));
        words.extend(["--json".into(), "--no-build".into()]);
        (peers_command(), shown)
    } else {
        words.insert(0, program);
        let shown = format!("cargo run --release -p windlass-bench -- {}", words.join(" "));
        words.push("--json".into());
        if section.has_dir {
            words.extend(["--dir".into(), options.dir.display().to_string()]);
        }
        (std::env::current_exe().map_or_else(|_| Command::new(""), Command::new), shown)
    };
    eprintln!("{shown}");
    let ran = time(|| captured(command.args(&words).stderr(Stdio::inherit())));
    let (lines, took) = match ran {
        Ok((lines, took)) => (Ok(lines), took.as_secs_f64()),
        Err(error) => (Err(error), 0.0),
    };
    eprintln!("  {took:.1} s");
    Run { command: shown, lines, seconds: took }
}

/// Placeholder in a template for the comparison with other queues.
const PEERS: &str = "peers";
/// Command of the comparison, as it is typed in a shell.
const PEERS_COMMAND: &str = "cargo run --release --manifest-path bench/peers/Cargo.toml";

/// The program of the comparison, if it was built before: building it takes minutes.
fn peers_command() -> Command {
    Command::new(Path::new("bench/peers/target/release/windlass-peers"))
}

fn captured(command: &mut Command) -> Result<Vec<Value>, String> {
    let output = command.output().map_err(|error| {
        format!("{error}; build it first: cargo build --release; {PEERS_COMMAND} -- --build-only")
    })?;
    if !output.status.success() {
        return Err(format!("it ended with {}", output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).map_err(|error| error.to_string())).collect()
}

/// Splits a template into words; `{full|quick}` becomes one of both.
fn words(template: &str, quick: bool) -> Vec<String> {
    let choose = |word: &str| match word.strip_prefix('{').and_then(|word| word.strip_suffix('}')) {
        Some(both) => {
            let (full, short) = both.split_once('|').unwrap_or((both, both));
            if quick { short } else { full }.to_owned()
        }
        None => word.to_owned(),
    };
    template.split_whitespace().map(choose).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_has_a_full_and_a_quick_form() {
        let template = "backlog --sizes {10,20|1} --json";
        assert_eq!(words(template, false), ["backlog", "--sizes", "10,20", "--json"]);
        assert_eq!(words(template, true), ["backlog", "--sizes", "1", "--json"]);
    }

    #[test]
    fn every_command_of_the_table_can_be_typed() {
        for section in SECTIONS {
            for run in section.runs.iter().filter(|run| !run.starts_with(PEERS)) {
                for quick in [false, true] {
                    let mut asked = words(run, quick);
                    asked.insert(0, "windlass-bench".into());
                    let read = <crate::Cli as clap::Parser>::try_parse_from(&asked);
                    assert!(read.is_ok(), "{asked:?}: {read:?}");
                }
            }
        }
    }

    #[test]
    fn what_does_not_run_is_reported_with_its_reason() {
        let error = captured(&mut Command::new("no-such-program")).unwrap_err();
        assert!(error.contains("build it first"), "{error}");
    }
}
