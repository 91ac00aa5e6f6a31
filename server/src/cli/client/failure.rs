//! Why a command did not succeed: what is said on standard error, and the exit code.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;

use windlass_runtime_tokio::StartError;

use crate::api::problem::FieldError;
use crate::cli::out::{escaped, escaped_lines};
use crate::store::OpenError;

/// Why a command did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The contract's own refusal.
    Problem(Problem),
    /// Something on this side.
    Here { exit: Exit, detail: String },
    /// The reader of the output has closed it.
    PipeClosed,
}

/// The exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Failed = 1,
    Usage = 2,
    NotFound = 3,
    Conflict = 4,
    NotAllowed = 5,
    Unreachable = 6,
    /// As `timeout(1)` has it.
    TimedOut = 124,
}

/// A problem document, as text and as far as it is understood.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    text: Bytes,
    parts: Parts,
}

#[derive(Debug, Default, Deserialize)]
struct Parts {
    #[serde(rename = "type", default)]
    kind: String,
    detail: String,
    #[serde(default)]
    errors: Vec<FieldError>,
}

impl Failure {
    pub(crate) fn problem(status: StatusCode, text: Bytes) -> Self {
        let parts = serde_json::from_slice(&text).unwrap_or_else(|_| {
            let detail = format!("the answer was {status}, from something that is not Windlass");
            Parts { detail: format!("{detail}; check the address"), ..Parts::default() }
        });
        Self::Problem(Problem { status, text, parts })
    }

    pub(crate) fn failed(detail: impl Into<String>) -> Self {
        Self::Here { exit: Exit::Failed, detail: detail.into() }
    }

    fn here(exit: Exit, error: &impl ToString) -> Self {
        Self::Here { exit, detail: error.to_string() }
    }

    pub(crate) fn usage(detail: impl Into<String>) -> Self {
        Self::Here { exit: Exit::Usage, detail: detail.into() }
    }

    pub(crate) fn conflict(detail: impl Into<String>) -> Self {
        Self::Here { exit: Exit::Conflict, detail: detail.into() }
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::Here { exit: Exit::NotFound, detail: detail.into() }
    }

    pub(crate) fn not_allowed(detail: impl Into<String>) -> Self {
        Self::Here { exit: Exit::NotAllowed, detail: detail.into() }
    }

    pub(crate) fn timed_out(detail: impl Into<String>) -> Self {
        Self::Here { exit: Exit::TimedOut, detail: detail.into() }
    }

    pub(crate) fn unreachable(detail: impl Into<String>) -> Self {
        Self::Here { exit: Exit::Unreachable, detail: detail.into() }
    }

    /// The exit code that tells it; nothing if all is well.
    pub(crate) fn exit(&self) -> Option<Exit> {
        match self {
            // 503 as well, but it was the queue that refused: a server was reached.
            Self::Problem(problem) if problem.kind() == "queue-full" => Some(Exit::Conflict),
            Self::Problem(problem) => Some(of_status(problem.status)),
            Self::Here { exit, .. } => Some(*exit),
            Self::PipeClosed => None,
        }
    }

    /// The last part of the problem's type, like `queue-full`.
    pub(crate) fn kind(&self) -> &str {
        match self {
            Self::Problem(problem) => problem.kind(),
            Self::Here { exit, .. } => exit.name(),
            Self::PipeClosed => "",
        }
    }

    /// Says it on standard error, and returns the exit code.
    pub(crate) fn print(&self, json: bool) -> ExitCode {
        let Some(exit) = self.exit() else { return ExitCode::SUCCESS };
        let text = if json { self.document() } else { self.lines() };
        let _ = writeln!(std::io::stderr(), "{text}");
        ExitCode::from(exit as u8)
    }

    /// For programs: the problem document.
    fn document(&self) -> String {
        match self {
            Self::Problem(problem) if !problem.parts.kind.is_empty() => {
                String::from_utf8_lossy(&problem.text).into_owned()
            }
            _ => {
                let kind = format!("urn:windlass:error:{}", self.kind());
                json!({ "type": kind, "detail": self.detail() }).to_string()
            }
        }
    }

    /// What failed, why, and what to do.
    pub(crate) fn detail(&self) -> &str {
        match self {
            Self::Problem(problem) => &problem.parts.detail,
            Self::Here { detail, .. } => detail,
            Self::PipeClosed => "the output was closed",
        }
    }

    /// For people: what happened, and a line for each field if there are several.
    pub(crate) fn lines(&self) -> String {
        let mut lines = format!("windlass: {}", escaped_lines(self.detail()));
        let errors = match self {
            Self::Problem(problem) => problem.parts.errors.as_slice(),
            Self::Here { .. } | Self::PipeClosed => &[],
        };
        if errors.len() > 1 {
            for error in errors {
                let (pointer, detail) = (escaped(&error.pointer), escaped(&error.detail));
                let _ = write!(lines, "\n  {pointer}: {detail}");
            }
        }
        lines
    }
}

impl From<String> for Failure {
    fn from(detail: String) -> Self {
        Self::failed(detail)
    }
}

/// A store that could not be opened.
impl From<&OpenError> for Failure {
    fn from(error: &OpenError) -> Self {
        match error {
            OpenError::InUse { .. } => Self::unreachable(format!(
                "{error}; if it is a server, ask it: --server URL, like --server \
                 http://127.0.0.1:8080"
            )),
            OpenError::NotMade { store } => Self::not_found(format!(
                "there is no store {store}; `windlass migrate`, `windlass serve` or `windlass \
                 enqueue` makes it, --store names another"
            )),
            OpenError::Start(StartError::Sealed(_)) => Self::here(Exit::Conflict, error),
            OpenError::Postgres(why) if why.is_denied() => Self::here(Exit::NotAllowed, error),
            OpenError::Postgres(why) if why.is_missing() => Self::here(Exit::NotFound, error),
            OpenError::Postgres(why) if why.is_unreachable() => {
                Self::here(Exit::Unreachable, error)
            }
            other => Self::here(Exit::Failed, other),
        }
    }
}

impl Problem {
    fn kind(&self) -> &str {
        self.parts.kind.rsplit(':').next().unwrap_or_default()
    }
}

impl Exit {
    fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::NotFound => "not-found",
            Self::Conflict => "conflict",
            Self::NotAllowed => "not-allowed",
            Self::Unreachable => "unreachable",
            Self::TimedOut => "timed-out",
        }
    }
}

fn of_status(status: StatusCode) -> Exit {
    match status.as_u16() {
        400 | 413 | 414 | 415 | 422 => Exit::Usage,
        401 | 403 | 421 => Exit::NotAllowed,
        404 => Exit::NotFound,
        409 => Exit::Conflict,
        502..=504 => Exit::Unreachable,
        _ => Exit::Failed,
    }
}
