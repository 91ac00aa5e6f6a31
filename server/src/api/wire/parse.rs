//! Reading what clients send: bodies, queries, ids. Whatever is wrong is named with its place.

use std::fmt::Display;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_path_to_error::Segment;
use windlass_core::{JobId, LeaseToken, OutOfRange, Payload};

use crate::api::problem::{self, FieldError, Problem};
use crate::http::limits::JSON_DEPTH;

/// Reads a body. Unknown, doubled and ill-typed fields are refused by name.
pub(crate) fn json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Problem> {
    refuse_list(body, || "send an object, not a list".into())?;
    // Tracking the path of each value costs more than reading it: only a refused body is read so.
    serde_json::from_slice(body).or_else(|_| explained(body))
}

/// Reads a body whose one field is a list.
pub(crate) fn json_with_list<'a, T: Deserialize<'a>>(
    body: &'a [u8],
    field: &str,
) -> Result<T, Problem> {
    refuse_list(body, || format!("send the list in an object: {{\"{field}\":[...]}}"))?;
    json(body)
}

/// Refuses a bare list, which serde would take for the fields in their order.
fn refuse_list(body: &[u8], detail: impl FnOnce() -> String) -> Result<(), Problem> {
    if body.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'[') {
        return Ok(());
    }
    let _: IgnoredAny = serde_json::from_slice(body).map_err(|error| not_json(&error))?;
    Err(Problem::field("", detail()))
}

/// The same, with the place of what is wrong.
fn explained<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Problem> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let pointer = pointer(error.path());
        let error = error.into_inner();
        if error.is_data() {
            Problem::fields(vec![FieldError { pointer, detail: error.to_string() }])
        } else {
            not_json(&error)
        }
    })?;
    deserializer.end().map_err(|error| not_json(&error))?;
    Ok(value)
}

fn not_json(error: &serde_json::Error) -> Problem {
    Problem::new(problem::BAD_JSON, format!("the body is not JSON: {error}"))
}

fn pointer(path: &serde_path_to_error::Path) -> String {
    path.iter()
        .filter_map(|segment| match segment {
            Segment::Seq { index } => Some(format!("/{index}")),
            Segment::Map { key } => Some(format!("/{}", escape(key))),
            Segment::Enum { .. } | Segment::Unknown => None,
        })
        .collect()
}

pub(super) fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// What is wrong with the fields of a body, gathered.
#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<FieldError>);

impl Faults {
    pub(crate) fn add(&mut self, pointer: &str, detail: impl Display) {
        self.0.push(FieldError { pointer: pointer.into(), detail: detail.to_string() });
    }

    /// The value, or nothing and a fault.
    pub(crate) fn check<T, E: Display>(&mut self, pointer: &str, value: Result<T, E>) -> Option<T> {
        value.map_err(|error| self.add(pointer, error)).ok()
    }

    /// The same for a value that may be absent.
    pub(crate) fn maybe<T, E: Display>(
        &mut self,
        pointer: &str,
        value: Option<Result<T, E>>,
    ) -> Option<T> {
        value.and_then(|value| self.check(pointer, value))
    }

    /// A number with bounds, as core checks them.
    pub(crate) fn number<N: TryFrom<i64>, T>(
        &mut self,
        field: &'static str,
        given: Option<i64>,
        bounds: (impl Into<i128>, impl Into<i128>),
        new: impl FnOnce(N) -> Result<T, OutOfRange>,
    ) -> Option<T> {
        let given = given?;
        let (min, max) = (bounds.0.into(), bounds.1.into());
        let number = N::try_from(given);
        let number =
            number.map_err(|_| OutOfRange { field, given: given.into(), min, max }).and_then(new);
        self.check(&format!("/{field}"), number)
    }

    /// JSON that is kept as it came.
    pub(crate) fn raw(&mut self, pointer: &str, json: Option<&RawValue>) -> Option<Payload> {
        let json = json?.get();
        if depth(json) > JSON_DEPTH {
            self.add(pointer, format!("is nested more than {JSON_DEPTH} levels deep; flatten it"));
            return None;
        }
        self.check(pointer, Payload::new(json))
    }

    /// Refuses if anything was wrong.
    pub(crate) fn refuse(self) -> Result<(), Problem> {
        if self.0.is_empty() { Ok(()) } else { Err(Problem::fields(self.0)) }
    }
}

/// How deep a JSON text is nested.
fn depth(json: &str) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// The id in a path. What is not an id names no job.
pub(crate) fn job_id(text: &str) -> Result<JobId, Problem> {
    text.parse().map_err(|error: windlass_core::ParseIdError| {
        Problem::new(problem::NOT_FOUND, error.to_string())
    })
}

/// The token of a report about this job.
pub(crate) fn token(text: &str, job: JobId) -> Result<LeaseToken, Problem> {
    let token = LeaseToken::from_str(text).map_err(|error| Problem::field("/token", error))?;
    if token.job == job {
        return Ok(token);
    }
    let detail = format!("belongs to job {}, not to job {job}; use it there", token.job);
    Err(Problem::field("/token", detail))
}

/// The part of an address behind the question mark. Unknown and doubled names are refused.
#[derive(Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: &str, allowed: &[&str]) -> Result<Self, Problem> {
        let mut found: Vec<(String, String)> = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Some(name), Some(value)) = (unescape(name), unescape(value)) else {
                return Err(bad_query("is not percent-encoded UTF-8"));
            };
            if !allowed.contains(&name.as_str()) {
                let allowed = allowed.join(", ");
                return Err(bad_query(&format!("has an unknown name; allowed are: {allowed}")));
            }
            if found.iter().any(|(known, _)| *known == name) {
                return Err(bad_query(&format!("names `{name}` twice")));
            }
            found.push((name, value));
        }
        Ok(Self(found))
    }

    /// A value; an empty one counts as absent.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }
}

fn bad_query(detail: &str) -> Problem {
    Problem::new(problem::INVALID, format!("the query {detail}"))
}

/// A part of a path, unescaped; as it is if it cannot be.
pub(crate) fn unescaped(text: &str) -> String {
    // In a path, a plus is a plus.
    unescape(&text.replace('+', "%2B")).unwrap_or_else(|| text.into())
}

fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let pair = [rest.next()?, rest.next()?];
                u8::from_str_radix(str::from_utf8(&pair).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Shape<'a> {
        #[serde(borrow)]
        any: Option<&'a RawValue>,
        #[expect(dead_code, reason = "only its type matters")]
        list: Option<Vec<u8>>,
    }

    #[test]
    fn json_of_any_kind_is_kept_as_it_came() {
        for text in ["12345678901234567890123.50", r#"{ "b":1, "a" : [] }"#, "1e400", "null"] {
            let body = format!(r#"{{"any": {text} }}"#);
            let shape: Shape<'_> = json(body.as_bytes()).unwrap();
            assert_eq!(shape.any.map_or("null", RawValue::get), text);
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let error = json::<Shape<'_>>(br#"{"list":[1,"x"]}"#).unwrap_err();
        assert_eq!(error.errors()[0].pointer, "/list/1");
        let error = json::<Shape<'_>>(br#"{"lost":1}"#).unwrap_err();
        assert!(error.errors()[0].detail.contains("`lost`"), "{}", error.errors()[0].detail);
        let error = json::<Shape<'_>>(br#"{"list":[],"list":[]}"#).unwrap_err();
        assert!(error.detail().contains("duplicate field"), "{}", error.detail());
    }

    #[test]
    fn what_is_not_json_is_refused_as_such() {
        let deep = "[".repeat(100_000);
        for body in ["", "{", "{}{}", "nul", "\u{feff}{}", deep.as_str()] {
            let error = json::<IgnoredAny>(body.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), problem::BAD_JSON, "{body:.20}");
        }
        let error = json::<Shape<'_>>(br#"{"any":"\xff"}"#).unwrap_err();
        assert_eq!(error.kind(), problem::BAD_JSON);
    }

    #[test]
    fn depth_counts_brackets_outside_of_strings() {
        assert_eq!(depth(r#"{"a":["[[[[\"[[["]}"#), 2);
        assert_eq!(depth("1"), 0);
        let body = format!(r#"{{"any":{}{}}}"#, "[".repeat(129), "]".repeat(129));
        let shape: Shape<'_> = json(body.as_bytes()).unwrap();
        let mut faults = Faults::default();
        assert_eq!(faults.raw("/any", shape.any), None);
        assert!(faults.refuse().unwrap_err().detail().contains("128 levels"));
    }

    #[test]
    fn a_query_is_unescaped_and_unknown_or_doubled_names_are_refused() {
        let query = Query::parse("a=x%20y+z&b=", &["a", "b"]).unwrap();
        assert_eq!((query.get("a"), query.get("b")), (Some("x y z"), None));
        for text in ["c=1", "a=1&a=2", "a=%ff", "a=%4", "a=%zz"] {
            assert_eq!(Query::parse(text, &["a"]).unwrap_err().kind(), problem::INVALID, "{text}");
        }
    }

    #[test]
    fn a_token_of_another_job_is_named() {
        let job = job_id("7").unwrap();
        assert!(token("7.1", job).is_ok());
        assert!(token("8.1", job).unwrap_err().detail().contains("belongs to job 8"));
        assert_eq!(token("x", job).unwrap_err().errors()[0].pointer, "/token");
        for text in ["0", "-1", "x", "18446744073709551615", "1e3", "007"] {
            assert_eq!(job_id(text).unwrap_err().kind(), problem::NOT_FOUND, "{text}");
        }
    }
}
