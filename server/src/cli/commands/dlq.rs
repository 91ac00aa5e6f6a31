//! `dlq`: jobs that were given up. Many are replayed or discarded page by page.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use http::Method;
use indicatif::{ProgressBar, ProgressDrawTarget};
use serde_json::{Value, json};

use super::bulk::{self, CanaryArgs, HowArgs};
use super::bulk_filter::BulkFilter;
use super::list::{self, PageArgs};
use super::{Session, confirm, hints, jobs};
use crate::api::wire::{PurgePage, ReplayPage};
use crate::cli::client::{Failure, Reply};

/// List dead letters, run them again, or delete them.
#[derive(Debug, Args)]
pub(crate) struct DlqArgs {
    #[command(subcommand)]
    command: DlqCommand,
}

#[derive(Debug, Subcommand)]
enum DlqCommand {
    /// List failed jobs, newest failure first.
    #[command(after_help = "Examples:\n  windlass dlq list --queue mail --all")]
    List(PageArgs),
    Retry(RetryArgs),
    Purge(PurgeArgs),
}

const NARROWING: [&str; 5] = ["all", "queue", "kind", "group", "error_contains"];

/// Run dead letters again: by id, by filter, or all.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass dlq retry 42 43
  windlass dlq retry --kind email --error-contains 'connection refused'
  windlass dlq retry --queue mail --pace 50/s --canary 20 --max-failed 1
  windlass dlq retry --all")]
struct RetryArgs {
    /// Ids of the jobs.
    #[arg(value_name = "ID", conflicts_with_all = NARROWING,
        conflicts_with_all = ["pace", "dry_run", "expect", "detach", "canary"])]
    ids: Vec<u64>,
    /// Select all dead letters; with filters, all that match.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    how: HowArgs,
    #[command(flatten)]
    canary: CanaryArgs,
}

/// Delete dead letters: by filter, or all.
///
/// Asks for confirmation on a terminal; needs --yes elsewhere.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass dlq purge --queue mail --yes
  windlass dlq purge --all")]
struct PurgeArgs {
    /// Select all dead letters; with filters, all that match.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    which: Which,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    yes: bool,
}

#[derive(Debug, Clone, Args)]
struct Which {
    /// Only jobs of this queue.
    #[arg(long)]
    queue: Option<String>,
    /// Only jobs of this kind.
    #[arg(long)]
    kind: Option<String>,
    /// Only jobs of this error group, by its id.
    #[arg(long, value_name = "ID")]
    group: Option<String>,
    /// Only jobs whose last error contains this text.
    #[arg(long, value_name = "TEXT")]
    error_contains: Option<String>,
}

impl Which {
    fn is_all(&self) -> bool {
        let text = self.group.as_ref().or(self.error_contains.as_ref());
        self.queue.is_none() && self.kind.is_none() && text.is_none()
    }

    fn body(&self, cursor: Option<&str>) -> Value {
        let given = [
            ("queue", self.queue.as_deref()),
            ("kind", self.kind.as_deref()),
            ("group", self.group.as_deref()),
            ("error_contains", self.error_contains.as_deref()),
            ("cursor", cursor),
        ];
        let given = given.into_iter().filter_map(|(name, value)| Some((name, value?)));
        given.map(|(name, value)| (name.to_owned(), json!(value))).collect()
    }
}

pub(crate) async fn run(session: &mut Session, args: &DlqArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        DlqCommand::List(args) => list::pages(session, "/dlq", &[], args).await,
        DlqCommand::Retry(args) if !args.ids.is_empty() => {
            let path = |id| format!("/dlq/{id}/retry");
            jobs::each(session, &args.ids, Method::POST, path, "queued").await
        }
        DlqCommand::Retry(args) => {
            if args.which.is_all() && !args.all {
                return Err(Failure::usage(
                    "name the dead letters: ids, --all, --queue, --kind, --group or \
                     --error-contains",
                ));
            }
            if args.how.is_given() || args.canary.is_given() {
                return ordered(session, args).await;
            }
            pages(session, "/dlq/retry", &args.which, "replayed", replayed).await
        }
        DlqCommand::Purge(args) => {
            if args.which.is_all() && !args.all {
                let detail =
                    "name the dead letters: --all, --queue, --kind, --group or --error-contains";
                return Err(Failure::usage(detail));
            }
            let which = if args.which.is_all() { "all" } else { "all matching" };
            confirm::ask(&format!("Delete {which} dead letters?"), args.yes)?;
            pages(session, "/dlq/purge", &args.which, "purged", purged).await
        }
    }
}

/// Retries as a bulk action, which has a pace and a canary.
async fn ordered(session: &mut Session, args: &RetryArgs) -> Result<ExitCode, Failure> {
    let Which { queue, kind, group, error_contains } = args.which.clone();
    let state = Some("failed".into());
    let filter = BulkFilter { state, queue, kind, group, error_contains, ..BulkFilter::default() };
    bulk::start(session, "retry", &filter, &args.how, &args.canary).await
}

/// A page of dead letters that were replayed or purged: how many, and where the next starts if
/// there are more.
type Page = (usize, Option<String>);

fn replayed(reply: &Reply) -> Result<Page, Failure> {
    let ReplayPage { replayed, more, next } = reply.json()?;
    Ok((replayed, next.filter(|_| more)))
}

fn purged(reply: &Reply) -> Result<Page, Failure> {
    let PurgePage { purged, more, next } = reply.json()?;
    Ok((purged, next.filter(|_| more)))
}

/// Asks for page after page until there is no more, and says how many there were.
async fn pages(
    session: &mut Session,
    path: &str,
    which: &Which,
    done: &str,
    read: fn(&Reply) -> Result<Page, Failure>,
) -> Result<ExitCode, Failure> {
    let target = if session.out.interactive() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(None, target);
    let (mut count, mut next) = (0, None);
    loop {
        let body = which.body(next.as_deref()).to_string();
        let (found, behind) = read(&session.client.post(path, body).await?)?;
        count += found;
        bar.set_message(format!("{count} {done}"));
        bar.tick();
        next = behind;
        if next.is_none() {
            break;
        }
    }
    bar.finish_and_clear();
    if session.out.json {
        session.out.line(&json!({ done: count, "more": false }).to_string())?;
    } else {
        session.out.line(&format!("{count} {done}"))?;
        if count == 0 {
            hints::queue(session, which.queue.as_deref()).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
