//! The end of an output. Whatever its length, at most a few times the limit is held.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};
use windlass_core::Excerpt;
use windlass_core::limits::OUTPUT_BYTES;

/// Maximum bytes of one read.
const CHUNK: usize = 16 * 1024;

/// The latest bytes of an output.
#[derive(Debug, Default)]
pub(super) struct Tail {
    bytes: Vec<u8>,
    cut: bool,
}

impl Tail {
    /// Reads to the end. The writer is never blocked for longer than it takes to copy.
    pub(super) async fn fill(&mut self, from: Option<impl AsyncRead + Unpin>) {
        let Some(mut from) = from else { return };
        let mut chunk = vec![0; CHUNK];
        loop {
            match from.read(&mut chunk).await {
                Ok(0) => return,
                Ok(read) => self.push(&chunk[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        // Moving the rest down once per this number of bytes costs each byte one move at most.
        if self.bytes.len() > 2 * OUTPUT_BYTES {
            self.bytes.drain(..self.bytes.len() - OUTPUT_BYTES);
            self.cut = true;
        }
    }

    /// The bytes as text; what is not UTF-8 is replaced.
    pub(super) fn excerpt(&self) -> Excerpt {
        let from = self.bytes.len().saturating_sub(OUTPUT_BYTES);
        let cut = self.cut || from > 0;
        let mut kept = &self.bytes[from..];
        if cut {
            // The rest of a character that was cut in two is dropped.
            let rest = kept.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count();
            kept = &kept[rest..];
        }
        Excerpt::tail(&String::from_utf8_lossy(kept), OUTPUT_BYTES).cut_before(cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(chunks: &[&[u8]], text: &str, cut: bool) {
        let mut tail = Tail::default();
        for chunk in chunks {
            tail.push(chunk);
        }
        assert_eq!(tail.excerpt(), Excerpt::stored(text, cut));
    }

    #[test]
    fn an_output_within_the_limit_is_kept_whole() {
        check(&[], "", false);
        check(&[b"a", b"b\n"], "ab\n", false);
        let full = vec![b'x'; OUTPUT_BYTES];
        check(&[&full], str::from_utf8(&full).unwrap(), false);
    }

    #[test]
    fn of_a_longer_one_the_end_is_kept_and_marked() {
        let long = vec![b'x'; 3 * OUTPUT_BYTES];
        let mut expected = "x".repeat(OUTPUT_BYTES - 3);
        expected.push_str("end");
        check(&[&long, b"end"], &expected, true);
        check(&[&long[..OUTPUT_BYTES], b"end"], &expected, true);
    }

    #[test]
    fn bytes_that_are_no_text_are_marked_and_a_character_is_not_cut_in_two() {
        check(&[b"a\xFFb"], "a\u{FFFD}b", false);
        let mut long = "ä".repeat(OUTPUT_BYTES).into_bytes();
        long.push(b'!');
        let mut expected = "ä".repeat(OUTPUT_BYTES / 2 - 1);
        expected.push('!');
        check(&[&long], &expected, true);
    }

    #[tokio::test]
    async fn gigabytes_take_no_more_room_than_the_limit() {
        let mut tail = Tail::default();
        tail.fill(Some(tokio::io::repeat(b'x').take(1 << 30))).await;
        assert!(tail.bytes.capacity() <= 8 * OUTPUT_BYTES, "{}", tail.bytes.capacity());
        assert!(tail.excerpt().is_cut());
        assert_eq!(tail.excerpt().as_str().len(), OUTPUT_BYTES);
    }
}
