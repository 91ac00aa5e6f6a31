//! One connection as the server watches it: how long it may stay in each phase, and which claimed
//! jobs are on their way to its client.
//!
//! Claims count as delivered once every byte of their answer was taken by the socket. If the
//! connection ends before, they are given back at once.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use windlass_core::LeaseToken;

use crate::api::problem::{self, Problem};
use crate::http::limits::{HEAD_BYTES, HEADERS, Limits};

/// What the server knows of one connection.
#[derive(Debug)]
pub(crate) struct Conn {
    state: Mutex<State>,
    limits: Limits,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    since: Instant,
    claims: Vec<LeaseToken>,
    handed_over: bool,
    ended: bool,
}

/// Where a connection is with its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing of a request has come yet.
    Idle,
    /// A part of the head has come.
    Head,
    /// The request is being served. Its handler keeps the time.
    Serving,
    /// Bytes of an answer wait for the client to read.
    Writing,
}

impl Conn {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        // A new connection must send a request within `head_read`.
        let (phase, since) = (Phase::Head, Instant::now());
        let state = State { phase, since, claims: Vec::new(), handed_over: false, ended: false };
        Arc::new(Self { state: Mutex::new(state), limits })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, phase: Phase) {
        let mut state = self.state();
        state.phase = phase;
        state.since = Instant::now();
    }

    /// Whether no request is being served: what is written now does not come from a handler.
    fn is_unserved(&self) -> bool {
        matches!(self.state().phase, Phase::Idle | Phase::Head)
    }

    /// The head of a request was read.
    pub(crate) fn serving(&self) {
        self.state().ended = false;
        self.enter(Phase::Serving);
    }

    /// An answer with these claims begins its way.
    pub(crate) fn claimed(&self, tokens: Vec<LeaseToken>) {
        let mut state = self.state();
        state.claims.extend(tokens);
        state.handed_over = false;
    }

    /// These claims are left out of the answer: the caller gives them back.
    pub(crate) fn withdrawn(&self, tokens: &[LeaseToken]) {
        self.state().claims.retain(|claim| !tokens.contains(claim));
    }

    /// The last bytes of that answer are with the connection, though not yet with the socket.
    pub(crate) fn handed_over(&self) {
        self.state().handed_over = true;
    }

    /// Nothing more of the answer comes. Once it is flushed, the next request may come.
    pub(crate) fn ended(&self) {
        self.state().ended = true;
    }

    /// Claims whose answer did not reach the socket.
    pub(crate) fn undelivered(&self) -> Vec<LeaseToken> {
        std::mem::take(&mut self.state().claims)
    }

    /// When the connection has been in its phase for too long, and what to call that.
    pub(crate) fn deadline(&self) -> Option<(Instant, Phase)> {
        let state = self.state();
        let most = self.most(state.phase)?;
        Some((state.since + most, state.phase))
    }

    fn most(&self, phase: Phase) -> Option<Duration> {
        match phase {
            Phase::Idle => Some(self.limits.idle),
            Phase::Head => Some(self.limits.head_read),
            Phase::Serving => None,
            Phase::Writing => Some(self.limits.write_stall),
        }
    }

    fn read(&self, bytes: usize) {
        if bytes > 0 && self.state().phase == Phase::Idle {
            self.enter(Phase::Head);
        }
    }

    fn blocked(&self) {
        let mut state = self.state();
        if state.phase != Phase::Writing {
            state.phase = Phase::Writing;
            state.since = Instant::now();
        }
    }

    fn wrote(&self) {
        let mut state = self.state();
        if state.phase == Phase::Writing {
            state.since = Instant::now();
        }
    }

    fn flushed(&self) {
        let mut state = self.state();
        if state.handed_over {
            state.claims.clear();
            state.handed_over = false;
        }
        if state.ended {
            state.ended = false;
            state.phase = Phase::Idle;
            state.since = Instant::now();
        } else if state.phase == Phase::Writing {
            // A stream whose reader caught up.
            state.phase = Phase::Serving;
        }
    }
}

/// A socket that tells its [`Conn`] what passes.
///
/// hyper answers heads that it cannot read by itself, with a bare status. A client gets a problem
/// with all headers in its place.
#[derive(Debug)]
pub(crate) struct Wire<T> {
    io: T,
    conn: Arc<Conn>,
    /// What goes out instead of such an answer, and how much of it has.
    instead: Option<(Vec<u8>, usize)>,
}

impl<T> Wire<T> {
    pub(crate) fn new(io: T, conn: Arc<Conn>) -> Self {
        Self { io, conn, instead: None }
    }
}

/// The problem in place of hyper's own answer, if this is one.
fn problem_for(bytes: &[u8]) -> Option<Problem> {
    let status = bytes.strip_prefix(b"HTTP/1.")?.get(2..5)?;
    let (kind, detail) = match status {
        b"400" => (problem::BAD_REQUEST, "this is not a request of HTTP/1.1".into()),
        b"414" => (problem::URI_TOO_LONG, "the address is too long".into()),
        b"431" => {
            let detail = format!("at most {HEADERS} headers, {HEAD_BYTES} bytes in all");
            (problem::HEAD_TOO_LARGE, detail)
        }
        _ => return None,
    };
    Some(Problem::new(kind, detail))
}

impl<T: AsyncRead + Unpin> AsyncRead for Wire<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = ready!(Pin::new(&mut self.io).poll_read(cx, buf));
        self.conn.read(buf.filled().len() - before);
        Poll::Ready(result)
    }
}

impl<T: AsyncWrite + Unpin> Wire<T> {
    /// Writes what goes out instead of `bytes`, if something does: all of it, then `bytes` count
    /// as written.
    fn poll_instead(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<bool>> {
        if self.instead.is_none() && self.conn.is_unserved() {
            self.instead = problem_for(bytes).map(|problem| (problem.into_bytes(), 0));
        }
        let Some((answer, written)) = &mut self.instead else { return Poll::Ready(Ok(false)) };
        while *written < answer.len() {
            *written += ready!(Pin::new(&mut self.io).poll_write(cx, &answer[*written..]))?;
        }
        self.instead = None;
        Poll::Ready(Ok(true))
    }

    fn note<R>(&self, result: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        match &result {
            Poll::Pending => self.conn.blocked(),
            Poll::Ready(_) => self.conn.wrote(),
        }
        result
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Wire<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = match self.poll_instead(cx, bytes) {
            Poll::Ready(Ok(false)) => Pin::new(&mut self.io).poll_write(cx, bytes),
            other => other.map_ok(|_| bytes.len()),
        };
        self.note(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let first = bytes.first().map_or(&[][..], |slice| &**slice);
        let result = match self.poll_instead(cx, first) {
            Poll::Ready(Ok(false)) => Pin::new(&mut self.io).poll_write_vectored(cx, bytes),
            other => other.map_ok(|_| bytes.iter().map(|slice| slice.len()).sum()),
        };
        self.note(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.io).poll_flush(cx);
        match &result {
            Poll::Pending => self.conn.blocked(),
            Poll::Ready(Ok(())) => self.conn.flushed(),
            Poll::Ready(Err(_)) => {}
        }
        result
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimed() -> (Arc<Conn>, LeaseToken) {
        let conn = Conn::new(Limits::default());
        let token: LeaseToken = "7.1".parse().unwrap();
        conn.serving();
        conn.claimed(vec![token]);
        (conn, token)
    }

    #[test]
    fn claims_are_undelivered_until_all_of_their_answer_is_flushed() {
        let (conn, token) = claimed();
        conn.flushed();
        assert_eq!(conn.undelivered(), [token], "only what came before was flushed");
        let (conn, token) = claimed();
        conn.handed_over();
        assert_eq!(conn.undelivered(), [token], "not with the socket yet");
        let (conn, _) = claimed();
        conn.handed_over();
        conn.flushed();
        assert_eq!(conn.undelivered(), []);
    }

    #[test]
    fn a_connection_goes_through_its_phases() {
        let conn = Conn::new(Limits::default());
        let phase = || conn.deadline().map(|(_, phase)| phase);
        assert_eq!(phase(), Some(Phase::Head), "a new one is to say something soon");
        conn.serving();
        assert_eq!(phase(), None, "its handler keeps the time");
        conn.blocked();
        assert_eq!(phase(), Some(Phase::Writing));
        conn.flushed();
        assert_eq!(phase(), None, "a stream that caught up");
        conn.ended();
        conn.flushed();
        assert_eq!(phase(), Some(Phase::Idle));
        conn.read(0);
        assert_eq!(phase(), Some(Phase::Idle));
        conn.read(1);
        assert_eq!(phase(), Some(Phase::Head));
    }

    #[test]
    fn only_refusals_of_hyper_itself_are_replaced() {
        assert!(problem_for(b"HTTP/1.1 431 Request Header Fields Too Large\r\n").is_some());
        assert!(problem_for(b"HTTP/1.0 400 Bad Request\r\n").is_some());
        for bytes in [&b"HTTP/1.1 200 OK"[..], b"HTTP/1.1 100 Continue", b"HTTP/1.", b""] {
            assert!(problem_for(bytes).is_none());
        }
    }
}
