//! `windlass serve`: start, announce, wait for a signal, stop in phases. The exit code tells.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use windlass_core::machine::Input;
use windlass_runtime_tokio::{Health, Queue, Report, StartError};

use crate::api::feed::Feed;
use crate::api::hub::Hub;
use crate::api::others;
use crate::app::{self, App, Closing, Stage};
use crate::cli::ServeArgs;
use crate::cli::client::Failure;
use crate::http::auth::Tokens;
use crate::http::find::Routes;
use crate::http::guard::Hosts;
use crate::http::limits::Limits;
use crate::http::tls::Certificate;
use crate::kinds::{self, KindSettings};
use crate::settings::{Given, Id, Value};
use crate::store::{OpenError, Purpose, Started, StoreUrl};
use crate::{demo, http, notify, process, store};

/// How long connections have for their last answers, once nothing runs any more.
const LAST_ANSWERS: Duration = Duration::from_millis(900);

/// Serves until a signal, and returns the exit code; or why it could not start.
pub(crate) async fn serve(
    url: StoreUrl,
    args: ServeArgs,
    kinds: KindSettings,
    admin_token: Option<String>,
) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new().map_err(|error| format!("cannot handle signals: {error}"))?;
    let hangup = Signals::hangup()?;
    if args.no_migrate && url.file().is_some() {
        return Err(Failure::usage(
            "--no-migrate is for PostgreSQL: a store in a file is migrated when it is opened",
        ));
    }
    let tokens = Tokens::load(args.token_file.as_deref(), admin_token.as_deref());
    let tokens = tokens.map_err(|error| error.to_string())?;
    if tokens.is_empty() && !args.listen.ip().is_loopback() {
        return Err(format!(
            "{} can be reached from other machines, so tokens are needed: give --token-file FILE \
             or set WINDLASS_TOKEN, or listen on 127.0.0.1",
            args.listen
        )
        .into());
    }
    let certificate = match (&args.tls_cert, &args.tls_key) {
        (Some(certificate), Some(key)) => {
            Some(Certificate::load(certificate, key).map_err(|error| error.to_string())?)
        }
        _ => None,
    };
    let tls = certificate.as_ref().map(Certificate::acceptor).transpose();
    let tls = tls.map_err(|error| error.to_string())?;
    let listener = TcpListener::bind(args.listen).await.map_err(|error| {
        format!("cannot listen on {}: {error}; choose another address with --listen", args.listen)
    })?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    raise_open_files();
    let (stage, closing) = Closing::new();
    let (app, queue, hub) = start(&url, &args, kinds, tokens, closing).await?;
    tokio::spawn(process::end_gone(queue.clone()));
    let accepting = http::serve(listener, tls.clone(), Arc::clone(&app), Routes::new());
    let accepting = tokio::spawn(accepting);
    announce(&url, &app, &queue, address, tls.is_some());
    if args.demo {
        tokio::spawn(demo::run(queue.clone()));
    }
    let reload = Reload { file: args.token_file.clone(), admin: admin_token, certificate };
    tokio::spawn(reload.on_hangup(Arc::clone(&app), hangup));
    notify::ready();
    notify::start_watchdog(Arc::clone(&app));
    let asked = tokio::select! {
        name = signals.next() => Some(name),
        _ = hub => None,
        () = lost(&queue) => None,
    };
    let health = app.health();
    if asked.is_none() {
        let cause = health.cause().map_or_else(|| format!("{health:?}"), ToString::to_string);
        tracing::error!(cause, "the store or its writer failed; fix the cause, then start again");
    }
    let code = stop(&queue, &stage, accepting, signals, args.drain_timeout, asked).await;
    let in_order = asked.is_some() && !is_lost(&health);
    Ok(if in_order { code } else { ExitCode::FAILURE })
}

/// Ends once nothing can be stored any more. A server that is up but takes no work is of no use.
pub(crate) async fn lost(queue: &Queue) {
    if queue.lost().await.is_none() {
        // The queue was stopped in order, by a request that reports it.
        std::future::pending::<()>().await;
    }
}

pub(crate) fn is_lost(health: &Health) -> bool {
    matches!(health, Health::Lost(_) | Health::Died(_))
}

async fn start(
    url: &StoreUrl,
    args: &ServeArgs,
    kinds: KindSettings,
    tokens: Tokens,
    closing: Closing,
) -> Result<(Arc<App>, Queue, JoinHandle<()>), Failure> {
    let mut flags = args.settings.0.clone();
    if args.demo {
        demo::settings(&mut flags);
    }
    let given = Given::from_environment(&flags)?;
    let started = store::start(url, Purpose::Serve(args, &kinds), given);
    let started = started.map_err(|error| match error {
        OpenError::Postgres(_)
        | OpenError::NotMade { .. }
        | OpenError::Start(StartError::Sealed(_)) => Failure::from(&error),
        file => Failure::failed(file.to_string()),
    })?;
    store::remove_leftovers(url);
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
    let Started { queue, opened } = started;
    let app = App::new(opened, Some(queue.clone()), url.clone(), closing);
    let hub = Hub::new(app::now(), args.metrics_kinds);
    let label = args.label.clone();
    let started_at = app.store_now().await.unwrap_or(app.started_at);
    let app = App { tokens, hosts, limits, hub, allowed, label, started_at, ..app };
    let wrote = Arc::new(Notify::new());
    tokio::spawn(others::follow(Arc::clone(&app.hub), queue.clone(), Arc::clone(&wrote)));
    let following = tokio::spawn(Arc::clone(&app.hub).follow(queue.events(), wrote));
    let app = Arc::new(app);
    queue.reconfigure(Input::Started);
    tokio::spawn(Feed::run(Arc::clone(&app)));
    Ok((app, queue, following))
}

/// Says on standard output where it listens, which store it uses, and what to try first.
fn announce(url: &StoreUrl, app: &App, queue: &Queue, address: SocketAddr, tls: bool) {
    let scheme = if tls { "https" } else { "http" };
    let token = if app.tokens.is_empty() { "" } else { " -H \"Authorization: Bearer $TOKEN\"" };
    let here = if queue.metrics().workers > 0 {
        format!("jobs of the kinds {} here; ", kinds::BUILT_IN.join(", "))
    } else {
        String::new()
    };
    let runs = format!("{here}others by workers that poll POST /jobs/poll");
    let kept = |id| match app.settings.levels().of(id).value {
        Value::Off => "forever".to_owned(),
        age => format!("for {age}"),
    };
    let kept = format!(
        "done jobs {}, dead letters {}, cancelled jobs {}",
        kept(Id::KeepDone),
        kept(Id::KeepFailed),
        kept(Id::KeepCancelled),
    );
    let text = format!(
        "windlass {} listens on {scheme}://{address}\n\
         store   {url}\n\
         runs    {runs}\n\
         keeps   {kept}\n\
         watch   {scheme}://{address}/ in a browser\n\
         try     curl{token} {scheme}://{address}/jobs -H 'Content-Type: application/json' \
         -d '{{\"kind\":\"hello\",\"payload\":{{\"to\":\"world\"}}}}'\n",
        env!("CARGO_PKG_VERSION"),
    );
    let mut out = std::io::stdout().lock();
    // The reader may be gone; that is no reason not to serve.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    tracing::info!(%address, store = %url, tokens = ?app.tokens, tls, "ready");
}

/// The end, in phases.
async fn stop(
    queue: &Queue,
    stage: &watch::Sender<Stage>,
    accepting: JoinHandle<()>,
    mut signals: Signals,
    drain: Duration,
    asked: Option<&'static str>,
) -> ExitCode {
    let reason = asked.unwrap_or("lost");
    tracing::info!(reason, drain_ms = millis(drain), "shutting down: new jobs are refused");
    notify::stopping();
    stage.send_replace(Stage::Draining);
    let report = tokio::select! {
        report = queue.shutdown(drain) => report,
        code = signals.second() => return code,
    };
    log_report(&report);
    stage.send_replace(Stage::Closing);
    tokio::select! {
        ended = timeout(LAST_ANSWERS, accepting) => {
            if ended.is_err() {
                tracing::warn!("shutting down: connections that did not end in time were closed");
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
            tracing::error!(%cause, "stopped without an orderly shutdown");
            ExitCode::FAILURE
        }
    }
}

pub(crate) fn log_report(report: &Report) {
    let left: Vec<String> = report.left.iter().map(ToString::to_string).collect();
    let (finished, released, forced) = (report.finished, report.released, report.forced);
    tracing::info!(finished, released, left = ?left, forced, "shut down: no job is running");
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What SIGHUP has read again.
struct Reload {
    /// The file of tokens.
    file: Option<PathBuf>,
    /// The token of the environment, which stays.
    admin: Option<String>,
    certificate: Option<Arc<Certificate>>,
}

impl Reload {
    async fn on_hangup(self, app: Arc<App>, mut hangup: Signal) {
        while hangup.recv().await.is_some() {
            self.tokens(&app);
            self.certificate();
        }
    }

    fn tokens(&self, app: &App) {
        let Some(file) = &self.file else { return };
        match Tokens::load(Some(file), self.admin.as_deref()) {
            Ok(tokens) => {
                app.tokens.replace(tokens);
                tracing::info!(tokens = ?app.tokens, "tokens were reloaded");
            }
            Err(error) => tracing::error!(%error, "the tokens were not reloaded"),
        }
    }

    fn certificate(&self) {
        let Some(certificate) = &self.certificate else { return };
        match certificate.reload() {
            Ok(()) => tracing::info!("the certificate was reloaded"),
            Err(error) => tracing::error!(%error, "the certificate was not reloaded"),
        }
    }
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

    /// SIGHUP, which then no longer ends the process.
    fn hangup() -> Result<Signal, String> {
        signal(SignalKind::hangup()).map_err(|error| format!("SIGHUP cannot be handled: {error}"))
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
        tracing::warn!(
            reason = name,
            "stopped immediately; running jobs are requeued when their leases expire"
        );
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
