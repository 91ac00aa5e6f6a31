//! The types of settings, and their values as text: every value that is written can be parsed.

use std::fmt::{self, Write as _};

use windlass_core::Millis;

use crate::cli::duration;

/// Type and bounds of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    /// A whole number between these.
    Whole { min: u64, max: u64 },
    /// A length of time between these; or `off`.
    Time { min: Millis, max: Millis, off: bool },
    /// A number with up to three decimals, in thousandths.
    Decimal { min: u32, max: u32 },
    /// One of these words.
    Choice(&'static [&'static str]),
}

/// A setting's value, by its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    Whole(u64),
    Time(Millis),
    Off,
    /// In thousandths.
    Decimal(u32),
    Choice(&'static str),
}

impl Type {
    /// The name used in JSON.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Whole { .. } => "integer",
            Self::Time { .. } => "duration",
            Self::Decimal { .. } => "decimal",
            Self::Choice(_) => "choice",
        }
    }

    /// Parses a value; the error is the end of a sentence about the setting.
    pub(crate) fn read(&self, text: &str) -> Result<Value, String> {
        let text = text.trim();
        let found = match *self {
            Self::Whole { min, max } => {
                let number = text.parse().ok();
                number.filter(|number| (min..=max).contains(number)).map(Value::Whole)
            }
            Self::Time { off: true, .. } if text == "off" => Some(Value::Off),
            Self::Time { min, max, .. } => {
                let time =
                    duration(text).ok().and_then(|time| u64::try_from(time.as_millis()).ok());
                let time = time.map(Millis::new);
                time.filter(|time| (min..=max).contains(time)).map(Value::Time)
            }
            Self::Decimal { min, max } => {
                let number = thousandths(text);
                number.filter(|number| (min..=max).contains(number)).map(Value::Decimal)
            }
            Self::Choice(words) => {
                words.iter().find(|word| **word == text).map(|w| Value::Choice(w))
            }
        };
        found.ok_or_else(|| format!("must be {self}, not {text:?}"))
    }
}

/// The allowed values, with bounds.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole { min, max } => write!(f, "a whole number between {min} and {max}"),
            Self::Time { min, max, off } => {
                let (min, max) = (Value::Time(*min), Value::Time(*max));
                write!(f, "a length of time between {min} and {max}")?;
                if *off { f.write_str(", or off") } else { Ok(()) }
            }
            Self::Decimal { min, max } => {
                let (min, max) = (Value::Decimal(*min), Value::Decimal(*max));
                write!(f, "a number between {min} and {max}")
            }
            Self::Choice(words) => write!(f, "one of {}", words.join(", ")),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Whole(number) => number.to_string(),
            Self::Time(time) => time_text(*time),
            Self::Off => "off".into(),
            Self::Decimal(number) => decimal_text(*number),
            Self::Choice(word) => (*word).into(),
        };
        f.pad(&text)
    }
}

/// Formats a time as `duration` parses it, with as few units as it needs.
fn time_text(time: Millis) -> String {
    let mut rest = time.get();
    let mut text = String::new();
    for (unit, millis) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)] {
        if rest >= millis {
            let _ = write!(text, "{}{unit}", rest / millis);
            rest %= millis;
        }
    }
    if rest > 0 {
        let _ = write!(text, "{rest}ms");
    }
    if text.is_empty() { "0s".into() } else { text }
}

fn decimal_text(thousandths: u32) -> String {
    let text = format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000);
    text.trim_end_matches('0').trim_end_matches('.').into()
}

/// Parses a number like `2`, `0.25` or `1.5` in thousandths; `None` if it had to be rounded.
fn thousandths(text: &str) -> Option<u32> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(part) || part.len() > 3 {
        return None;
    }
    let part: u32 = format!("{part:0<3}").parse().ok()?;
    whole.parse::<u32>().ok()?.checked_mul(1_000)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_as_it_is_written() {
        let time = Type::Time { min: Millis::new(0), max: Millis::days(10), off: true };
        for text in ["1d2h3m4s5ms", "30s", "1h30m", "0s", "off", "250ms"] {
            assert_eq!(time.read(text).unwrap().to_string(), text);
        }
        assert_eq!(time.read("90m").unwrap().to_string(), "1h30m");
        let decimal = Type::Decimal { min: 0, max: 100_000 };
        for text in ["0", "2", "0.25", "1.001", "100"] {
            assert_eq!(decimal.read(text).unwrap().to_string(), text);
        }
        assert_eq!(decimal.read("1.50").unwrap().to_string(), "1.5");
    }

    #[test]
    fn what_is_out_of_bounds_or_of_another_type_is_refused_with_the_bounds() {
        let whole = Type::Whole { min: 1, max: 5 };
        for text in ["0", "6", "-1", "1.5", "x", "", "99999999999999999999"] {
            let refused = whole.read(text).unwrap_err();
            assert!(refused.contains("between 1 and 5"), "{refused}");
            assert!(refused.contains(&format!("{text:?}")), "{refused}");
        }
        let decimal = Type::Decimal { min: 1_000, max: 2_000 };
        for text in ["0.999", "2.001", "1.0001", ".5", "1,5", "1e3", "-1", "4294968"] {
            assert!(decimal.read(text).unwrap_err().contains("between 1 and 2"), "{text}");
        }
        let time = Type::Time { min: Millis::seconds(1), max: Millis::hours(1), off: false };
        for text in ["999ms", "61m", "off", "30", "soon"] {
            assert!(time.read(text).unwrap_err().contains("between 1s and 1h"), "{text}");
        }
        let choice = Type::Choice(&["a", "b"]);
        assert_eq!(choice.read("c").unwrap_err(), "must be one of a, b, not \"c\"");
    }
}
