//! The one client behind every command: the HTTP contract, answered by a server or, in this
//! process, by the very handlers a server runs. A command cannot tell which.

mod direct;
mod download;
mod failure;
mod http;
mod verifier;

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use ::http::Method;
use bytes::{Bytes, BytesMut};
use serde::de::DeserializeOwned;

use crate::cli::Target;

use direct::Direct;
pub(crate) use failure::Failure;
use http::Http;

/// Answers from a store opened by this process, or from a server.
#[derive(Debug, Clone)]
pub(crate) enum Client {
    /// The store, opened by this process: to read, until something is written.
    Direct(Arc<Direct>),
    Http(Arc<Http>),
}

/// What a command expects of a store that it works on itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    /// It must exist: looking at a store does not make one. It is opened to read.
    Exists,
    /// It is made if it does not exist, and opened to write.
    Made,
}

/// A good answer: what the route sends with a status below 300.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) body: Bytes,
}

impl Reply {
    /// The answer in a shape.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.body).map_err(|error| {
            Failure::failed(format!(
                "the answer is not as expected: {error}; is the server another version?"
            ))
        })
    }
}

/// A query of these names and values; those without a value are left out.
pub(crate) fn query(pairs: &[(&str, Option<&str>)]) -> String {
    let given = pairs.iter().filter_map(|(name, value)| value.map(|value| (name, value)));
    let given: Vec<String> =
        given.map(|(name, value)| format!("{name}={}", segment(value))).collect();
    if given.is_empty() { String::new() } else { format!("?{}", given.join("&")) }
}

/// A text as a part of an address.
pub(crate) fn segment(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(byte));
            }
            byte => drop(write!(escaped, "%{byte:02X}")),
        }
    }
    escaped
}

impl Client {
    /// Opens the store, or gets ready to ask the server: it is reached with the first call.
    pub(crate) fn open(
        target: &Target,
        token: Option<String>,
        store: Store,
    ) -> Result<Self, Failure> {
        match &target.server {
            Some(url) => {
                let http = Http::new(url, token, target.ca.as_deref())?;
                Ok(Self::Http(Arc::new(http)))
            }
            None => Ok(Self::Direct(Arc::new(Direct::open(&target.store, store)?))),
        }
    }

    /// Makes a request of the contract. Whatever is refused is a failure that says why.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<Reply, Failure> {
        let (status, body) = match self {
            Self::Direct(direct) => direct.call(&method, path, body.into()).await?,
            Self::Http(http) => http.call(&method, path, body.into()).await?,
        };
        if status.is_success() {
            return Ok(Reply { body });
        }
        Err(Failure::problem(status, body))
    }

    /// A GET request; any status but success is a failure.
    pub(crate) async fn get(&self, path: &str) -> Result<Reply, Failure> {
        self.call(Method::GET, path, Bytes::new()).await
    }

    /// Reads something that takes as long as the store is large.
    pub(crate) async fn get_slowly(&self, path: &str) -> Result<Reply, Failure> {
        let Self::Http(http) = self else { return self.get(path).await };
        let mut body = BytesMut::new();
        http.download(path, async |piece| {
            body.extend_from_slice(&piece);
            Ok(())
        })
        .await?;
        Ok(Reply { body: body.freeze() })
    }

    /// Copies the store to a file that does not exist yet, for its owner alone, and syncs it.
    pub(crate) async fn backup(&self, to: &Path) -> Result<(), Failure> {
        match self {
            Self::Direct(direct) => direct.backup(to).await,
            Self::Http(http) => http.backup(to).await,
        }
    }

    /// A POST request with a JSON body; any status but success is a failure.
    pub(crate) async fn post(&self, path: &str, body: impl Into<Bytes>) -> Result<Reply, Failure> {
        self.call(Method::POST, path, body).await
    }

    /// Ends in order: the store is closed, and nothing is left behind.
    pub(crate) async fn end(self) {
        if let Self::Direct(direct) = self {
            direct.end().await;
        }
    }
}
