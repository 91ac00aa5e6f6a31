//! What the dead letters of an error group have in common: values in their payloads, the worker,
//! the exit code. A pure function of a bounded sample.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use windlass_core::{Payload, WorkerId};

use crate::api::wire::Shared;

/// How deep payloads are looked into, how many values of each, and how long these may be.
const DEPTH: usize = 4;
const VALUES: usize = 100;
const VALUE_BYTES: usize = 200;
/// Maximum number of shared values that are returned.
const MOST_SHARED: usize = 20;

/// The compared parts of a dead letter.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) payload: Payload,
    pub(crate) worker: Option<WorkerId>,
    pub(crate) exit_code: Option<i32>,
}

/// A place and a value as JSON.
type Fact = (&'static str, Option<String>, String);

/// What at least half of them share, and more than one; most first.
pub(crate) fn shared(samples: &[Sample]) -> Vec<Shared> {
    let mut counts: BTreeMap<Fact, usize> = BTreeMap::new();
    for sample in samples {
        for fact in facts(sample) {
            *counts.entry(fact).or_default() += 1;
        }
    }
    let least = samples.len().div_ceil(2).max(2);
    let mut found: Vec<(Fact, usize)> =
        counts.into_iter().filter(|(_, count)| *count >= least).collect();
    found.sort_by(|(a, n), (b, m)| m.cmp(n).then_with(|| a.cmp(b)));
    found.truncate(MOST_SHARED);
    let shared = found.into_iter().filter_map(|((place, path, value), count)| {
        Shared::new(place, path, &value, share(count, samples.len()))
    });
    shared.collect()
}

#[expect(clippy::cast_precision_loss, reason = "there are a few hundred")]
fn share(count: usize, of: usize) -> f64 {
    (count as f64 / of as f64 * 1e3).round() / 1e3
}

fn facts(sample: &Sample) -> Vec<Fact> {
    let mut facts = Vec::new();
    if let Ok(payload) = serde_json::from_str::<&RawValue>(sample.payload.as_str()) {
        values(payload, &mut String::new(), 0, &mut facts);
    }
    let worker = sample.worker.as_ref().map(|worker| format!("\"{worker}\""));
    facts.extend(worker.map(|worker| ("worker", None, worker)));
    facts.extend(sample.exit_code.map(|code| ("exit_code", None, code.to_string())));
    facts
}

/// The texts, numbers and truth values of a document, each with its pointer, as they were written.
fn values(json: &RawValue, path: &mut String, depth: usize, facts: &mut Vec<Fact>) {
    let text = json.get();
    if facts.len() >= VALUES {
        return;
    }
    if !text.starts_with(['{', '[']) {
        if text.len() <= VALUE_BYTES {
            facts.push(("payload", Some(path.clone()), text.into()));
        }
        return;
    }
    if depth >= DEPTH {
        return;
    }
    for (name, value) in parts(text) {
        let length = path.len();
        path.push('/');
        path.push_str(&name.replace('~', "~0").replace('/', "~1"));
        values(value, path, depth + 1, facts);
        path.truncate(length);
    }
}

/// The values of an object by name, or of an array by number.
fn parts(text: &str) -> Vec<(String, &RawValue)> {
    if text.starts_with('[') {
        let array: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
        let numbered = array.into_iter().take(VALUES).enumerate();
        return numbered.map(|(at, value)| (at.to_string(), value)).collect();
    }
    let object: BTreeMap<String, &RawValue> = serde_json::from_str(text).unwrap_or_default();
    object.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(payload: &str, worker: &str, exit_code: Option<i32>) -> Sample {
        let worker = WorkerId::new(worker).ok();
        Sample { payload: Payload::new(payload).unwrap(), worker, exit_code }
    }

    fn lines(samples: &[Sample]) -> Vec<String> {
        let line = |shared: &Shared| {
            let path = shared.path.as_deref().unwrap_or("");
            format!("{} {path} {} {}", shared.place, shared.value.as_str(), shared.share)
        };
        shared(samples).iter().map(line).collect()
    }

    #[test]
    fn what_at_least_half_share_is_reported_most_first() {
        let samples = [
            sample(r#"{"to":{"a/b":9007199254740993001},"n":1}"#, "w1", Some(3)),
            sample(r#"{"to":{"a/b":9007199254740993001},"n":2}"#, "w1", Some(3)),
            sample(r#"{"to":{"a/b":7},"n":3}"#, "w2", Some(3)),
        ];
        let wanted = [
            "exit_code  3 1",
            "payload /to/a~1b 9007199254740993001 0.667",
            "worker  \"w1\" 0.667",
        ];
        assert_eq!(lines(&samples), wanted);
    }

    #[test]
    fn values_of_an_array_are_found_by_their_place() {
        let samples = [
            sample(r#"{"argv":["curl","http://a","-s"]}"#, "w1", None),
            sample(r#"{"argv":["curl","http://b","-s"]}"#, "w2", None),
        ];
        assert_eq!(lines(&samples), [r#"payload /argv/0 "curl" 1"#, r#"payload /argv/2 "-s" 1"#]);
    }

    #[test]
    fn one_dead_letter_shares_nothing_and_odd_payloads_do_no_harm() {
        assert_eq!(lines(&[sample(r#"{"a":1}"#, "w1", None)]), [] as [&str; 0]);
        let deep = format!("{}1{}", r#"{"a":"#.repeat(100), "}".repeat(100));
        for payload in [deep.as_str(), "[1,2]", "null", r#"{"":{"~":"x"}}"#, "no JSON"] {
            lines(&vec![sample(payload, "w1", None); 3]);
        }
    }
}
