//! What operators do with single jobs: `cancel`, `retry`, `delete`; and `explain`.

use std::process::ExitCode;

use clap::Args;
use http::Method;

use super::{Session, confirm};
use crate::api::wire::Explained;
use crate::cli::client::Failure;
use crate::cli::out::{age, escaped};

/// Cancel queued or running jobs.
///
/// A running job is stopped within a second. The next heartbeat of a remote worker is refused.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  windlass cancel 42\n  windlass cancel 42 43 44")]
pub(crate) struct CancelArgs {
    /// Ids of the jobs.
    #[arg(required = true, value_name = "ID")]
    ids: Vec<u64>,
}

/// Run failed or cancelled jobs again, with all their attempts.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  windlass retry 42\n  windlass dlq retry --queue mail")]
pub(crate) struct RetryArgs {
    /// Ids of the jobs.
    #[arg(required = true, value_name = "ID")]
    ids: Vec<u64>,
}

/// Delete finished jobs.
///
/// Asks for confirmation on a terminal; needs --yes elsewhere.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  windlass delete 42\n  windlass delete 42 43 --yes")]
pub(crate) struct DeleteArgs {
    /// Ids of the jobs.
    #[arg(required = true, value_name = "ID")]
    ids: Vec<u64>,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    yes: bool,
}

/// Show why a job is in its state, and when that can next change.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  windlass explain 42\n  windlass explain 42 --json")]
pub(crate) struct ExplainArgs {
    /// Id of the job.
    id: u64,
}

pub(crate) async fn cancel(session: &mut Session, args: &CancelArgs) -> Result<ExitCode, Failure> {
    each(session, &args.ids, Method::POST, |id| format!("/jobs/{id}/cancel"), "cancelled").await
}

pub(crate) async fn retry(session: &mut Session, args: &RetryArgs) -> Result<ExitCode, Failure> {
    each(session, &args.ids, Method::POST, |id| format!("/jobs/{id}/retry"), "queued").await
}

pub(crate) async fn delete(session: &mut Session, args: &DeleteArgs) -> Result<ExitCode, Failure> {
    let what = match args.ids.as_slice() {
        [id] => format!("job {id}"),
        ids => format!("{} jobs", ids.len()),
    };
    confirm::ask(&format!("Delete {what}?"), args.yes)?;
    each(session, &args.ids, Method::DELETE, |id| format!("/jobs/{id}"), "deleted").await
}

/// Sends the same request for each job. A refused one does not stop the others; the exit code is
/// that of the first refusal.
pub(crate) async fn each(
    session: &mut Session,
    ids: &[u64],
    method: Method,
    path: impl Fn(u64) -> String,
    became: &str,
) -> Result<ExitCode, Failure> {
    let mut first = None;
    for id in ids {
        match session.client.call(method.clone(), &path(*id), "").await {
            Ok(reply) if session.out.json && reply.body.is_empty() => {}
            Ok(reply) if session.out.json => session.out.answer(&reply.body)?,
            Ok(_) => session.out.line(&format!("{id} {became}"))?,
            Err(failure) => {
                let code = failure.print(session.out.json);
                first.get_or_insert(code);
            }
        }
    }
    Ok(first.unwrap_or(ExitCode::SUCCESS))
}

pub(crate) async fn explain(
    session: &mut Session,
    args: &ExplainArgs,
) -> Result<ExitCode, Failure> {
    let reply = session.client.get(&format!("/jobs/{}/explain", args.id)).await?;
    let out = &mut session.out;
    if out.json {
        out.answer(&reply.body)?;
        return Ok(ExitCode::SUCCESS);
    }
    let explained: Explained = reply.json()?;
    let state = out.state(&explained.state);
    out.line(&format!("job {} is {state}", explained.id))?;
    for reason in &explained.reasons {
        out.line(&format!("  {}: {}", escaped(&reason.code), escaped(&reason.detail)))?;
    }
    if let Some(next) = explained.next_change_at {
        out.line(&format!("next change {} ({next})", age(next)))?;
    }
    Ok(ExitCode::SUCCESS)
}
