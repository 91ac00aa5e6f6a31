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

use crate::api::problem::{self, Problem};
use crate::api::routes::{Access, BodyKind, Route};
use crate::api::wire::{Query, job_id};
use crate::app::App;
use crate::http::auth::{Caller, Scope};
use crate::http::body::Body;
use crate::http::connection::Conn;
use crate::http::find::{Found, Routes};
use crate::http::{guard, gzip, limits};

/// An answer, or why there is none.
pub(crate) type Answer = Result<Response<Body>, Problem>;

/// A request that has passed every check, on its way to its handler.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) app: Arc<App>,
    pub(crate) conn: Arc<Conn>,
    pub(crate) peer: IpAddr,
    /// Who asks; `None` on an open route without a token that is known.
    pub(crate) caller: Option<Caller>,
    pub(crate) headers: HeaderMap,
    /// Whether only the head of the answer is wanted.
    pub(crate) head: bool,
    pub(crate) body: Bytes,
    /// The body's share of the memory for bodies.
    room: Option<OwnedSemaphorePermit>,
    params: Vec<String>,
    query: String,
}

impl Call {
    /// The job that the path names.
    pub(crate) fn job_id(&self) -> Result<windlass_core::JobId, Problem> {
        job_id(self.param())
    }

    /// The part of the path that varies.
    pub(crate) fn param(&self) -> &str {
        self.params.first().map_or("", String::as_str)
    }

    /// The second part of the path that varies.
    pub(crate) fn second_param(&self) -> &str {
        self.params.get(1).map_or("", String::as_str)
    }

    /// Whether the caller may look at what is stored.
    pub(crate) fn may_read(&self) -> bool {
        self.caller.as_ref().is_some_and(|caller| caller.may(Scope::Read))
    }

    /// The body was parsed and nothing of it is kept: its memory is free for other requests,
    /// however long this one still waits.
    pub(crate) fn release_body(&mut self) {
        self.body = Bytes::new();
        self.room = None;
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
    let mut token = None;
    // Only what reads: jobs that a poll claims count as delivered by the bytes of its answer.
    let zip = matches!(method, Method::GET | Method::HEAD) && gzip::is_taken(request.headers());
    let serving = serve(Arc::clone(&app), found, Arc::clone(&conn), peer, request, &mut token);
    let answer = caught(serving).await.unwrap_or_else(|| {
        let detail = format!("this is a bug; the log of the server has it under {id}");
        Err(Problem::new(problem::INTERNAL, detail))
    });
    let (response, why) = match answer {
        Ok(response) => (response, None),
        Err(problem) => {
            let why = problem.kind().name;
            (problem.into_response(), Some(why))
        }
    };
    let mut response = match app.answer_room.fit(&method, response, zip).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    };
    guard::protect(&mut response);
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert("x-request-id", id);
    }
    let status = response.status().as_u16();
    app.figures.served(&method, label, status, started.elapsed());
    log(
        &Served { id: &id, method: &method, route: label, status, why, token: token.as_deref() },
        started,
    );
    Ok(response.map(|body| body.on(conn)))
}

/// What the log says about a request.
struct Served<'a> {
    id: &'a str,
    method: &'a Method,
    route: &'a str,
    status: u16,
    why: Option<&'static str>,
    /// The name of the token it came with.
    token: Option<&'a str>,
}

fn log(served: &Served<'_>, started: Instant) {
    let Served { id, method, route, status, why, token } = *served;
    let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    let writes = *method != Method::GET && *method != Method::HEAD;
    let method = method.as_str();
    if status >= 500 {
        tracing::warn!(id, method, route, status, why, token, micros, "request");
    } else if writes && token.is_some() {
        // Who changed something must be found later.
        tracing::info!(id, method, route, status, why, token, micros, "request");
    } else {
        tracing::debug!(id, method, route, status, why, token, micros, "request");
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
    token: &mut Option<String>,
) -> Answer {
    let (head, body) = request.into_parts();
    guard::check(&head.method, &head.headers, &app.hosts)?;
    if length(&head.uri) > limits::URI_BYTES {
        let detail = format!("the address is longer than {} bytes", limits::URI_BYTES);
        return Err(Problem::new(problem::URI_TOO_LONG, detail).closing());
    }
    let open = matches!(&found, Found::Route(route, _) if route.access == Access::Open);
    let caller = match app.tokens.caller(&head.headers) {
        Ok(caller) => Some(caller),
        Err(_) if open => None,
        Err(problem) => return Err(problem),
    };
    *token = caller.as_ref().and_then(Caller::name).map(Into::into);
    let (route, params) = taken(found)?;
    if let (Some(caller), Access::Scope(scope)) = (&caller, route.access) {
        caller.allow(scope)?;
    }
    let (body, room) = read_body(&app, route.body, &head.headers, body).await?;
    let query = head.uri.query().unwrap_or_default().into();
    let (headers, room, head) = (head.headers, Some(room), head.method == Method::HEAD);
    let mut call = Call { app, conn, peer, caller, headers, head, body, room, params, query };
    if route.body == BodyKind::Empty {
        call.release_body();
    }
    (route.run)(call).await
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
    let (route, params) = taken(found)?;
    let limit = body_limit(&app, route.body);
    if body.len() > limit {
        return Err(too_large(limit));
    }
    check_body(route.body, &body)?;
    let (peer, headers, query) = (IpAddr::V4(Ipv4Addr::LOCALHOST), HeaderMap::new(), query.into());
    let (caller, room) = (Some(Caller::anonymous()), None);
    let head = false;
    (route.run)(Call { app, conn, peer, caller, headers, head, body, room, params, query }).await
}

/// The route, or why there is none.
fn taken(found: Found) -> Result<(&'static Route, Vec<String>), Problem> {
    match found {
        Found::Route(route, params) => Ok((route, params)),
        Found::OtherMethods(methods) => {
            let detail = format!("this path takes {methods}");
            Err(Problem::new(problem::METHOD_NOT_ALLOWED, detail).allowing(methods))
        }
        Found::Nothing => {
            let detail = "no such path; GET /openapi.json lists all paths";
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
        let _: crate::api::wire::Nothing = crate::api::wire::json(body)?;
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
    // Refused before it is read, so that no client sends megabytes to be refused.
    let absent = body.is_end_stream();
    if !absent || kind == BodyKind::Json || kind == BodyKind::Batch {
        content_type(headers)?;
    }
    let reading = timeout(app.limits.body_read, collect(app, body, limit));
    let Ok(read) = reading.await else {
        let seconds = app.limits.body_read.as_secs();
        let detail = format!("the body did not arrive within {seconds} seconds");
        return Err(Problem::new(problem::BODY_TIMEOUT, detail).closing());
    };
    let (bytes, room) = read?;
    check_body(kind, &bytes)?;
    Ok((bytes, room))
}

/// Reads a body. Its room grows with what has arrived, so that a client that only announces a
/// large body, or leaves its length open, takes no room from others.
async fn collect(
    app: &App,
    body: Incoming,
    limit: usize,
) -> Result<(Bytes, OwnedSemaphorePermit), Problem> {
    let mut body = pin!(body);
    let mut bytes = BytesMut::new();
    let mut room = more_room(app, 0)?;
    loop {
        let frame = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await;
        let Some(frame) = frame else { return Ok((bytes.freeze(), room)) };
        let frame = frame.map_err(|error| {
            Problem::new(
                problem::BAD_REQUEST,
                format!("cannot read the request body: {error}; send it again"),
            )
            .closing()
        })?;
        let Ok(data) = frame.into_data() else { continue };
        let length = bytes.len() + data.len();
        if length > limit {
            return Err(too_large(limit));
        }
        let wanted = length.div_ceil(1024).min(limits::BODIES_KIB);
        let missing = wanted.saturating_sub(room.num_permits());
        if missing > 0 {
            room.merge(more_room(app, missing)?);
        }
        bytes.extend_from_slice(&data);
    }
}

/// Room for this many KiB more among the bodies that are being served.
fn more_room(app: &App, kib: usize) -> Result<OwnedSemaphorePermit, Problem> {
    let permits = u32::try_from(kib).unwrap_or(u32::MAX);
    Arc::clone(&app.body_room).try_acquire_many_owned(permits).map_err(|_| {
        let most = limits::BODIES_KIB / 1024;
        let detail =
            format!("request bodies use all {most} MiB reserved for them; try again shortly");
        Problem::new(problem::OVERLOADED, detail).closing()
    })
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

/// An answer that is its status.
pub(crate) fn bare(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::full(Bytes::new()));
    *response.status_mut() = status;
    response
}

/// An answer without a body.
pub(crate) fn no_content() -> Response<Body> {
    bare(StatusCode::NO_CONTENT)
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
