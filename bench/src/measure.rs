//! Time and figures.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// How long something takes.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
pub(crate) fn time<R, E>(run: impl FnOnce() -> Result<R, E>) -> Result<(R, Duration), E> {
    let start = Instant::now();
    let result = run()?;
    Ok((result, start.elapsed()))
}

/// So many in this time, per second.
#[expect(clippy::cast_precision_loss, reason = "figures are rounded anyway")]
pub(crate) fn rate(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

/// Figures as one line: JSON for programs, or words for people.
#[derive(Debug)]
pub(crate) struct Line {
    json: bool,
    text: String,
}

impl Line {
    /// A line about a scenario.
    pub(crate) fn new(json: bool, scenario: &str) -> Self {
        let text =
            if json { format!("{{\"scenario\":\"{scenario}\"") } else { scenario.to_string() };
        Self { json, text }
    }

    /// Adds a word.
    #[must_use]
    pub(crate) fn word(mut self, name: &str, value: &str) -> Self {
        let _ = if self.json {
            write!(self.text, ",\"{name}\":\"{value}\"")
        } else {
            write!(self.text, "  {name} {value}")
        };
        self
    }

    /// Adds a whole number.
    #[must_use]
    pub(crate) fn count(self, name: &str, value: usize) -> Self {
        self.figure(name, &value.to_string())
    }

    /// Adds a rate, rounded to whole ones.
    #[must_use]
    pub(crate) fn rate(self, name: &str, value: f64) -> Self {
        self.figure(name, &format!("{value:.0}"))
    }

    /// Adds a ratio.
    #[must_use]
    pub(crate) fn ratio(self, name: &str, value: f64) -> Self {
        self.figure(name, &format!("{value:.3}"))
    }

    fn figure(mut self, name: &str, value: &str) -> Self {
        let _ = if self.json {
            write!(self.text, ",\"{name}\":{value}")
        } else {
            write!(self.text, "  {name} {value}")
        };
        self
    }

    /// The whole line.
    pub(crate) fn finish(mut self) -> String {
        if self.json {
            self.text.push('}');
        }
        self.text
    }
}
