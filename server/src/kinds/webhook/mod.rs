//! The kind `webhook`: sends one request; the answer decides the verdict.
//!
//! Redirects are not followed, and every address is checked before a connection. Nothing that may
//! be secret (the URL beyond its host, headers, the body) is part of an error.

mod address;
mod answer;
mod connect;
mod payload;
mod sign;

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::HeaderValue;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::timeout;
use windlass_core::machine::StopReason;
use windlass_core::{Failure, FailureKind, Verdict, Wall};
use windlass_runtime_tokio::Context;

use super::output::Tail;
use connect::{ConnectError, Connector, Resolver};

pub(crate) use address::{Block, Reach};
pub(crate) use payload::Payload;
pub(crate) use sign::Secrets;

/// Limits and addresses of webhooks, from the settings.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) reach: Reach,
    pub(crate) secrets: Secrets,
    /// Time limit for a connection, TLS included.
    pub(crate) connect_timeout: Duration,
    /// Time limit for everything, to the end of the answer.
    pub(crate) timeout: Duration,
}

/// Bytes of an answer that are read; the end of them is kept. A connection with a longer answer is
/// not reused.
const ANSWER_BYTES: usize = 1024 * 1024;

/// Time for which, and number of, idle connections to one host that are kept.
const IDLE: Duration = Duration::from_secs(30);
const IDLE_PER_HOST: usize = 32;

/// Sends webhooks, over connections that are reused.
pub(crate) struct Sender {
    client: Client<Connector, String>,
    secrets: Secrets,
    timeout: Duration,
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sender({:?})", self.secrets)
    }
}

impl Sender {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self::resolving(settings, connect::system_resolver())
    }

    fn resolving(settings: &Settings, resolver: Resolver) -> Self {
        let reach = Arc::new(settings.reach.clone());
        let connector = Connector { reach, connect_timeout: settings.connect_timeout, resolver };
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_idle_timeout(IDLE).pool_max_idle_per_host(IDLE_PER_HOST);
        builder.pool_timer(TokioTimer::new()).http1_max_headers(100);
        let client = builder.build(connector);
        Self { client, secrets: settings.secrets.clone(), timeout: settings.timeout }
    }

    /// Sends a request and returns the verdict. Dropping this future closes the connection.
    async fn send(&self, mut request: Request<String>, id: &str, now: Wall) -> Verdict {
        self.vouch(&mut request, id, now);
        let to = receiver(&request);
        let answered = async {
            let response = self.client.request(request).await.map_err(|error| why(&error))?;
            Ok(judged(response, now).await)
        };
        let answered: Result<Result<Verdict, Failure>, _> = timeout(self.timeout, answered).await;
        let failure = match answered {
            Ok(Ok(verdict)) => return verdict,
            Ok(Err(failure)) => failure,
            Err(_) => Failure::new(&format!("no answer within {:?}", self.timeout)),
        };
        let text = format!("{to}: {}", failure.error.as_str());
        let error = Failure::new(&text).error;
        Verdict::Fail(Box::new(Failure { error, ..failure }))
    }

    /// Adds id, time and signatures as headers.
    fn vouch(&self, request: &mut Request<String>, id: &str, now: Wall) {
        let seconds = now.get().div_euclid(1_000);
        let signature = self.secrets.sign(id, seconds, request.body());
        let mut set = |name: &'static str, text: &str| {
            if let Ok(value) = HeaderValue::from_str(text) {
                request.headers_mut().insert(name, value);
            }
        };
        set("webhook-id", id);
        set("webhook-timestamp", &seconds.to_string());
        if let Some(signature) = signature {
            set("webhook-signature", &signature);
        }
    }
}

pub(crate) async fn run(sender: Arc<Sender>, payload: Payload, ctx: Context) -> Verdict {
    let request = match payload.request() {
        Ok(request) => request,
        Err(why) => return Verdict::Fail(Box::new(Failure::new(&why).permanent())),
    };
    // Attempts share it, so that a receiver can tell what it has had already.
    let id = format!("job_{}_{}", ctx.id(), ctx.job().created_at.get());
    let reason = tokio::select! {
        verdict = sender.send(request, &id, crate::app::now()) => return verdict,
        reason = ctx.stopping() => reason,
    };
    match reason {
        StopReason::TimedOut => {
            let failure = Failure::new("no answer within the timeout of the job");
            Verdict::Fail(Box::new(failure.of_kind(FailureKind::TimedOut)))
        }
        StopReason::Cancelled | StopReason::LeaseLost | StopReason::Shutdown => Verdict::Release,
    }
}

/// Method and host of a request, for errors and results: nothing else may be shown.
fn receiver(request: &Request<String>) -> String {
    let host = request.uri().authority().map_or("", |authority| authority.as_str());
    format!("{} to {host:?}", request.method())
}

/// The failure if there is no answer. It is permanent only for an address that may not be reached,
/// even if the name may resolve to another next time.
fn why(error: &hyper_util::client::legacy::Error) -> Failure {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    let mut deepest = error.to_string();
    while let Some(at) = cause {
        if let Some(refused) = at.downcast_ref::<ConnectError>() {
            let failure = Failure::new(&refused.to_string());
            let is_final = matches!(refused, ConnectError::OutOfReach);
            return if is_final { failure.permanent() } else { failure };
        }
        deepest = at.to_string();
        cause = at.source();
    }
    Failure::new(&format!("the connection failed: {deepest}"))
}

/// Reads the answer, up to the limit, and returns the verdict.
async fn judged(response: Response<Incoming>, now: Wall) -> Verdict {
    let (head, mut body) = response.into_parts();
    let (mut tail, mut read) = (Tail::default(), 0);
    let mut whole = false;
    while read < ANSWER_BYTES {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        let Some(frame) = frame else {
            whole = true;
            break;
        };
        // The status was received, so it counts although the connection broke later.
        let Ok(frame) = frame else { break };
        if let Some(data) = frame.data_ref() {
            read += data.len();
            tail.push(data);
        }
    }
    let said = tail.excerpt().cut_before(!whole);
    answer::verdict(head.status, &head.headers, said, now)
}

#[cfg(test)]
mod tests;
