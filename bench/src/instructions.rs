//! `instructions`: instructions of the paths of a batch, counted by callgrind and compared with the
//! committed counts. Unlike time, a count does not depend on other load of the machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use tempfile::TempDir;
use windlass_core::{Kind, NewJob, Payload, QueueName};

use crate::bare::Which;
use crate::contender::{Contender, batches, payload};
use crate::measure::{Line, Outcome};
use crate::subject::Measured;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// File with the committed counts.
    #[arg(long, default_value = "bench/instructions.json")]
    baseline: PathBuf,
    /// Write the counts to that file, instead of comparing.
    #[arg(long)]
    write: bool,
    /// Growth over the committed counts that is a failure, in percent.
    #[arg(long, default_value_t = 5)]
    percent: u64,
    /// Do the work of one path without counting: callgrind runs this.
    #[arg(long, hide = true)]
    only: Option<String>,
    /// Print one JSON line per path.
    #[arg(long)]
    json: bool,
}

/// The commands of a batch that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Enqueue,
    Work,
    /// The same work, with jobs of [`KINDS`] kinds in the one queue.
    WorkKinds,
    /// The same work, with jobs of one kind in [`QUEUES`] queues.
    WorkQueues,
}

/// Every path, by name.
static PATHS: [(&str, Which, Act); 12] = [
    ("memory-enqueue", Which::Memory, Act::Enqueue),
    ("memory-work", Which::Memory, Act::Work),
    ("memory-work-kinds", Which::Memory, Act::WorkKinds),
    ("memory-work-queues", Which::Memory, Act::WorkQueues),
    ("redb-enqueue", Which::Redb, Act::Enqueue),
    ("redb-work", Which::Redb, Act::Work),
    ("redb-work-kinds", Which::Redb, Act::WorkKinds),
    ("redb-work-queues", Which::Redb, Act::WorkQueues),
    ("sqlite-enqueue", Which::Sqlite, Act::Enqueue),
    ("sqlite-work", Which::Sqlite, Act::Work),
    ("sqlite-work-kinds", Which::Sqlite, Act::WorkKinds),
    ("sqlite-work-queues", Which::Sqlite, Act::WorkQueues),
];

/// Jobs per commit, jobs that are counted, and jobs before counting begins.
const BATCH: usize = 250;
const COUNTED: usize = 2_000;
const BEFORE: usize = 1_000;
/// Size of a payload, in bytes.
const PAYLOAD: usize = 100;
/// Number of kinds of `WorkKinds`; neighbours differ.
const KINDS: usize = 20;
/// Number of queues of `WorkQueues`; neighbours differ.
const QUEUES: usize = 2_000;
/// Jobs in each of these queues: one is completed before counting, so that each queue has ready and
/// done jobs.
const JOBS_PER_QUEUE: usize = 4;

/// The C library chooses how to copy by the features of the processor; this turns them off. Without
/// it, counts of two processors differ by up to 19 %.
const PLAINEST: &str = "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX2,-AVX_Fast_Unaligned_Load,-AVX,\
                        -ERMS,-FSRM,-BMI2,-SSSE3";

/// Instructions per job, by path.
type Counts = BTreeMap<String, u64>;

/// Counts every path and compares, or does the work of one.
pub(crate) fn run(options: &Options) -> Outcome<String> {
    if let Some(name) = &options.only {
        let path = PATHS.iter().find(|(known, ..)| known == name).ok_or("there is no such path")?;
        act(&path.1, path.2)?;
        return Ok(String::new());
    }
    let counted = PATHS.iter().map(|(name, ..)| Ok(((*name).to_owned(), count(name)?)));
    let counted: Counts = counted.collect::<Outcome<_>>()?;
    if options.write {
        std::fs::write(&options.baseline, serde_json::to_string_pretty(&counted)? + "\n")?;
    }
    let committed = committed(&options.baseline)?;
    let lines: Vec<String> = counted
        .iter()
        .map(|(name, now)| line(options.json, name, *now, committed.get(name).copied()))
        .collect::<Outcome<_>>()?;
    let lines = lines.join("\n");
    let findings = findings(&counted, &committed, options.percent);
    if findings.is_empty() {
        return Ok(lines);
    }
    Err(format!(
        "{lines}\n{}\nIf this is meant, commit the new counts: \
         cargo run --release -p windlass-bench -- instructions --write",
        findings.join("\n")
    )
    .into())
}

fn line(json: bool, name: &str, now: u64, committed: Option<u64>) -> Outcome<String> {
    let line = Line::new(json, "instructions")
        .word("path", name)
        .count("per_job", usize::try_from(now)?)
        .count("committed", usize::try_from(committed.unwrap_or(0))?);
    Ok(line.finish())
}

fn committed(path: &Path) -> Outcome<Counts> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| {
        format!("{shown}: {error}; run it from the root of the repository, or with --write")
    })?;
    Ok(serde_json::from_str(&text).map_err(|error| format!("{shown}: {error}"))?)
}

/// Paths that have grown by more than this percentage, or have no committed count.
fn findings(counted: &Counts, committed: &Counts, percent: u64) -> Vec<String> {
    let finding = |(name, now): (&String, &u64)| match committed.get(name) {
        None => Some(format!("{name}: no count is committed")),
        Some(was) if now * 100 > was * (100 + percent) => {
            Some(format!("{name}: {now} instructions per job, {was} are committed"))
        }
        Some(_) => None,
    };
    counted.iter().filter_map(finding).collect()
}

/// Runs this program under callgrind for one path; instructions per job.
fn count(name: &str) -> Outcome<u64> {
    let folder = folder()?;
    let program = std::env::current_exe()?;
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--collect-atstart=no", "--toggle-collect=*counted_region*"])
        .arg(format!("--callgrind-out-file={}", folder.path().join("out").display()))
        .arg(&program)
        .args(["instructions", "--only", name])
        .env("GLIBC_TUNABLES", PLAINEST);
    let output = command.output().map_err(|error| {
        format!("valgrind: {error}; it is a package of that name in most distributions")
    })?;
    let said = String::from_utf8_lossy(&output.stderr);
    let collected = collected(&said).filter(|count| *count > 0 && output.status.success());
    let all = collected.ok_or_else(|| format!("callgrind counted nothing for {name}:\n{said}"))?;
    Ok(all / COUNTED as u64)
}

/// Parses the count from callgrind's output.
fn collected(said: &str) -> Option<u64> {
    let line = said.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// A folder in memory if there is one: the paths are the same, and syncs cost nothing.
fn folder() -> Outcome<TempDir> {
    let memory = Path::new("/dev/shm");
    Ok(TempDir::new_in(memory).or_else(|_| TempDir::new())?)
}

fn act(which: &Which, act: Act) -> Outcome<()> {
    let folder = folder()?;
    let mut store = which.open(&folder.path().join("jobs"), PAYLOAD)?;
    match act {
        Act::Enqueue | Act::Work => each(&mut *store, BEFORE + COUNTED, Act::Enqueue)?,
        Act::WorkKinds => enqueue_in_turn(&mut *store, &of_kinds()?, BEFORE + COUNTED)?,
        Act::WorkQueues => enqueue_in_turn(&mut *store, &in_queues()?, QUEUES * JOBS_PER_QUEUE)?,
    }
    match act {
        Act::Enqueue => {}
        Act::Work | Act::WorkKinds => each(&mut *store, BEFORE, act)?,
        Act::WorkQueues => each(&mut *store, QUEUES, act)?,
    }
    counted_region(&mut *store, act)
}

/// One job of every kind.
fn of_kinds() -> Outcome<Vec<NewJob>> {
    let text = Payload::new(&payload(PAYLOAD))?;
    let of = |at| Ok(NewJob::new(Kind::new(&format!("kind-{at}"))?, text.clone()));
    (0..KINDS).map(of).collect()
}

/// One job in every queue.
fn in_queues() -> Outcome<Vec<NewJob>> {
    let job = NewJob::new(Kind::new("kind")?, Payload::new(&payload(PAYLOAD))?);
    let of = |at| {
        let queue = QueueName::new(&format!("queue-{at}"))?;
        Ok(NewJob { queue, ..job.clone() })
    };
    (0..QUEUES).map(of).collect()
}

/// Enqueues each of these in turn.
fn enqueue_in_turn(store: &mut dyn Measured, each: &[NewJob], jobs: usize) -> Outcome<()> {
    let jobs: Vec<NewJob> = each.iter().cloned().cycle().take(jobs).collect();
    jobs.chunks(BATCH).try_for_each(|jobs| store.enqueue_jobs(jobs.to_vec()))
}

/// Callgrind counts while this function runs; it finds it by its name.
#[inline(never)]
fn counted_region(contender: &mut dyn Contender, act: Act) -> Outcome<()> {
    each(contender, COUNTED, act)
}

fn each(contender: &mut dyn Contender, jobs: usize, act: Act) -> Outcome<()> {
    batches(jobs, BATCH).try_for_each(|jobs| match act {
        Act::Enqueue => contender.enqueue(jobs),
        Act::Work | Act::WorkKinds | Act::WorkQueues => contender.work(jobs),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(of: &[(&str, u64)]) -> Counts {
        of.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn only_growth_beyond_the_limit_is_a_finding() {
        let committed = counts(&[("a", 1_000), ("b", 1_000), ("c", 1_000)]);
        let now = counts(&[("a", 1_050), ("b", 1_051), ("c", 10), ("d", 1)]);
        let findings = findings(&now, &committed, 5);
        assert_eq!(
            findings,
            ["b: 1051 instructions per job, 1000 are committed", "d: no count is committed"]
        );
    }

    #[test]
    fn the_count_is_read_from_what_callgrind_says() {
        assert_eq!(collected("==1== Events    : Ir\n==1== Collected : 4711\n"), Some(4711));
        assert_eq!(collected("nothing"), None);
    }

    #[test]
    fn every_path_does_its_work_without_callgrind() {
        for (_, which, what) in &PATHS {
            act(which, *what).unwrap();
        }
    }
}
