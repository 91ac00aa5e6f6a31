//! The value at a place of a JSON text. Nothing is read as a number, so none is rounded. A text
//! that is not JSON holds no value.

use alloc::string::String;
use alloc::vec::Vec;

use thiserror::Error;

/// A JSON pointer (RFC 6901), like `/user/id` or `/lines/0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer {
    text: String,
    steps: Vec<String>,
}

/// A text that is no JSON pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("must be a JSON pointer, like /user/id or /lines/0")]
pub struct BadPointer;

impl Pointer {
    /// Reads a pointer, which begins with a slash.
    pub fn new(text: &str) -> Result<Self, BadPointer> {
        let steps = text.strip_prefix('/').ok_or(BadPointer)?;
        let step = |text: &str| text.replace("~1", "/").replace("~0", "~");
        Ok(Self { text: text.into(), steps: steps.split('/').map(step).collect() })
    }

    /// The pointer as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether a document has this value there: a string, or JSON as it is written.
    pub fn holds(&self, document: &str, wanted: &str) -> bool {
        let at = |found, step: &String| {
            if is_list(found) { item(found, step) } else { field(found, step) }
        };
        let found = self.steps.iter().try_fold(document.trim(), at);
        found.is_some_and(|found| found == wanted || string_is(found, wanted))
    }
}

fn is_list(json: &str) -> bool {
    json.starts_with('[')
}

/// The item of a list with this index.
fn item<'j>(list: &'j str, step: &str) -> Option<&'j str> {
    let mut index: usize = step.parse().ok()?;
    let mut rest = list.strip_prefix('[')?.trim_start();
    loop {
        let (value, after) = value(rest)?;
        if index == 0 {
            return Some(value);
        }
        index -= 1;
        rest = after.strip_prefix(',')?.trim_start();
    }
}

/// The field of an object with this name; the last one if there are several.
fn field<'j>(object: &'j str, name: &str) -> Option<&'j str> {
    let mut rest = object.strip_prefix('{')?.trim_start();
    let mut found = None;
    while rest.starts_with('"') {
        let (key, after) = value(rest)?;
        let (value, after) = value(after.strip_prefix(':')?.trim_start())?;
        if string_is(key, name) {
            found = Some(value);
        }
        rest = after.strip_prefix(',').map_or("", str::trim_start);
    }
    found
}

/// The value at the beginning of a text, and what is behind it and the space after it.
fn value(text: &str) -> Option<(&str, &str)> {
    let end = match text.as_bytes().first()? {
        b'"' => string_end(text.as_bytes(), 0)?,
        b'[' | b'{' => nested_end(text.as_bytes())?,
        _ => text.find([',', ']', '}', ':', ' ', '\t', '\r', '\n']).unwrap_or(text.len()),
    };
    let (value, rest) = text.split_at_checked(end).filter(|_| end > 0)?;
    Some((value, rest.trim_start()))
}

/// Behind the string that begins at a quotation mark.
fn string_end(text: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Behind the list or object at the beginning.
fn nested_end(text: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (0, 0_usize);
    loop {
        match text.get(at)? {
            b'"' => at = string_end(text, at)? - 1,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
}

/// Whether JSON is this string.
fn string_is(json: &str, wanted: &str) -> bool {
    let Some(inner) = json.strip_prefix('"').and_then(|json| json.strip_suffix('"')) else {
        return false;
    };
    if inner.contains('\\') { unescaped(inner).as_deref() == Some(wanted) } else { inner == wanted }
}

/// The text of a string with escapes.
fn unescaped(inner: &str) -> Option<String> {
    let mut text = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some((plain, escape)) = rest.split_once('\\') {
        text.push_str(plain);
        rest = escape.get(1..)?;
        text.push(match escape.as_bytes().first()? {
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let (read, after) = unicode(rest)?;
                rest = after;
                read
            }
            plain @ (b'"' | b'\\' | b'/') => char::from(*plain),
            _ => return None,
        });
    }
    text.push_str(rest);
    Some(text)
}

/// The character of a `\u`, of which there are two for one outside of the basic plane.
fn unicode(text: &str) -> Option<(char, &str)> {
    let (first, rest) = unit(text)?;
    if let Some(read) = char::from_u32(first) {
        return Some((read, rest));
    }
    let (second, rest) = unit(rest.strip_prefix("\\u")?)?;
    let units = [u16::try_from(first).ok()?, u16::try_from(second).ok()?];
    let mut read = char::decode_utf16(units);
    Some((read.next()?.ok()?, rest))
}

fn unit(text: &str) -> Option<(u32, &str)> {
    let (digits, rest) = text.split_at_checked(4)?;
    let read = |digits| u32::from_str_radix(digits, 16).ok();
    read(digits).filter(|_| digits.bytes().all(|byte| byte.is_ascii_hexdigit())).map(|n| (n, rest))
}
