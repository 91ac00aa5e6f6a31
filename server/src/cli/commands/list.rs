//! `list`: jobs, newest first, page by page.

use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::value::RawValue;
use windlass_core::View;

use super::{Session, hints};
use crate::api::wire::{Job, JobList};
use crate::cli::client::{Failure, query};
use crate::cli::out::{Column, Out, Table, age};

/// How many jobs a page of the contract holds at most.
const PAGE: u64 = 1_000;

/// List jobs, newest first.
///
/// Waiting jobs are ordered by when they are due, running ones by when their lease ends, finished
/// ones by when they finished, all together by id.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass list
  windlass list --state failed --queue mail
  windlass list --state failed --error-contains 'connection refused'
  windlass list --payload-at /user/id --payload-is 42
  windlass list --kind email --all --json | jq -c '.jobs[].payload'")]
pub(crate) struct ListArgs {
    /// Only jobs in this state; `queued` are due now, `scheduled` later.
    #[arg(long, value_parser = PossibleValuesParser::new(View::ALL.map(View::as_str)))]
    state: Option<String>,
    /// Only jobs with this idempotency key.
    #[arg(long)]
    key: Option<String>,
    /// Only dead letters of this error group, by its id.
    #[arg(long, value_name = "ID")]
    group: Option<String>,
    #[command(flatten)]
    search: SearchArgs,
    #[command(flatten)]
    pub(crate) pages: PageArgs,
}

/// What is looked for job by job, newest first.
#[derive(Debug, Args)]
struct SearchArgs {
    /// Only jobs that this worker runs.
    #[arg(long)]
    worker: Option<String>,
    /// Only jobs from this instant on, by the time that orders the list; like 2026-01-02T03:04:05Z.
    #[arg(long, value_name = "INSTANT")]
    from: Option<String>,
    /// Only jobs before this instant.
    #[arg(long, value_name = "INSTANT")]
    to: Option<String>,
    /// Only jobs whose last error contains this text.
    #[arg(long, value_name = "TEXT")]
    error_contains: Option<String>,
    /// Only jobs whose payload, as it is stored, contains this text.
    #[arg(long, value_name = "TEXT")]
    payload_contains: Option<String>,
    /// JSON pointer to a value in the payload, like /user/id; with --payload-is.
    #[arg(long, value_name = "POINTER", requires = "payload_is")]
    payload_at: Option<String>,
    /// Only jobs with this value at --payload-at.
    #[arg(long, value_name = "VALUE", requires = "payload_at")]
    payload_is: Option<String>,
    /// Only jobs with at least this number of attempts.
    #[arg(long, value_name = "N")]
    attempts_min: Option<u32>,
    /// Only jobs of this priority or higher.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority_min: Option<i16>,
}

/// Which jobs, and how many.
#[derive(Debug, Args)]
pub(crate) struct PageArgs {
    /// Only jobs of this queue.
    #[arg(long)]
    pub(crate) queue: Option<String>,
    /// Only jobs of this kind.
    #[arg(long)]
    pub(crate) kind: Option<String>,
    /// Maximum number of jobs to list.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// List all jobs.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

pub(crate) async fn run(session: &mut Session, args: &ListArgs) -> Result<ExitCode, Failure> {
    let search = &args.search;
    let attempts = search.attempts_min.map(|n| n.to_string());
    let priority = search.priority_min.map(|n| n.to_string());
    let own = [
        ("state", args.state.as_deref()),
        ("key", args.key.as_deref()),
        ("group", args.group.as_deref()),
        ("worker", search.worker.as_deref()),
        ("from", search.from.as_deref()),
        ("to", search.to.as_deref()),
        ("error_contains", search.error_contains.as_deref()),
        ("payload_contains", search.payload_contains.as_deref()),
        ("payload_at", search.payload_at.as_deref()),
        ("payload_is", search.payload_is.as_deref()),
        ("attempts_min", attempts.as_deref()),
        ("priority_min", priority.as_deref()),
    ];
    pages(session, "/jobs", &own, &args.pages).await
}

/// A page whose jobs are passed on as they came, or read one by one.
type Jobs = JobList<Box<RawValue>>;

/// Prints pages of this path, with these filters of its own, until there are enough jobs.
pub(crate) async fn pages(
    session: &mut Session,
    path: &str,
    own: &[(&str, Option<&str>)],
    args: &PageArgs,
) -> Result<ExitCode, Failure> {
    let mut left = if args.all { u64::MAX } else { args.limit };
    let (mut shown, mut next) = (0_u64, None);
    loop {
        let limit = left.min(PAGE).to_string();
        let paging = [
            ("queue", args.queue.as_deref()),
            ("kind", args.kind.as_deref()),
            ("limit", Some(limit.as_str())),
            ("cursor", next.as_deref()),
        ];
        let page = query(&[own, &paging].concat());
        let reply = session.client.get(&format!("{path}{page}")).await?;
        let page: Jobs = reply.json()?;
        print(&mut session.out, &page, shown == 0)?;
        let count = page.jobs.len() as u64;
        (shown, left, next) = (shown + count, left.saturating_sub(count), page.next);
        if left == 0 || next.is_none() {
            break;
        }
    }
    end(session, shown, next.as_deref(), args).await?;
    Ok(ExitCode::SUCCESS)
}

fn print(out: &mut Out, page: &Jobs, first: bool) -> Result<(), Failure> {
    if !out.json {
        return table(out, page, first);
    }
    for (at, job) in page.jobs.iter().enumerate() {
        let before = if first && at == 0 { "{\"jobs\":[" } else { "," };
        out.bytes(before.as_bytes())?;
        out.bytes(job.get().as_bytes())?;
    }
    Ok(())
}

async fn end(
    session: &mut Session,
    shown: u64,
    next: Option<&str>,
    args: &PageArgs,
) -> Result<(), Failure> {
    if session.out.json {
        let before = if shown == 0 { "{\"jobs\":[" } else { "" };
        let next = serde_json::json!(next);
        return session.out.line(&format!("{before}],\"next\":{next}}}"));
    }
    if shown == 0 {
        session.out.say("no jobs");
        hints::queue(session, args.queue.as_deref().filter(|name| !name.contains(','))).await?;
    } else if next.is_some() {
        session.out.say(&format!("the first {shown}; --all shows all, --limit N more"));
    }
    Ok(())
}

const COLUMNS: [Column; 7] = [
    Column::number("ID"),
    Column::whole("STATE"),
    Column::text("QUEUE"),
    Column::text("KIND"),
    Column::number("ATTEMPTS"),
    Column::whole("CREATED"),
    Column::text("DETAIL"),
];

fn table(out: &mut Out, page: &Jobs, first: bool) -> Result<(), Failure> {
    if page.jobs.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&COLUMNS).headed(first);
    for job in &page.jobs {
        let job: Job = serde_json::from_str(job.get()).map_err(|error| {
            Failure::failed(format!(
                "a job in the answer cannot be read: {error}; is the server another version?"
            ))
        })?;
        table.row(&row(&job));
    }
    out.table(&table)
}

fn row(job: &Job) -> Vec<String> {
    let due = age(job.run_at);
    let waits = job.is_scheduled();
    let state = if waits { View::Scheduled.as_str() } else { &*job.state };
    let detail = match (&job.last_error, &job.worker) {
        (_, Some(worker)) => format!("on {worker}"),
        (Some(error), _) if waits => format!("due {due}: {error}"),
        (Some(error), _) => error.clone(),
        (None, None) if waits => format!("due {due}"),
        (None, None) => job.payload.as_str().into(),
    };
    vec![
        job.id.to_string(),
        state.into(),
        job.queue.clone(),
        job.kind.clone(),
        format!("{}/{}", job.attempts, job.max_retries + 1),
        age(job.created_at),
        detail,
    ]
}
