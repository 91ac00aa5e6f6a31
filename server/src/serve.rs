//! `windlass serve`: start, announce, wait for a signal, stop in phases. The exit code tells.

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use windlass_runtime_tokio::{Health, Queue, Report};

use crate::app::{App, Closing, Stage};
use crate::auth::Tokens;
use crate::cli::{ServeArgs, StoreUrl};
use crate::find::Routes;
use crate::guard::Hosts;
use crate::kinds::{self, KindSettings};
use crate::limits::Limits;
use crate::settings::Given;
use crate::store::Purpose;
use crate::{demo, http, notify, store, tls};

/// How long connections have for their last answers, once nothing runs any more.
const LAST_ANSWERS: Duration = Duration::from_millis(900);

/// Serves until a signal, and returns the exit code; or why it could not start.
pub(crate) async fn serve(
    url: StoreUrl,
    args: ServeArgs,
    kinds: KindSettings,
    admin_token: Option<String>,
) -> Result<ExitCode, String> {
    let mut signals = Signals::new().map_err(|error| format!("no signal can be heard: {error}"))?;
    let tokens = Tokens::load(args.token_file.as_deref(), admin_token.as_deref());
    let tokens = tokens.map_err(|error| error.to_string())?;
    if tokens.is_empty() && !args.listen.ip().is_loopback() {
        return Err(format!(
            "{} can be reached from other machines, so tokens are needed: give --token-file FILE \
             or set WINDLASS_TOKEN, or listen on 127.0.0.1",
            args.listen
        ));
    }
    let tls = match (&args.tls_cert, &args.tls_key) {
        (Some(certificate), Some(key)) => {
            Some(tls::acceptor(certificate, key).map_err(|error| error.to_string())?)
        }
        _ => None,
    };
    let listener = TcpListener::bind(args.listen).await.map_err(|error| {
        format!("{} cannot be listened on: {error}; choose another with --listen", args.listen)
    })?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    raise_open_files();
    let (stage, closing) = Closing::new();
    let (app, hub) = start(&url, &args, kinds, tokens, closing)?;
    let accepting = http::serve(listener, tls.clone(), Arc::clone(&app), Routes::new());
    let accepting = tokio::spawn(accepting);
    announce(&url, &app, address, tls.is_some());
    if args.demo {
        tokio::spawn(demo::run(app.queue.clone()));
    }
    notify::ready();
    notify::start_watchdog(Arc::clone(&app));
    let asked = tokio::select! {
        name = signals.next() => Some(name),
        _ = hub => None,
        () = lost(&app.queue) => None,
    };
    let health = app.queue.health();
    if asked.is_none() {
        let cause = health.cause().map_or_else(|| format!("{health:?}"), ToString::to_string);
        tracing::error!(cause, "the store or its writer is lost: mend it, then start again");
    }
    let code = stop(&app, &stage, accepting, signals, args.drain_timeout, asked).await;
    let in_order = asked.is_some() && !is_lost(&health);
    Ok(if in_order { code } else { ExitCode::FAILURE })
}

/// Ends once nothing can be stored any more. A server that is up but takes no work helps nobody.
pub(crate) async fn lost(queue: &Queue) {
    if queue.lost().await.is_none() {
        // The queue was stopped in order: whoever did that knows.
        std::future::pending::<()>().await;
    }
}

pub(crate) fn is_lost(health: &Health) -> bool {
    matches!(health, Health::Lost(_) | Health::Died(_))
}

fn start(
    url: &StoreUrl,
    args: &ServeArgs,
    kinds: KindSettings,
    tokens: Tokens,
    closing: Closing,
) -> Result<(Arc<App>, JoinHandle<()>), String> {
    let mut flags = args.settings.0.clone();
    if args.demo {
        demo::settings(&mut flags);
    }
    let given = Given::from_environment(&flags)?;
    let started = store::start(url, Purpose::Serve(args, &kinds), given);
    let started = started.map_err(|error| error.to_string())?;
    let limits = Limits {
        body: args.limits.max_body,
        batch_body: args.limits.max_batch_body,
        connections: args.limits.max_connections,
        head_read: args.limits.header_timeout,
        body_read: args.limits.body_timeout,
        idle: args.limits.idle_timeout,
        write_stall: args.limits.write_timeout,
        ..Limits::default()
    };
    let hosts = Hosts::new(&args.hosts);
    let allowed = kinds.allowed;
    let app = App::new(started, url.path().clone(), closing);
    let app = App { tokens, hosts, limits, allowed, ..app };
    let following = tokio::spawn(Arc::clone(&app.hub).follow(app.queue.events()));
    Ok((Arc::new(app), following))
}

/// Says on standard output where it listens, which store it uses, and what to try first.
fn announce(url: &StoreUrl, app: &App, address: SocketAddr, tls: bool) {
    let scheme = if tls { "https" } else { "http" };
    let token = if app.tokens.is_empty() { "" } else { " -H \"Authorization: Bearer $TOKEN\"" };
    let here = if app.queue.metrics().workers > 0 {
        format!("jobs of the kinds {} here; ", kinds::BUILT_IN.join(", "))
    } else {
        String::new()
    };
    let runs = format!("{here}others by workers that poll POST /jobs/poll");
    let text = format!(
        "windlass {} listens on {scheme}://{address}\n\
         store   {url}\n\
         runs    {runs}\n\
         try     curl{token} {scheme}://{address}/jobs -H 'Content-Type: application/json' \
         -d '{{\"kind\":\"hello\",\"payload\":{{\"to\":\"world\"}}}}'\n",
        env!("CARGO_PKG_VERSION"),
    );
    let mut out = std::io::stdout().lock();
    // Nobody may be reading; that is no reason not to serve.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    tracing::info!(%address, store = %url, tokens = ?app.tokens, tls, "ready");
}

/// The end, in phases.
async fn stop(
    app: &Arc<App>,
    stage: &watch::Sender<Stage>,
    accepting: JoinHandle<()>,
    mut signals: Signals,
    drain: Duration,
    asked: Option<&'static str>,
) -> ExitCode {
    let reason = asked.unwrap_or("lost");
    tracing::info!(reason, drain_ms = millis(drain), "stopping: nothing new is taken");
    notify::stopping();
    stage.send_replace(Stage::Draining);
    let queue = app.queue.clone();
    let report = tokio::select! {
        report = queue.shutdown(drain) => report,
        code = signals.second() => return code,
    };
    tell(&report);
    stage.send_replace(Stage::Closing);
    tokio::select! {
        ended = timeout(LAST_ANSWERS, accepting) => {
            if ended.is_err() {
                tracing::warn!("stopping: some connections did not end in time and were cut");
            }
        }
        code = signals.second() => return code,
    }
    match &report.cause {
        None => {
            tracing::info!("stopped");
            ExitCode::SUCCESS
        }
        Some(cause) => {
            tracing::error!(%cause, "stopped, but not in order");
            ExitCode::FAILURE
        }
    }
}

pub(crate) fn tell(report: &Report) {
    let left: Vec<String> = report.left.iter().map(ToString::to_string).collect();
    let (finished, released, forced) = (report.finished, report.released, report.forced);
    tracing::info!(finished, released, left = ?left, forced, "stopping: nothing runs any more");
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// SIGTERM and SIGINT.
#[derive(Debug)]
pub(crate) struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    pub(crate) fn new() -> std::io::Result<Self> {
        let term = signal(SignalKind::terminate())?;
        let int = signal(SignalKind::interrupt())?;
        Ok(Self { term, int })
    }

    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
        }
    }

    /// Another signal: the exit code that says so.
    pub(crate) async fn second(&mut self) -> ExitCode {
        let name = self.next().await;
        tracing::warn!(reason = name, "stopped at once; leases that run will expire");
        ExitCode::from(if name == "SIGINT" { 130 } else { 143 })
    }
}

/// As many open files as the system allows: each connection is one.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
}
