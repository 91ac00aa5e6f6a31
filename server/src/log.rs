//! The log: lines for people, or JSON for programs, on standard error. Payloads and secrets are
//! never handed to it; control characters are escaped by the formatter.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use windlass_runtime_tokio::{Clock, SystemClock};

use crate::cli::LogFormat;
use crate::wire::rfc3339;

const NOT_OF_ATTEMPTS: &str = "windlass_runtime_tokio::pool=off";

/// Starts the log. `filter` is as in `RUST_LOG`, like `debug` or `windlass=debug`.
pub(crate) fn start(format: LogFormat, filter: &str, no_colour: bool) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter)
        .map_err(|error| format!("--log-level {filter:?} is not a filter: {error}"))?
        // It tells the error of each attempt, which may hold parts of payloads; the hub tells the
        // attempt.
        .add_directive(NOT_OF_ATTEMPTS.parse().map_err(|error| format!("{error}"))?);
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_timer(Stamp)
        .with_target(false)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => {
            let colour = std::io::stderr().is_terminal() && !no_colour;
            log.with_ansi(colour).init();
        }
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
    // A panic is told once, in the log; its message is ours, never a client's payload.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let message = panic.payload_as_str().unwrap_or("no message");
        tracing::error!(place, message, "panic");
    }));
    Ok(())
}

/// The time of a line, as everywhere else.
struct Stamp;

impl FormatTime for Stamp {
    fn format_time(&self, writer: &mut Writer<'_>) -> std::fmt::Result {
        writer.write_str(&rfc3339(SystemClock.now().wall))
    }
}
