//! `migrate`: brings the schema of a store to the version of this program.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::cli::Target;
use crate::cli::client::Failure;
use crate::cli::out::{Out, escaped};
use crate::store;

/// Bring the schema of the store to the version of this program.
///
/// On PostgreSQL it makes the schema if there is none, which takes a user with CREATE on the
/// database; servers that are started with --no-migrate then need no such rights. Nodes of the
/// previous version take no work once the schema is migrated: restart them with the new version.
/// Stores in files are migrated when they are opened to write, so there it is rarely needed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass --store postgres://owner@db.example/jobs migrate")]
pub(crate) struct MigrateArgs {}

pub(crate) fn run(target: &Target, _: &MigrateArgs, out: &mut Out) -> Result<ExitCode, Failure> {
    if target.server.is_some() {
        let detail = "migrate works on the store itself: give --store instead of --server";
        return Err(Failure::usage(detail));
    }
    let url = &target.store;
    let migrated = store::migrate(url).map_err(|error| Failure::from(&error))?;
    if out.json {
        let (from, to) = migrated.unzip();
        let answer = json!({ "store": url.to_string(), "from": from, "to": to });
        out.answer(answer.to_string().as_bytes())?;
    } else {
        let shown = escaped(&url.to_string());
        out.line(&match migrated {
            Some((0, to)) => format!("made {shown} with schema {to}"),
            Some((from, to)) => format!("migrated {shown} from schema {from} to {to}"),
            None => format!("nothing to do: {shown} has the newest schema"),
        })?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
