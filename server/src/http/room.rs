//! The memory that large answers share until their last byte is with the socket.
//!
//! A poll reserves room before its answer is laid out, and releases the claims that have none; a
//! read is refused. Other writes are answered in any case: what they answer is bounded by their
//! request or by one job.

use std::sync::Arc;

use http::{Method, Response};
use http_body::Body as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::problem::{self, Problem};
use crate::http::body::Body;
use crate::http::gzip;
use crate::http::limits::{ANSWERS_KIB, SMALL_ANSWER_KIB};

/// The room for large answers.
#[derive(Debug, Clone)]
pub(crate) struct AnswerRoom(Arc<Semaphore>);

impl AnswerRoom {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(ANSWERS_KIB)))
    }

    /// Reserves room for an answer of this many bytes; `None` if it is too small to be counted.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<Option<OwnedSemaphorePermit>, Problem> {
        let kib = usize::try_from(bytes.div_ceil(1024)).unwrap_or(usize::MAX);
        if kib <= SMALL_ANSWER_KIB {
            return Ok(None);
        }
        let permits = u32::try_from(kib.min(ANSWERS_KIB)).unwrap_or(u32::MAX);
        Arc::clone(&self.0).try_acquire_many_owned(permits).map(Some).map_err(|_| full())
    }

    /// Reserves room for as many of these parts of an answer, from the first on, as there is room
    /// for; returns their number too, at least one.
    pub(crate) fn reserve_some(
        &self,
        parts: &[u64],
    ) -> Result<(usize, Option<OwnedSemaphorePermit>), Problem> {
        let mut count = self.fitting(parts).max(1).min(parts.len());
        loop {
            match self.reserve(parts[..count].iter().sum()) {
                Ok(room) => return Ok((count, room)),
                Err(refused) if count <= 1 => return Err(refused),
                // Others reserve meanwhile: at least one part less each time.
                Err(_) => count = self.fitting(parts).clamp(1, count - 1),
            }
        }
    }

    /// The number of these parts that have room at present.
    fn fitting(&self, parts: &[u64]) -> usize {
        let kib = self.0.available_permits().max(SMALL_ANSWER_KIB);
        let mut left = u64::try_from(kib).unwrap_or(u64::MAX) * 1024;
        let fits = |part: &&u64| {
            let fits = **part <= left;
            left = left.saturating_sub(**part);
            fits
        };
        parts.iter().take_while(fits).count()
    }

    /// Gives a large answer its room, unless it has it already. Without room what only reads is
    /// refused. With `zip` the answer may be compressed; it has the room of its whole length
    /// meanwhile.
    pub(crate) async fn fit(
        &self,
        method: &Method,
        response: Response<Body>,
        zip: bool,
    ) -> Result<Response<Body>, Problem> {
        if response.body().has_room() {
            return Ok(response);
        }
        match self.reserve(response.body().size_hint().exact().unwrap_or(0)) {
            Ok(room) => Ok(gzip::answer(response, zip).await.map(|body| body.holding(room))),
            Err(_) if *method != Method::GET => Ok(response),
            Err(refused) => Err(refused),
        }
    }
}

fn full() -> Problem {
    let most = ANSWERS_KIB / 1024;
    let detail = format!(
        "unread responses use all {most} MiB reserved for them; try again shortly, or ask for less \
         with `limit` or `max`"
    );
    Problem::new(problem::OVERLOADED, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    #[test]
    fn as_many_parts_as_fit_have_room_and_small_answers_always() {
        let room = AnswerRoom::new();
        let (count, first) = room.reserve_some(&[100 * MIB; 3]).unwrap();
        assert_eq!((count, first.unwrap().num_permits()), (2, 200 * 1024));
        let (count, held) = room.reserve_some(&[200 * MIB, MIB]).unwrap();
        assert_eq!(count, 2, "the room of the first came back");
        assert_eq!(room.reserve_some(&[56 * MIB, MIB]).unwrap_err().kind(), problem::OVERLOADED);
        let (count, small) = room.reserve_some(&vec![1024; 1_000_000]).unwrap();
        assert_eq!((count, small.unwrap().num_permits()), (55 * 1024, 55 * 1024));
        let (count, small) = room.reserve_some(&[32 * 1024, 32 * 1024]).unwrap();
        assert_eq!((count, small.is_none()), (2, true));
        drop(held);
        let (count, alone) = room.reserve_some(&[1_000 * MIB]).unwrap();
        assert_eq!((count, alone.is_some()), (1, true), "one part is never too large by itself");
    }
}
