//! Instants and lengths of time for people.

use std::fmt::Write;

use windlass_core::Wall;

use crate::api::wire::Time;
use crate::app::now;

/// How long ago an instant was, or how far ahead it is.
pub(crate) fn age(time: Time) -> String {
    age_at(time.0, now())
}

fn age_at(at: Wall, now: Wall) -> String {
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
    fn an_instant_is_shown_by_its_distance() {
        let now = Wall::new(1_767_323_045_678);
        for (millis, text) in [(0, "now"), (-60_000, "1m ago"), (30_000, "in 30s")] {
            assert_eq!(age_at(Wall::new(now.get() + millis), now), text);
        }
    }
}
