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

/// The middle one of several figures.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}

/// The figure that this part of all lies below, in thousandths.
pub(crate) fn quantile(figures: &[u64], thousandths: usize) -> u64 {
    let mut sorted = figures.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len() * thousandths / 1_000).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or(0)
}
