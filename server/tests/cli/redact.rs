//! Replaces what differs from run to run: instants, ages, and the width of their columns.

use std::fmt::Write as _;

/// Replaces what differs from run to run in a transcript.
pub(crate) fn redacted(text: &str) -> String {
    let mut lines = String::new();
    // How fast a file was read differs too.
    for line in text.lines().filter(|line| !line.ends_with(" a second")) {
        let line = without_instants(line);
        // A row of a table is as wide as the ages in it.
        let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        let indent = if line.starts_with("  ") { "  " } else { "" };
        let cells: Vec<String> = cells.map(without_ages).collect();
        let _ = writeln!(lines, "{indent}{}", cells.join("  "));
    }
    lines
}

fn without_ages(cell: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    for word in cell.split(' ') {
        match (word, words.last()) {
            ("ago", Some(&"<age>")) => {}
            (word, Some(&"<age>")) if is_span(word) => {}
            // With what follows it, like the colon of a text behind it.
            (word, Some(&"<age>")) if is_span(word.trim_end_matches(':')) => {
                words.pop();
                words.push("<age>:");
            }
            (word, _) if is_span(word) || word == "now" => words.push("<age>"),
            (word, _) => words.push(word),
        }
    }
    words.join(" ")
}

/// Whether this is a length of time like 5s or 20ms.
fn is_span(word: &str) -> bool {
    let number = word.trim_end_matches(|c: char| c.is_ascii_lowercase());
    !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit())
        && ["ms", "s", "m", "h", "d"].contains(&&word[number.len()..])
}

fn without_instants(line: &str) -> String {
    let mut shown = String::new();
    let mut rest = line;
    while let Some(at) = rest.find("20") {
        let (before, from) = rest.split_at(at);
        shown.push_str(before);
        let (text, length) =
            if from.get(..24).is_some_and(is_instant) { ("<time>", 24) } else { ("20", 2) };
        shown.push_str(text);
        rest = &from[length..];
    }
    shown.push_str(rest);
    without_rates(&without_number(&shown, "\"oldest_ready_age_ms\":"))
}

/// Rates are those of the last minute, and figures are written up to a second late.
fn without_rates(line: &str) -> String {
    let Some((before, after)) = line.split_once("\"rates\":{") else { return line.into() };
    let rest = after.split_once('}').map_or("", |(_, rest)| rest);
    format!("{before}\"rates\":<rates>{}", without_rates(rest))
}

/// Whether this is an instant like `2026-01-02T03:04:05Z`.
fn is_instant(text: &str) -> bool {
    let form = "dddd-dd-ddTdd:dd:dd.dddZ";
    text.len() == form.len()
        && text.bytes().zip(form.bytes()).all(|(byte, form)| match form {
            b'd' => byte.is_ascii_digit(),
            form => byte == form,
        })
}

fn without_number(line: &str, behind: &str) -> String {
    let Some((before, after)) = line.split_once(behind) else { return line.into() };
    let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
    let rest = without_number(rest, behind);
    let number = if rest.len() == after.len() { "" } else { "<age>" };
    format!("{before}{behind}{number}{rest}")
}

#[test]
fn only_what_differs_from_run_to_run_is_replaced() {
    let line = " 1  queued  mail  3s ago   due in 4m 59s: 2026 is on";
    assert_eq!(redacted(line), "1  queued  mail  <age>  due in <age>: 2026 is on\n");
    let line =
        r#"{"at":"2026-01-02T03:04:05.678Z","oldest_ready_age_ms":17,"rates":{"x":1},"n":20}"#;
    let expected = r#"{"at":"<time>","oldest_ready_age_ms":<age>,"rates":<rates>,"n":20}"#;
    assert_eq!(redacted(line), format!("{expected}\n"));
}
