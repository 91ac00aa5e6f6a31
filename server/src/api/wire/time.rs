//! Instants as RFC 3339 in UTC with milliseconds.

use std::borrow::Cow;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use windlass_core::Wall;

/// An instant as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Time(pub(crate) Wall);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Written(self.0))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        instant(&text).map(Self).map_err(de::Error::custom)
    }
}

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Written(self.0).fmt(f)
    }
}

impl JsonSchema for Time {
    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "format": "date-time",
            "description": "RFC 3339, UTC, with milliseconds.",
        })
    }
}

struct Written(Wall);

impl std::fmt::Display for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bounds = Timestamp::MIN.as_millisecond()..=Timestamp::MAX.as_millisecond();
        let millis = self.0.get().clamp(*bounds.start(), *bounds.end());
        let time = Timestamp::from_millisecond(millis).unwrap_or_default();
        write!(f, "{time:.3}")
    }
}

/// The instant as it is written.
pub(crate) fn rfc3339(wall: Wall) -> String {
    Written(wall).to_string()
}

/// Reads an instant, in whatever offset it is written.
pub(crate) fn instant(text: &str) -> Result<Wall, String> {
    let time: Timestamp = text.parse().map_err(|_| {
        format!("{:?} is not an instant; write it like 2026-01-02T03:04:05.678Z", excerpt(text))
    })?;
    Ok(Wall::new(time.as_millisecond()))
}

/// The beginning of a client's text, for a message.
fn excerpt(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_written_in_utc_with_milliseconds() {
        assert_eq!(rfc3339(Wall::new(1_767_323_045_678)), "2026-01-02T03:04:05.678Z");
        assert_eq!(rfc3339(Wall::new(0)), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn every_instant_can_be_written() {
        for millis in [i64::MIN, -1, i64::MAX] {
            assert!(rfc3339(Wall::new(millis)).ends_with('Z'));
        }
    }

    #[test]
    fn an_instant_is_read_as_it_was_written_and_no_other_text_is() {
        let time = Time(Wall::new(1_767_323_045_678));
        let written = serde_json::to_string(&time).unwrap();
        assert_eq!(serde_json::from_str::<Time>(&written).unwrap(), time);
        for bad in ["\"tomorrow\"", "7", "null"] {
            assert!(serde_json::from_str::<Time>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_offset_is_understood_and_nonsense_is_named() {
        let there = instant("2026-01-02T05:04:05.678+02:00");
        assert_eq!(there, Ok(Wall::new(1_767_323_045_678)));
        for text in ["tomorrow", "", "2026-13-01T00:00:00Z", "1767323045"] {
            assert!(instant(text).unwrap_err().contains("not an instant"), "{text}");
        }
    }
}
