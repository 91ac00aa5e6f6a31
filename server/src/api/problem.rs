//! Refusals as RFC 9457 problems. Every kind is named here once; a detail says what to do.

use std::borrow::Cow;
use std::fmt::Display;

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass_core::bulk::BulkRefused;
use windlass_core::machine::Refused;
use windlass_core::store::{AdminRefused, JobRefused};
use windlass_core::{
    EnqueueRefused, JobId, NameError, QueueSettings, Rejected, SettingValue, StaleReason,
};
use windlass_runtime_tokio::Unserved;
use windlass_runtime_tokio::{CommandError, EnqueueError, InvalidJob, ReadError, ReportError};

use crate::api::wire::{Shown, rfc3339};
use crate::http::body::Body;
use crate::http::{guard, router};

/// A kind of problem: its stable name, what it is called, and its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) status: u16,
}

macro_rules! kinds {
    ($($constant:ident = $status:literal $name:literal $title:literal;)*) => {
        $(pub(crate) const $constant: Kind =
            Kind { name: $name, title: $title, status: $status };)*

        /// Every kind there is, for the OpenAPI document and for the tests.
        pub(crate) const ALL: &[Kind] = &[$($constant),*];
    };
}

kinds! {
    BAD_REQUEST = 400 "bad-request" "The request is malformed";
    BAD_JSON = 400 "bad-json" "The body is not JSON";
    UNAUTHORIZED = 401 "unauthorized" "A token is required";
    FORBIDDEN = 403 "forbidden" "The token does not allow this";
    CROSS_SITE = 403 "cross-site" "Cross-site requests are refused";
    KIND_NOT_ALLOWED = 403 "kind-not-allowed" "This kind cannot be enqueued over HTTP";
    NOT_FOUND = 404 "not-found" "The resource does not exist";
    METHOD_NOT_ALLOWED = 405 "method-not-allowed" "The method is not allowed";
    BODY_TIMEOUT = 408 "body-timeout" "The body did not arrive in time";
    IDEMPOTENCY_CONFLICT = 409 "idempotency-conflict" "The idempotency key is in use";
    ILLEGAL_TRANSITION = 409 "illegal-transition" "The state of the job does not allow this";
    LEASE_LOST = 409 "lease-lost" "The lease is lost";
    NOT_A_PROCESS = 409 "not-a-process" "Only worker processes can be asked to stop";
    NOT_A_FILE = 409 "not-a-file" "The store is not a file and cannot be copied";
    QUEUE_NOT_EMPTY = 409 "queue-not-empty" "The queue is not empty";
    BULK_STATE = 409 "bulk-state" "The state of the bulk action does not allow this";
    COUNT_CHANGED = 409 "count-changed" "More jobs match than expected";
    LIMIT_REACHED = 409 "limit-reached" "A limit of the store is reached";
    CHANGED_SINCE = 412 "changed-since" "The resource was changed since it was read";
    TOO_LARGE = 413 "too-large" "The body is too large";
    URI_TOO_LONG = 414 "uri-too-long" "The address is too long";
    UNSUPPORTED_MEDIA_TYPE = 415 "unsupported-media-type" "The body must be JSON";
    MISDIRECTED = 421 "misdirected" "The host name is not one of this server";
    INVALID = 422 "invalid" "A field is not valid";
    HEAD_TOO_LARGE = 431 "head-too-large" "The headers are too many or too large";
    INTERNAL = 500 "internal" "Internal error";
    QUEUE_FULL = 503 "queue-full" "The queue is full";
    SHUTTING_DOWN = 503 "shutting-down" "The server is shutting down";
    OVERLOADED = 503 "overloaded" "The server is overloaded";
    NOT_READY = 503 "not-ready" "The server is not ready";
    STORE_UNAVAILABLE = 503 "store-unavailable" "The store is unavailable";
    OUTCOME_UNKNOWN = 503 "outcome-unknown" "The outcome is unknown";
    STORE_FULL = 507 "store-full" "The store is full";
}

/// A refusal, on its way to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem(Box<Parts>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Parts {
    kind: Kind,
    detail: String,
    errors: Vec<FieldError>,
    job: Option<JobId>,
    matched: Option<u64>,
    settings: Option<QueueSettings>,
    stored: Option<serde_json::Value>,
    reason: Option<StaleReason>,
    retry_after: Option<u32>,
    allow: Option<String>,
    close: bool,
}

/// What is wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct FieldError {
    /// Place in the body, as a JSON pointer; empty for the whole body.
    pub(crate) pointer: String,
    /// What is wrong, and what is allowed.
    pub(crate) detail: String,
}

/// A problem as it is written (RFC 9457).
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub(crate) struct Document {
    /// A stable name: `urn:windlass:error:<name>`.
    #[serde(rename = "type")]
    kind: String,
    /// Title of the kind of problem.
    title: Cow<'static, str>,
    /// Status code of the answer.
    status: u16,
    /// What happened, and what to do.
    detail: String,
    /// What is wrong with which field of the body.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    errors: Vec<FieldError>,
    /// The job concerned, if it is not the one in the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    /// Of `count-changed`, how many jobs there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    matched: Option<u64>,
    /// Of `changed-since`, the settings as they are now.
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<Box<Shown>>,
    /// Of `changed-since` of a server setting, its value in the store; `null` if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stored: Option<serde_json::Value>,
    /// Of `lease-lost`, how the lease ended: `cancelled`, `expired`, `settled` or `timed_out`.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Cow<'static, str>>,
}

impl Document {
    /// Everything that is wrong, on one line.
    pub(crate) fn why(self) -> String {
        if self.errors.len() < 2 {
            return self.detail;
        }
        let each = self.errors.iter().map(|error| format!("{}: {}", error.pointer, error.detail));
        each.collect::<Vec<_>>().join("; ")
    }
}

impl Problem {
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        let retry_after = (kind.status == 503).then_some(1);
        Self(Box::new(Parts {
            kind,
            detail: detail.into(),
            errors: Vec::new(),
            job: None,
            matched: None,
            settings: None,
            stored: None,
            reason: None,
            retry_after,
            allow: None,
            close: false,
        }))
    }

    /// Fields that are not valid.
    pub(crate) fn fields(errors: Vec<FieldError>) -> Self {
        let detail = match errors.as_slice() {
            [one] if one.pointer.is_empty() => one.detail.clone(),
            [one] => format!("{}: {}", one.pointer, one.detail),
            many => format!("{} fields are not valid; `errors` names each", many.len()),
        };
        let mut problem = Self::new(INVALID, detail);
        problem.0.errors = errors;
        problem
    }

    /// One field that is not valid.
    pub(crate) fn field(pointer: &str, detail: impl Display) -> Self {
        Self::fields(vec![FieldError { pointer: pointer.into(), detail: format!("{detail}") }])
    }

    pub(crate) fn no_job(id: JobId) -> Self {
        Self::new(NOT_FOUND, JobRefused::NotFound(id).to_string())
    }

    /// More jobs match than were expected.
    pub(crate) fn count_changed(matched: u64, expected: u64) -> Self {
        let detail = format!(
            "there are {matched} jobs, not {expected}; look again, and send `expect` {matched}"
        );
        let mut problem = Self::new(COUNT_CHANGED, detail);
        problem.0.matched = Some(matched);
        problem
    }

    /// A server setting is not the one that was read before.
    fn setting_changed(name: &str, stored: Option<&SettingValue>) -> Self {
        let stored = stored.map(SettingValue::as_str);
        let now = stored.map_or_else(|| "was removed".into(), |value| format!("is now {value}"));
        let detail = format!("`{name}` {now} in the store; read it again before you change it");
        let mut problem = Self::new(CHANGED_SINCE, detail);
        problem.0.stored = Some(stored.into());
        problem
    }

    /// The connection ends with this answer: the rest of the request is not read.
    pub(crate) fn closing(mut self) -> Self {
        self.0.close = true;
        self
    }

    pub(crate) fn allowing(mut self, methods: String) -> Self {
        self.0.allow = Some(methods);
        self
    }

    pub(crate) fn kind(&self) -> Kind {
        self.0.kind
    }

    #[cfg(test)]
    pub(crate) fn errors(&self) -> &[FieldError] {
        &self.0.errors
    }

    #[cfg(test)]
    pub(crate) fn detail(&self) -> &str {
        &self.0.detail
    }

    pub(crate) fn document(&self) -> Document {
        Document {
            kind: format!("urn:windlass:error:{}", self.0.kind.name),
            title: self.0.kind.title.into(),
            status: self.0.kind.status,
            detail: self.0.detail.clone(),
            errors: self.0.errors.clone(),
            id: self.0.job.map(JobId::get),
            matched: self.0.matched,
            settings: self.0.settings.as_ref().map(|settings| Box::new(Shown::of(settings))),
            stored: self.0.stored.clone(),
            reason: self.0.reason.map(|reason| reason.as_str().into()),
        }
    }

    pub(crate) fn into_response(self) -> http::Response<Body> {
        let json = serde_json::to_vec(&self.document()).unwrap_or_default();
        let mut response = http::Response::new(Body::full(Bytes::from(json)));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.0.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(allow) = self.0.allow.and_then(|text| HeaderValue::try_from(text).ok()) {
            headers.insert(ALLOW, allow);
        }
        if self.0.close {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if self.0.kind == UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }

    /// The whole answer as it goes over the wire, for those whose request was not read.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        let mut response = self.closing().into_response();
        guard::protect(&mut response);
        let (head, body) = response.into_parts();
        let body = body.into_bytes();
        let reason = head.status.canonical_reason().unwrap_or_default();
        let mut bytes = format!("HTTP/1.1 {} {reason}\r\n", head.status.as_u16()).into_bytes();
        for (name, value) in &head.headers {
            bytes.extend_from_slice(name.as_str().as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value.as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
        let id = router::new_request_id();
        let rest = format!("x-request-id: {id}\r\ncontent-length: {}\r\n\r\n", body.len());
        bytes.extend_from_slice(rest.as_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }

    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.0.kind.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn about(mut self, job: JobId) -> Self {
        self.0.job = Some(job);
        self
    }

    fn retry_after(mut self, seconds: u32) -> Self {
        self.0.retry_after = Some(seconds);
        self
    }
}

impl From<Unserved> for Problem {
    fn from(unserved: Unserved) -> Self {
        let kind = match &unserved {
            Unserved::Refused(Refused::ShuttingDown) | Unserved::Stopped => SHUTTING_DOWN,
            Unserved::Refused(Refused::Overloaded { .. }) => OVERLOADED,
            Unserved::Refused(Refused::TooMany { .. }) => TOO_LARGE,
            Unserved::Refused(Refused::StoreFull(_)) => STORE_FULL,
            Unserved::Refused(Refused::Unavailable(_)) => STORE_UNAVAILABLE,
            Unserved::Refused(Refused::Unknown(_)) | Unserved::Died(_) => OUTCOME_UNKNOWN,
        };
        let problem = Self::new(kind, unserved.to_string());
        if kind == SHUTTING_DOWN { problem.retry_after(5) } else { problem }
    }
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Self {
        let kind = match error {
            ReadError::Store(_) => STORE_UNAVAILABLE,
            ReadError::Stopped => SHUTTING_DOWN,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<EnqueueRefused> for Problem {
    fn from(refused: EnqueueRefused) -> Self {
        match refused {
            EnqueueRefused::QueueFull { .. } => {
                Self::new(QUEUE_FULL, refused.to_string()).retry_after(5)
            }
            EnqueueRefused::IdempotencyConflict { existing } => {
                Self::new(IDEMPOTENCY_CONFLICT, refused.to_string()).about(existing)
            }
            EnqueueRefused::TooFarAhead { latest, .. } => {
                let latest = rfc3339(latest);
                Self::field("/run_at", format!("is more than ten years ahead; at most {latest}"))
            }
            EnqueueRefused::TooManyQueues(_) => Self::new(LIMIT_REACHED, refused.to_string()),
            EnqueueRefused::TooManyKinds { .. } => Self::field("/kind", refused),
        }
    }
}

impl From<EnqueueError> for Problem {
    fn from(error: EnqueueError) -> Self {
        match error {
            EnqueueError::Invalid(invalid) => invalid.into(),
            EnqueueError::Refused(refused) => refused.into(),
            EnqueueError::Unserved(unserved) => unserved.into(),
        }
    }
}

impl From<InvalidJob> for Problem {
    fn from(invalid: InvalidJob) -> Self {
        let pointer = match &invalid {
            InvalidJob::Name(error) => format!("/{}", error.field),
            InvalidJob::OutOfRange(error) => format!("/{}", error.field),
            InvalidJob::Json(_) | InvalidJob::Payload(_) => "/payload".into(),
        };
        Self::field(&pointer, invalid)
    }
}

impl From<JobRefused> for Problem {
    fn from(refused: JobRefused) -> Self {
        let (kind, reason) = match refused {
            JobRefused::NotFound(_) => (NOT_FOUND, None),
            JobRefused::Rejected(Rejected::Stale { reason, .. }) => (LEASE_LOST, Some(reason)),
            JobRefused::Rejected(_) => (ILLEGAL_TRANSITION, None),
        };
        let mut problem = Self::new(kind, refused.to_string());
        problem.0.reason = reason;
        problem
    }
}

impl From<ReportError> for Problem {
    fn from(error: ReportError) -> Self {
        match error {
            ReportError::Refused(refused) => refused.into(),
            ReportError::Unserved(unserved) => unserved.into(),
        }
    }
}

impl From<AdminRefused> for Problem {
    fn from(refused: AdminRefused) -> Self {
        let kind = match &refused {
            AdminRefused::Job(refused) => return (*refused).into(),
            AdminRefused::TooManyQueues(_) | AdminRefused::TooManyKindLimits(_) => LIMIT_REACHED,
            AdminRefused::Bulk(refused) => match refused {
                BulkRefused::NotFound(_) => NOT_FOUND,
                BulkRefused::TooMany => LIMIT_REACHED,
                BulkRefused::NotHeld(_) | BulkRefused::Ended(_) => BULK_STATE,
            },
            AdminRefused::QueueHasJobs { .. } => QUEUE_NOT_EMPTY,
            AdminRefused::SettingsChanged(_) => CHANGED_SINCE,
            AdminRefused::SettingChanged { key, value } => {
                return Self::setting_changed(key.as_str(), value.as_ref());
            }
            AdminRefused::NoWorker(_) | AdminRefused::NoQueue(_) => NOT_FOUND,
        };
        let mut problem = Self::new(kind, refused.to_string());
        if let AdminRefused::SettingsChanged(settings) = refused {
            problem.0.settings = Some(*settings);
        }
        problem
    }
}

impl From<CommandError> for Problem {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::Name(error) => error.into(),
            CommandError::Refused(refused) => refused.into(),
            CommandError::Unserved(unserved) => unserved.into(),
        }
    }
}

impl From<NameError> for Problem {
    fn from(error: NameError) -> Self {
        Self::field(&format!("/{}", error.field), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_problem_has_a_name_of_its_own() {
        let mut names: Vec<&str> = ALL.iter().map(|kind| kind.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }

    #[test]
    fn a_refusal_that_may_pass_says_when_to_come_back() {
        for kind in ALL.iter().filter(|kind| kind.status == 503) {
            let response = Problem::new(*kind, "").into_response();
            assert!(response.headers().contains_key(RETRY_AFTER), "{}", kind.name);
        }
    }
}
