//! The flags of the built-in kinds, and the settings made from them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use clap::builder::BoolishValueParser;

use super::command::{Allowed, Limits, Settings};
use super::webhook::{self, Block, Reach, Secrets};
use super::{KindSettings, MAX_GRACE};
use crate::cli::duration;

#[derive(Debug, Args)]
#[command(next_help_heading = "Built-in kinds")]
pub(crate) struct KindArgs {
    /// Program that may be enqueued over HTTP as {"argv":["PROGRAM",...]}, written the same way;
    /// may be repeated. Without it, jobs of the kind command come from the command line only.
    #[arg(long, env = "WINDLASS_ALLOW_COMMAND", value_delimiter = ',', value_name = "PROGRAM")]
    pub(crate) allow_command: Vec<String>,
    /// Environment variables that commands see, beside those of their job.
    #[arg(
        long,
        env = "WINDLASS_COMMAND_ENV",
        value_delimiter = ',',
        value_name = "NAME",
        default_value = "PATH,HOME,USER,LOGNAME,SHELL,LANG,LC_ALL,TZ,TMPDIR"
    )]
    pub(crate) command_env: Vec<String>,
    /// Time between TERM and KILL for a command that must end; at most 20s.
    #[arg(long, env = "WINDLASS_COMMAND_GRACE", default_value = "5s", value_parser = grace)]
    pub(crate) command_grace: Duration,
    /// CPU time limit of each process of a command, in seconds; unlimited by default.
    #[arg(long, env = "WINDLASS_COMMAND_CPU_SECONDS", value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) command_cpu_seconds: Option<u64>,
    /// Address space limit of each process of a command, in bytes, at least 64 MiB; unlimited by
    /// default.
    #[arg(long, env = "WINDLASS_COMMAND_MEMORY", value_name = "BYTES",
        value_parser = clap::value_parser!(u64).range(64 * 1024 * 1024..))]
    pub(crate) command_memory: Option<u64>,
    /// Limit of open files of each process of a command.
    #[arg(long, env = "WINDLASS_COMMAND_OPEN_FILES", value_name = "FILES", default_value_t = 1024,
        value_parser = clap::value_parser!(u64).range(16..))]
    pub(crate) command_open_files: u64,
    /// File of secrets that webhooks are signed with, one per line: `whsec_` and base64, or any
    /// text; with several, each signs. More may be in the environment variable
    /// `WINDLASS_WEBHOOK_SECRET`.
    #[arg(long, env = "WINDLASS_WEBHOOK_SECRET_FILE", value_name = "FILE")]
    pub(crate) webhook_secret_file: Option<PathBuf>,
    /// Addresses that webhooks may reach beside public ones, like 10.1.0.0/16; may be repeated.
    #[arg(long, env = "WINDLASS_WEBHOOK_ALLOW", value_delimiter = ',', value_name = "CIDR")]
    pub(crate) webhook_allow: Vec<Block>,
    /// Let webhooks reach every address, including this machine and private networks.
    #[arg(long, env = "WINDLASS_WEBHOOK_ALLOW_PRIVATE", value_parser = BoolishValueParser::new())]
    pub(crate) webhook_allow_private: bool,
    /// Time limit for connecting to a receiver.
    #[arg(long, env = "WINDLASS_WEBHOOK_CONNECT_TIMEOUT", default_value = "10s",
        value_parser = duration)]
    pub(crate) webhook_connect_timeout: Duration,
    /// Time limit for the whole answer of a receiver.
    #[arg(long, env = "WINDLASS_WEBHOOK_TIMEOUT", default_value = "30s", value_parser = duration)]
    pub(crate) webhook_timeout: Duration,
}

impl KindArgs {
    /// Makes the settings from the flags and the environment of this process.
    pub(crate) fn settings(
        &self,
        env: impl Fn(&str) -> Option<OsString>,
    ) -> Result<KindSettings, String> {
        let mut seen = Vec::new();
        for name in &self.command_env {
            let name = name.trim();
            if name.to_ascii_uppercase().starts_with("WINDLASS") {
                return Err(format!(
                    "--command-env {name}: commands are not given settings of windlass, which may \
                     be secret; take it off the list"
                ));
            }
            seen.extend(env(name).map(|value| (OsString::from(name), value)));
        }
        let limits = Limits {
            cpu_seconds: self.command_cpu_seconds,
            memory_bytes: self.command_memory,
            open_files: Some(self.command_open_files),
        };
        let command = Settings { grace: self.command_grace, env: seen, limits };
        let secret = env("WINDLASS_WEBHOOK_SECRET").and_then(|text| text.into_string().ok());
        let webhook = webhook::Settings {
            reach: Reach {
                everywhere: self.webhook_allow_private,
                also: self.webhook_allow.clone(),
            },
            secrets: Secrets::load(self.webhook_secret_file.as_deref(), secret.as_deref())?,
            connect_timeout: self.webhook_connect_timeout,
            timeout: self.webhook_timeout,
        };
        // A variable that is set to nothing allows nothing.
        let allowed = self.allow_command.iter().filter(|name| !name.is_empty()).cloned().collect();
        Ok(KindSettings { command: Arc::new(command), webhook, allowed: Allowed(allowed) })
    }
}

fn grace(text: &str) -> Result<Duration, String> {
    let given = duration(text)?;
    if given > MAX_GRACE {
        return Err("must be at most 20s: a job's lease is not kept for longer".into());
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Alone {
        #[command(flatten)]
        kinds: KindArgs,
    }

    fn settings(args: &[&str]) -> Result<KindSettings, String> {
        let args = ["windlass"].iter().chain(args);
        let alone = Alone::try_parse_from(args).map_err(|error| error.to_string())?;
        let unset = |name: &str| name == "UNSET" || name.starts_with("WINDLASS");
        alone.kinds.settings(|name| (!unset(name)).then(|| format!("of {name}").into()))
    }

    #[test]
    fn commands_see_the_variables_that_are_named_and_set_and_no_setting_of_ours() {
        let seen = settings(&["--command-env", "A,UNSET", "--command-env", "B"]).unwrap();
        let expected = [("A", "of A"), ("B", "of B")].map(|(a, b)| (a.into(), b.into()));
        assert_eq!(seen.command.env, expected);
        for name in ["WINDLASS_TOKEN", "windlass_token", "A,WINDLASS_WEBHOOK_SECRET"] {
            assert!(settings(&["--command-env", name]).is_err(), "{name}");
        }
        let usual = settings(&[]).unwrap();
        assert!(usual.command.env.iter().any(|(name, _)| name == "PATH"));
        assert!(usual.allowed.0.is_empty());
        assert!(settings(&["--allow-command", ""]).unwrap().allowed.0.is_empty());
    }

    #[test]
    fn limits_that_would_hurt_ourselves_are_refused() {
        for args in [
            ["--command-grace", "21s"],
            ["--command-memory", "1000"],
            ["--command-open-files", "3"],
            ["--command-cpu-seconds", "0"],
        ] {
            assert!(settings(&args).is_err(), "{args:?}");
        }
    }
}
