//! Answers in gzip, for clients that take it.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, ETAG, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::Body as _;

use crate::http::body::Body;

/// Answers that are shorter are sent as they are.
const LEAST: u64 = 1024;
/// Longer ones are compressed by a thread that may take its time.
const ASIDE: usize = 64 * 1024;

/// Whether a client takes gzip: it names it, and does not exclude it with a weight of zero.
pub(crate) fn is_taken(asked: &HeaderMap) -> bool {
    let accepted = asked.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    accepted.unwrap_or_default().split(',').any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").and_then(|text| text.parse::<f32>().ok());
        name.trim().eq_ignore_ascii_case("gzip") && weight.is_none_or(|weight| weight > 0.0)
    })
}

pub(crate) fn compressed(bytes: &[u8], level: Compression) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), level);
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.expect("a vector takes every byte").into()
}

/// Marks an answer as one in gzip, or as one that would be for other clients.
pub(crate) fn mark(headers: &mut HeaderMap, zipped: bool) {
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    if zipped {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
}

/// Compresses an answer in JSON if the client takes that, and it is long enough. Streams and
/// answers with an `ETag`, which names the bytes as they are, stay so.
pub(crate) async fn answer(mut response: Response<Body>, taken: bool) -> Response<Body> {
    let headers = response.headers();
    let json = headers.get(CONTENT_TYPE).is_some_and(|of| of == "application/json");
    let long = response.body().size_hint().exact().is_some_and(|length| length >= LEAST);
    if response.status() != StatusCode::OK || !json || !long || headers.contains_key(ETAG) {
        return response;
    }
    mark(response.headers_mut(), false);
    if !taken {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let plain = body.into_bytes();
    let zipped = if plain.len() < ASIDE {
        Ok(compressed(&plain, Compression::fast()))
    } else {
        let plain = plain.clone();
        tokio::task::spawn_blocking(move || compressed(&plain, Compression::fast())).await
    };
    // A server that ends starts no more threads.
    let body = match zipped {
        Ok(zipped) => {
            mark(&mut head.headers, true);
            zipped
        }
        Err(_) => plain,
    };
    Response::from_parts(head, Body::full(body))
}
