//! `bulk`: one order for many jobs. `dlq retry` comes here too when it is given a pace or a canary.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget};
use serde::Deserialize;
use serde_json::json;

use super::bulk_filter::BulkFilter;
use super::{Session, confirm};
use crate::api::wire::{Bulk, BulkAnswer, BulkList, QueueCount};
use crate::cli::client::{Failure, Reply};
use crate::cli::out::{Column, Table, escaped};

/// Retry, cancel or delete many jobs in one action; list, show, continue and stop actions.
///
/// A bulk action is kept in the store and carried out page by page by any process that has the
/// store open, so it goes on after this command has ended, and after a crash.
#[derive(Debug, Args)]
pub(crate) struct BulkArgs {
    #[command(subcommand)]
    command: BulkCommand,
}

#[derive(Debug, Subcommand)]
enum BulkCommand {
    /// Run failed or cancelled jobs again.
    #[command(after_help = "\
Examples:
  windlass bulk retry --queue mail --pace 50/s --canary 20
  windlass bulk retry --kind email --dry-run
  windlass bulk retry --error-contains timeout --payload-at /user/id --payload-is 42")]
    Retry(RetryArgs),
    /// Cancel queued or running jobs.
    #[command(after_help = "\
Examples:
  windlass bulk cancel --queue mail --yes
  windlass bulk cancel --queue mail,sms --to 2026-01-02T03:04:05Z --dry-run")]
    Cancel(OrderArgs),
    /// Delete finished jobs; asks for confirmation on a terminal, needs --yes elsewhere.
    #[command(after_help = "Examples:\n  windlass bulk delete --state cancelled --yes")]
    Delete(OrderArgs),
    /// List bulk actions, newest first.
    #[command(after_help = "Examples:\n  windlass bulk list")]
    List,
    /// Show a bulk action.
    #[command(after_help = "Examples:\n  windlass bulk show 7")]
    Show(IdArgs),
    /// Stop a bulk action; finished work is kept.
    #[command(after_help = "Examples:\n  windlass bulk stop 7")]
    Stop(IdArgs),
    /// Continue a bulk action that is held because its canary failed.
    #[command(after_help = "Examples:\n  windlass bulk continue 7")]
    Continue(IdArgs),
}

#[derive(Debug, Args)]
struct IdArgs {
    /// Id of the bulk action.
    id: u32,
}

#[derive(Debug, Args)]
struct RetryArgs {
    #[command(flatten)]
    order: OrderArgs,
    #[command(flatten)]
    canary: CanaryArgs,
}

#[derive(Debug, Args)]
struct OrderArgs {
    #[command(flatten)]
    which: BulkFilter,
    /// All jobs in that state.
    #[arg(long)]
    all: bool,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    how: HowArgs,
}

/// How an order is carried out.
#[derive(Debug, Args)]
pub(crate) struct HowArgs {
    /// Maximum number of jobs per second.
    #[arg(long, value_name = "N/s", value_parser = pace)]
    pace: Option<u32>,
    /// Only count the matching jobs.
    #[arg(long)]
    dry_run: bool,
    /// Refuse if over 10 % more jobs than this match.
    #[arg(long, value_name = "COUNT")]
    expect: Option<u64>,
    /// Return at once instead of waiting for the end.
    #[arg(long)]
    detach: bool,
}

/// Options of the jobs that go first.
#[derive(Debug, Args)]
pub(crate) struct CanaryArgs {
    /// Run this number of jobs first, and the others only if these do not fail.
    #[arg(long, value_name = "COUNT")]
    canary: Option<u32>,
    /// Maximum number of canary jobs that may fail.
    #[arg(long, value_name = "COUNT", default_value_t = 0, requires = "canary")]
    max_failed: u32,
}

impl HowArgs {
    pub(crate) fn is_given(&self) -> bool {
        self.pace.is_some() || self.dry_run || self.expect.is_some() || self.detach
    }
}

impl CanaryArgs {
    pub(crate) fn is_given(&self) -> bool {
        self.canary.is_some()
    }
}

/// A number per second, like `50/s` or `50`.
fn pace(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix("/s").unwrap_or(text).parse().ok().filter(|per_s| *per_s > 0);
    number.ok_or_else(|| format!("{text:?} is not a rate; write it like 50/s"))
}

pub(crate) async fn run(session: &mut Session, args: &BulkArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        BulkCommand::Retry(args) => ordered(session, "retry", &args.order, &args.canary).await,
        BulkCommand::Cancel(args) => ordered(session, "cancel", args, &NONE).await,
        BulkCommand::Delete(args) => ordered(session, "delete", args, &NONE).await,
        BulkCommand::List => list(session).await,
        BulkCommand::Show(IdArgs { id }) => {
            let reply = session.client.get(&format!("/bulk/{id}")).await?;
            print(session, &reply)
        }
        BulkCommand::Stop(IdArgs { id }) => act(session, *id, "stop").await,
        BulkCommand::Continue(IdArgs { id }) => act(session, *id, "continue").await,
    }
}

const NONE: CanaryArgs = CanaryArgs { canary: None, max_failed: 0 };

async fn ordered(
    session: &mut Session,
    action: &str,
    args: &OrderArgs,
    canary: &CanaryArgs,
) -> Result<ExitCode, Failure> {
    if args.which.is_all() && !args.all {
        let detail = "select jobs with --all, or with --queue, --kind or another filter";
        return Err(Failure::usage(detail));
    }
    if action != "retry" && !args.how.dry_run {
        let what = if action == "delete" { "Delete" } else { "Cancel" };
        confirm::ask(&format!("{what} all jobs that match?"), args.yes)?;
    }
    start(session, action, &args.which, &args.how, canary).await
}

/// Starts an order and waits for its end; or says what it would be for.
pub(crate) async fn start(
    session: &mut Session,
    action: &str,
    filter: &BulkFilter,
    how: &HowArgs,
    canary: &CanaryArgs,
) -> Result<ExitCode, Failure> {
    let mut order = json!({ "action": action, "filter": filter, "dry_run": how.dry_run });
    if let Some(expect) = how.expect {
        order["expect"] = json!(expect);
    }
    if let Some(per_s) = how.pace {
        order["pace"] = json!({ "per_s": per_s });
    }
    if let Some(count) = canary.canary {
        order["canary"] = json!({ "count": count, "max_failed": canary.max_failed });
    }
    let reply = session.client.post("/bulk", order.to_string()).await?;
    if how.dry_run {
        return counted(session, &reply);
    }
    let started: BulkAnswer = reply.json()?;
    if how.detach {
        return print(session, &reply);
    }
    let reply = watched(session, started.bulk.id).await?;
    print(session, &reply)
}

/// What an order would be for.
#[derive(Debug, Deserialize)]
struct Counted {
    matched: u64,
    exact: bool,
    queues: Vec<QueueCount>,
}

fn counted(session: &mut Session, reply: &Reply) -> Result<ExitCode, Failure> {
    let out = &mut session.out;
    if out.json {
        out.answer(&reply.body)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Counted { matched, exact, queues } = reply.json()?;
    let bound = if exact { "" } else { "at least " };
    out.line(&format!("{bound}{matched} jobs"))?;
    for QueueCount { name, count } in queues {
        out.line(&format!("  {count} in {}", escaped(&name)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(250);

/// Waits until nothing more happens without an operator.
async fn watched(session: &mut Session, id: u32) -> Result<Reply, Failure> {
    let target = if session.out.interactive() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(None, target);
    loop {
        let reply = session.client.get(&format!("/bulk/{id}")).await?;
        let BulkAnswer { bulk } = reply.json()?;
        bar.set_message(words(&bulk));
        bar.tick();
        if !matches!(bulk.state.as_str(), "canary" | "running") {
            bar.finish_and_clear();
            return Ok(reply);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Prints the progress of a bulk action. One that is held fails.
fn print(session: &mut Session, reply: &Reply) -> Result<ExitCode, Failure> {
    let BulkAnswer { bulk } = reply.json()?;
    let out = &mut session.out;
    if out.json {
        out.answer(&reply.body)?;
    } else {
        out.line(&words(&bulk))?;
        if bulk.state == "held" {
            let id = bulk.id;
            out.say(&format!(
                "`windlass bulk continue {id}` continues it, `windlass bulk stop {id}` stops it"
            ));
        }
    }
    Ok(if bulk.state == "held" { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn words(bulk: &Bulk) -> String {
    let Bulk { id, action, state, of, done, refused, .. } = bulk;
    let refused = if *refused > 0 { format!(", {refused} refused") } else { String::new() };
    let canary = bulk.canary.as_ref().map_or(String::new(), |canary| {
        format!(", canary {} of {} failed", canary.failed, canary.released)
    });
    format!("bulk {id} {action} {state}: {done} of {of}{refused}{canary}")
}

async fn act(session: &mut Session, id: u32, what: &str) -> Result<ExitCode, Failure> {
    let reply = session.client.post(&format!("/bulk/{id}/{what}"), "").await?;
    print(session, &reply)
}

const COLUMNS: [Column; 6] = [
    Column::number("ID"),
    Column::whole("ACTION"),
    Column::whole("STATE"),
    Column::number("DONE"),
    Column::number("OF"),
    Column::number("REFUSED"),
];

async fn list(session: &mut Session) -> Result<ExitCode, Failure> {
    let reply = session.client.get("/bulk").await?;
    let out = &mut session.out;
    if out.json {
        out.answer(&reply.body)?;
        return Ok(ExitCode::SUCCESS);
    }
    let BulkList { bulk } = reply.json()?;
    if bulk.is_empty() {
        out.say("no bulk actions; `windlass bulk retry` starts one");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&COLUMNS);
    for Bulk { id, action, state, of, done, refused, .. } in bulk {
        let [done, of, refused] = [done, of, refused].map(|count| count.to_string());
        table.row(&[id.to_string(), action, state, done, of, refused]);
    }
    out.table(&table)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_a_number_per_second() {
        assert_eq!((pace("50/s"), pace("7")), (Ok(50), Ok(7)));
        for text in ["", "/s", "0/s", "-1/s", "50/m", "1.5/s"] {
            assert!(pace(text).is_err(), "{text}");
        }
    }
}
