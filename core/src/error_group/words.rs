//! Reads a line word by word, and tells what belongs to the error from what belongs to one case.

use super::title::{Slot, Title};
use super::word::{self, Part};

/// Adds a line to a title.
pub(super) fn read(title: &mut Title, line: &str) {
    let mut reader = Reader { title, line, at: 0, code: false };
    while reader.at < line.len() && !reader.title.is_full() {
        reader.step();
    }
}

/// A line, and how far it was read.
struct Reader<'a> {
    title: &'a mut Title,
    line: &'a str,
    at: usize,
    /// Whether a number at this place is a code, which tells errors apart: after `status`, `errno`
    /// and the like.
    code: bool,
}

impl Reader<'_> {
    fn step(&mut self) {
        let rest = &self.line[self.at..];
        let Some(first) = rest.chars().next() else { return };
        let quoted = if self.follows_word() { None } else { quoted(rest) };
        if let Some(length) = quoted {
            self.slot(Slot::Quoted, length);
        } else if let Some(length) = value(rest) {
            self.title.push_text("=(");
            self.slot(Slot::Quoted, length - 1);
            self.title.push_text(")");
            (self.at, self.code) = (self.at + 1, false);
        } else if let Some(length) = data(rest) {
            self.slot(Slot::Data, length);
        } else if is_apart(first) {
            self.title.push_text(&rest[..first.len_utf8()]);
            self.at += first.len_utf8();
        } else {
            let word = &rest[..rest.find(is_apart).unwrap_or(rest.len())];
            self.word(word, &rest[word.len()..]);
            self.at += word.len();
        }
    }

    /// Reads a word; `after` is what follows it.
    fn word(&mut self, word: &str, after: &str) {
        let bare = word.trim_end_matches(['.', ',', ':', ';', '!', '?', '…', '\'']);
        let bare = bare.trim_start_matches(['\'', '*', '#', '@', '$', '&', '%']);
        let start = word.find(bare).unwrap_or(0);
        let (before, end) = (&word[..start], &word[start + bare.len()..]);
        self.title.push_text(before);
        if word::is_code(bare) || self.code && is_short(bare) || is_status(bare, after) {
            // What follows a code is often another: `ERROR 1062 (23000)`.
            self.title.push_text(bare);
            self.code = true;
        } else {
            let title = &mut *self.title;
            word::parts(bare, &mut |part| match part {
                Part::Text(text) => title.push_text(text),
                Part::Slot(slot) => title.push_slot(slot),
            });
            self.code = names_code(bare);
        }
        self.title.push_text(end);
    }

    fn slot(&mut self, slot: Slot, length: usize) {
        self.title.push_slot(slot);
        (self.at, self.code) = (self.at + length, false);
    }

    /// Whether a word ends here, so that a quotation mark is an apostrophe.
    fn follows_word(&self) -> bool {
        self.line[..self.at].chars().next_back().is_some_and(char::is_alphanumeric)
    }
}

/// Whether words end before this.
fn is_apart(char: char) -> bool {
    char.is_whitespace() || "()[]{}<>,;|=\"`“”‘’«»".contains(char)
}

/// The length of a quoted text at the beginning of `rest`, with its marks.
fn quoted(rest: &str) -> Option<usize> {
    let mut chars = rest.char_indices();
    let (_, first) = chars.next()?;
    let ends: &[char] = match first {
        '"' => &['"'],
        '\'' => &['\''],
        '`' => &['`', '\''],
        '“' => &['”'],
        '‘' => &['’'],
        '«' => &['»'],
        _ => return None,
    };
    let mut escaped = false;
    for (at, char) in chars {
        let next = rest[at + char.len_utf8()..].chars().next();
        let closes = ends.contains(&char) && !next.is_some_and(char::is_alphanumeric);
        if closes && !escaped && at > 1 {
            return Some(at + char.len_utf8());
        }
        escaped = char == '\\' && !escaped;
    }
    None
}

/// The length of a value in brackets at the beginning of `rest`: `=(4711)`.
fn value(rest: &str) -> Option<usize> {
    let inner = rest.strip_prefix("=(")?;
    inner.find(')').filter(|length| *length > 0).map(|length| length + 2)
}

/// The length of something like a JSON object at the beginning of `rest`.
fn data(rest: &str) -> Option<usize> {
    let inner = rest.trim_start_matches(['[', '{', ' ']);
    let opens = rest.starts_with(['{', '[']) && rest[..rest.len() - inner.len()].contains('{');
    if !opens || !inner.starts_with(['"', '\'']) {
        return None;
    }
    let mut depth = 0_u32;
    for (at, char) in rest.char_indices() {
        match char {
            '{' | '[' => depth += 1,
            '}' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return Some(at + char.len_utf8());
        }
    }
    Some(rest.len())
}

/// Whether a number after this word is a code.
fn names_code(word: &str) -> bool {
    const NAMES: [&str; 18] = [
        "http",
        "http/1.0",
        "http/1.1",
        "http/2",
        "status",
        "statuscode",
        "status_code",
        "errno",
        "error",
        "errorcode",
        "error_code",
        "code",
        "exit",
        "exitcode",
        "exit_code",
        "signal",
        "sqlstate",
        "msg",
    ];
    let last = word.rsplit([':', '.']).next().unwrap_or(word);
    NAMES.iter().any(|name| name.eq_ignore_ascii_case(last) || name.eq_ignore_ascii_case(word))
}

/// Whether a word behind the name of a code can be one: at most five letters and digits.
fn is_short(word: &str) -> bool {
    let digits = word.trim_start_matches('-');
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
    plain && (1..=5).contains(&digits.len()) && digits.bytes().any(|byte| byte.is_ascii_digit())
}

/// Whether a word is a status of HTTP with its phrase behind it: `503 Service Unavailable`.
fn is_status(word: &str, after: &str) -> bool {
    let error = word.len() == 3 && word.starts_with(['4', '5']) && word.parse::<u16>().is_ok();
    let phrase = after.strip_prefix(' ').and_then(|after| after.chars().next());
    error && phrase.is_some_and(char::is_uppercase)
}
