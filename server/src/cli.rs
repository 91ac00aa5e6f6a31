//! The command line. `serve` is the command if none is given.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::kinds::KindArgs;

/// A durable background job queue.
#[derive(Debug, Parser)]
#[command(name = "windlass", version, about, long_about = None)]
pub(crate) struct Cli {
    /// Where jobs are kept: sqlite:PATH or redb:PATH.
    #[arg(
        long,
        global = true,
        env = "WINDLASS_STORE",
        default_value = "sqlite:windlass-data/windlass.db"
    )]
    pub(crate) store: StoreUrl,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the HTTP API; the command if none is given.
    Serve(Box<ServeArgs>),
}

/// Serve the HTTP API.
///
/// Tokens are read from --token-file, and one with the scope admin from the environment variable
/// `WINDLASS_TOKEN`. Without tokens only addresses of this machine are listened on.
///
/// SIGTERM or SIGINT stops in order: nothing new is taken, what runs may finish until
/// --drain-timeout, the rest is given back. A second signal stops at once.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The address to listen on; port 0 takes a free one.
    #[arg(long, env = "WINDLASS_LISTEN", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    /// How many jobs of built-in kinds run here at once; with 0 they are left to other processes.
    #[arg(long, env = "WINDLASS_WORKERS", default_value_t = 16)]
    pub(crate) workers: usize,
    /// How long running jobs have after a signal, like 30s or 1m30s.
    #[arg(long, env = "WINDLASS_DRAIN_TIMEOUT", default_value = "30s", value_parser = duration)]
    pub(crate) drain_timeout: Duration,
    /// A file of tokens, one per line: NAME SCOPE[,SCOPE...] SECRET. Scopes are read, enqueue,
    /// work, admin; a secret may be written as sha256:HEX; # begins a comment.
    #[arg(long, env = "WINDLASS_TOKEN_FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// A certificate chain in PEM, for TLS.
    #[arg(long, env = "WINDLASS_TLS_CERT", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its private key in PEM.
    #[arg(long, env = "WINDLASS_TLS_KEY", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// A name this server goes by, besides localhost and addresses; may be given again.
    #[arg(long = "host", env = "WINDLASS_HOST", value_delimiter = ',')]
    pub(crate) hosts: Vec<String>,
    /// How the log is written, on standard error.
    #[arg(long = "log", env = "WINDLASS_LOG", default_value = "text")]
    pub(crate) log: LogFormat,
    /// What is logged: error, warn, info, debug, trace, or a filter like windlass=debug.
    #[arg(long, env = "WINDLASS_LOG_LEVEL", default_value = "info")]
    pub(crate) log_level: String,
    /// How long an idempotency key is remembered from the creation of its job.
    #[arg(
        long,
        env = "WINDLASS_IDEMPOTENCY_WINDOW",
        default_value = "24h",
        value_parser = duration
    )]
    pub(crate) idempotency_window: Duration,
    /// How long finished jobs are kept, like 7d; forever if not given.
    #[arg(long, env = "WINDLASS_KEEP_DONE", value_parser = duration)]
    pub(crate) keep_done: Option<Duration>,
    /// How long dead letters are kept; forever if not given.
    #[arg(long, env = "WINDLASS_KEEP_FAILED", value_parser = duration)]
    pub(crate) keep_failed: Option<Duration>,
    #[command(flatten)]
    pub(crate) kinds: KindArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Connections at once.
    #[arg(long, env = "WINDLASS_MAX_CONNECTIONS", default_value_t = 1024)]
    pub(crate) max_connections: usize,
    /// Bytes of a request's body.
    #[arg(long, env = "WINDLASS_MAX_BODY", default_value_t = 1024 * 1024)]
    pub(crate) max_body: usize,
    /// Bytes of a body with many jobs or reports.
    #[arg(long, env = "WINDLASS_MAX_BATCH_BODY", default_value_t = 32 * 1024 * 1024)]
    pub(crate) max_batch_body: usize,
    /// For the head of a request to arrive.
    #[arg(long, env = "WINDLASS_HEADER_TIMEOUT", default_value = "5s", value_parser = duration)]
    pub(crate) header_timeout: Duration,
    /// For the body of a request to arrive.
    #[arg(long, env = "WINDLASS_BODY_TIMEOUT", default_value = "15s", value_parser = duration)]
    pub(crate) body_timeout: Duration,
    /// After which a connection without a request is closed.
    #[arg(long, env = "WINDLASS_IDLE_TIMEOUT", default_value = "60s", value_parser = duration)]
    pub(crate) idle_timeout: Duration,
    /// After which a connection is closed whose client does not read.
    #[arg(long, env = "WINDLASS_WRITE_TIMEOUT", default_value = "30s", value_parser = duration)]
    pub(crate) write_timeout: Duration,
    /// Requests and jobs that may wait for the dispatcher before clients are told to come back.
    #[arg(long, env = "WINDLASS_MAILBOX", default_value_t = 10_000)]
    pub(crate) mailbox: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Which store, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreUrl {
    Sqlite(PathBuf),
    Redb(PathBuf),
}

impl FromStr for StoreUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("sqlite", path)) if !path.is_empty() => Ok(Self::Sqlite(path.into())),
            Some(("redb", path)) if !path.is_empty() => Ok(Self::Redb(path.into())),
            _ => Err("give sqlite:PATH or redb:PATH, like sqlite:windlass-data/windlass.db".into()),
        }
    }
}

impl StoreUrl {
    pub(crate) fn path(&self) -> &PathBuf {
        match self {
            Self::Sqlite(path) | Self::Redb(path) => path,
        }
    }
}

impl std::fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Redb(path) => write!(f, "redb:{}", path.display()),
        }
    }
}

/// A length of time: numbers with ms, s, m, h or d, like 500ms, 30s or 1h30m.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a length of time; write it like 500ms, 30s or 1h30m");
    let mut total = Duration::ZERO;
    let mut rest = text;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = rest[..end].parse().map_err(|_| wrong())?;
        rest = &rest[end..];
        let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit_ms: u64 = match &rest[..end] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(wrong()),
        };
        let millis = number.checked_mul(unit_ms).ok_or_else(wrong)?;
        total = total.checked_add(Duration::from_millis(millis)).ok_or_else(wrong)?;
        rest = &rest[end..];
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_length_of_time_is_read_with_its_units() {
        assert_eq!(duration("1h30m"), Ok(Duration::from_mins(90)));
        assert_eq!(duration("1500ms"), Ok(Duration::from_millis(1_500)));
        for text in
            ["", "30", "s", "3x", "-1s", "1.5s", "99999999999999999999s", "18446744073709551615d"]
        {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_store_is_named_by_its_kind_and_its_path() {
        let store: StoreUrl = "redb:/x/y".parse().unwrap();
        assert_eq!(store, StoreUrl::Redb("/x/y".into()));
        assert_eq!(store.to_string(), "redb:/x/y");
        for text in ["", "sqlite", "sqlite:", "mysql:x", "/x/y"] {
            assert!(StoreUrl::from_str(text).is_err(), "{text}");
        }
    }
}
