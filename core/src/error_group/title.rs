//! The title of a group: text, and slots where the errors of the group differ.
//!
//! Kept as one string in which a slot is the character START OF HEADING and a letter; no control
//! character gets into the text itself.

use alloc::string::String;
use core::fmt;

use crate::limits::GROUP_TITLE_BYTES;

/// What a slot leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    /// A number, also with a unit.
    Number,
    /// A hexadecimal number.
    Hex,
    /// 32 hexadecimal digits with four hyphens.
    Uuid,
    /// Letters and digits in disorder.
    Id,
    /// A date or a time of day.
    Time,
    /// An address of IP, of a network card, or of mail.
    Address,
    /// A host name, also with its port.
    Host,
    /// A path or a file name, also with a line number.
    Path,
    /// A quoted text, or the value of a column.
    Quoted,
    /// A JSON object or something like it.
    Data,
    /// The name of a worker.
    Worker,
    /// Everything: the group of errors without a group of their own.
    Other,
}

impl Slot {
    /// Every slot.
    pub const ALL: [Self; 12] = [
        Self::Number,
        Self::Hex,
        Self::Uuid,
        Self::Id,
        Self::Time,
        Self::Address,
        Self::Host,
        Self::Path,
        Self::Quoted,
        Self::Data,
        Self::Worker,
        Self::Other,
    ];

    /// The name used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Number => "number",
            Self::Hex => "hex",
            Self::Uuid => "uuid",
            Self::Id => "id",
            Self::Time => "time",
            Self::Address => "address",
            Self::Host => "host",
            Self::Path => "path",
            Self::Quoted => "quoted",
            Self::Data => "data",
            Self::Worker => "worker",
            Self::Other => "other",
        }
    }

    fn letter(self) -> char {
        char::from(b'a' + self as u8)
    }

    fn from_letter(letter: char) -> Option<Self> {
        Self::ALL.into_iter().find(|slot| slot.letter() == letter)
    }
}

/// A part of a title.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TitlePart<'a> {
    /// What all errors of the group say.
    Text(&'a str),
    /// A part that differs between the errors.
    Slot(Slot),
}

/// An error line with slots.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Title {
    /// Slots are [`MARK`] and a letter.
    stored: String,
    /// Whether the limit was reached: nothing more gets in.
    full: bool,
}

/// Begins a slot.
const MARK: char = '\u{1}';

impl Title {
    /// A title as a store kept it; `None` if it never was one.
    pub fn from_stored(stored: &str) -> Option<Self> {
        let mut chars = stored.chars();
        while let Some(char) = chars.next() {
            if char == MARK {
                Slot::from_letter(chars.next()?)?;
            } else if char.is_control() {
                return None;
            }
        }
        let fits = stored.len() <= GROUP_TITLE_BYTES;
        fits.then(|| Self { stored: stored.into(), full: false })
    }

    /// The string that a store keeps.
    pub fn as_stored(&self) -> &str {
        &self.stored
    }

    /// Its parts: texts and slots.
    pub fn parts(&self) -> impl Iterator<Item = TitlePart<'_>> {
        let mut rest = self.stored.as_str();
        core::iter::from_fn(move || {
            let first = rest.chars().next()?;
            if first == MARK {
                let mut chars = rest.chars();
                let slot = chars.by_ref().nth(1).and_then(Slot::from_letter);
                rest = chars.as_str();
                return Some(TitlePart::Slot(slot.unwrap_or(Slot::Other)));
            }
            let (text, after) = rest.split_at(rest.find(MARK).unwrap_or(rest.len()));
            rest = after;
            Some(TitlePart::Text(text))
        })
    }

    /// Whether nothing more gets in.
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    /// Adds a text; white space in it becomes one space, other control characters too.
    pub(super) fn push_text(&mut self, text: &str) {
        for char in text.chars() {
            let blank = char.is_whitespace() || char.is_control();
            if blank && (self.stored.is_empty() || self.stored.ends_with(' ')) {
                continue;
            }
            let char = if blank { ' ' } else { char };
            if self.full || self.stored.len() + char.len_utf8() > GROUP_TITLE_BYTES {
                self.full = true;
                return;
            }
            self.stored.push(char);
        }
    }

    /// Adds a slot. A list of like slots is one slot, however long it is.
    pub(super) fn push_slot(&mut self, slot: Slot) {
        let list = self.stored.trim_end_matches([' ', ',', ';', '/', ':', '-', '.']);
        let same = [MARK, slot.letter()];
        let (letter, mark) = (list.chars().next_back(), list.chars().rev().nth(1));
        if mark == Some(same[0]) && letter == Some(same[1]) {
            self.stored.truncate(list.len());
        } else if self.full || self.stored.len() + same.len() > GROUP_TITLE_BYTES {
            self.full = true;
        } else {
            self.stored.extend(same);
        }
    }

    /// Removes white space at the end.
    pub(super) fn trimmed(mut self) -> Self {
        self.stored.truncate(self.stored.trim_end().len());
        self.full = false;
        self
    }
}

impl fmt::Display for Title {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts().try_for_each(|part| match part {
            TitlePart::Text(text) => f.write_str(text),
            TitlePart::Slot(slot) => write!(f, "{{{}}}", slot.as_str()),
        })
    }
}
