//! Rates of claim and completion beside a backlog: a short queue, a long one, many scheduled jobs
//! of higher priority, and many done jobs. All four stores take turns, so that noise affects all
//! alike.

use tempfile::TempDir;

use crate::contender::{batches, enqueue, finish, work};
use crate::measure::{Line, Outcome, median, rate, resident_kib};
use crate::store::{Options, add_reads};
use crate::subject::{Measured, Reads};

/// Jobs in the short queue.
const FEW: usize = 10_000;
/// Jobs per commit before the measurement begins.
const LOAD: usize = 5_000;
/// Jobs that a store works off before the next has its turn.
const TURN: usize = 10_000;

/// A store with a backlog.
struct Stage {
    name: &'static str,
    store: Box<dyn Measured>,
    /// Growth of the process's memory while the backlog was enqueued, in KiB.
    resident: usize,
    rates: Vec<f64>,
}

impl Stage {
    fn load(
        name: &'static str,
        dir: &TempDir,
        options: &Options,
        load: impl FnOnce(&mut dyn Measured, usize) -> Outcome<()>,
    ) -> Outcome<Self> {
        let before = resident_kib();
        let mut store = options.store.open(&dir.path().join(name), options.payload)?;
        load(&mut *store, options.backlog)?;
        let resident = resident_kib().saturating_sub(before);
        Ok(Self { name, store, resident, rates: Vec::new() })
    }

    /// Enqueues this number of jobs, and measures their claim and completion.
    fn turn(&mut self, jobs: usize, batch: usize) -> Outcome<()> {
        enqueue(&mut *self.store, jobs, batch)?;
        let took = work(&mut *self.store, jobs, batch)? + finish(&mut *self.store)?;
        self.rates.push(rate(jobs, took));
        Ok(())
    }
}

/// Adds the rate of each backlog, its ratio to the rate with a short queue, and times of reads.
pub(crate) fn run(line: Line, options: &Options) -> Outcome<Line> {
    let dir = TempDir::new_in(&options.dir)?;
    let mut stages = [
        Stage::load("few", &dir, options, |_, _| Ok(()))?,
        Stage::load("queued", &dir, options, |store, backlog| {
            enqueue(store, backlog, LOAD).map(drop)
        })?,
        Stage::load("scheduled", &dir, options, |store, backlog| {
            batches(backlog, LOAD).try_for_each(|jobs| store.schedule(jobs))
        })?,
        Stage::load("done", &dir, options, |store, backlog| {
            enqueue(store, 2 * backlog, LOAD)?;
            work(store, 2 * backlog, LOAD)?;
            finish(store).map(drop)
        })?,
    ];
    for stage in &mut stages {
        enqueue(&mut *stage.store, FEW.min(options.backlog), LOAD)?;
    }
    for jobs in batches(options.jobs * options.rounds.max(1), TURN) {
        for stage in &mut stages {
            stage.turn(jobs, options.batch)?;
        }
    }
    let mut line = line.count("backlog", options.backlog);
    let [few, ..] = &stages;
    let base = few.rates.clone();
    for stage in &mut stages {
        line = stage.add_to(line, &base)?;
    }
    Ok(line)
}

impl Stage {
    fn add_to(&mut self, line: Line, base: &[f64]) -> Outcome<Line> {
        let Self { name, store, resident, rates } = self;
        let reads: Reads = store.reads()?;
        let ratios = rates.iter().zip(base).map(|(rate, base)| rate / base);
        let line = line
            .rate(&format!("{name}_per_s"), median(rates.clone()))
            .ratio(&format!("{name}_ratio"), median(ratios.collect()))
            .count(&format!("{name}_resident_kib"), *resident);
        Ok(add_reads(line, &format!("{name}_"), &reads))
    }
}
