//! `enqueue`: one job from the arguments, or many from a file.

mod file;
mod lines;

use std::io::Read;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::Session;
use crate::api::wire::Enqueued;
use crate::cli::client::Failure;
use crate::cli::duration;

/// Enqueue a job, or many from a file. Prints the id once the job is stored.
///
/// The payload is JSON; `-` reads it from standard input. To run a program, use --command "CMD"
/// (through `sh -c`) or `-- PROGRAM ARGS`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass enqueue email '{\"to\":\"ada@example.org\"}'
  windlass enqueue report --delay 10m --queue nightly --key report-2026-01-02
  jq -c . big.json | windlass enqueue import -
  windlass enqueue --command 'pg_dump shop | gzip > shop.gz' --timeout 1h
  windlass enqueue --file jobs.ndjson --resume import-7
  windlass enqueue -- rsync -a /srv/ backup:/srv/")]
pub(crate) struct EnqueueArgs {
    /// Kind of the job.
    #[arg(required_unless_present_any = ["command", "argv", "file"])]
    kind: Option<String>,
    /// Payload as JSON, or - for standard input; null by default.
    #[arg(allow_negative_numbers = true)]
    payload: Option<String>,
    /// Run this with `sh -c`: a job of kind `command`.
    #[arg(long, value_name = "CMD", conflicts_with_all = ["kind", "payload", "argv"])]
    command: Option<String>,
    /// Run this program with these arguments: a job of kind `command`.
    #[arg(last = true, value_name = "ARGV", conflicts_with_all = ["kind", "payload"])]
    argv: Vec<String>,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    many: file::FileArgs,
}

/// Options of a job.
#[derive(Debug, Args)]
#[command(next_help_heading = "The job")]
struct Options {
    /// Queue of the job.
    #[arg(long)]
    queue: Option<String>,
    /// Priority, -1000 to 1000; higher runs first.
    #[arg(long, allow_negative_numbers = true)]
    priority: Option<i64>,
    /// Delay until the job is due, like 30s or 2h.
    #[arg(long, value_parser = duration, conflicts_with = "at")]
    delay: Option<Duration>,
    /// Time at which the job is due, like 2026-01-02T03:04:05Z.
    #[arg(long)]
    at: Option<String>,
    /// Maximum number of retries.
    #[arg(long, allow_negative_numbers = true)]
    max_retries: Option<i64>,
    /// Idempotency key: enqueuing again with the same key returns the first job.
    #[arg(long)]
    key: Option<String>,
    /// Timeout of an attempt.
    #[arg(long, value_parser = duration)]
    timeout: Option<Duration>,
    /// Visibility timeout: length of its lease without heartbeats.
    #[arg(long, value_parser = duration)]
    visibility_timeout: Option<Duration>,
}

/// A job as `POST /jobs` takes it.
#[derive(Debug, Serialize)]
struct NewJob<'a> {
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_at: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_retries: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    visibility_timeout_ms: Option<u64>,
}

pub(crate) async fn run(session: &mut Session, args: &EnqueueArgs) -> Result<ExitCode, Failure> {
    if let Some(name) = &args.many.file {
        if args.is_alone() {
            return Err(Failure::usage("--file takes no kind and no payload: each line is a job"));
        }
        return file::run(session, &args.many, name).await;
    }
    let body = serde_json::to_vec(&job(args)?)
        .map_err(|error| Failure::failed(format!("the job cannot be written: {error}")))?;
    let reply = session.client.post("/jobs", body).await?;
    let out = &mut session.out;
    if out.json {
        out.answer(&reply.body)?;
        return Ok(ExitCode::SUCCESS);
    }
    let enqueued: Enqueued = reply.json()?;
    out.line(&enqueued.job.id.to_string())?;
    if enqueued.duplicate {
        out.say(&format!("job {} exists already: the same request enqueued it", enqueued.job.id));
    }
    Ok(ExitCode::SUCCESS)
}

impl EnqueueArgs {
    /// Whether the arguments say something about a single job.
    fn is_alone(&self) -> bool {
        let Options { queue, priority, delay, at, max_retries, key, timeout, visibility_timeout } =
            &self.options;
        let texts = [&self.kind, &self.payload, &self.command, queue, at, key];
        let numbers = [priority, max_retries];
        let times = [delay, timeout, visibility_timeout];
        texts.iter().any(|text| text.is_some())
            || numbers.iter().any(|number| number.is_some())
            || times.iter().any(|time| time.is_some())
            || !self.argv.is_empty()
    }
}

fn job(args: &EnqueueArgs) -> Result<NewJob<'_>, Failure> {
    let (kind, payload) = match (&args.kind, &args.command, args.argv.as_slice()) {
        (Some(kind), ..) => (kind.as_str(), args.payload.as_deref().map(payload).transpose()?),
        (None, Some(command), _) => ("command", Some(raw(&json!({ "command": command }))?)),
        (None, None, words) => ("command", Some(raw(&json!({ "argv": words }))?)),
    };
    let options = &args.options;
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Ok(NewJob {
        kind,
        payload,
        queue: options.queue.as_deref(),
        priority: options.priority,
        delay_ms: options.delay.map(millis),
        run_at: options.at.as_deref(),
        max_retries: options.max_retries,
        idempotency_key: options.key.as_deref(),
        timeout_ms: options.timeout.map(millis),
        visibility_timeout_ms: options.visibility_timeout.map(millis),
    })
}

/// A payload as it was given: JSON, of which not a digit is lost.
fn payload(text: &str) -> Result<Box<RawValue>, Failure> {
    let text = if text == "-" { read_all()? } else { text.to_owned() };
    serde_json::from_str(&text).map_err(|error| {
        Failure::usage(format!(
            "the payload is not JSON: {error}; a text needs quotes of its own, like '\"text\"'"
        ))
    })
}

fn read_all() -> Result<String, Failure> {
    let mut text = String::new();
    let read = std::io::stdin().read_to_string(&mut text);
    read.map_err(|error| Failure::usage(format!("standard input cannot be read: {error}")))?;
    Ok(text)
}

fn raw(value: &serde_json::Value) -> Result<Box<RawValue>, Failure> {
    to_raw_value(value)
        .map_err(|error| Failure::failed(format!("the payload cannot be written: {error}")))
}
