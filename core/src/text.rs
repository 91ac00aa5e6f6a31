//! Longer texts: payloads and results, stored unchanged; excerpts of errors and outputs, cut to a
//! limit.

use alloc::sync::Arc;
use core::fmt;

use thiserror::Error;

use crate::limits::PAYLOAD_BYTES;

/// Why a text cannot be a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PayloadError {
    /// The text is longer than [`PAYLOAD_BYTES`].
    #[error(
        "the payload is {given} bytes long, at most {limit} are allowed; store large data \
             elsewhere and enqueue a reference to it"
    )]
    TooLarge {
        /// Length in bytes.
        given: usize,
        /// [`PAYLOAD_BYTES`].
        limit: usize,
    },
    /// It contains a NUL character, which JSON does not allow and not every store can keep.
    #[error("the payload holds a NUL character at byte {at}; JSON writes it as \\u0000")]
    Nul {
        /// Offset of the character in bytes.
        at: usize,
    },
}

/// JSON text of a payload, a result or a progress value, stored unchanged.
///
/// Core never parses it: numbers of any size and the order of keys survive.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Payload(Arc<str>);

impl Payload {
    /// Keeps the text if it is no longer than [`PAYLOAD_BYTES`].
    ///
    /// ```
    /// use windlass_core::Payload;
    /// let payload = Payload::new(r#"{"n":12345678901234567890123}"#)?;
    /// assert_eq!(payload.as_str(), r#"{"n":12345678901234567890123}"#);
    /// # Ok::<(), windlass_core::PayloadError>(())
    /// ```
    pub fn new(json: &str) -> Result<Self, PayloadError> {
        Self::within(json, PAYLOAD_BYTES)
    }

    /// Keeps the text if it is no longer than `limit` bytes, nor than [`PAYLOAD_BYTES`].
    pub fn within(json: &str, limit: usize) -> Result<Self, PayloadError> {
        let limit = limit.min(PAYLOAD_BYTES);
        if json.len() > limit {
            return Err(PayloadError::TooLarge { given: json.len(), limit });
        }
        // `find` with a character searches words of bytes at a time.
        match json.find('\0') {
            Some(at) => Err(PayloadError::Nul { at }),
            None => Ok(Self(Arc::from(json))),
        }
    }

    /// The payload of a job that was given none: `null`.
    pub fn null() -> Self {
        Self(Arc::from("null"))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its length in bytes, at most [`PAYLOAD_BYTES`].
    pub fn bytes(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A part of a longer text: an error message or the tail of an output, cut to a limit and marked.
/// NUL characters, which not every store can keep, become the character SUBSTITUTE.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Excerpt {
    text: Arc<str>,
    cut: bool,
}

impl Excerpt {
    /// The beginning of a text, at most `limit` bytes.
    pub fn head(text: &str, limit: usize) -> Self {
        let end = (0..=limit.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
        let end = end.unwrap_or(0);
        Self { text: without_nul(&text[..end]), cut: end < text.len() }
    }

    /// The end of a text, at most `limit` bytes.
    pub fn tail(text: &str, limit: usize) -> Self {
        let from = text.len().saturating_sub(limit);
        let start = (from..=text.len()).find(|&at| text.is_char_boundary(at));
        let start = start.unwrap_or(text.len());
        Self { text: without_nul(&text[start..]), cut: start > 0 }
    }

    /// An excerpt as a store kept it.
    pub fn stored(text: &str, cut: bool) -> Self {
        Self { text: Arc::from(text), cut }
    }

    /// The same excerpt, marked as cut if the source had already lost a part.
    #[must_use]
    pub fn cut_before(mut self, cut: bool) -> Self {
        self.cut |= cut;
        self
    }

    /// The text that is left.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether a part was cut off.
    pub fn is_cut(&self) -> bool {
        self.cut
    }
}

impl fmt::Debug for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{}", self.text, if self.cut { "…" } else { "" })
    }
}

/// The text with NUL characters, which not every store can keep, replaced by SUBSTITUTE.
pub(crate) fn without_nul(text: &str) -> Arc<str> {
    if text.contains('\0') { Arc::from(text.replace('\0', "\u{1a}")) } else { Arc::from(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nul_is_refused_in_a_payload_and_replaced_in_an_excerpt() {
        assert_eq!(Payload::new("\"a\0b\""), Err(PayloadError::Nul { at: 2 }));
        assert_eq!(Excerpt::tail("a\0b", 9).as_str(), "a\u{1a}b");
    }

    #[test]
    fn excerpts_cut_between_characters_and_say_so() {
        assert_eq!(Excerpt::head("aäb", 2), Excerpt::stored("a", true));
        assert_eq!(Excerpt::tail("aäb", 2), Excerpt::stored("b", true));
        assert_eq!(Excerpt::tail("ab", 2), Excerpt::stored("ab", false));
        assert_eq!(Excerpt::head("ä", 0), Excerpt::stored("", true));
        assert!(Excerpt::tail("ab", 2).cut_before(true).is_cut());
    }

    #[test]
    fn a_payload_over_its_limit_is_refused_with_both_sizes() {
        let refused = Payload::within("123", 2);
        assert_eq!(refused, Err(PayloadError::TooLarge { given: 3, limit: 2 }));
    }
}
