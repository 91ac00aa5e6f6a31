//! `enqueue --file`: a job per line, many at once. Memory stays flat, whatever the file holds; a
//! bad line is reported with its number and does not stop the rest.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::lines::{self, Batch};
use crate::api::wire::{BatchAnswer, BatchResult};
use crate::cli::client::{Client, Failure};
use crate::cli::commands::Session;

/// Requests in flight at once: while one is written, the next is read.
const IN_FLIGHT: usize = 3;
/// Maximum number of refused lines that are reported one by one.
const MOST_REPORTED: u64 = 20;
/// How often a request is sent again that was refused as overloaded, and the pause before it.
const TRIES: u32 = 8;
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, Args)]
#[command(next_help_heading = "Many jobs")]
pub(super) struct FileArgs {
    /// A file with one JSON job per line, as `POST /jobs` takes it; - is standard input. With
    /// --json, prints a line with the id of each stored job, then a summary.
    #[arg(long, value_name = "FILE")]
    pub(super) file: Option<String>,
    /// Make it safe to run again: a line without an idempotency key gets NAME and its number as
    /// one, so what an earlier run stored is not stored twice. The file must not have changed.
    #[arg(long, value_name = "NAME", requires = "file")]
    resume: Option<String>,
    /// Stop at the first line that is refused. Jobs already sent or stored are kept.
    #[arg(long, requires = "file")]
    strict: bool,
}

/// What has become of the lines.
#[derive(Debug, Default)]
struct Tally {
    stored: u64,
    duplicates: u64,
    refused: u64,
    /// Whether lines without an idempotency key got one by `--resume`.
    resumes: bool,
}

/// A batch that came back.
type Done = (Batch, Result<BatchAnswer, Failure>);

pub(super) async fn run(
    session: &mut Session,
    args: &FileArgs,
    name: &str,
) -> Result<ExitCode, Failure> {
    let started = Instant::now();
    let (input, size) = lines::open(name)?;
    let (sender, mut batches) = mpsc::channel(1);
    let (resume, bar) = (args.resume.clone(), progress(session, size));
    let strict = args.strict;
    std::thread::spawn(move || lines::read(input, resume.as_deref(), strict, &sender));
    let mut tally = Tally { resumes: args.resume.is_some(), ..Tally::default() };
    let mut flights = JoinSet::<Done>::new();
    let mut reading = true;
    while reading || !flights.is_empty() {
        tokio::select! {
            batch = batches.recv(), if reading && flights.len() < IN_FLIGHT => match batch {
                Some(batch) => {
                    let batch = batch?;
                    flights.spawn(send(session.client.clone(), batch));
                }
                None => reading = false,
            },
            Some(done) = flights.join_next(), if !flights.is_empty() => {
                let lost = |_| Failure::failed("a request ended without an answer");
                let (batch, answer) = done.map_err(lost)?;
                bar.inc(batch.bytes);
                let before = tally.refused;
                tally.take(session, &bar, batch, answer)?;
                bar.set_message(format!("{} jobs", tally.stored + tally.duplicates));
                reading &= !(args.strict && tally.refused > before);
            }
        }
    }
    bar.finish_and_clear();
    summary(session, &tally, started.elapsed())
}

/// Sends a batch, again if there was no room for it.
async fn send(client: Client, mut batch: Batch) -> Done {
    if batch.numbers.is_empty() {
        return (batch, Ok(BatchAnswer::default()));
    }
    let body = batch.take_body();
    let mut pause = PAUSE;
    for _ in 1..TRIES {
        match client.post("/jobs/batch", body.clone()).await {
            Err(failure) if failure.kind() == "overloaded" => {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            answer => return (batch, answer.and_then(|reply| reply.json())),
        }
    }
    let answer = client.post("/jobs/batch", body).await;
    (batch, answer.and_then(|reply| reply.json()))
}

impl Tally {
    fn take(
        &mut self,
        session: &mut Session,
        bar: &ProgressBar,
        batch: Batch,
        answer: Result<BatchAnswer, Failure>,
    ) -> Result<(), Failure> {
        let answer = answer.inspect_err(|_| {
            let (first, stored) = (batch.numbers.first().copied().unwrap_or(0), self.stored);
            let next = if self.resumes {
                "run the same command again: lines that are stored are not stored twice"
            } else {
                "lines without an idempotency key would be stored twice if it is run again; start \
                 with --resume NAME to prevent that"
            };
            session.out.say(&format!(
                "stopped: {stored} jobs are stored; lines from {first} on may or may not be; {next}"
            ));
        })?;
        let mut refused = batch.bad;
        for (line, result) in batch.numbers.iter().zip(answer.results) {
            let (id, duplicate) = match result {
                BatchResult::Stored { id, duplicate } => (id, duplicate),
                BatchResult::Refused { error } => {
                    refused.push((*line, error.why()));
                    continue;
                }
            };
            *(if duplicate { &mut self.duplicates } else { &mut self.stored }) += 1;
            if session.out.json {
                let stored = json!({ "line": line, "id": id, "duplicate": duplicate });
                session.out.line(&stored.to_string())?;
            }
        }
        refused.sort_by_key(|(line, _)| *line);
        for (line, why) in refused {
            self.refused += 1;
            if session.out.json || self.refused <= MOST_REPORTED {
                bar.suspend(|| session.out.wrong_line(line, &why));
            }
        }
        Ok(())
    }
}

fn summary(session: &mut Session, tally: &Tally, took: Duration) -> Result<ExitCode, Failure> {
    let Tally { stored, duplicates, refused, .. } = *tally;
    let out = &mut session.out;
    if out.json {
        let summary = json!({ "enqueued": stored, "duplicates": duplicates, "refused": refused });
        out.line(&summary.to_string())?;
    } else {
        if refused > MOST_REPORTED {
            out.say(&format!("and {} more lines were refused", refused - MOST_REPORTED));
        }
        out.line(&format!(
            "{stored} jobs enqueued, {duplicates} duplicates, {refused} lines refused"
        ))?;
        out.say(&speed(stored + duplicates, took));
    }
    Ok(if refused > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a speed for people is round"
)]
fn speed(jobs: u64, took: Duration) -> String {
    let rate = (jobs as f64 / took.as_secs_f64().max(0.001)) as u64;
    format!("in {:.1} s, {rate} a second", took.as_secs_f64())
}

fn progress(session: &Session, size: Option<u64>) -> ProgressBar {
    let target = if session.out.interactive() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(size, target);
    let known = "{bar:30} {percent}% {msg} {bytes_per_sec} ETA {eta}";
    let template = if size.is_some() { known } else { "{spinner} {msg} {bytes_per_sec}" };
    // A template of ours that were wrong would leave the usual bar.
    let style = ProgressStyle::with_template(template);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
