//! `wait ID`: until a job has a verdict. It does not poll: each question waits on the other side.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::time::Instant;

use super::Session;
use crate::api::wire::{Attempts, Job};
use crate::cli::client::{Failure, Reply};
use crate::cli::duration;
use crate::cli::out::span;

/// The longest that one question waits.
const WAIT: Duration = Duration::from_secs(30);

/// Wait until a job is done, failed or cancelled.
///
/// The exit code is 0 for done, 1 for failed or cancelled, 124 if --timeout passed first. For a job
/// of kind `command` that failed it is the exit code of the command, which may be any number: with
/// --json, standard output has the job if it finished, and nothing if the wait itself failed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass wait 42 --timeout 5m
  windlass wait $(windlass enqueue --command 'make test') && echo passed")]
pub(crate) struct WaitArgs {
    /// Id of the job.
    id: u64,
    /// Stop waiting after this time, like 30s or 5m, with exit code 124; never if not given.
    #[arg(long, value_parser = duration)]
    timeout: Option<Duration>,
}

pub(crate) async fn run(session: &mut Session, args: &WaitArgs) -> Result<ExitCode, Failure> {
    let deadline = args.timeout.map(|timeout| Instant::now() + timeout);
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let wait = left.unwrap_or(WAIT).min(WAIT);
        let path = format!("/jobs/{}?wait_ms={}", args.id, wait.as_millis());
        let reply = session.client.get(&path).await?;
        let job: Job = reply.json()?;
        if job.is_finished() {
            return print(session, &reply, &job).await;
        }
        if left.is_some_and(|left| left <= wait) {
            let millis = args.timeout.unwrap_or_default().as_millis();
            let timeout = span(u64::try_from(millis).unwrap_or(u64::MAX));
            let detail = format!("job {} is still {} after {timeout}", job.id, job.state);
            return Err(Failure::timed_out(detail));
        }
    }
}

async fn print(session: &mut Session, reply: &Reply, job: &Job) -> Result<ExitCode, Failure> {
    let code = exit_code(session, job).await?;
    let out = &mut session.out;
    if out.json {
        out.answer(&reply.body)?;
        return Ok(code);
    }
    let state = out.state(&job.state);
    out.line(&state)?;
    if let Some(error) = job.last_error.as_deref().filter(|_| job.state == "failed") {
        out.say(error);
    }
    Ok(code)
}

async fn exit_code(session: &Session, job: &Job) -> Result<ExitCode, Failure> {
    match &*job.state {
        "done" => return Ok(ExitCode::SUCCESS),
        "failed" if job.kind == "command" => {}
        _ => return Ok(ExitCode::FAILURE),
    }
    let attempts = session.client.get(&format!("/jobs/{}/attempts", job.id)).await?;
    let attempts: Attempts = attempts.json()?;
    let code = attempts.attempts.last().and_then(|attempt| attempt.exit_code);
    let code = code.and_then(|code| u8::try_from(code).ok()).filter(|code| *code > 0);
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
