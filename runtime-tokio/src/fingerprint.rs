//! Fingerprints of payloads: equal for equal JSON, independent of white space, escapes and the
//! order of keys.
//!
//! Numbers with more digits than a float holds are compared as text, so that requests that differ
//! in the twentieth digit have different fingerprints.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;
use windlass_core::{Fingerprint, FingerprintBuilder};

/// The fingerprint of a JSON text, as used for idempotency keys. White space, escapes and the
/// order of keys do not change it. Fails if the text is not JSON.
pub fn fingerprint(json: &str) -> Result<Fingerprint, serde_json::Error> {
    let builder = FingerprintBuilder::new();
    if numbers_are_exact(json) {
        let value: Value = serde_json::from_str(json)?;
        return Ok(add(builder, &value).finish());
    }
    let raw: &RawValue = serde_json::from_str(json)?;
    Ok(add_raw(builder, raw, 0)?.finish())
}

/// Decimal digits that a float keeps.
const EXACT_DIGITS: usize = 15;
/// The slow path parses each level once more than the level above; deeper values are compared as
/// text.
const MAX_DEPTH: usize = 8;

/// Whether every number keeps all its digits as a float.
fn numbers_are_exact(json: &str) -> bool {
    let (mut in_text, mut escaped, mut length) = (false, false, 0_usize);
    for byte in json.bytes() {
        if in_text {
            in_text = escaped || byte != b'"';
            escaped = byte == b'\\' && !escaped;
            continue;
        }
        in_text = byte == b'"';
        match byte {
            b'0'..=b'9' | b'-' | b'+' | b'.' => length += 1,
            // An exponent; the letters of `true` and `false` follow no digit.
            b'e' | b'E' if length > 0 => return false,
            _ => length = 0,
        }
        if length > EXACT_DIGITS {
            return false;
        }
    }
    true
}

fn add(builder: FingerprintBuilder, value: &Value) -> FingerprintBuilder {
    match value {
        Value::Null => builder.number(0),
        Value::Bool(value) => builder.number(1).number(u64::from(*value)),
        Value::Number(number) => builder.number(2).bytes(number.to_string().as_bytes()),
        Value::String(text) => builder.number(3).bytes(text.as_bytes()),
        Value::Array(values) => {
            let builder = builder.number(4).number(values.len() as u64);
            values.iter().fold(builder, add)
        }
        Value::Object(fields) => {
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            let builder = builder.number(5).number(fields.len() as u64);
            fields
                .into_iter()
                .fold(builder, |builder, (name, value)| add(builder.bytes(name.as_bytes()), value))
        }
    }
}

/// Like [`add`], but hashes numbers as they are written.
fn add_raw(
    builder: FingerprintBuilder,
    raw: &RawValue,
    depth: usize,
) -> Result<FingerprintBuilder, serde_json::Error> {
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'[') if depth < MAX_DEPTH => {
            let values: Vec<&RawValue> = serde_json::from_str(text)?;
            let builder = builder.number(4).number(values.len() as u64);
            values
                .into_iter()
                .try_fold(builder, |builder, value| add_raw(builder, value, depth + 1))
        }
        Some(b'{') if depth < MAX_DEPTH => {
            let fields: BTreeMap<Text<'_>, &RawValue> = serde_json::from_str(text)?;
            let builder = builder.number(5).number(fields.len() as u64);
            fields.into_iter().try_fold(builder, |builder, (Text(name), value)| {
                add_raw(builder.bytes(name.as_bytes()), value, depth + 1)
            })
        }
        Some(b'"') => {
            let Text(text) = serde_json::from_str(text)?;
            Ok(builder.number(3).bytes(text.as_bytes()))
        }
        _ => Ok(builder.number(6).bytes(text.as_bytes())),
    }
}

/// A JSON string, borrowed from the input unless it has escapes.
#[derive(serde::Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    fn of(json: &str) -> Fingerprint {
        fingerprint(json).expect("it is JSON")
    }

    #[test]
    fn a_fingerprint_sees_the_json_and_not_how_it_is_written() {
        assert_eq!(of(r#"{"a":1,"b":[2]}"#), of(r#" {"b": [2], "a": 1}"#));
        assert_eq!(of(r#"["\u0061", true]"#), of(r#"["a",true]"#));
        assert_ne!(of(r#"{"a":1}"#), of(r#"{"a":"1"}"#));
        assert_ne!(of("[[1],2]"), of("[[1,2]]"));
        assert_ne!(of("null"), of("[]"));
    }

    #[test]
    fn numbers_that_a_float_cannot_tell_apart_are_different() {
        assert_ne!(of("[12345678901234567891]"), of("[12345678901234567892]"));
        assert_ne!(of(r#"{"a":0.1234567890123456789}"#), of(r#"{"a":0.1234567890123456788}"#));
        assert_ne!(of("1e400"), of("1e401"));
    }

    #[test]
    fn json_with_large_numbers_is_still_seen_and_not_how_it_is_written() {
        let one = r#"{"n":12345678901234567891,"b":["x",{"c":null,"d":"\u0061"}]}"#;
        let other = r#" { "b" : [ "x", {"d":"a", "c":null} ], "n": 12345678901234567891 } "#;
        assert_eq!(of(one), of(other));
        assert_ne!(of(one), of(&one.replace("null", "\"null\"")));
    }

    #[test]
    fn digits_in_texts_are_no_numbers() {
        assert!(numbers_are_exact(r#"{"id":"12345678901234567891\"1e9","n":-1.5,"t":true}"#));
        assert!(!numbers_are_exact("[1e9]"));
        assert!(!numbers_are_exact("[1234567890123456]"));
    }

    #[test]
    fn deep_json_with_large_numbers_is_read_in_bounded_time() {
        let deep = format!("{}{}{}", "[".repeat(100), "1".repeat(100_000), "]".repeat(100));
        assert_eq!(of(&deep), of(&format!(" {deep}")));
        fingerprint(&"[".repeat(100_000)).expect_err("it is no JSON");
    }
}
