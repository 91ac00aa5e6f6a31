//! Time, memory and figures.

use std::error::Error;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// A result whose error ends the measurement.
pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Calls `run`, and returns its result with the duration.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
pub(crate) fn time<R, E>(run: impl FnOnce() -> Result<R, E>) -> Result<(R, Duration), E> {
    let start = Instant::now();
    let result = run()?;
    Ok((result, start.elapsed()))
}

/// The rate per second of this number in this time.
#[expect(clippy::cast_precision_loss, reason = "figures are rounded anyway")]
pub(crate) fn rate(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

/// The median; of an even number of figures the upper one.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Durations of a repeated operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spread {
    pub(crate) median: Duration,
    pub(crate) worst: Duration,
}

impl Spread {
    pub(crate) fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |at: usize| times.get(at).copied().unwrap_or_default();
        Self { median: at(times.len() / 2), worst: at(times.len().saturating_sub(1)) }
    }
}

/// Resident memory of this process in KiB; 0 where the system does not report it.
pub(crate) fn resident_kib() -> usize {
    std::fs::read_to_string("/proc/self/status").map_or(0, |status| resident_in(&status))
}

/// Parses the resident memory in KiB from `/proc/PID/status`.
pub(crate) fn resident_in(status: &str) -> usize {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Figures as one line: JSON, or plain text.
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
    pub(crate) fn word(self, name: &str, value: &str) -> Self {
        if self.json {
            self.figure(name, &format!("\"{value}\""))
        } else {
            self.figure(name, value)
        }
    }

    /// Adds a whole number.
    #[must_use]
    pub(crate) fn count(self, name: &str, value: usize) -> Self {
        self.figure(name, &value.to_string())
    }

    /// Adds a rate, rounded to a whole number.
    #[must_use]
    pub(crate) fn rate(self, name: &str, value: f64) -> Self {
        self.figure(name, &format!("{value:.0}"))
    }

    /// Adds a ratio.
    #[must_use]
    pub(crate) fn ratio(self, name: &str, value: f64) -> Self {
        self.figure(name, &format!("{value:.3}"))
    }

    /// Adds the median and the longest time, in microseconds.
    #[must_use]
    pub(crate) fn spread(self, name: &str, value: Spread) -> Self {
        let micros = |time: Duration| time.as_micros().to_string();
        self.figure(&format!("{name}_us"), &micros(value.median))
            .figure(&format!("{name}_worst_us"), &micros(value.worst))
    }

    fn figure(mut self, name: &str, value: &str) -> Self {
        let _ = if self.json {
            write!(self.text, ",\"{name}\":{value}")
        } else {
            write!(self.text, "  {name} {value}")
        };
        self
    }

    /// Ends the line and returns it.
    pub(crate) fn finish(mut self) -> String {
        if self.json {
            self.text.push('}');
        }
        self.text
    }
}

/// The figure below which this part of all is, in thousandths.
pub(crate) fn quantile(figures: &[u64], thousandths: usize) -> u64 {
    let mut sorted = figures.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len() * thousandths / 1_000).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_not_moved_by_the_worst() {
        assert_eq!(median(vec![9.0, 1.0, 2.0]).to_string(), "2");
        let times = [3, 1, 90].map(Duration::from_micros);
        let [middle, _, worst] = times;
        assert_eq!(Spread::of(times.to_vec()), Spread { median: middle, worst });
    }

    #[test]
    fn resident_memory_is_read_from_what_the_kernel_says() {
        assert_eq!(resident_in("VmHWM:\t  99 kB\nVmRSS:\t   2048 kB\n"), 2048);
        assert_eq!(resident_in(""), 0);
    }

    #[test]
    fn a_line_is_json_if_asked() {
        let line = |json| Line::new(json, "a").word("b", "c").count("d", 1).ratio("e", 0.5);
        assert_eq!(line(true).finish(), r#"{"scenario":"a","b":"c","d":1,"e":0.500}"#);
        assert_eq!(line(false).finish(), "a  b c  d 1  e 0.500");
    }
}
