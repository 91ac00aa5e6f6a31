//! The payload of a `webhook` job, and the request made from it.

use std::collections::BTreeMap;

use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::{Method, Request, Uri};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The payload, not checked yet.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Payload {
    url: String,
    method: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// A string is sent without quotes, any other value as the JSON that was enqueued.
    body: Option<Box<RawValue>>,
}

/// Headers that a job may not set: those of the connection, and the signed ones.
const OURS: [&str; 14] = [
    "host",
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length",
    "webhook-id",
    "webhook-timestamp",
    "webhook-signature",
];

/// Maximum number of headers that a job may set.
const HEADERS: usize = 64;

impl Payload {
    /// Makes the request; an error is permanent. It names fields and repeats no values of the
    /// payload, which may be secret.
    pub(super) fn request(self) -> Result<Request<String>, String> {
        let uri: Uri = self
            .url
            .parse()
            .map_err(|_| "`url` is not a URL; write it like https://example.org/hook".to_owned())?;
        check_address(&uri)?;
        let method = match self.method.as_deref() {
            None => Method::POST,
            Some("GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE") => {
                let given = self.method.as_deref().unwrap_or_default().as_bytes();
                Method::from_bytes(given).map_err(|_| "`method` is not valid".to_owned())?
            }
            Some(_) => {
                return Err("`method` must be GET, HEAD, POST, PUT, PATCH or DELETE".into());
            }
        };
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        let body = content(self.body.as_deref(), &mut headers)?;
        if self.headers.len() > HEADERS {
            return Err(format!("`headers` has more than {HEADERS} entries"));
        }
        for (name, value) in self.headers {
            let name = HeaderName::try_from(&name)
                .map_err(|_| format!("{name:?} is not a valid header name"))?;
            if OURS.contains(&name.as_str()) {
                return Err(format!("the header `{name}` cannot be set"));
            }
            let value = HeaderValue::try_from(value).map_err(|_| {
                format!("the value of the header `{name}` contains a character that is not allowed")
            })?;
            headers.insert(name, value);
        }
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        Ok(request)
    }
}

const AGENT: &str = concat!("windlass/", env!("CARGO_PKG_VERSION"));

fn check_address(uri: &Uri) -> Result<(), String> {
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err("`url` must begin with https:// or http://".into());
    }
    let authority = uri.authority().ok_or("`url` names no host")?;
    if authority.as_str().contains('@') {
        return Err("`url` holds a name or a password; send them in a header".into());
    }
    if authority.host().is_empty() {
        return Err("`url` names no host".into());
    }
    Ok(())
}

fn content(body: Option<&RawValue>, headers: &mut HeaderMap) -> Result<String, String> {
    let Some(body) = body else { return Ok(String::new()) };
    let (body, kind) = if body.get().starts_with('"') {
        let text = serde_json::from_str(body.get());
        (text.map_err(|_| "`body` is not a valid string")?, "text/plain; charset=utf-8")
    } else {
        (body.get().to_owned(), "application/json")
    };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(json: &str) -> Result<Request<String>, String> {
        // As the runtime decodes it.
        let payload: Payload =
            serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(json))
                .map_err(|error| error.to_string())?;
        payload.request()
    }

    #[test]
    fn a_body_is_sent_as_it_was_written() {
        let json = r#"{"url":"https://a.example/x?y","body":{"n":12345678901234567890123}}"#;
        let sent = request(json).unwrap();
        assert_eq!(
            (sent.method(), sent.body().as_str()),
            (&Method::POST, r#"{"n":12345678901234567890123}"#)
        );
        assert_eq!(sent.headers()[CONTENT_TYPE], "application/json");
        assert_eq!(sent.headers()[USER_AGENT], AGENT);
        let json =
            r#"{"url":"http://a","method":"PUT","body":"a\nb","headers":{"Content-Type":"x"}}"#;
        let sent = request(json).unwrap();
        assert_eq!((sent.method(), sent.body().as_str()), (&Method::PUT, "a\nb"));
        assert_eq!(sent.headers()[CONTENT_TYPE], "x");
        assert_eq!(request(r#"{"url":"http://a"}"#).unwrap().body(), "");
    }

    #[test]
    fn what_cannot_be_sent_is_refused_and_secrets_are_not_repeated() {
        for (field, text) in [
            ("url", r#""file:///etc/passwd""#),
            ("url", r#""ftp://a/""#),
            ("url", r#""/path""#),
            ("url", r#""http://user:canary@a/""#),
            ("url", r#""http://a\r\nhost: b/""#),
            ("url", r#""http://""#),
            ("method", r#""CONNECT""#),
            ("method", r#""post""#),
            ("method", r#""POST /canary HTTP/1.1""#),
            ("headers", r#"{"host":"canary"}"#),
            ("headers", r#"{"Transfer-Encoding":"chunked"}"#),
            ("headers", r#"{"Content-Length":"1"}"#),
            ("headers", r#"{"webhook-signature":"v1,canary"}"#),
            ("headers", r#"{"x":"canary\r\nhost: b"}"#),
            ("headers", r#"{"x\r\ny":"canary"}"#),
            ("headers", r#"{"x":7}"#),
            ("follow", "true"),
        ] {
            let json = match field {
                "url" => format!(r#"{{"url":{text}}}"#),
                _ => format!(r#"{{"url":"http://a","{field}":{text}}}"#),
            };
            let refused = request(&json).unwrap_err();
            assert!(!refused.contains("canary"), "{refused}");
        }
    }
}
