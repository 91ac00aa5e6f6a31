//! `config`: settings, their values, and their sources.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::json;

use super::Session;
use crate::api::wire::{Ignored, Setting, SettingList};
use crate::cli::client::{Failure, segment};
use crate::cli::out::{Column, Out, Table};

/// List, get, set and unset settings.
///
/// A flag overrides the environment, the environment overrides the store (`config set`), the store
/// overrides the default. Servers and worker processes on the same store apply a change within
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
    /// List every setting with its value and where that comes from.
    #[command(after_help = "Examples:\n  windlass config list --json")]
    List,
    /// Print the value of a setting.
    #[command(after_help = "Examples:\n  windlass config get max_retries")]
    Get {
        /// Name of the setting, like `max_retries`.
        name: String,
    },
    /// Set a value in the store.
    #[command(after_help = "Examples:\n  windlass config set keep_done 7d")]
    Set {
        /// Name of the setting, like `max_retries`.
        name: String,
        /// Value, like 5, 30s, 0.25 or off.
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
    /// Remove a value from the store: the default applies again.
    #[command(after_help = "Examples:\n  windlass config unset keep_done")]
    Unset {
        /// Name of the setting, like `max_retries`.
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
            print_setting(&session.out, &reply.json()?);
        }
        Action::Unset { name } => {
            session.client.call(Method::DELETE, &path(name), "").await?;
            session.out.say(&format!("removed {name} from the store"));
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
        out.say(&format!("ignored setting {name} in the store: {reason}"));
    }
    Ok(())
}

/// Prints the new value, and what overrides it.
fn print_setting(out: &Out, setting: &Setting) {
    let Setting { name, value, origin, stored, environment, .. } = setting;
    let kept = stored.as_deref().unwrap_or(value);
    match &**origin {
        "store" => out.say(&format!("{name} is {kept}")),
        "environment" => out.say(&format!(
            "{name} is set to {kept} in the store, but {environment}={value} overrides it here"
        )),
        _ => out.say(&format!(
            "{name} is set to {kept} in the store, but the {origin} overrides it here with {value}"
        )),
    }
}
