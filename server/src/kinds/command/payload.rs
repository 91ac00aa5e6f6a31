//! The payload of a `command` job, and which programs may be enqueued over HTTP.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::Deserialize;

/// The payload, not checked yet.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Payload {
    /// The program and its arguments, run without a shell.
    argv: Option<Vec<String>>,
    /// A line for `sh -c`.
    command: Option<String>,
    /// Working directory; the server's if absent.
    cwd: Option<String>,
}

/// A checked payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spec {
    pub(super) argv: Vec<OsString>,
    pub(super) cwd: Option<PathBuf>,
}

impl Payload {
    /// Checks the payload; an error is permanent.
    pub(super) fn spec(self) -> Result<Spec, String> {
        let argv = match (self.argv, self.command) {
            (Some(argv), None) => argv,
            (None, Some(line)) => vec!["sh".into(), "-c".into(), line],
            _ => return Err("give either `argv` or `command`".into()),
        };
        if argv.first().is_none_or(String::is_empty) {
            return Err("`argv` must begin with the name of a program".into());
        }
        if argv.iter().chain(&self.cwd).any(|text| text.contains('\0')) {
            return Err("no argument and no path can hold a NUL character".into());
        }
        let cwd = self.cwd.map(PathBuf::from);
        Ok(Spec { argv: argv.into_iter().map(OsString::from).collect(), cwd })
    }
}

/// The programs that may be enqueued over HTTP.
///
/// This is checked when a job is enqueued, not when it runs: jobs do not record their origin, and
/// a user who can write to the store may run anything already.
#[derive(Debug, Clone, Default)]
pub(crate) struct Allowed(pub(crate) Vec<String>);

impl Allowed {
    /// Refuses what a client over HTTP may not enqueue. `argv` only: a shell line may run any
    /// program, and in a directory of the client's choice an allowed program may find any file.
    pub(crate) fn check(&self, payload: &str) -> Result<(), String> {
        if self.0.is_empty() {
            return Err(
                "they are not accepted over HTTP; enqueue them on the command line, or start \
                 the server with --allow-command PROGRAM"
                    .into(),
            );
        }
        let payload: Payload = serde_json::from_str(payload).map_err(|error| {
            format!("over HTTP their payload must be {{\"argv\":[...]}}: {error}")
        })?;
        if payload.command.is_some() || payload.cwd.is_some() {
            return Err("over HTTP their payload may have `argv` only".into());
        }
        let spec = payload.spec()?;
        let allowed = |name: &String| spec.argv.first().is_some_and(|first| first == name.as_str());
        if self.0.iter().any(allowed) {
            return Ok(());
        }
        Err("over HTTP only programs listed in --allow-command are accepted, spelled the same \
             way"
        .into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(json: &str) -> Result<Vec<OsString>, String> {
        let payload: Payload = serde_json::from_str(json).map_err(|error| error.to_string())?;
        payload.spec().map(|spec| spec.argv)
    }

    #[test]
    fn a_program_is_run_as_it_is_and_a_line_by_a_shell() {
        assert_eq!(spec(r#"{"argv":["a","$(b)",""]}"#).unwrap(), ["a", "$(b)", ""]);
        assert_eq!(spec(r#"{"command":"a | b"}"#).unwrap(), ["sh", "-c", "a | b"]);
    }

    #[test]
    fn what_cannot_be_run_is_refused_and_an_unknown_field_by_its_name() {
        for json in [
            "{}",
            "[]",
            r#"{"argv":[]}"#,
            r#"{"argv":[""]}"#,
            r#"{"argv":["a"],"command":"a"}"#,
            r#"{"argv":["a","b\u0000"]}"#,
            r#"{"argv":["a"],"cwd":"b\u0000"}"#,
            r#"{"argv":["a"],"argv":["b"]}"#,
        ] {
            assert!(spec(json).is_err(), "{json}");
        }
        let refused = spec(r#"{"argv":["a"],"env":{}}"#).unwrap_err();
        assert!(refused.contains("`env`"), "{refused}");
    }

    #[test]
    fn over_http_a_program_is_allowed_by_its_exact_name_and_nothing_beside_it() {
        let allowed = Allowed(vec!["true".into(), "/bin/echo".into()]);
        for good in [r#"{"argv":["true"]}"#, r#"{"argv":["/bin/echo","; rm"]}"#] {
            assert_eq!(allowed.check(good), Ok(()), "{good}");
            assert!(Allowed::default().check(good).is_err(), "{good}");
        }
        for bad in [
            "{}",
            "null",
            r#"{"argv":[]}"#,
            r#"{"argv":["echo"]}"#,
            r#"{"argv":["TRUE"]}"#,
            r#"{"argv":["true "]}"#,
            r#"{"argv":["./true"]}"#,
            r#"{"argv":["/bin/../bin/echo"]}"#,
            r#"{"command":"true"}"#,
            r#"{"argv":["true"],"command":null,"cwd":"x"}"#,
            r#"{"argv":["true"],"argv":["sh"]}"#,
            r#"{"argv":["true"],"env":{"LD_PRELOAD":"x"}}"#,
        ] {
            assert!(allowed.check(bad).is_err(), "{bad}");
        }
    }
}
