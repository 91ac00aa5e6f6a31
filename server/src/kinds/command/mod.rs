//! The kind `command`: runs a program of this machine, with the rights of this process.
//!
//! Each command has a supervisor (see `supervisor.rs`), so that nothing of it outlives its
//! attempt, and a crash of the server takes its commands along. Only a command that ends by itself
//! with code 0 is done, not one that was asked to stop.

mod family;
mod payload;
mod process;
mod protocol;
pub(crate) mod supervisor;

use std::ffi::OsString;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinError;
use windlass_core::machine::StopReason;
use windlass_core::{Failure, FailureKind, Verdict};
use windlass_runtime_tokio::Context;

use process::Ended;
use protocol::{Report, Task};

pub(crate) use payload::{Allowed, Payload};
pub(crate) use protocol::{Limits, SUPERVISE};

/// Limits and environment of commands, from the settings.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    /// Time between TERM and KILL.
    pub(crate) grace: Duration,
    /// Environment of commands, beside the variables about their job.
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) limits: Limits,
}

/// Time reserved after the grace to kill and reap: the supervisor's timeout, twice.
pub(crate) const RESERVE: Duration = Duration::from_secs(2);

/// Time between KILL and the deadline of a shutdown, so that the exit is recorded.
const KILL_BEFORE_DEADLINE: Duration = Duration::from_millis(500);

/// Prepares this process to run commands.
pub(crate) fn prepare() {
    process::prepare();
}

pub(crate) async fn run(settings: Arc<Settings>, payload: Payload, ctx: Context) -> Verdict {
    let spec = match payload.spec() {
        Ok(spec) => spec,
        Err(why) => return failed(Failure::new(&why).permanent()),
    };
    let program = spec.argv.first().cloned().unwrap_or_default();
    let task = Task { limits: settings.limits, cwd: spec.cwd, argv: spec.argv };
    let attendance = match process::start(&task, &environment(&settings, &ctx)) {
        Ok(attendance) => attendance,
        Err(error) => return failed(Failure::new(&format!("no process can be started: {error}"))),
    };
    let (orders, taken) = tokio::sync::mpsc::channel(1);
    // A separate task: it ends the command even if this future, and the orders with it, is dropped.
    let mut attending = tokio::spawn(attendance.attend(taken));
    let (mut reason, ended) = tokio::select! {
        ended = &mut attending => (None, ended),
        reason = ctx.stopping() => {
            let (wait, grace) = term_and_kill(reason, settings.grace, ctx.stop_grace(reason));
            tokio::select! {
                ended = &mut attending => (None, ended),
                () = tokio::time::sleep(wait) => {
                    let _ = orders.try_send(grace);
                    (Some(reason), attending.await)
                }
            }
        }
    };
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => return unattended(&error),
    };
    if !matches!(ended.report, Some(Report::Stopped) | None) {
        // It had ended before the order came.
        reason = None;
    }
    verdict(&ended, reason, &program.to_string_lossy(), &ctx)
}

/// The verdict if the task of the command panicked: a failure, because the command had begun.
fn unattended(error: &JoinError) -> Verdict {
    if error.is_cancelled() {
        // The tokio runtime is being dropped, and with it this attempt.
        return Verdict::Release;
    }
    let text =
        "the task that attends the command panicked; the log holds its message. This is a bug";
    failed(Failure::new(text).of_kind(FailureKind::Panicked))
}

/// Delays before TERM and from TERM to KILL, so that the exit is recorded in time.
fn term_and_kill(
    reason: StopReason,
    grace: Duration,
    until_dropped: Duration,
) -> (Duration, Duration) {
    if reason == StopReason::Shutdown {
        // Until one grace before the deadline it may still end by itself.
        let kill = until_dropped.saturating_sub(KILL_BEFORE_DEADLINE.min(until_dropped / 4));
        let grace = grace.min(kill);
        return (kill.saturating_sub(grace), grace);
    }
    let kill = until_dropped.saturating_sub(RESERVE.min(until_dropped / 2));
    (Duration::ZERO, grace.min(kill))
}

fn environment(settings: &Settings, ctx: &Context) -> Vec<(OsString, OsString)> {
    let mut env = settings.env.clone();
    env.push(("WINDLASS_JOB_ID".into(), ctx.id().to_string().into()));
    env.push(("WINDLASS_EPOCH".into(), ctx.epoch().to_string().into()));
    env.push(("WINDLASS_ATTEMPT".into(), ctx.attempt().to_string().into()));
    env
}

fn failed(failure: Failure) -> Verdict {
    Verdict::Fail(Box::new(failure))
}

fn verdict(ended: &Ended, reason: Option<StopReason>, program: &str, ctx: &Context) -> Verdict {
    let (stdout, stderr) = (ended.stdout.excerpt(), ended.stderr.excerpt());
    match reason {
        None => {}
        Some(StopReason::TimedOut) => {
            let timeout = ctx.job().timeout.map_or(0, |timeout| timeout.millis().get());
            let text = format!("the command ran longer than its timeout of {timeout} ms");
            let failure = Failure::new(&text).of_kind(FailureKind::TimedOut);
            return failed(Failure { stdout: Some(stdout), stderr: Some(stderr), ..failure });
        }
        Some(StopReason::Cancelled | StopReason::LeaseLost | StopReason::Shutdown) => {
            return Verdict::Release;
        }
    }
    if ended.report == Some(Report::Exited(0)) {
        let result = serde_json::json!({
            "exit_code": 0,
            "stdout": stdout.as_str(),
            "stderr": stderr.as_str(),
            "truncated": stdout.is_cut() || stderr.is_cut(),
        });
        let result = windlass_core::Payload::new(&result.to_string());
        return Verdict::Complete { result: result.ok() };
    }
    let (exit_code, text) = how(ended.report, program);
    let (stdout, stderr) = (Some(stdout), Some(stderr));
    failed(Failure { exit_code, stdout, stderr, ..Failure::new(&text) })
}

/// The exit code as in a shell, and the same in words. Output is not part of the words: it may be
/// secret, and errors are shown in more places.
fn how(report: Option<Report>, program: &str) -> (Option<i32>, String) {
    let system = |code| io::Error::from_raw_os_error(code);
    match report {
        Some(Report::Exited(code)) => (Some(code), format!("the command exited with code {code}")),
        Some(Report::Signalled(signal)) => {
            let name = signal_name(signal);
            (Some(128 + signal), format!("the command was killed by signal {signal}{name}"))
        }
        // A program that is missing may come with the next deployment, so this is retried too.
        Some(Report::NotStarted(code)) => {
            let exit_code = if system(code).kind() == io::ErrorKind::NotFound { 127 } else { 126 };
            let text = format!(
                "{program:?} cannot be started: {}; is it installed, and in the PATH that \
                 --command-env lets through?",
                system(code)
            );
            (Some(exit_code), text)
        }
        Some(Report::NoDirectory(code)) => {
            (None, format!("`cwd` cannot be entered: {}", system(code)))
        }
        Some(Report::Stopped) => (None, "the command was stopped".into()),
        None => (None, "the command's supervisor was killed; everything of it was ended".into()),
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        1 => " (SIGHUP)",
        2 => " (SIGINT)",
        3 => " (SIGQUIT)",
        4 => " (SIGILL)",
        6 => " (SIGABRT)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        13 => " (SIGPIPE)",
        14 => " (SIGALRM)",
        15 => " (SIGTERM)",
        24 => " (SIGXCPU: it used all the CPU time it was allowed)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_killed_before_its_attempt_is_dropped() {
        let (second, millis) = (Duration::from_secs, Duration::from_millis);
        for reason in [StopReason::Cancelled, StopReason::TimedOut, StopReason::LeaseLost] {
            let kill = |grace, left| {
                let (term, kill) = term_and_kill(reason, grace, left);
                assert_eq!(term, Duration::ZERO);
                kill
            };
            assert_eq!(kill(second(5), second(7)), second(5));
            assert_eq!(kill(second(5), millis(250)), millis(125));
            assert_eq!(kill(second(5), Duration::ZERO), Duration::ZERO);
            assert_eq!(kill(second(1), second(60)), second(1));
        }
    }

    #[test]
    fn at_a_shutdown_term_comes_one_grace_before_the_kill_and_the_kill_just_before_the_deadline() {
        let (second, millis) = (Duration::from_secs, Duration::from_millis);
        let plan = |grace, left| term_and_kill(StopReason::Shutdown, grace, left);
        assert_eq!(plan(second(5), second(7)), (millis(1_500), second(5)));
        assert_eq!(plan(second(5), second(4)), (Duration::ZERO, millis(3_500)));
        assert_eq!(plan(second(5), millis(400)), (Duration::ZERO, millis(300)));
        assert_eq!(plan(second(5), Duration::ZERO), (Duration::ZERO, Duration::ZERO));
        assert_eq!(plan(Duration::ZERO, second(2)), (millis(1_500), Duration::ZERO));
    }

    #[tokio::test]
    async fn a_panic_of_the_attending_task_is_a_charged_failure() {
        let panicked = tokio::spawn(async { panic!("on purpose") }).await.unwrap_err();
        let Verdict::Fail(failure) = unattended(&panicked) else { panic!("it was given back") };
        assert!(failure.retryable, "{failure:?}");
        assert_eq!(failure.kind, FailureKind::Panicked);
    }

    #[test]
    fn an_end_is_reported_as_a_shell_does_and_in_words() {
        for (report, code, words) in [
            (Some(Report::Exited(3)), Some(3), "code 3"),
            (Some(Report::Signalled(11)), Some(139), "signal 11 (SIGSEGV)"),
            (Some(Report::NotStarted(2)), Some(127), "\"x\\u{1b}\" cannot be started"),
            (Some(Report::NotStarted(13)), Some(126), "denied"),
            (Some(Report::NoDirectory(2)), None, "`cwd`"),
            (None, None, "supervisor was killed"),
        ] {
            let (exit_code, text) = how(report, "x\u{1b}");
            assert_eq!(exit_code, code);
            assert!(text.contains(words), "{text}");
        }
    }
}
