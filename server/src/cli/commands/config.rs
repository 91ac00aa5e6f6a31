//! `config`: settings, their values, and who says so.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::json;

use super::Session;
use crate::api::wire::{Ignored, Setting, SettingList};
use crate::cli::client::{Failure, segment};
use crate::cli::out::{Column, Out, Table};

/// Show and keep settings.
///
/// A flag wins over the environment, the environment over what the store keeps (`config set`), the
/// store over the default. Servers and worker processes on the same store live by a change within
/// seconds.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass config list
  windlass config set visibility_timeout 2m
  windlass config unset visibility_timeout")]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Every setting, its value, and where that comes from.
    #[command(after_help = "Examples:\n  windlass config list --json")]
    List,
    /// The value of one setting.
    #[command(after_help = "Examples:\n  windlass config get max_retries")]
    Get {
        /// The setting, like `max_retries`.
        name: String,
    },
    /// Keep a value in the store.
    #[command(after_help = "Examples:\n  windlass config set keep_done 7d")]
    Set {
        /// The setting, like `max_retries`.
        name: String,
        /// Its value, like 5, 30s, 0.25 or off.
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
    /// Forget what the store keeps: the default holds again.
    #[command(after_help = "Examples:\n  windlass config unset keep_done")]
    Unset {
        /// The setting, like `max_retries`.
        name: String,
    },
}

impl ConfigArgs {
    /// Whether it may make the store.
    pub(crate) fn writes(&self) -> bool {
        matches!(self.action, Action::Set { .. })
    }
}

pub(crate) async fn run(session: &mut Session, args: &ConfigArgs) -> Result<ExitCode, Failure> {
    let path = |name: &str| format!("/settings/{}", segment(name));
    match &args.action {
        Action::List => {
            let reply = session.client.get("/settings").await?;
            if session.out.json {
                session.out.answer(&reply.body)?;
            } else {
                list(&mut session.out, &reply.json()?)?;
            }
        }
        Action::Get { name } => {
            let reply = session.client.get(&path(name)).await?;
            if session.out.json {
                session.out.answer(&reply.body)?;
            } else {
                let setting: Setting = reply.json()?;
                session.out.line(&crate::cli::out::escaped(&setting.value))?;
            }
        }
        Action::Set { name, value } => {
            let body = json!({ "value": value }).to_string();
            let reply = session.client.call(Method::PUT, &path(name), body).await?;
            if session.out.json {
                session.out.answer(&reply.body)?;
            }
            told(&session.out, &reply.json()?);
        }
        Action::Unset { name } => {
            session.client.call(Method::DELETE, &path(name), "").await?;
            session.out.say(&format!("the store does not keep {name} any more"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(out: &mut Out, settings: &SettingList) -> Result<(), Failure> {
    let columns =
        [Column::whole("SETTING"), Column::whole("VALUE"), Column::whole("FROM"), Column::text("")];
    let mut table = Table::new(&columns);
    for Setting { name, value, origin, help, .. } in &settings.settings {
        table.row(&[name.to_string(), value.clone(), origin.to_string(), help.to_string()]);
    }
    out.table(&table)?;
    for Ignored { name, reason, .. } in &settings.ignored {
        out.say(&format!("the store keeps {name}, which is not used: {reason}"));
    }
    Ok(())
}

/// What became of a value that was kept: it may not be the one that holds.
fn told(out: &Out, setting: &Setting) {
    let Setting { name, value, origin, stored, environment, .. } = setting;
    let kept = stored.as_deref().unwrap_or(value);
    match &**origin {
        "store" => out.say(&format!("{name} is {kept}")),
        "environment" => out.say(&format!(
            "the store keeps {name} {kept}, but {environment} says {value} where you asked"
        )),
        _ => out.say(&format!(
            "the store keeps {name} {kept}, but the {origin} says {value} where you asked"
        )),
    }
}
