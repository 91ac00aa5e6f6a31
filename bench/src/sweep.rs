//! The `payload` and `workers` scenarios: one figure is varied from small to large. Each point is
//! measured beside the same commits without a runtime.

use clap::Args;

use crate::bare::Place;
use crate::lifecycle::{Load, measure};
use crate::measure::{Line, Outcome};

#[derive(Debug, Args)]
pub(crate) struct Payload {
    #[command(flatten)]
    place: Place,
    /// Sizes of payloads, in bytes; `--payload` is ignored.
    #[arg(
        long, value_delimiter = ',',
        default_values_t = [100, 1_024, 16_384, 131_072, 1_048_576]
    )]
    sizes: Vec<usize>,
    /// Number of jobs per size.
    #[arg(long, default_value_t = 20_000)]
    jobs: usize,
    /// Most MiB of payloads per size; the number of jobs is reduced to it.
    #[arg(long, default_value_t = 64)]
    mib: usize,
    /// Number of tasks that enqueue; twice as many jobs run at once.
    #[arg(long, default_value_t = 64)]
    producers: usize,
    /// Number of measurements; the median is reported.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Print one JSON line per size.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Workers {
    #[command(flatten)]
    place: Place,
    /// Numbers of jobs that run at once.
    #[arg(long = "workers", value_delimiter = ',', default_values_t = [1, 4, 16, 64, 256, 1_024])]
    at_once: Vec<usize>,
    /// Number of jobs.
    #[arg(long, default_value_t = 50_000)]
    jobs: usize,
    /// Most jobs per worker; the number of jobs is reduced to it.
    #[arg(long, default_value_t = 1_000)]
    per_worker: usize,
    /// Number of measurements; the median is reported.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Print one JSON line per number of workers.
    #[arg(long)]
    json: bool,
}

/// Measures full job lifecycles with larger and larger payloads.
pub(crate) fn payload(options: &Payload) -> Outcome<String> {
    let mut lines = Vec::new();
    for bytes in &options.sizes {
        let place = options.place.with_payload(*bytes);
        let jobs = fitting(options.jobs, options.mib << 20, *bytes);
        let producers = options.producers.max(1);
        let load = Load { jobs, producers, workers: 2 * producers };
        let figures = measure(&place, load, options.rounds)?;
        let line = Line::new(options.json, "payload")
            .word("store", place.name())
            .count("payload", *bytes)
            .count("jobs", jobs)
            .count("producers", producers)
            .ratio("mib_per_s", figures.per_s * mebibytes(*bytes));
        lines.push(figures.add_to(line)?.finish());
    }
    Ok(lines.join("\n"))
}

/// Measures claims and completions of stored jobs with more and more workers.
pub(crate) fn workers(options: &Workers) -> Outcome<String> {
    let mut lines = Vec::new();
    for workers in options.at_once.iter().map(|workers| (*workers).max(1)) {
        let jobs = options.jobs.min(workers.saturating_mul(options.per_worker)).max(1);
        let load = Load { jobs, producers: 0, workers };
        let figures = measure(&options.place, load, options.rounds)?;
        let line = Line::new(options.json, "workers")
            .word("store", options.place.name())
            .count("workers", workers)
            .count("jobs", jobs);
        lines.push(figures.add_to(line)?.finish());
    }
    Ok(lines.join("\n"))
}

/// This number of jobs, or as many as fit, but enough to measure.
fn fitting(jobs: usize, bytes: usize, each: usize) -> usize {
    jobs.min(bytes / each.max(1)).max(64)
}

#[expect(clippy::cast_precision_loss, reason = "figures are rounded anyway")]
fn mebibytes(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Asked {
        #[command(subcommand)]
        scenario: Both,
    }

    #[derive(clap::Subcommand)]
    enum Both {
        Payload(Payload),
        Workers(Workers),
    }

    fn lines(arguments: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().to_str().unwrap();
        let words = ["bench"].into_iter().chain(arguments.split(' '));
        let asked: Asked = clap::Parser::parse_from(words.chain(["--json", "--dir", folder]));
        let lines = match asked.scenario {
            Both::Payload(options) => payload(&options).unwrap(),
            Both::Workers(options) => workers(&options).unwrap(),
        };
        lines.lines().map(str::to_owned).collect()
    }

    #[test]
    fn every_point_is_one_line_with_its_ratio() {
        for store in ["sqlite", "redb", "memory"] {
            let sizes = lines(&format!("payload --store {store} --sizes 10,1000 --jobs 64"));
            let workers = lines(&format!("workers --store {store} --workers 1,4 --jobs 20"));
            for line in sizes.iter().chain(&workers) {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                assert!(line["ratio"].as_f64().unwrap() > 0.0, "{line}");
            }
            assert_eq!((sizes.len(), workers.len()), (2, 2));
            assert!(sizes[1].contains("\"payload\":1000,"), "{}", sizes[1]);
            assert!(workers[1].contains("\"workers\":4,"), "{}", workers[1]);
        }
    }

    #[test]
    fn large_payloads_come_in_smaller_numbers_but_never_too_few() {
        assert_eq!(fitting(20_000, 64 << 20, 100), 20_000);
        assert_eq!(fitting(20_000, 64 << 20, 131_072), 512);
        assert_eq!(fitting(20_000, 64 << 20, 1 << 30), 64);
    }
}
