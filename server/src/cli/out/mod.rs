//! What commands print: data on standard output, messages on standard error. Whatever comes from a
//! store is escaped, so that no job can control a terminal.

mod table;
mod time;

use std::io::{BufWriter, IsTerminal, Stdout, Write};

use crate::cli::client::Failure;

pub(crate) use table::{Column, Table, start};
pub(crate) use time::{age, span};

/// The width of a page where there is no terminal.
const PAGE: u16 = 100;

/// Standard output and standard error of a command.
#[derive(Debug)]
pub(crate) struct Out {
    /// Whether programs read it.
    pub(crate) json: bool,
    pub(crate) width: u16,
    pub(crate) colour: bool,
    stdout: BufWriter<Stdout>,
}

impl Out {
    pub(crate) fn new(json: bool) -> Self {
        let stdout = std::io::stdout();
        let terminal = stdout.is_terminal();
        let width = rustix::termios::tcgetwinsize(&stdout).ok();
        let width = width.map(|size| size.ws_col).filter(|width| terminal && *width >= 20);
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            json,
            width: width.unwrap_or(PAGE),
            colour: terminal && !plain,
            stdout: BufWriter::new(stdout),
        }
    }

    /// Whether standard error is a terminal, so that progress can be shown.
    pub(crate) fn interactive(&self) -> bool {
        !self.json && std::io::stderr().is_terminal()
    }

    /// Writes a line; its text has been escaped where it had to be.
    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failure> {
        self.bytes(text.as_bytes())?;
        self.bytes(b"\n")
    }

    /// Writes bytes as they are: JSON for programs.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.stdout.write_all(bytes).map_err(|error| unwritten(&error))
    }

    /// Writes an answer as it came, on a line of its own.
    pub(crate) fn answer(&mut self, body: &[u8]) -> Result<(), Failure> {
        self.bytes(body)?;
        self.bytes(b"\n")
    }

    pub(crate) fn table(&mut self, table: &Table) -> Result<(), Failure> {
        let text = table.text(self.width, self.colour);
        self.bytes(text.as_bytes())
    }

    /// Prints a message on standard error; not printed with --json.
    pub(crate) fn say(&self, text: &str) {
        if !self.json {
            // A closed standard error is ignored.
            let _ = writeln!(std::io::stderr(), "{}", escaped_lines(text));
        }
    }

    /// Reports what is wrong with a line of a file; with --json as a document on a line.
    pub(crate) fn wrong_line(&self, line: u64, why: &str) {
        if self.json {
            let document = serde_json::json!({ "line": line, "detail": why });
            let _ = writeln!(std::io::stderr(), "{document}");
        } else {
            self.say(&format!("line {line}: {why}"));
        }
    }

    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.stdout.flush().map_err(|error| unwritten(&error))
    }

    /// A state in its colour.
    pub(crate) fn state(&self, state: &str) -> String {
        table::coloured(&escaped(state), state, self.colour)
    }
}

fn unwritten(error: &std::io::Error) -> Failure {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        return Failure::PipeClosed;
    }
    Failure::failed(format!("the output could not be written: {error}"))
}

/// A text on one line, in which nothing can control a terminal.
pub(crate) fn escaped(text: &str) -> String {
    escape(text, false)
}

/// The same, but lines stay lines.
pub(crate) fn escaped_lines(text: &str) -> String {
    escape(text, true)
}

fn escape(text: &str, lines: bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' if lines => shown.push('\n'),
            // What turns the direction of writing shows one text as another.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}' => {
                shown.extend(c.escape_unicode());
            }
            c if c.is_control() => shown.extend(c.escape_default()),
            c => shown.push(c),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_job_says_controls_the_terminal() {
        assert_eq!(escaped("\u{1b}[2Jx\ty\n\u{9b}1m"), "\\u{1b}[2Jx\\ty\\n\\u{9b}1m");
        assert_eq!(escaped_lines("a\nb\r\u{202e}c"), "a\nb\\r\\u{202e}c");
        assert_eq!(escaped("\u{e9}\u{4e16} \"\\"), "\u{e9}\u{4e16} \"\\");
    }
}
