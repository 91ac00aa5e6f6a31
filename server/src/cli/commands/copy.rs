//! `copy`: everything from one store to another, of whatever kinds, and the other one in use
//! instead. It works on the stores themselves.

use std::process::ExitCode;

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use tokio::time::Instant;
use windlass_core::store::{CommitError, CopyDone, CopyError, CopyStep, Seal, StoreError};

use super::confirm;
use crate::cli::Target;
use crate::cli::client::Failure;
use crate::cli::out::{Out, escaped, span};
use crate::store::{MoveError, Moved, StoreParser, StoreUrl, move_store, undo_move};

/// Move everything to another store of any kind.
///
/// Stop the servers and workers of both first. Jobs keep their ids, attempts, keys and figures;
/// queues and settings go along, workers and bulk actions do not. The other store must be empty;
/// it is made if there is none. At the end both are compared, and the source is marked as moved: it
/// takes no jobs from the start of the copy on. To continue a copy that was interrupted, run the
/// same command again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass copy --from sqlite:windlass-data/windlass.db --to postgres://windlass@db.example/jobs
  windlass copy --undo --from sqlite:windlass-data/windlass.db")]
pub(crate) struct CopyArgs {
    /// Source store.
    #[arg(
        long,
        env = "WINDLASS_COPY_FROM",
        hide_env = true,
        value_name = "STORE",
        value_parser = StoreParser
    )]
    from: StoreUrl,
    /// Target store; made if there is none.
    #[arg(
        long,
        env = "WINDLASS_COPY_TO",
        hide_env = true,
        value_name = "STORE",
        value_parser = StoreParser,
        required_unless_present = "undo"
    )]
    to: Option<StoreUrl>,
    /// Undo a copy: use the source again. The target is not used then.
    #[arg(long, conflicts_with = "to")]
    undo: bool,
    /// Do not ask for confirmation.
    #[arg(long, requires = "undo")]
    yes: bool,
}

pub(crate) fn run(target: &Target, args: &CopyArgs, out: &mut Out) -> Result<ExitCode, Failure> {
    if target.server.is_some() {
        return Err(Failure::usage(
            "copy works on the stores themselves: leave --server out, and stop their servers",
        ));
    }
    let password = |url: &StoreUrl| {
        let file = target.store_password_file.as_deref();
        let url = url.clone().with_password_of(file, |name| std::env::var_os(name));
        url.map_err(Failure::usage)
    };
    let from = password(&args.from)?;
    match &args.to {
        Some(to) => copy(&from, &password(to)?, out)?,
        None => undo(&from, args.yes, out)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn copy(from: &StoreUrl, to: &StoreUrl, out: &mut Out) -> Result<(), Failure> {
    let started = Instant::now();
    let bar = progress(out);
    let moved = move_store(from, to, |step| show(&bar, step));
    bar.finish_and_clear();
    let (from, to) = (from.to_string(), to.to_string());
    match moved.map_err(|error| refused(&error))? {
        Moved::Copied(done) => {
            let took = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
            print(out, &from, &to, &done, took)
        }
        Moved::Already(done) if out.json => {
            out.say(&done.to_string());
            out.answer(json!({ "from": from, "to": to, "moved": false }).to_string().as_bytes())
        }
        Moved::Already(done) => out.line(&escaped(&done.to_string())),
    }
}

fn print(
    out: &mut Out,
    from: &str,
    to: &str,
    done: &CopyDone,
    took_ms: u64,
) -> Result<(), Failure> {
    if out.json {
        let rows: serde_json::Map<_, _> =
            done.rows.iter().map(|(name, rows)| ((*name).to_owned(), json!(rows))).collect();
        let answer = json!({
            "from": from,
            "to": to,
            "moved": true,
            "rows": rows,
            "checksum": done.checksum,
            "took_ms": took_ms,
        });
        return out.answer(answer.to_string().as_bytes());
    }
    let rows: Vec<String> = done.rows.iter().map(|(name, rows)| format!("{rows} {name}")).collect();
    out.line(&format!("moved    {} in {}", rows.join(", "), span(took_ms)))?;
    out.line(&format!("checksum {} in both stores", done.checksum))?;
    out.line(&format!("in use   {}", escaped(to)))?;
    out.line(&format!("left     {}", escaped(from)))?;
    out.say("start servers and workers on the store in use; nothing starts on the other one");
    Ok(())
}

fn undo(from: &StoreUrl, yes: bool, out: &mut Out) -> Result<(), Failure> {
    let question = format!(
        "Use {from} again? Jobs that were run or added in the other store since are not in it."
    );
    confirm::ask(&question, yes)?;
    let seal = undo_move(from).map_err(|error| refused(&error))?;
    let to = match &seal {
        Some(Seal::Moving { to, .. } | Seal::Moved { to, .. }) => Some(to.clone()),
        _ => None,
    };
    if out.json {
        let undone = json!({ "from": from.to_string(), "undone": seal.is_some(), "to": to });
        return out.answer(undone.to_string().as_bytes());
    }
    let shown = escaped(&from.to_string());
    out.line(&match (seal, to) {
        (None, _) => format!("nothing to do: {shown} is in use"),
        (Some(_), Some(to)) => format!("{shown} can be used again, instead of {}", escaped(&to)),
        (Some(_), None) => format!("{shown} can be used again"),
    })
}

fn refused(error: &MoveError) -> Failure {
    let detail = error.to_string();
    match error {
        MoveError::Missing(_) => Failure::not_found(detail),
        MoveError::Open(why) => Failure::from(why),
        MoveError::Copy(CopyError::Same(_)) => Failure::usage(detail),
        MoveError::Copy(
            CopyError::NotEmpty { .. } | CopyError::Sealed { .. } | CopyError::Leftover { .. },
        ) => Failure::conflict(detail),
        MoveError::Copy(CopyError::InUse { .. }) => Failure::unreachable(detail),
        MoveError::Copy(
            CopyError::Read { error: StoreError::Busy(_), .. }
            | CopyError::Write {
                error: CommitError::NotCommitted(_) | CommitError::Unknown { .. },
                ..
            },
        ) => Failure::unreachable(format!(
            "{detail}; run the same command again: it goes on where it stopped"
        )),
        _ => Failure::failed(detail),
    }
}

/// Each job is copied once and read twice.
fn show(bar: &ProgressBar, step: &CopyStep) {
    match step {
        CopyStep::Copied { section, jobs, of } => {
            bar.set_length(of.saturating_mul(3));
            bar.set_position(*jobs);
            bar.set_message(format!("copying {section}, {jobs} of {of} jobs"));
        }
        CopyStep::Checked { jobs, of } => {
            bar.set_position(jobs.saturating_add(of / 2));
            bar.set_message(format!("comparing, {jobs} of {of} jobs"));
        }
        CopyStep::Finished(_) => {}
    }
}

fn progress(out: &Out) -> ProgressBar {
    let target =
        if out.interactive() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(1), target);
    // A template of ours that were wrong would leave the usual bar.
    let style = ProgressStyle::with_template("{bar:30} {percent}% {msg} ETA {eta}");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
