//! What answers are made of: bytes at once, or a stream. The connection learns whether it was sent.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::http::connection::Conn;

/// The body of an answer.
#[derive(Debug)]
pub(crate) struct Body {
    content: Content,
    /// Whether it holds its share of the memory for answers.
    has_room: bool,
    conn: Option<Arc<Conn>>,
}

#[derive(Debug)]
enum Content {
    /// All of it in one frame; `None` once it was sent.
    Full(Option<Bytes>),
    /// Bytes as they come; it ends when the sender is dropped.
    Stream(mpsc::Receiver<Bytes>),
}

impl Body {
    pub(crate) fn full(bytes: Bytes) -> Self {
        let bytes = Some(bytes).filter(|bytes| !bytes.is_empty());
        Self { content: Content::Full(bytes), has_room: false, conn: None }
    }

    pub(crate) fn stream(receiver: mpsc::Receiver<Bytes>) -> Self {
        Self { content: Content::Stream(receiver), has_room: false, conn: None }
    }

    /// The same, holding this room until the last of its bytes is gone: also while they wait in the
    /// connection, when the body itself has ended.
    pub(crate) fn holding(mut self, room: Option<OwnedSemaphorePermit>) -> Self {
        self.has_room = true;
        if let (Content::Full(bytes), Some(room)) = (&mut self.content, room) {
            let held = bytes.take().map(|bytes| Held { bytes, _room: room });
            *bytes = held.map(Bytes::from_owner);
        }
        self
    }

    /// Whether [`holding`](Self::holding) gave it room, or it is too small to need any.
    pub(crate) fn has_room(&self) -> bool {
        self.has_room
    }

    /// The bytes of a body that was made of bytes.
    pub(crate) fn into_bytes(mut self) -> Bytes {
        match &mut self.content {
            Content::Full(bytes) => bytes.take().unwrap_or_default(),
            Content::Stream(_) => Bytes::new(),
        }
    }

    /// Tells this connection what becomes of the body.
    pub(crate) fn on(mut self, conn: Arc<Conn>) -> Self {
        self.conn = Some(conn);
        self
    }
}

/// Bytes with the room they take.
struct Held {
    bytes: Bytes,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        let bytes = match &mut this.content {
            Content::Full(bytes) => {
                if let (Some(_), Some(conn)) = (&bytes, &this.conn) {
                    conn.handed_over();
                }
                Poll::Ready(bytes.take())
            }
            Content::Stream(receiver) => receiver.poll_recv(cx),
        };
        bytes.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.content, Content::Full(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Full(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Content::Stream(_) => SizeHint::default(),
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if let Some(conn) = &self.conn {
            conn.ended();
        }
    }
}
