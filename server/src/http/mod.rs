//! Connections: accepted up to a limit, served by hyper, watched, and ended in order.

pub(crate) mod auth;
pub(crate) mod body;
pub(crate) mod connection;
pub(crate) mod find;
pub(crate) mod guard;
pub(crate) mod gzip;
pub(crate) mod limits;
pub(crate) mod room;
pub(crate) mod router;
pub(crate) mod tls;
pub(crate) mod ui;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use windlass_core::store::Settle;
use windlass_core::{LeaseToken, Verdict};

use crate::api::problem::{self, Problem};
use crate::app::{App, Stage};
use crate::http::connection::{Conn, Wire};
use crate::http::find::Routes;
use crate::http::limits::{HEAD_BYTES, HEADERS, REFUSALS};

/// How long to wait before accepting again when the system has no room for a connection.
const BREATHER: Duration = Duration::from_millis(50);

/// Accepts connections until the server closes, and returns once all have ended.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    app: Arc<App>,
    routes: Arc<Routes>,
) {
    let room = Arc::new(Semaphore::new(app.limits.connections));
    let refusals = Arc::new(Semaphore::new(REFUSALS));
    // Every connection holds a sender: when the last is dropped, all have ended.
    let (alive, mut ended) = mpsc::channel::<()>(1);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = app.closing.reached(Stage::Closing) => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection; retrying");
                tokio::time::sleep(BREATHER).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        if let Ok(permit) = Arc::clone(&room).try_acquire_owned() {
            let (app, routes, tls) = (Arc::clone(&app), Arc::clone(&routes), tls.clone());
            let alive = alive.clone();
            tokio::spawn(async move {
                connection(stream, peer, tls, app, routes, permit).await;
                drop(alive);
            });
        } else if let (Ok(permit), None) = (Arc::clone(&refusals).try_acquire_owned(), &tls) {
            let limit = app.limits.connections;
            tokio::spawn(refuse(stream, limit, permit));
        }
    }
    drop((listener, alive));
    let _ = ended.recv().await;
}

/// Answers 503 without reading the request: there are too many connections.
async fn refuse(mut stream: TcpStream, limit: usize, _permit: OwnedSemaphorePermit) {
    let detail = format!(
        "the connection limit ({limit}) is reached; try again shortly, or raise --max-connections"
    );
    let answer = Problem::new(problem::OVERLOADED, detail).into_bytes();
    let writing = async {
        stream.write_all(&answer).await?;
        stream.shutdown().await
    };
    // A client that does not read is not waited for.
    let _ = timeout(Duration::from_secs(1), writing).await;
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    app: Arc<App>,
    routes: Arc<Routes>,
    _permit: OwnedSemaphorePermit,
) {
    let Some(tls) = tls else { return watched(stream, peer, app, routes).await };
    match timeout(app.limits.head_read, tls.accept(stream)).await {
        Ok(Ok(stream)) => watched(stream, peer, app, routes).await,
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => tracing::debug!("TLS handshake took too long"),
    }
}

/// Serves a connection, ends it when it has been in one phase for too long, and gives back what
/// could not be delivered.
async fn watched<T>(stream: T, peer: SocketAddr, app: Arc<App>, routes: Arc<Routes>)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let conn = Conn::new(app.limits);
    if let Err(error) = served(stream, peer, &app, routes, &conn).await {
        tracing::debug!(%error, "connection ended");
    }
    give_back(&app, conn.undelivered()).await;
}

async fn served<T>(
    stream: T,
    peer: SocketAddr,
    app: &Arc<App>,
    routes: Arc<Routes>,
    conn: &Arc<Conn>,
) -> io::Result<()>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn({
        let (app, conn) = (Arc::clone(app), Arc::clone(conn));
        move |request| {
            let (app, routes, conn) = (Arc::clone(&app), Arc::clone(&routes), Arc::clone(&conn));
            router::answer(app, routes, conn, peer.ip(), request)
        }
    });
    let io = TokioIo::new(Wire::new(stream, Arc::clone(conn)));
    // The head's deadline is kept here, by the phases of `Conn`: hyper's own timer would also end
    // connections that are merely idle.
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_headers(HEADERS)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(io, service);
    let mut connection = pin!(connection);
    let mut alarm = pin!(sleep_until(Instant::now()));
    let mut closing = pin!(app.closing.reached(Stage::Closing));
    let mut is_closing = false;
    std::future::poll_fn(|cx| {
        if !is_closing && closing.as_mut().poll(cx).is_ready() {
            is_closing = true;
            connection.as_mut().graceful_shutdown();
        }
        if let Poll::Ready(result) = connection.as_mut().poll(cx) {
            return Poll::Ready(result.map_err(io::Error::other));
        }
        let Some((deadline, phase)) = conn.deadline() else { return Poll::Pending };
        // The timer is reset lazily: most deadlines never fire, and setting it for every request
        // costs more than checking the time when it does.
        if alarm.deadline() > deadline {
            alarm.as_mut().reset(deadline);
        }
        if alarm.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        if Instant::now() < deadline {
            alarm.as_mut().reset(deadline);
            if alarm.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
        let error = format!("{phase:?} for too long");
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, error)))
    })
    .await
}

/// Releases claims whose answer was not delivered. Those that cannot be released expire.
pub(crate) async fn give_back(app: &App, tokens: Vec<LeaseToken>) {
    if tokens.is_empty() {
        return;
    }
    let count = tokens.len();
    let release = |token| Settle { token, verdict: Verdict::Release };
    let Ok(queue) = app.queue() else { return };
    match queue.settle_many(tokens.into_iter().map(release).collect()).await {
        Ok(_) => tracing::info!(count, "undelivered claims were released"),
        Err(error) => {
            let what = "cannot release undelivered claims; their leases will expire";
            tracing::warn!(count, %error, "{what}");
        }
    }
}

/// A future on the heap, as handlers return them.
pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
