//! `http`: the real binary on loopback, driven over keep-alive connections, beside a trivial hyper
//! server that answers the same bytes in the same run.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::bare::{Place, Which};
use crate::lifecycle::enqueue_one_by_one;
use crate::measure::{Line, Outcome, rate, time};
use crate::server::{Client, Server, drive};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of connections.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Number of jobs.
    #[arg(long, default_value_t = 20_000)]
    jobs: usize,
    /// Jobs per request; 1 is `POST /jobs`, more is `POST /jobs/batch`.
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// Store of the server: sqlite, redb, postgres (a private server), or a URL postgres://…
    #[arg(long, default_value = "sqlite")]
    store: Which,
    /// Path of the server; the binary beside this program if not given.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Instead: pass this number of jobs through in rounds, and report the memory that stays in
    /// use.
    #[arg(long, value_name = "JOBS")]
    passed: Option<usize>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The payload of every job.
const PAYLOAD: &str = r#"{"n":1}"#;

fn job() -> String {
    format!(r#"{{"kind":"bench","payload":{PAYLOAD}}}"#)
}

/// Enqueues, then drains with polls of 100 and batch reports; sends as many requests to the
/// ceiling, and enqueues as many jobs with the library, one by one.
pub(crate) fn run(options: &Options) -> Outcome<String> {
    let dir = tempfile::tempdir()?;
    let store = options.store.of_server(dir.path())?;
    let server = Server::start(options.binary.as_deref(), &store, &[])?;
    if let Some(jobs) = options.passed {
        return passed(options, &server, jobs);
    }
    let (path, body) = if options.batch == 1 {
        ("/jobs", job())
    } else {
        let jobs = vec![job(); options.batch].join(",");
        ("/jobs/batch", format!(r#"{{"jobs":[{jobs}]}}"#))
    };
    let requests = options.jobs.div_ceil(options.batch);
    let enqueue = |address: SocketAddr, status: u16| {
        let body = Arc::from(body.as_str());
        ask(address, options.connections, requests, &Ask { path, body, status })
    };
    let (elapsed, answer) = enqueue(server.address, 202)?;
    let stored = requests * options.batch;
    let enqueued = rate(stored, elapsed);
    let ceiling = Ceiling::start(answer)?;
    let (elapsed, _) = enqueue(ceiling.address, 200)?;
    let most = rate(stored, elapsed);
    let drained = drain(server.address, options.connections.min(8), stored)?;
    let memory = server.resident_kib();
    let place = Place::among_temporary(options.store.clone(), PAYLOAD.len());
    let library = enqueue_one_by_one(&place, stored, options.connections)?;
    let line = Line::new(options.json, "http")
        .word("store", options.store.name())
        .count("connections", options.connections)
        .count("batch", options.batch)
        .count("jobs", stored)
        .rate("enqueue_per_s", enqueued)
        .rate("ceiling_per_s", most)
        .ratio("of_ceiling", enqueued / most)
        .rate("library_per_s", library)
        .ratio("of_library", enqueued / library)
        .rate("drain_per_s", drained)
        .count("resident_kib", memory);
    Ok(line.finish())
}

/// Rounds of `--passed`: the figures of the first and the last show what grows with jobs.
const ROUNDS: usize = 10;
/// Jobs per request of these rounds.
const ROUND_BATCH: usize = 1_000;

/// Enqueues in batches and drains, round after round; returns the memory of the server.
fn passed(options: &Options, server: &Server, jobs: usize) -> Outcome<String> {
    let body = vec![job(); ROUND_BATCH].join(",");
    let body = format!(r#"{{"jobs":[{body}]}}"#);
    let requests = jobs.div_ceil(ROUNDS * ROUND_BATCH);
    let connections = options.connections.min(8);
    let batch = Ask { path: "/jobs/batch", body: body.into(), status: 202 };
    let poll = Ask { path: "/jobs/poll", body: r#"{"worker":"bench"}"#.into(), status: 200 };
    ask(server.address, options.connections, options.connections, &poll)?;
    let idle = server.resident_kib();
    let (rounds, elapsed) = time(|| {
        let round = |_| {
            ask(server.address, connections, requests, &batch)?;
            drain(server.address, connections, requests * ROUND_BATCH)?;
            Ok(server.resident_kib())
        };
        (0..ROUNDS).map(round).collect::<Outcome<Vec<usize>>>()
    })?;
    let through = ROUNDS * requests * ROUND_BATCH;
    let line = Line::new(options.json, "http_passed")
        .word("store", options.store.name())
        .count("jobs", through)
        .rate("through_per_s", rate(through, elapsed))
        .count("idle_kib", idle)
        .count("first_round_kib", rounds.first().copied().unwrap_or(0))
        .count("after_kib", rounds.last().copied().unwrap_or(0));
    Ok(line.finish())
}

/// A request that is repeated, and the expected status.
#[derive(Debug, Clone)]
struct Ask {
    path: &'static str,
    body: Arc<str>,
    status: u16,
}

/// Sends this number of requests over this number of connections; the time, and an answer.
fn ask(
    address: SocketAddr,
    connections: usize,
    requests: usize,
    ask: &Ask,
) -> Outcome<(Duration, Vec<u8>)> {
    let (took, answers) = drive(address, connections, |mut client, at| {
        let share = requests / connections + usize::from(at < requests % connections);
        let ask = ask.clone();
        async move {
            let mut last = Vec::new();
            for _ in 0..share {
                let (status, answer) = client.send(ask.path, &ask.body).await?;
                if status != ask.status {
                    return Err(format!("{} was answered with {status}", ask.path).into());
                }
                last = answer;
            }
            Ok(last)
        }
    })?;
    let answer = answers.into_iter().find(|answer| !answer.is_empty()).unwrap_or_default();
    Ok((took, answer))
}

/// Claims and completes everything; returns jobs per second.
fn drain(address: SocketAddr, workers: usize, jobs: usize) -> Outcome<f64> {
    let (took, _) = drive(address, workers, |client, _| work_off(client))?;
    Ok(rate(jobs, took))
}

async fn work_off(mut client: Client) -> Outcome<()> {
    let poll = r#"{"worker":"bench","max":100}"#;
    loop {
        let (_, answer) = client.send("/jobs/poll", poll).await?;
        let text = String::from_utf8(answer)?;
        let tokens = text.split("\"token\":\"").skip(1).filter_map(|rest| rest.split('"').next());
        let reports: Vec<String> =
            tokens.map(|token| format!(r#"{{"token":"{token}","verdict":"complete"}}"#)).collect();
        if reports.is_empty() {
            return Ok(());
        }
        let body = format!(r#"{{"reports":[{}]}}"#, reports.join(","));
        client.send("/jobs/reports", &body).await?;
    }
}

/// A server that reads a body and always sends the same answer.
struct Ceiling {
    address: SocketAddr,
    _runtime: tokio::runtime::Runtime,
}

impl Ceiling {
    fn start(answer: Vec<u8>) -> Outcome<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        runtime.spawn(accept(listener, Bytes::from(answer)));
        Ok(Self { address, _runtime: runtime })
    }
}

async fn accept(listener: TcpListener, answer: Bytes) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let answer = answer.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| same(request, answer.clone()));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn same(request: Request<Incoming>, answer: Bytes) -> Result<Response<Full>, Infallible> {
    let mut body = std::pin::pin!(request.into_body());
    while std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await.is_some() {}
    Ok(Response::new(Full(Some(answer))))
}

/// A body of bytes.
pub(crate) struct Full(pub(crate) Option<Bytes>);

impl hyper::body::Body for Full {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Infallible>>> {
        std::task::Poll::Ready(self.0.take().map(|bytes| Ok(hyper::body::Frame::data(bytes))))
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        hyper::body::SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
