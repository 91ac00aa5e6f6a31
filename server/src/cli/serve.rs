//! The settings of `serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::values::{address, duration};
use crate::kinds::KindArgs;
use crate::settings::Flags;

/// Serve the HTTP API.
///
/// Tokens are read from --token-file, and one with the scope admin from the environment variable
/// `WINDLASS_TOKEN`. Without tokens only addresses of this machine are listened on.
///
/// SIGTERM or SIGINT stops in order: nothing new is taken, what runs may finish until
/// --drain-timeout, the rest is given back. A second signal stops at once.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The address to listen on, like 127.0.0.1:8080, localhost:8080 or :8080. Without a host it is
    /// 127.0.0.1; port 0 takes a free one.
    #[arg(long, env = "WINDLASS_LISTEN", default_value = "127.0.0.1:8080", value_parser = address)]
    pub(crate) listen: SocketAddr,
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
    /// Tell waiting and running times in /metrics by kind, too, up to 200 pairs of queue and kind.
    #[arg(long, env = "WINDLASS_METRICS_KINDS")]
    pub(crate) metrics_kinds: bool,
    /// Refuse to start if the schema of a PostgreSQL store is missing or old, instead of making or
    /// migrating it: `windlass migrate` does that.
    #[arg(long, env = "WINDLASS_NO_MIGRATE")]
    pub(crate) no_migrate: bool,
    /// What this environment is called; the dashboard shows it beside its name.
    #[arg(long, env = "WINDLASS_LABEL")]
    pub(crate) label: Option<String>,
    /// Show what it does: jobs come, run, fail and are tried again, on a store of its own unless
    /// one is given.
    #[arg(long)]
    pub(crate) demo: bool,
    #[command(flatten)]
    pub(crate) kinds: KindArgs,
    #[command(flatten)]
    pub(crate) settings: Flags,
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
