//! How rows are written as bytes: numbers of variable length, texts behind their length.
//!
//! What is read was written here, or is damaged: a row that is cut short, too long or holds a
//! number too large is refused, never guessed at.

use thiserror::Error;

/// How many bytes [`put_wide`] takes at least: enough for any distance of half a year.
const WIDE: usize = 5;
/// How many bytes a number takes at most.
const LONGEST: usize = 10;

/// Bytes that this code cannot have written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum Malformed {
    #[error("it is cut short")]
    Short,
    #[error("it is longer than it should be")]
    Long,
    #[error("it holds a number that is too large")]
    Large,
    #[error("it holds a text that is no UTF-8")]
    Text,
}

/// Writes a number, the smaller the shorter.
pub(crate) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(low(number) | 0x80);
        number >>= 7;
    }
    out.push(low(number));
}

/// Writes a number that may be negative.
pub(crate) fn put_signed(out: &mut Vec<u8>, number: i64) {
    put(out, zigzag(number));
}

/// Writes a number that may be negative in the same number of bytes, whatever it is, unless it is
/// very large: a row keeps its length when it changes, and so its place in its page.
pub(crate) fn put_wide(out: &mut Vec<u8>, number: i64) {
    let mut number = zigzag(number);
    let start = out.len();
    while number >= 0x80 || out.len() - start < WIDE - 1 {
        out.push(low(number) | 0x80);
        number >>= 7;
    }
    out.push(low(number));
}

/// Writes a text behind its length.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

fn low(number: u64) -> u8 {
    number.to_le_bytes()[0] & 0x7f
}

/// What is left to read of a row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bytes<'b>(pub(crate) &'b [u8]);

impl<'b> Bytes<'b> {
    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        let (first, rest) = self.0.split_first().ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(*first)
    }

    #[inline]
    pub(crate) fn number(&mut self) -> Result<u64, Malformed> {
        // Most numbers are small.
        if let [small @ ..0x80, rest @ ..] = self.0 {
            self.0 = rest;
            return Ok((*small).into());
        }
        self.long_number()
    }

    fn long_number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0;
        for at in 0..LONGEST {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if at == LONGEST - 1 && part > 1 {
                return Err(Malformed::Large);
            }
            number |= part << (7 * at);
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Malformed::Large)
    }

    pub(crate) fn small(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.number()?).map_err(|_| Malformed::Large)
    }

    pub(crate) fn signed(&mut self) -> Result<i64, Malformed> {
        let number = self.number()?;
        Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    pub(crate) fn text(&mut self) -> Result<&'b str, Malformed> {
        let length = usize::try_from(self.number()?).map_err(|_| Malformed::Large)?;
        let (text, rest) = self.0.split_at_checked(length).ok_or(Malformed::Short)?;
        self.0 = rest;
        utf8(text)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (array, rest) = self.0.split_first_chunk().ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(*array)
    }

    /// Everything that is left, as text.
    pub(crate) fn rest(&mut self) -> Result<&'b str, Malformed> {
        utf8(std::mem::take(&mut self.0))
    }

    /// Whether nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// There must be nothing left.
    pub(crate) fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed::Long) }
    }
}

pub(crate) fn utf8(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| Malformed::Text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_and_texts_come_back_as_they_went(
            number: u64, signed: i64, wide: i64, text in ".{0,40}",
        ) {
            let mut row = Vec::new();
            put(&mut row, number);
            put_signed(&mut row, signed);
            put_wide(&mut row, wide);
            put_text(&mut row, &text);
            let mut bytes = Bytes(&row);
            prop_assert_eq!(bytes.number(), Ok(number));
            prop_assert_eq!(bytes.signed(), Ok(signed));
            prop_assert_eq!(bytes.signed(), Ok(wide));
            prop_assert_eq!(bytes.text(), Ok(text.as_str()));
            prop_assert_eq!(bytes.end(), Ok(()));
        }

        #[test]
        fn a_wide_number_within_half_a_year_has_one_length(
            millis in -15_552_000_000_i64..15_552_000_000,
        ) {
            let mut row = Vec::new();
            put_wide(&mut row, millis);
            prop_assert_eq!(row.len(), WIDE);
        }

        #[test]
        fn any_bytes_are_read_or_refused(row in prop::collection::vec(any::<u8>(), 0..24)) {
            let mut bytes = Bytes(&row);
            let _ = bytes.number().and_then(|_| bytes.signed()).and_then(|_| bytes.text());
        }
    }

    #[test]
    fn a_number_too_large_or_cut_short_is_refused() {
        assert_eq!(Bytes(&[0xff; 10]).number(), Err(Malformed::Large));
        assert_eq!(Bytes(&[0x80; 11]).number(), Err(Malformed::Large));
        assert_eq!(Bytes(&[0x80; 9]).number(), Err(Malformed::Short));
        assert_eq!(Bytes(&[0xff, 0xff, 0xff, 0xff, 0x7f]).small(), Err(Malformed::Large));
        assert_eq!(Bytes(&[3, b'a']).text(), Err(Malformed::Short));
        assert_eq!(Bytes(&[1, 0xff]).text(), Err(Malformed::Text));
        assert_eq!(Bytes(&[0]).end(), Err(Malformed::Long));
    }
}
