//! The line of an error that says what went wrong, and its title.
//!
//! Most errors begin with it. A traceback of Python ends with it, a stack trace of Node shows the
//! source first, and a panic of Rust tells the place first.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;

use super::title::{Slot, Title};
use super::{ErrorText, LINE_BYTES, words};

/// The line of an error that decides on its group.
pub(super) fn telling<'a>(text: &ErrorText<'a>) -> &'a str {
    of_command(text).map_or_else(|| first_line(text.error), |(_, line)| line)
}

/// The title of the group of an error with this telling line.
pub(super) fn title(text: &ErrorText<'_>, line: &str) -> Title {
    let mut title = Title::default();
    if let Some((code, _)) = of_command(text) {
        title.push_text(&format!("exit code {code}: "));
        words::read(&mut title, line);
    } else if let Some((before, after)) = own_words(line) {
        title.push_text(before);
        title.push_slot(Slot::Worker);
        words::read(&mut title, after);
    } else {
        words::read(&mut title, line);
    }
    title.trimmed()
}

/// The exit code of a command that wrote to its standard error, and the line that decides.
fn of_command<'a>(text: &ErrorText<'a>) -> Option<(i32, &'a str)> {
    text.exit_code.zip(text.stderr.and_then(last_line))
}

/// What core says of an attempt whose lease was taken back: before and after the name of the
/// worker.
fn own_words(line: &str) -> Option<(&str, &str)> {
    let name = ["worker ", "the lease ran out: worker "].iter();
    let start = name.filter(|start| line.starts_with(**start)).map(|start| start.len()).max()?;
    let (before, rest) = line.split_at(start);
    let (_, after) = rest.split_at(rest.find(' ')?);
    let ends = [" died", " sent no heartbeat", " ran longer than the timeout"];
    ends.iter().any(|end| after.starts_with(end)).then_some((before, after))
}

/// The line of a message that tells the error.
fn first_line(error: &str) -> &str {
    if let Some((_, trace)) = error.rsplit_once("Traceback (most recent call last):")
        && let Some(line) = trace.lines().find(|line| is_outer(line))
    {
        return line;
    }
    let mut lines = error.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or("");
    if first.starts_with("thread '") && first.contains("' panicked at ") && first.ends_with(':') {
        return lines.next().unwrap_or(first);
    }
    if is_place(first) {
        return lines.find(|line| is_named(line)).unwrap_or(first);
    }
    first
}

/// The last line of an output that is no stack frame and no closing line.
fn last_line(output: &str) -> Option<&str> {
    let lines = || output.lines().rev().filter(|line| !line.trim().is_empty());
    let telling = |line: &&str| is_outer(line) && !line.starts_with("Node.js v");
    let mut frames = lines().skip_while(|line| !telling(line));
    let last = frames.next().or_else(|| lines().next())?;
    // A stack trace of Node ends with frames or with the version, and its message stands above
    // these.
    let named = || output.lines().find(|line| is_named(line.trim()));
    let traced = lines().next().is_some_and(|line| !telling(&line));
    Some(if traced && !is_named(last) { named().unwrap_or(last) } else { last }.trim())
}

/// Whether a line of a trace is no frame: not indented, not empty.
fn is_outer(line: &str) -> bool {
    line.chars().next().is_some_and(|first| !first.is_whitespace()) && !line.starts_with("at ")
}

/// Whether a line is only a place in a source: `app.js:10`.
fn is_place(line: &str) -> bool {
    let number = line.rsplit_once(':').map(|(_, number)| number);
    !line.contains(' ') && number.is_some_and(|n| !n.is_empty() && n.parse::<u32>().is_ok())
}

/// Whether a line begins with the name of an error: `TypeError: …`.
fn is_named(line: &str) -> bool {
    let name = line.split([':', ' ']).next().unwrap_or("");
    name.ends_with("Error") || name.ends_with("Exception")
}

/// A line without the codes by which terminals show colours.
pub(super) fn plain(line: &str) -> Cow<'_, str> {
    if !line.contains('\u{1b}') {
        return Cow::Borrowed(line);
    }
    let mut plain = String::with_capacity(line.len());
    let mut parts = line.split('\u{1b}');
    plain.extend(parts.next());
    for part in parts {
        let code = part.strip_prefix('[');
        let end = |code: &str| code.find(|c: char| !(c.is_ascii_digit() || ";:?".contains(c)));
        let rest = code.and_then(|code| code.get(end(code)? + 1..));
        plain.push_str(rest.unwrap_or(part));
    }
    Cow::Owned(plain)
}

/// As much of a line as is looked at.
pub(super) fn cut(line: &str) -> &str {
    &line[..line.floor_char_boundary(LINE_BYTES)]
}
