//! `show ID`: one job, with its attempts and the ends of their output.

use std::process::ExitCode;

use clap::Args;

use super::Session;
use crate::api::wire::{Attempts, Job, OneAttempt, Raw, Time};
use crate::cli::client::{Failure, Reply};
use crate::cli::out::{Out, age, escaped, escaped_lines, span};

/// Show a job with its payload, result, attempts and the ends of their output.
///
/// With --json it prints two documents, one per line: the job, and its attempts.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass show 42
  windlass show 42 --json | head -1 | jq .payload")]
pub(crate) struct ShowArgs {
    /// Id of the job.
    id: u64,
}

pub(crate) async fn run(session: &mut Session, args: &ShowArgs) -> Result<ExitCode, Failure> {
    let job = session.client.get(&format!("/jobs/{}", args.id)).await?;
    let attempts = session.client.get(&format!("/jobs/{}/attempts", args.id)).await?;
    let out = &mut session.out;
    if out.json {
        out.answer(&job.body)?;
        out.answer(&attempts.body)?;
    } else {
        print(out, &job, &attempts)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(out: &mut Out, job: &Reply, attempts: &Reply) -> Result<(), Failure> {
    let (job, attempts): (Job, Attempts) = (job.json()?, attempts.json()?);
    for (name, value) in fields(out, &job) {
        if let Some(value) = value {
            out.line(&format!("{name:<10} {value}"))?;
        }
    }
    for attempt in &attempts.attempts {
        print_attempt(out, attempt)?;
    }
    Ok(())
}

fn fields(out: &Out, job: &Job) -> Vec<(&'static str, Option<String>)> {
    let since = |time: Option<Time>| time.map(age);
    let raw = |raw: &Option<Raw>| raw.as_ref().map(|raw| escaped(raw.as_str()));
    let waits = job.state == "queued";
    vec![
        ("job", Some(job.id.to_string())),
        ("state", Some(out.state(&job.state))),
        ("queue", Some(escaped(&job.queue))),
        ("kind", Some(escaped(&job.kind))),
        ("payload", Some(escaped(job.payload.as_str()))),
        ("priority", (job.priority != 0).then(|| job.priority.to_string())),
        ("attempts", Some(format!("{} of {}", job.attempts, job.max_retries + 1))),
        ("replayed", (job.generation > 0).then(|| times(job.generation))),
        ("due", waits.then(|| age(job.run_at))),
        ("created", Some(age(job.created_at))),
        ("started", since(job.started_at)),
        ("finished", since(job.finished_at)),
        ("worker", job.worker.as_deref().map(escaped)),
        ("lease ends", since(job.lease_until)),
        ("lease", Some(span(job.visibility_timeout_ms))),
        ("timeout", job.timeout_ms.map(span)),
        ("key", job.idempotency_key.as_deref().map(escaped)),
        ("progress", raw(&job.progress)),
        ("result", raw(&job.result)),
        ("error", job.last_error.as_deref().map(escaped)),
    ]
}

fn times(number: u32) -> String {
    if number == 1 { "1 time".into() } else { format!("{number} times") }
}

fn print_attempt(out: &mut Out, attempt: &OneAttempt) -> Result<(), Failure> {
    let code = attempt.exit_code.map(|code| format!(", exit code {code}")).unwrap_or_default();
    let cut = if attempt.truncated { ", cut" } else { "" };
    out.line("")?;
    out.line(&format!(
        "attempt {}: {}{code}{cut}, {} by {}",
        attempt.epoch,
        escaped(&attempt.outcome),
        age(attempt.ended_at),
        escaped(&attempt.worker),
    ))?;
    if let Some(error) = &attempt.error {
        out.line(&format!("  error   {}", escaped(error)))?;
    }
    for (name, text) in [("stdout", &attempt.stdout), ("stderr", &attempt.stderr)] {
        for line in escaped_lines(text.as_deref().unwrap_or_default()).lines() {
            out.line(&format!("  {name}  {line}"))?;
        }
    }
    Ok(())
}
