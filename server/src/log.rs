//! The log: lines for people, or JSON for programs, on standard error. Payloads and secrets are
//! never handed to it; control characters are escaped by the formatter. A thread of its own writes
//! it, so that a reader who stalls stalls nothing else: then lines are dropped, and counted.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use windlass_runtime_tokio::{Clock, SystemClock};

use crate::api::wire::rfc3339;
use crate::cli::LogFormat;

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
        .with_writer(Lines::start(format)?);
    match format {
        LogFormat::Text => {
            let colour = io::stderr().is_terminal() && !no_colour;
            log.with_ansi(colour).init();
        }
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
    // A panic is reported once, in the log; its message is ours, never a client's payload.
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

/// Lines that wait to be written.
const WAITING: usize = 8_192;
/// How long the last lines may take when the process ends.
const LAST_LINES: Duration = Duration::from_secs(1);

enum Message {
    Line(Vec<u8>),
    /// Everything before this was written.
    Flush(SyncSender<()>),
}

static WRITER: OnceLock<SyncSender<Message>> = OnceLock::new();
/// Lines that were dropped since the last one that was written.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Hands lines to the thread that writes them, and never waits for it.
#[derive(Clone)]
struct Lines(SyncSender<Message>);

impl Lines {
    fn start(format: LogFormat) -> Result<Self, String> {
        let (sender, receiver) = sync_channel(WAITING);
        let thread = std::thread::Builder::new().name("log".into());
        thread
            .spawn(move || write(&receiver, format, io::stderr()))
            .map_err(|error| format!("no thread could be started for the log: {error}"))?;
        let _ = WRITER.set(sender.clone());
        Ok(Self(sender))
    }
}

fn write(messages: &Receiver<Message>, format: LogFormat, mut out: impl Write) {
    for message in messages {
        match message {
            Message::Line(line) => {
                let dropped = DROPPED.swap(0, Ordering::Relaxed);
                if dropped > 0 {
                    let _ = writeln!(out, "{}", about_dropped(dropped, format));
                }
                // The reader may be gone; that is no reason to stop.
                let _ = out.write_all(&line).and_then(|()| out.flush());
            }
            Message::Flush(done) => drop(done.try_send(())),
        }
    }
}

/// The line in place of those that were dropped.
fn about_dropped(dropped: u64, format: LogFormat) -> String {
    const MESSAGE: &str = "log lines were dropped";
    let timestamp = rfc3339(SystemClock.now().wall);
    match format {
        LogFormat::Text => format!("{timestamp}  WARN {MESSAGE} dropped={dropped}"),
        LogFormat::Json => serde_json::json!({
            "timestamp": timestamp, "level": "WARN", "message": MESSAGE, "dropped": dropped,
        })
        .to_string(),
    }
}

/// Waits until what was logged is written, but not for ever: its reader may have stalled.
pub(crate) fn flush() {
    let (done, written) = sync_channel(1);
    let asked = WRITER.get().map(|writer| writer.try_send(Message::Flush(done)));
    if matches!(asked, Some(Ok(()))) {
        let _ = written.recv_timeout(LAST_LINES);
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { text: Vec::new(), lines: self }
    }
}

/// One line while it is written.
struct Line<'a> {
    text: Vec<u8>,
    lines: &'a Lines,
}

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        let line = Message::Line(std::mem::take(&mut self.text));
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
            self.lines.0.try_send(line)
        {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
}
