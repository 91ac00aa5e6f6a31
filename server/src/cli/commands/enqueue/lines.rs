//! Reading jobs line by line into batches, on a thread of its own. A line is checked to be one JSON
//! object of a bounded length; what its fields mean is for the server to say.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::sync::mpsc::Sender;

use crate::cli::client::Failure;

/// Jobs in one request, and bytes.
const JOBS: usize = 2_500;
const BYTES: usize = 4 * 1024 * 1024;
/// The longest line: a payload of the largest size, and what else a job may say.
const LINE: u64 = 2 * 1024 * 1024;

/// Lines on their way to the store.
#[derive(Debug, Default)]
pub(super) struct Batch {
    body: Vec<u8>,
    /// The number of each line in it.
    pub(super) numbers: Vec<u64>,
    /// Lines that are not in it, and why.
    pub(super) bad: Vec<(u64, String)>,
    /// How much of the file it covers.
    pub(super) bytes: u64,
}

impl Batch {
    fn add(&mut self, number: u64, job: &[&str]) {
        self.body.extend_from_slice(if self.numbers.is_empty() { b"{\"jobs\":[" } else { b"," });
        for part in job {
            self.body.extend_from_slice(part.as_bytes());
        }
        self.numbers.push(number);
    }

    fn is_full(&self) -> bool {
        self.numbers.len() + self.bad.len() >= JOBS || self.body.len() >= BYTES
    }

    /// The body of `POST /jobs/batch`.
    pub(super) fn take_body(&mut self) -> Bytes {
        let mut body = std::mem::take(&mut self.body);
        body.extend_from_slice(b"]}");
        body.into()
    }
}

/// What is read, and its size if that is known.
pub(super) fn open(name: &str) -> Result<(Box<dyn BufRead + Send>, Option<u64>), Failure> {
    if name == "-" {
        return Ok((Box::new(BufReader::new(io::stdin())), None));
    }
    let failed = |error: io::Error| Failure::usage(format!("{name} cannot be read: {error}"));
    let file = File::open(name).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    Ok((Box::new(BufReader::with_capacity(1 << 18, file)), Some(size)))
}

/// Reads to the end, to the first bad line if it is `strict`, or until the receiver is gone.
pub(super) fn read(
    mut input: Box<dyn BufRead + Send>,
    resume: Option<&str>,
    strict: bool,
    batches: &Sender<Result<Batch, Failure>>,
) {
    let (mut batch, mut number, mut line) = (Batch::default(), 0, Vec::new());
    loop {
        line.clear();
        let read = (&mut input).take(LINE).read_until(b'\n', &mut line);
        number += 1;
        let read = match read {
            Ok(0) => break,
            Ok(read) => read as u64,
            Err(error) => {
                let failure = Failure::failed(format!("line {number} cannot be read: {error}"));
                let _ = batches.blocking_send(Err(failure));
                return;
            }
        };
        batch.bytes += read;
        if read == LINE && line.last() != Some(&b'\n') {
            batch.bad.push((number, format!("is longer than {LINE} bytes")));
            batch.bytes += skip_line(&mut input);
        } else {
            take(&mut batch, number, &line, resume);
        }
        if strict && !batch.bad.is_empty() {
            break;
        }
        if batch.is_full() && batches.blocking_send(Ok(std::mem::take(&mut batch))).is_err() {
            return;
        }
    }
    let _ = batches.blocking_send(Ok(batch));
}

fn skip_line(input: &mut dyn BufRead) -> u64 {
    let mut skipped = 0;
    loop {
        let Ok(buffer) = input.fill_buf() else { return skipped };
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(buffer.len(), |end| end + 1);
        input.consume(length);
        skipped += length as u64;
        if end.is_some() || length == 0 {
            return skipped;
        }
    }
}

/// What has to be known of a job before it is sent.
#[derive(Debug, Deserialize)]
struct Keyed {
    idempotency_key: Option<IgnoredAny>,
}

fn take(batch: &mut Batch, number: u64, line: &[u8], resume: Option<&str>) {
    let Ok(text) = str::from_utf8(line) else {
        batch.bad.push((number, "is not UTF-8".into()));
        return;
    };
    let text = text.trim();
    if text.is_empty() {
        return;
    }
    if !text.starts_with('{') {
        batch.bad.push((number, "is not a JSON object".into()));
        return;
    }
    let keyed: Keyed = match serde_json::from_str(text) {
        Ok(keyed) => keyed,
        Err(error) => {
            // Its own line is always the first; ours is the one that helps.
            let (why, column) = (error.to_string(), error.column());
            let why = why.split(" at line ").next().unwrap_or_default();
            batch.bad.push((number, format!("is not JSON at column {column}: {why}")));
            return;
        }
    };
    match resume {
        Some(name) if keyed.idempotency_key.is_none() => {
            let rest = text[1..].trim_start();
            let comma = if rest.starts_with('}') { "" } else { "," };
            let key = serde_json::json!(format!("{name}:{number}")).to_string();
            batch.add(number, &["{\"idempotency_key\":", &key, comma, rest]);
        }
        _ => batch.add(number, &[text]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(lines: &str, resume: Option<&str>) -> (String, Vec<u64>, Vec<(u64, String)>) {
        let (sender, mut receiver) = tokio::sync::mpsc::channel(100);
        read(Box::new(io::Cursor::new(lines.to_owned())), resume, false, &sender);
        let mut batch = receiver.try_recv().unwrap().unwrap();
        assert_eq!(batch.bytes, lines.len() as u64);
        let body = String::from_utf8(batch.take_body().to_vec()).unwrap();
        (body, batch.numbers, batch.bad)
    }

    #[test]
    fn bad_lines_are_named_and_the_others_taken_as_they_are() {
        let long = "x".repeat(usize::try_from(LINE).unwrap() + 10);
        let text = format!("{{\"kind\":\"a\"}}\n\n[1]\n{{\n{long}\n  {{\"n\":1e400}} ");
        let (body, numbers, bad) = batch(&text, None);
        assert_eq!(body, r#"{"jobs":[{"kind":"a"},{"n":1e400}]}"#);
        assert_eq!(numbers, [1, 6]);
        assert_eq!(bad.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [3, 4, 5]);
    }

    #[test]
    fn a_line_without_a_key_gets_one_of_its_own_when_it_may_be_sent_again() {
        let text = "{}\n{ \"kind\":\"a\"}\n{\"idempotency_key\":\"k\"}\n";
        let (body, ..) = batch(text, Some("n"));
        let expected = [
            r#"{"idempotency_key":"n:1"}"#,
            r#"{"idempotency_key":"n:2","kind":"a"}"#,
            r#"{"idempotency_key":"k"}"#,
        ];
        assert_eq!(body, format!("{{\"jobs\":[{}]}}", expected.join(",")));
    }
}
