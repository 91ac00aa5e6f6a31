//! Messages between the server and a supervisor: a task as arguments, orders as bytes, and one line
//! about the end.

use std::ffi::OsString;
use std::path::PathBuf;

/// The argument that makes this binary a supervisor.
pub(crate) const SUPERVISE: &str = "supervise-job";

/// The order to send TERM. EOF means KILL, so a crashed server needs no message.
pub(super) const TERM: u8 = b't';

/// A program with its limits, for a supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) limits: Limits,
    pub(super) cwd: Option<PathBuf>,
    pub(super) argv: Vec<OsString>,
}

/// Resource limits of a command; `None` is unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) cpu_seconds: Option<u64>,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) open_files: Option<u64>,
}

impl Task {
    /// The arguments of a supervisor after [`SUPERVISE`].
    pub(super) fn to_args(&self) -> Vec<OsString> {
        let Limits { cpu_seconds, memory_bytes, open_files } = self.limits;
        let number = |limit: Option<u64>| limit.map_or("-".into(), |limit| limit.to_string());
        let mut args: Vec<OsString> =
            [cpu_seconds, memory_bytes, open_files].map(|limit| number(limit).into()).into();
        args.push(self.cwd.clone().unwrap_or_default().into_os_string());
        args.extend(self.argv.iter().cloned());
        args
    }

    pub(super) fn from_args(mut args: impl Iterator<Item = OsString>) -> Option<Self> {
        let mut number = || {
            let text = args.next()?.into_string().ok()?;
            if text == "-" { Some(None) } else { text.parse().ok().map(Some) }
        };
        let (cpu_seconds, memory_bytes, open_files) = (number()?, number()?, number()?);
        let limits = Limits { cpu_seconds, memory_bytes, open_files };
        let cwd = Some(args.next()?).filter(|cwd| !cwd.is_empty()).map(PathBuf::from);
        let task = Self { limits, cwd, argv: args.collect() };
        (!task.argv.is_empty()).then_some(task)
    }
}

/// How a command ended, reported once no process of it is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Report {
    /// It ended by itself, with this code.
    Exited(i32),
    /// A signal ended it.
    Signalled(i32),
    /// Its working directory cannot be entered; the `errno`.
    NoDirectory(i32),
    /// Its program cannot be started; the `errno`.
    NotStarted(i32),
    /// It ended after TERM or KILL from the server; its exit code is not trusted.
    Stopped,
}

impl Report {
    pub(super) fn to_line(self) -> String {
        match self {
            Self::Exited(code) => format!("exited {code}\n"),
            Self::Signalled(signal) => format!("signalled {signal}\n"),
            Self::NoDirectory(error) => format!("no-directory {error}\n"),
            Self::NotStarted(error) => format!("not-started {error}\n"),
            Self::Stopped => "stopped 0\n".into(),
        }
    }

    /// Parses a report; `None` if the line is incomplete.
    pub(super) fn from_line(line: &[u8]) -> Option<Self> {
        let line = str::from_utf8(line).ok()?.strip_suffix('\n')?;
        let (word, number) = line.split_once(' ')?;
        let number = number.parse().ok()?;
        match word {
            "exited" => Some(Self::Exited(number)),
            "signalled" => Some(Self::Signalled(number)),
            "no-directory" => Some(Self::NoDirectory(number)),
            "not-started" => Some(Self::NotStarted(number)),
            "stopped" => Some(Self::Stopped),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_survives_being_written_as_arguments() {
        let all = Limits { cpu_seconds: Some(1), memory_bytes: Some(2), open_files: Some(3) };
        let argv: Vec<OsString> = ["-x", "", "; rm", "--", "\n"].map(OsString::from).into();
        for (limits, cwd) in [(all, None), (Limits::default(), Some(PathBuf::from("a b")))] {
            let task = Task { limits, cwd, argv: argv.clone() };
            assert_eq!(Task::from_args(task.to_args().into_iter()), Some(task));
        }
    }

    #[test]
    fn what_is_no_task_is_refused() {
        for args in [&[][..], &["-", "-", "-", ""], &["x", "-", "-", "", "true"]] {
            assert_eq!(Task::from_args(args.iter().map(OsString::from)), None, "{args:?}");
        }
    }

    #[test]
    fn a_report_survives_being_written_and_half_a_line_is_none() {
        use Report::{Exited, NoDirectory, NotStarted, Signalled, Stopped};
        for report in [Exited(255), Signalled(9), NoDirectory(2), NotStarted(13), Stopped] {
            let line = report.to_line();
            assert_eq!(Report::from_line(line.as_bytes()), Some(report));
            assert_eq!(Report::from_line(line.trim_end().as_bytes()), None);
        }
        assert_eq!(Report::from_line(b"exited\n"), None);
    }
}
