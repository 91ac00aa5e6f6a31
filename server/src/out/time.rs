//! Instants and lengths of time for people.

use std::fmt::Write;

use windlass_core::Wall;

use crate::app::now;
use crate::wire::instant;

/// How long ago an instant was, or how far ahead it is; the text itself if it is none.
pub(crate) fn age(text: &str) -> String {
    age_at(text, now())
}

fn age_at(text: &str, now: Wall) -> String {
    let Ok(at) = instant(text) else { return text.into() };
    if at.get() > now.get() {
        return format!("in {}", span(at.since(now).get()));
    }
    match now.since(at).get() {
        0..1_000 => "now".into(),
        millis => format!("{} ago", span(millis)),
    }
}

/// A length of time in its two largest units, like `1m 5s`.
pub(crate) fn span(millis: u64) -> String {
    const UNITS: [(u64, &str); 4] =
        [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let Some(at) = UNITS.iter().position(|(unit, _)| millis >= *unit) else {
        return format!("{millis}ms");
    };
    let (unit, name) = UNITS[at];
    let mut text = format!("{}{name}", millis / unit);
    if let Some((next, next_name)) = UNITS.get(at + 1) {
        let rest = millis % unit / next;
        if rest > 0 {
            let _ = write!(text, " {rest}{next_name}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_has_its_two_largest_units() {
        for (millis, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_999, "1s"),
            (65_000, "1m 5s"),
            (3_600_000, "1h"),
            (3_659_999, "1h"),
            (90_000_000, "1d 1h"),
        ] {
            assert_eq!(span(millis), text);
        }
    }

    #[test]
    fn an_instant_is_told_by_its_distance() {
        let now = Wall::new(1_767_323_045_678);
        assert_eq!(age_at("2026-01-02T03:04:05.678Z", now), "now");
        assert_eq!(age_at("2026-01-02T03:03:05.678Z", now), "1m ago");
        assert_eq!(age_at("2026-01-02T03:04:35.678Z", now), "in 30s");
        assert_eq!(age_at("tomorrow", now), "tomorrow");
    }
}
