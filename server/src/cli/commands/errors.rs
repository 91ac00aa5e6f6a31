//! `errors`: dead letters by the reason of their failure.

use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};

use super::Session;
use crate::api::wire::{ErrorDetail, ErrorGroup, ErrorList, Shared};
use crate::cli::client::{Failure, query};
use crate::cli::out::{Column, Out, Table, age};

/// List error groups, or show one: dead letters by the reason of their failure.
#[derive(Debug, Args)]
pub(crate) struct ErrorsArgs {
    #[command(subcommand)]
    command: ErrorsCommand,
}

#[derive(Debug, Subcommand)]
enum ErrorsCommand {
    List(ListArgs),
    Show(ShowArgs),
}

const ORDERS: [&str; 3] = ["jobs", "last", "new"];

/// List error groups, those with most dead letters first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass errors list
  windlass errors list --by new --queue mail")]
struct ListArgs {
    /// Only groups with dead letters in this queue.
    #[arg(long)]
    queue: Option<String>,
    /// Only groups of this kind.
    #[arg(long)]
    kind: Option<String>,
    /// Order of the list: most dead letters first (jobs), latest failure first (last), or latest to
    /// appear first (new).
    #[arg(long, default_value = "jobs", value_parser = PossibleValuesParser::new(ORDERS))]
    by: String,
    /// Maximum number of groups to list.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    limit: u64,
}

/// Show an error group, and what its newest dead letters share.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass errors show 1f3a5c7e90b2d4f61f3a5c7e90b2d4f6
  windlass list --group 1f3a5c7e90b2d4f61f3a5c7e90b2d4f6
  windlass dlq retry --group 1f3a5c7e90b2d4f61f3a5c7e90b2d4f6")]
struct ShowArgs {
    /// Id of the group, from `errors list`.
    id: String,
}

pub(crate) async fn run(session: &mut Session, args: &ErrorsArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        ErrorsCommand::List(args) => list(session, args).await,
        ErrorsCommand::Show(args) => show(session, args).await,
    }
}

const COLUMNS: [Column; 6] = [
    Column::whole("ID"),
    Column::number("JOBS"),
    Column::text("KIND"),
    Column::whole("FIRST"),
    Column::whole("LAST"),
    Column::text("ERROR"),
];

async fn list(session: &mut Session, args: &ListArgs) -> Result<ExitCode, Failure> {
    let limit = args.limit.to_string();
    let asked = query(&[
        ("queue", args.queue.as_deref()),
        ("kind", args.kind.as_deref()),
        ("by", Some(&args.by)),
        ("limit", Some(&limit)),
    ]);
    let reply = session.client.get(&format!("/errors{asked}")).await?;
    let out = &mut session.out;
    let found: ErrorList = reply.json()?;
    if out.json {
        out.line(&serde_json::json!(found).to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    if found.groups.is_empty() {
        out.say("no dead letters");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&COLUMNS);
    for group in &found.groups {
        let (first, last) = (age(group.first_at), age(group.last_at));
        let (count, kind) = (group.count.to_string(), group.kind.clone());
        table.row(&[group.id.clone(), count, kind, first, last, group.line()]);
    }
    out.table(&table)?;
    if found.next.is_some() {
        let shown = found.groups.len();
        out.say(&format!("the first {shown}; --limit N shows more"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(session: &mut Session, args: &ShowArgs) -> Result<ExitCode, Failure> {
    let reply = session.client.get(&format!("/errors/{}", args.id)).await?;
    let out = &mut session.out;
    let detail: ErrorDetail = reply.json()?;
    if out.json {
        out.line(&serde_json::json!(detail).to_string())?;
    } else {
        print(out, &detail)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(out: &mut Out, detail: &ErrorDetail) -> Result<(), Failure> {
    let ErrorDetail { group, sampled, shared } = detail;
    let ErrorGroup { id, kind, count, sample, .. } = group;
    out.line(&format!("group   {id}"))?;
    out.line(&format!("error   {}", group.line()))?;
    out.line(&format!("newest  {sample}"))?;
    out.line(&format!("kind    {kind}"))?;
    out.line(&format!("jobs    {count}"))?;
    out.line(&format!("first   {}", age(group.first_at)))?;
    out.line(&format!("last    {}", age(group.last_at)))?;
    for queue in &group.queues {
        out.line(&format!("queue   {} ({})", queue.name, queue.count))?;
    }
    let newest: Vec<String> = group.newest.iter().map(u64::to_string).collect();
    out.line(&format!("ids     {}", newest.join(" ")))?;
    for shared in shared {
        out.line(&shared_line(shared, *sampled))?;
    }
    Ok(())
}

fn shared_line(Shared { place, path, value, share }: &Shared, sampled: usize) -> String {
    let (path, value) = (path.as_deref().unwrap_or(""), value.as_str());
    if place == "mark" {
        return format!("before  {path} at {}", value.trim_matches('"'));
    }
    format!("shared  {:.0} % of {sampled}: {place} {path} {value}", share * 100.0)
}
