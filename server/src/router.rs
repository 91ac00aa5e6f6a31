//! From a request to an answer: guard, token, route, body, handler. Whatever goes wrong on the way
//! becomes a problem, a panic included.

use std::convert::Infallible;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body::Body as _;
use hyper::body::Incoming;
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};

use crate::app::App;
use crate::body::Body;
use crate::connection::Conn;
use crate::find::{Found, Routes};
use crate::problem::{self, Problem};
use crate::routes::{BodyKind, Route};
use crate::wire::{Query, job_id};
use crate::{guard, limits};

/// An answer, or why there is none.
pub(crate) type Answer = Result<Response<Body>, Problem>;

/// A request that has passed every check, on its way to its handler.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) app: Arc<App>,
    pub(crate) conn: Arc<Conn>,
    pub(crate) peer: IpAddr,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    _room: Option<OwnedSemaphorePermit>,
    param: Option<String>,
    query: String,
}

impl Call {
    /// The job that the path names.
    pub(crate) fn job_id(&self) -> Result<windlass_core::JobId, Problem> {
        job_id(self.param())
    }

    /// The part of the path that varies.
    pub(crate) fn param(&self) -> &str {
        self.param.as_deref().unwrap_or_default()
    }

    /// The query, with these names only.
    pub(crate) fn query(&self, allowed: &[&str]) -> Result<Query, Problem> {
        Query::parse(&self.query, allowed)
    }
}

/// Answers a request. It never fails, and a panic on the way is an answer too.
pub(crate) async fn answer(
    app: Arc<App>,
    routes: Arc<Routes>,
    conn: Arc<Conn>,
    peer: IpAddr,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    conn.serving();
    let started = Instant::now();
    let id = request_id(request.headers());
    let method = request.method().clone();
    let found = routes.find(&method, request.uri().path());
    let label = found.path();
    let serving = serve(Arc::clone(&app), found, Arc::clone(&conn), peer, request);
    let answer = caught(serving).await.unwrap_or_else(|| {
        let detail = format!("this is a bug; the log of the server has it under {id}");
        Err(Problem::new(problem::INTERNAL, detail))
    });
    let (mut response, why) = match answer {
        Ok(response) => (response, None),
        Err(problem) => {
            let why = problem.kind().name;
            (problem.into_response(), Some(why))
        }
    };
    guard::protect(&mut response);
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert("x-request-id", id);
    }
    let status = response.status().as_u16();
    app.figures.served(&method, label, status, started.elapsed());
    log(&id, &method, label, status, why, started);
    Ok(response.map(|body| body.on(conn)))
}

fn log(
    id: &str,
    method: &Method,
    route: &str,
    status: u16,
    why: Option<&'static str>,
    started: Instant,
) {
    let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    let method = method.as_str();
    if status >= 500 {
        tracing::warn!(id, method, route, status, why, micros, "request");
    } else {
        tracing::debug!(id, method, route, status, why, micros, "request");
    }
}

/// The client's own id of the request, if it can be shown everywhere; else a new one.
fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get("x-request-id").and_then(|value| value.to_str().ok());
    let fit = |text: &&str| {
        (1..=64).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    match given.filter(fit) {
        Some(text) => text.into(),
        None => new_request_id(),
    }
}

/// An id that no other request has: the system is asked for chance once, and then counted on.
pub(crate) fn new_request_id() -> String {
    static START: LazyLock<u64> = LazyLock::new(|| getrandom::u64().unwrap_or_default());
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // An odd factor spreads the numbers over all bits and maps no two to the same.
    let spread = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{:016x}", START.wrapping_add(spread))
}

/// Runs a future to its end; nothing if it panics.
async fn caught<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        let poll = std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)));
        match poll {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => Poll::Ready(Some(value)),
            Err(_) => Poll::Ready(None),
        }
    })
    .await
}

async fn serve(
    app: Arc<App>,
    found: Found,
    conn: Arc<Conn>,
    peer: IpAddr,
    request: Request<Incoming>,
) -> Answer {
    let (head, body) = request.into_parts();
    guard::check(&head.method, &head.headers, &app.hosts)?;
    if length(&head.uri) > limits::URI_BYTES {
        let detail = format!("the address is longer than {} bytes", limits::URI_BYTES);
        return Err(Problem::new(problem::URI_TOO_LONG, detail).closing());
    }
    let open = matches!(&found, Found::Route(route, _) if route.scope.is_none());
    let caller = if open { None } else { Some(app.tokens.caller(&head.headers)?) };
    let (route, param) = taken(found)?;
    if let (Some(caller), Some(scope)) = (caller, route.scope) {
        caller.allow(scope)?;
    }
    let (body, room) = read_body(&app, route.body, &head.headers, body).await?;
    let query = head.uri.query().unwrap_or_default().into();
    let headers = head.headers;
    (route.run)(Call { app, conn, peer, headers, body, _room: Some(room), param, query }).await
}

/// Answers a call of this process itself, made of bytes: what a connection is checked for does not
/// apply, everything else does.
pub(crate) async fn answer_here(
    app: Arc<App>,
    conn: Arc<Conn>,
    found: Found,
    query: &str,
    body: Bytes,
) -> Answer {
    let (route, param) = taken(found)?;
    let limit = body_limit(&app, route.body);
    if body.len() > limit {
        return Err(too_large(limit));
    }
    check_body(route.body, &body)?;
    let (peer, headers, query) = (IpAddr::V4(Ipv4Addr::LOCALHOST), HeaderMap::new(), query.into());
    (route.run)(Call { app, conn, peer, headers, body, _room: None, param, query }).await
}

/// The route, or why there is none.
fn taken(found: Found) -> Result<(&'static Route, Option<String>), Problem> {
    match found {
        Found::Route(route, param) => Ok((route, param)),
        Found::OtherMethods(methods) => {
            let detail = format!("this path takes {methods}");
            Err(Problem::new(problem::METHOD_NOT_ALLOWED, detail).allowing(methods))
        }
        Found::Nothing => {
            let detail = "there is no such path; GET /openapi.json lists them all";
            Err(Problem::new(problem::NOT_FOUND, detail))
        }
    }
}

fn body_limit(app: &App, kind: BodyKind) -> usize {
    match kind {
        BodyKind::Batch => app.limits.batch_body,
        BodyKind::Json | BodyKind::MayBeEmpty | BodyKind::Empty => app.limits.body,
    }
}

/// Refuses a body where there should be none.
fn check_body(kind: BodyKind, body: &[u8]) -> Result<(), Problem> {
    if kind == BodyKind::Empty && !body.is_empty() {
        let _: crate::wire::Nothing = crate::wire::json(body)?;
    }
    Ok(())
}

/// How long an address is, without what is the same in all of them.
fn length(uri: &Uri) -> usize {
    let authority = uri.authority().map_or(0, |authority| authority.as_str().len());
    authority + uri.path_and_query().map_or(0, |path| path.as_str().len())
}

/// Reads the body, no longer and no more than allowed.
async fn read_body(
    app: &App,
    kind: BodyKind,
    headers: &HeaderMap,
    body: Incoming,
) -> Result<(Bytes, OwnedSemaphorePermit), Problem> {
    let limit = body_limit(app, kind);
    let expected = body.size_hint().exact().unwrap_or(0);
    if expected > limit as u64 {
        return Err(too_large(limit));
    }
    // Refused before it is read, so that nobody sends megabytes to hear it.
    let absent = body.is_end_stream();
    if !absent || kind == BodyKind::Json || kind == BodyKind::Batch {
        content_type(headers)?;
    }
    let room = room(app, body.size_hint().upper().unwrap_or(limit as u64))?;
    let reading = timeout(app.limits.body_read, collect(body, limit, expected));
    let Ok(read) = reading.await else {
        let seconds = app.limits.body_read.as_secs();
        let detail = format!("the body did not arrive within {seconds} seconds");
        return Err(Problem::new(problem::BODY_TIMEOUT, detail).closing());
    };
    let bytes = read?;
    check_body(kind, &bytes)?;
    Ok((bytes, room))
}

/// Room for a body of so many bytes among those that are being served.
fn room(app: &App, bytes: u64) -> Result<OwnedSemaphorePermit, Problem> {
    let kib = usize::try_from(bytes.div_ceil(1024)).unwrap_or(usize::MAX).min(limits::BODIES_KIB);
    let permits = u32::try_from(kib).unwrap_or(u32::MAX);
    Arc::clone(&app.body_room).try_acquire_many_owned(permits).map_err(|_| {
        let most = limits::BODIES_KIB / 1024;
        let detail = format!("the bodies of requests fill {most} MiB already; try again shortly");
        Problem::new(problem::OVERLOADED, detail).closing()
    })
}

async fn collect(body: Incoming, limit: usize, expected: u64) -> Result<Bytes, Problem> {
    let mut body = pin!(body);
    let mut bytes = BytesMut::with_capacity(usize::try_from(expected).unwrap_or(0));
    loop {
        let frame = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await;
        let Some(frame) = frame else { return Ok(bytes.freeze()) };
        let frame = frame.map_err(|error| {
            Problem::new(problem::BAD_REQUEST, format!("the body broke off: {error}")).closing()
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > limit {
            return Err(too_large(limit));
        }
        bytes.extend_from_slice(&data);
    }
}

fn too_large(limit: usize) -> Problem {
    let detail = format!(
        "the body is larger than {limit} bytes; split it, or store large data elsewhere and \
         enqueue a reference to it"
    );
    Problem::new(problem::TOO_LARGE, detail).closing()
}

fn content_type(headers: &HeaderMap) -> Result<(), Problem> {
    let given = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = given.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let detail = "send the header `Content-Type: application/json`";
    Err(Problem::new(problem::UNSUPPORTED_MEDIA_TYPE, detail))
}

/// An answer with one job fits into this many bytes.
const USUAL_ANSWER: usize = 1024;

/// An answer in JSON.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    let mut json = Vec::with_capacity(USUAL_ANSWER);
    serde_json::to_writer(&mut json, value).map_err(|error| {
        tracing::error!(%error, "an answer could not be written");
        Problem::new(problem::INTERNAL, "the answer could not be written as JSON; this is a bug")
    })?;
    let mut response = Response::new(Body::full(Bytes::from(json)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// The same with status 200.
pub(crate) fn ok(value: &impl Serialize) -> Answer {
    json(StatusCode::OK, value)
}

/// An answer without a body.
pub(crate) fn no_content() -> Response<Body> {
    let mut response = Response::new(Body::full(Bytes::new()));
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// A text of this type.
pub(crate) fn text(content_type: &'static str, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::full(text.into()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn a_panic_on_the_way_is_no_answer_and_nothing_more() {
        let panics = async {
            tokio::task::yield_now().await;
            let none: Option<u8> = std::hint::black_box(None);
            none.expect("on purpose")
        };
        assert_eq!(run(caught(panics)), None);
        assert_eq!(run(caught(async { 7 })), Some(7));
    }

    #[test]
    fn a_request_id_of_the_client_is_kept_only_if_it_can_be_shown_anywhere() {
        let id = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("x-request-id", HeaderValue::from_bytes(text.as_bytes()).unwrap());
            request_id(&headers)
        };
        assert_eq!(id("a-B_1.2"), "a-B_1.2");
        for text in ["", "a b", "<script>", "\u{e9}", &"x".repeat(65)] {
            assert_ne!(id(text), text);
        }
        assert_ne!(new_request_id(), new_request_id());
    }
}
