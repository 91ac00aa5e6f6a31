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
/// `WINDLASS_TOKEN`. Without tokens the server listens on loopback addresses only.
///
/// SIGTERM or SIGINT shuts down: new jobs are refused, running jobs may finish until
/// --drain-timeout, the rest are released. A second signal stops at once.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Address to listen on, like 127.0.0.1:8080, localhost:8080 or :8080. Without a host it is
    /// 127.0.0.1; port 0 takes a free one.
    #[arg(long, env = "WINDLASS_LISTEN", default_value = "127.0.0.1:8080", value_parser = address)]
    pub(crate) listen: SocketAddr,
    /// Time for running jobs to finish after a signal, like 30s or 1m30s.
    #[arg(long, env = "WINDLASS_DRAIN_TIMEOUT", default_value = "30s", value_parser = duration)]
    pub(crate) drain_timeout: Duration,
    /// File of tokens, one per line: NAME SCOPE[,SCOPE...] SECRET. Scopes are read, enqueue,
    /// work, admin; a secret may be written as sha256:HEX; # begins a comment.
    #[arg(long, env = "WINDLASS_TOKEN_FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Certificate chain in PEM, for TLS.
    #[arg(long, env = "WINDLASS_TLS_CERT", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of the certificate, in PEM.
    #[arg(long, env = "WINDLASS_TLS_KEY", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Host name of this server, besides localhost and addresses; may be repeated.
    #[arg(long = "host", env = "WINDLASS_HOST", value_delimiter = ',')]
    pub(crate) hosts: Vec<String>,
    /// Format of the log on standard error.
    #[arg(long = "log", env = "WINDLASS_LOG", default_value = "text")]
    pub(crate) log: LogFormat,
    /// Log level: error, warn, info, debug, trace, or a filter like windlass=debug.
    #[arg(long, env = "WINDLASS_LOG_LEVEL", default_value = "info")]
    pub(crate) log_level: String,
    /// Add waiting and run times by kind to /metrics, for up to 200 pairs of queue and kind.
    #[arg(long, env = "WINDLASS_METRICS_KINDS")]
    pub(crate) metrics_kinds: bool,
    /// Refuse to start if the schema of a PostgreSQL store is missing or old, instead of making or
    /// migrating it: `windlass migrate` does that.
    #[arg(long, env = "WINDLASS_NO_MIGRATE")]
    pub(crate) no_migrate: bool,
    /// Name of this environment, shown on the dashboard.
    #[arg(long, env = "WINDLASS_LABEL")]
    pub(crate) label: Option<String>,
    /// Run example jobs that succeed, fail and are retried, on a temporary store unless one is
    /// given.
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
    /// Maximum number of connections.
    #[arg(long, env = "WINDLASS_MAX_CONNECTIONS", default_value_t = 1024)]
    pub(crate) max_connections: usize,
    /// Maximum size of a request body, in bytes.
    #[arg(long, env = "WINDLASS_MAX_BODY", default_value_t = 1024 * 1024)]
    pub(crate) max_body: usize,
    /// Maximum size of a batch of jobs or reports, in bytes.
    #[arg(long, env = "WINDLASS_MAX_BATCH_BODY", default_value_t = 32 * 1024 * 1024)]
    pub(crate) max_batch_body: usize,
    /// Time limit for the head of a request.
    #[arg(long, env = "WINDLASS_HEADER_TIMEOUT", default_value = "5s", value_parser = duration)]
    pub(crate) header_timeout: Duration,
    /// Time limit for the body of a request.
    #[arg(long, env = "WINDLASS_BODY_TIMEOUT", default_value = "15s", value_parser = duration)]
    pub(crate) body_timeout: Duration,
    /// Time after which an idle connection is closed.
    #[arg(long, env = "WINDLASS_IDLE_TIMEOUT", default_value = "60s", value_parser = duration)]
    pub(crate) idle_timeout: Duration,
    /// Time after which a connection is closed if its client does not read.
    #[arg(long, env = "WINDLASS_WRITE_TIMEOUT", default_value = "30s", value_parser = duration)]
    pub(crate) write_timeout: Duration,
    /// Maximum number of requests and jobs that wait for the dispatcher; further ones get 503.
    #[arg(long, env = "WINDLASS_MAILBOX", default_value_t = 10_000)]
    pub(crate) mailbox: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines of text.
    Text,
    /// One JSON object per line.
    Json,
}
