//! `queue`: counters, pause and resume, settings, deletion.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value, json};

use super::{Session, confirm, hints};
use crate::api::wire::{Queue, QueueDeleted, QueueList, Shown, StatusCounts};
use crate::cli::client::{Failure, Reply, segment};
use crate::cli::duration;
use crate::cli::out::{Column, Out, Table, escaped, span};

/// List, pause, resume, configure and delete queues.
#[derive(Debug, Args)]
pub(crate) struct QueueArgs {
    #[command(subcommand)]
    command: QueueCommand,
}

#[derive(Debug, Subcommand)]
enum QueueCommand {
    /// List the queues with their counters.
    #[command(after_help = "Examples:\n  windlass queue list")]
    List,
    /// Pause a queue: none of its jobs are started.
    #[command(after_help = "Examples:\n  windlass queue pause mail")]
    Pause(NameArgs),
    /// Resume a paused queue.
    #[command(after_help = "Examples:\n  windlass queue resume mail")]
    Resume(NameArgs),
    Set(SetArgs),
    Delete(DeleteArgs),
}

#[derive(Debug, Args)]
struct NameArgs {
    /// Name of the queue.
    name: String,
    /// Create the queue if it does not exist.
    #[arg(long)]
    create: bool,
}

/// Change settings of a queue; the others keep their values.
///
/// Settings: `max_queued`, `concurrency`, `max_retries`, `visibility_timeout` and `timeout` (like
/// 30s), retry.strategy (fixed, linear, exponential), retry.initial and retry.cap (like 5s),
/// retry.factor, retry.jitter; rate (like 100/1m) and rate.burst; aging (like 5m); of one kind
/// kind.NAME.concurrency, kind.NAME.rate and kind.NAME.rate.burst. The value `default` resets a
/// setting, `retry=default` the whole retry policy.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass queue set mail concurrency=8 max_queued=100000
  windlass queue set mail retry.strategy=linear retry.initial=5s timeout=2m
  windlass queue set mail rate=100/1m kind.newsletter.concurrency=2
  windlass queue set mail concurrency=default")]
struct SetArgs {
    #[command(flatten)]
    queue: NameArgs,
    /// Settings, as KEY=VALUE.
    #[arg(required = true, value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

/// Delete a queue with its settings.
///
/// A queue with jobs is refused unless --force is given: then its jobs are deleted first, whatever
/// their state, and running ones are cancelled.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass queue delete mail
  windlass queue delete mail --force --yes")]
struct DeleteArgs {
    /// Name of the queue.
    name: String,
    /// Delete its jobs as well.
    #[arg(long)]
    force: bool,
    /// Do not ask for confirmation before jobs are deleted.
    #[arg(long, short)]
    yes: bool,
}

pub(crate) async fn run(session: &mut Session, args: &QueueArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        QueueCommand::List => list(session).await,
        QueueCommand::Pause(args) => act(session, args, "pause").await,
        QueueCommand::Resume(args) => act(session, args, "resume").await,
        QueueCommand::Set(args) => set(session, args).await,
        QueueCommand::Delete(args) => delete(session, args).await,
    }
}

async fn list(session: &mut Session) -> Result<ExitCode, Failure> {
    let reply = session.client.get("/queues").await?;
    let out = &mut session.out;
    if out.json {
        out.answer(&reply.body)?;
        return Ok(ExitCode::SUCCESS);
    }
    let queues: QueueList = reply.json()?;
    if queues.queues.is_empty() {
        out.say("no queues yet: a queue is made by its first job");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&COLUMNS);
    for queue in &queues.queues {
        table.row(&row(queue));
    }
    out.table(&table)?;
    Ok(ExitCode::SUCCESS)
}

const COLUMNS: [Column; 9] = [
    Column::text("QUEUE"),
    Column::number("QUEUED"),
    Column::number("SCHEDULED"),
    Column::number("PROCESSING"),
    Column::number("DONE"),
    Column::number("FAILED"),
    Column::number("CANCELLED"),
    Column::whole("OLDEST"),
    Column::whole("STATE"),
];

fn row(queue: &Queue) -> Vec<String> {
    let counts = &queue.counts;
    let mut cells = vec![queue.name.clone()];
    let numbers = [
        counts.queued,
        counts.scheduled,
        counts.processing,
        counts.done,
        counts.failed,
        counts.cancelled,
    ];
    cells.extend(numbers.iter().map(ToString::to_string));
    cells.push(queue.oldest_ready_age_ms.map_or_else(|| "-".into(), span));
    cells.push(if queue.paused { "paused" } else { "open" }.into());
    cells
}

async fn act(session: &mut Session, args: &NameArgs, what: &str) -> Result<ExitCode, Failure> {
    exists(session, args).await?;
    let path = format!("/queues/{}/{what}", segment(&args.name));
    let reply = session.client.post(&path, "").await?;
    print(&mut session.out, &reply)
}

/// Refuses a name that no queue has, unless the queue is to be created.
async fn exists(session: &Session, args: &NameArgs) -> Result<(), Failure> {
    let NameArgs { name, create } = args;
    if *create || hints::is_queue(session, name).await? {
        return Ok(());
    }
    let similar = hints::similar_queue(session, name).await?;
    let similar = similar.map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default();
    Err(Failure::not_found(format!(
        "there is no queue `{name}`{similar}; --create makes it before its first job"
    )))
}

async fn set(session: &mut Session, args: &SetArgs) -> Result<ExitCode, Failure> {
    exists(session, &args.queue).await?;
    let path = format!("/queues/{}", segment(&args.queue.name));
    let mut settings = match session.client.get(&path).await {
        Ok(reply) => fields(&reply.json::<Queue>()?.settings),
        Err(failure) if failure.kind() == "not-found" => Map::new(),
        Err(failure) => return Err(failure),
    };
    for given in &args.settings {
        change(&mut settings, given)?;
    }
    let body = Value::Object(settings).to_string();
    let reply = session.client.call(Method::PUT, &path, body).await?;
    print(&mut session.out, &reply)
}

async fn delete(session: &mut Session, args: &DeleteArgs) -> Result<ExitCode, Failure> {
    let path = format!("/queues/{}", segment(&args.name));
    if args.force {
        let queue: Queue = session.client.get(&path).await?.json()?;
        if queue.counts.all() > 0 {
            let (name, jobs) = (escaped(&queue.name), queue.counts.summary());
            confirm::ask(&format!("Delete queue {name} with {jobs}?"), args.yes)?;
        }
    }
    let query = if args.force { "?force=true" } else { "" };
    let mut jobs = StatusCounts::default();
    loop {
        let reply = session.client.call(Method::DELETE, &format!("{path}{query}"), "").await?;
        let answer: QueueDeleted = reply.json()?;
        jobs = jobs.plus(answer.jobs);
        if answer.deleted {
            break;
        }
    }
    let out = &mut session.out;
    if out.json {
        out.line(&json!({"name": args.name, "deleted": true, "jobs": jobs}).to_string())?;
    } else {
        let jobs = if jobs.all() > 0 { format!(", and {}", jobs.summary()) } else { String::new() };
        out.line(&format!("{} deleted{jobs}", escaped(&args.name)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(out: &mut Out, reply: &Reply) -> Result<ExitCode, Failure> {
    if out.json {
        out.answer(&reply.body)?;
        return Ok(ExitCode::SUCCESS);
    }
    let queue: Queue = reply.json()?;
    let paused = if queue.paused { "paused" } else { "open" };
    out.line(&format!("{} {paused}", escaped(&queue.name)))?;
    for (name, value) in fields(&queue.settings).iter().filter(|(_, value)| !value.is_null()) {
        out.line(&format!("  {}={}", escaped(name), escaped(&value.to_string())))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The settings as the fields that they are written in.
fn fields(settings: &Shown) -> Map<String, Value> {
    match json!(settings) {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// How a setting is written.
#[derive(Clone, Copy)]
enum Form {
    Number,
    Time,
    Word,
    Policy,
    /// A number per length of time.
    Rate,
}

/// What can be set, and the field that holds it.
const SETTINGS: [(&str, &str, Form); 14] = [
    ("max_queued", "/max_queued", Form::Number),
    ("concurrency", "/concurrency", Form::Number),
    ("max_retries", "/max_retries", Form::Number),
    ("visibility_timeout", "/visibility_timeout_ms", Form::Time),
    ("timeout", "/timeout_ms", Form::Time),
    ("retry", "/retry", Form::Policy),
    ("retry.strategy", "/retry/strategy", Form::Word),
    ("retry.initial", "/retry/initial_ms", Form::Time),
    ("retry.cap", "/retry/cap_ms", Form::Time),
    ("retry.factor", "/retry/factor", Form::Number),
    ("retry.jitter", "/retry/jitter", Form::Number),
    ("aging", "/aging_ms", Form::Time),
    ("rate", "/rate", Form::Rate),
    ("rate.burst", "/rate/burst", Form::Number),
];

/// What can be set of one kind, and the field of its limits.
const OF_KIND: [(&str, &str, Form); 3] = [
    (".concurrency", "/concurrency", Form::Number),
    (".rate.burst", "/rate/burst", Form::Number),
    (".rate", "/rate", Form::Rate),
];

fn change(settings: &mut Map<String, Value>, given: &str) -> Result<(), Failure> {
    let (key, text) = given.split_once('=').ok_or_else(|| {
        Failure::usage(format!("{given:?} is not a setting; write it like concurrency=8"))
    })?;
    if let Some((kind, pointer, form)) = of_kind(key) {
        let value = value(key, text, form)?;
        let kinds = object(settings, "kinds");
        put(object(kinds, kind), pointer, value);
        return Ok(());
    }
    let known = SETTINGS.iter().find(|(name, ..)| *name == key);
    let (_, pointer, form) = known.ok_or_else(|| unknown(key))?;
    let value = value(key, text, *form)?;
    // Another strategy has no use for the factor of the one before.
    if *pointer == "/retry/strategy" && text != "exponential" {
        put(settings, "/retry/factor", Value::Null);
    }
    put(settings, pointer, value);
    Ok(())
}

/// The kind, and the field of its limits, that a key names.
fn of_kind(key: &str) -> Option<(&str, &'static str, Form)> {
    let rest = key.strip_prefix("kind.")?;
    OF_KIND.iter().find_map(|(end, pointer, form)| {
        let kind = rest.strip_suffix(end).filter(|kind| !kind.is_empty())?;
        Some((kind, *pointer, *form))
    })
}

/// Puts a value where a pointer of one or two parts says.
fn put(fields: &mut Map<String, Value>, pointer: &str, value: Value) {
    let field = pointer.trim_start_matches('/');
    match field.split_once('/') {
        // A rate keeps the burst that it had.
        None if field == "rate" && value.is_object() => {
            let parts = value.as_object().cloned().unwrap_or_default();
            object(fields, field).extend(parts);
        }
        None => drop(fields.insert(field.into(), value)),
        // A part that is taken back from nothing leaves nothing.
        Some((whole, _)) if value.is_null() && fields.get(whole).is_none_or(Value::is_null) => {}
        Some((whole, part)) => drop(object(fields, whole).insert(part.into(), value)),
    }
}

/// The object in a field, which is made if there is none.
fn object<'f>(fields: &'f mut Map<String, Value>, field: &str) -> &'f mut Map<String, Value> {
    let value = fields.entry(field).or_insert(Value::Null);
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("it was just made one")
}

fn unknown(key: &str) -> Failure {
    let names = SETTINGS.iter().map(|(name, ..)| *name);
    let meant = hints::nearest(key, names.clone());
    let meant = meant.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
    let names: Vec<&str> = names.collect();
    let names = names.join(", ");
    Failure::usage(format!(
        "there is no setting `{key}`{meant} (there are {names}; of one kind \
         kind.NAME.concurrency, kind.NAME.rate, kind.NAME.rate.burst)"
    ))
}

fn value(key: &str, text: &str, form: Form) -> Result<Value, Failure> {
    let wrong = |why: &str| Failure::usage(format!("{key}={text}: {why}"));
    match form {
        _ if text == "default" => Ok(Value::Null),
        Form::Policy => Err(wrong("only `default` can be given; set its parts, like retry.cap=1h")),
        Form::Rate => {
            let (limit, per) = text
                .split_once('/')
                .ok_or_else(|| wrong("must be a number per length of time, like 100/1m"))?;
            let limit =
                limit.parse::<u32>().map_err(|_| wrong("must begin with a whole number"))?;
            let per = duration(per).map_err(|why| wrong(&why))?;
            let per = u64::try_from(per.as_millis()).unwrap_or(u64::MAX);
            Ok(json!({"limit": limit, "per_ms": per}))
        }
        Form::Word => Ok(json!(text)),
        Form::Time => {
            let time = duration(text).map_err(|why| wrong(&why))?;
            Ok(json!(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
        }
        Form::Number => {
            let number = serde_json::from_str::<Value>(text).ok().filter(Value::is_number);
            number.ok_or_else(|| wrong("must be a number, or `default`"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(before: Value, given: &[&str]) -> Result<Value, String> {
        let Value::Object(mut settings) = before else { panic!("an object") };
        for given in given {
            change(&mut settings, given).map_err(|failure| failure.lines())?;
        }
        Ok(Value::Object(settings))
    }

    #[test]
    fn a_setting_changes_alone() {
        let before = json!({"concurrency": 1, "retry": null, "timeout_ms": null});
        let after = changed(before, &["timeout=2m", "retry.cap=1h", "retry.jitter=0.5"]);
        let expected = json!({
            "concurrency": 1, "timeout_ms": 120_000, "retry": {"cap_ms": 3_600_000, "jitter": 0.5}
        });
        assert_eq!(after, Ok(expected.clone()));
        let after = changed(expected, &["concurrency=default", "retry=default"]).unwrap();
        assert_eq!(after, json!({"concurrency": null, "timeout_ms": 120_000, "retry": null}));
    }

    #[test]
    fn what_cannot_be_set_is_named() {
        let wrong = |given| changed(json!({}), &[given]).unwrap_err();
        assert!(wrong("concurency=1").contains("did you mean `concurrency`?"));
        assert!(wrong("concurrency").contains("concurrency=8"));
        assert!(wrong("timeout=5").contains("not a length of time"));
        assert!(wrong("max_queued=many").contains("must be a number"));
        assert!(wrong("retry=often").contains("only `default`"));
    }
}
