//! Clients of the nodes: producers, workers over HTTP, and the receiver of webhooks. Each call goes
//! to one node, and is repeated at another if it fails.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::ledger::{End, Ledger};
use crate::dice::Dice;
use crate::http::Full;
use crate::measure::Outcome;
use crate::server::Client;

/// The ledger, and two signals for the end of a run.
#[derive(Debug, Default)]
pub(super) struct Clients {
    pub(super) ledger: Ledger,
    /// No more jobs are enqueued.
    pub(super) enough: AtomicBool,
    /// Workers may end.
    pub(super) ended: AtomicBool,
}

/// Time limit of an answer: a node that is stopped gives none.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Pause before a call is repeated.
const AGAIN: Duration = Duration::from_millis(50);
/// One job of this number is a webhook, which a node runs itself.
const WEBHOOK_EVERY: u64 = 8;
/// One claimed job of this number is dropped, as by a worker that has ended.
const DROP_EVERY: u64 = 200;
/// One call of this number goes to another node than the one before.
const MOVE_EVERY: u64 = 20;

/// A client with a connection to some node.
pub(super) struct Caller {
    clients: Arc<Clients>,
    dice: Dice,
    connection: Option<Client>,
}

impl Caller {
    pub(super) fn new(clients: &Arc<Clients>, seed: u64) -> Self {
        Self { clients: Arc::clone(clients), dice: Dice(seed), connection: None }
    }

    /// Returns status and body; `None`, after a pause, if there was no answer or 503.
    async fn ask(&mut self, path: &str, body: &str) -> Option<(u16, Value)> {
        if self.dice.below(MOVE_EVERY) == 0 {
            self.connection = None;
        }
        match timeout(TIMEOUT, self.try_to_ask(path, body)).await {
            Ok(Ok((status, answer))) if status != 503 => return Some((status, answer)),
            _ => (),
        }
        self.connection = None;
        self.clients.ledger.count(|sums| sums.unanswered += 1);
        sleep(AGAIN).await;
        None
    }

    async fn try_to_ask(&mut self, path: &str, body: &str) -> Outcome<(u16, Value)> {
        let mut connection = if let Some(connection) = self.connection.take() {
            connection
        } else {
            let number = self.dice.roll();
            let address = self.clients.ledger.address(number).ok_or("there is no node")?;
            Client::to(address).await?
        };
        let (status, answer) = connection.send(path, body).await?;
        self.connection = Some(connection);
        Ok((status, serde_json::from_slice(&answer).unwrap_or_default()))
    }

    /// Enqueues a job in each interval, repeated with its key until a node acknowledges it.
    pub(super) async fn produce(mut self, every: Duration, webhooks: SocketAddr) {
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.clients.enough.load(Ordering::Relaxed) {
            ticks.tick().await;
            let number = self.clients.ledger.begin();
            let body = job(number, webhooks);
            loop {
                let Some((status, answer)) = self.ask("/jobs", &body).await else { continue };
                let id = answer["job"]["id"].as_u64();
                if let (200 | 202, Some(id)) = (status, id) {
                    self.clients.ledger.acknowledge(number, id);
                    break;
                }
                self.odd("/jobs", status, &answer).await;
            }
        }
    }

    /// Claims and completes jobs, each call at any node, until asked to end.
    pub(super) async fn work(mut self) {
        while !self.clients.ended.load(Ordering::Relaxed) {
            let poll = r#"{"worker":"soak","kinds":["bench"],"max":8,"wait_ms":500}"#;
            let Some((status, answer)) = self.ask("/jobs/poll", poll).await else { continue };
            let jobs = answer["jobs"].as_array();
            let (200, Some(jobs)) = (status, jobs) else {
                self.odd("/jobs/poll", status, &answer).await;
                continue;
            };
            for job in jobs {
                self.run(job).await;
            }
        }
    }

    /// Notes the claim of a job and completes it.
    async fn run(&mut self, job: &Value) {
        let (number, id) = (job["payload"]["n"].as_u64(), job["id"].as_u64());
        let token = job["lease"]["token"].as_str();
        let (Some(number), Some(id), Some(token)) = (number, id, token) else {
            return self.odd("a claimed job", 200, job).await;
        };
        self.clients.ledger.claim(number, id, token);
        if self.dice.below(DROP_EVERY) == 0 {
            return self.clients.ledger.count(|sums| sums.dropped += 1);
        }
        let (path, body) = (format!("/jobs/{id}/complete"), format!(r#"{{"token":"{token}"}}"#));
        loop {
            match self.ask(&path, &body).await {
                Some((200, _)) => return self.clients.ledger.settle(number, End::Verdict),
                // Another attempt has the job, or had it and the job is purged.
                Some((404 | 409, _)) => {
                    return self.clients.ledger.count(|sums| sums.refused += 1);
                }
                Some((status, answer)) => self.odd(&path, status, &answer).await,
                None => (),
            }
        }
    }

    #[expect(clippy::print_stderr, reason = "only the answer shows what happened")]
    async fn odd(&self, path: &str, status: u16, answer: &Value) {
        eprintln!("{path} was answered with {status}: {answer}");
        self.clients.ledger.count(|sums| sums.odd += 1);
        sleep(AGAIN).await;
    }
}

/// The request for a job: mostly for workers, some for the nodes themselves.
fn job(number: u64, webhooks: SocketAddr) -> String {
    let rest = if number.is_multiple_of(WEBHOOK_EVERY) {
        format!(
            r#""kind":"webhook","payload":{{"url":"http://{webhooks}/{number}","method":"GET"}}"#
        )
    } else {
        let filling = "x".repeat(if number % 50 == 1 { 5_000 } else { 100 });
        let delay = if number % 10 == 3 { r#","delay_ms":2000"# } else { "" };
        format!(r#""kind":"bench","payload":{{"n":{number},"x":"{filling}"}}{delay}"#)
    };
    format!(r#"{{"idempotency_key":"soak-{number}",{rest}}}"#)
}

/// Listens for webhooks; each path is the number of a job.
pub(super) async fn receive(clients: &Arc<Clients>) -> Outcome<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let clients = Arc::clone(clients);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let clients = Arc::clone(&clients);
            let service = service_fn(move |request: Request<Incoming>| {
                let number = request.uri().path().trim_start_matches('/').parse();
                clients.ledger.settle(number.unwrap_or(u64::MAX), End::Call);
                async { Ok::<_, Infallible>(Response::new(Full(None))) }
            });
            let io = TokioIo::new(stream);
            tokio::spawn(http1::Builder::new().serve_connection(io, service));
        }
    });
    Ok(address)
}
