//! What remote workers send and receive: polls, verdicts, heartbeats. And replays of dead letters.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use windlass_core::limits::OUTPUT_BYTES;
use windlass_core::machine::{self, Run};
use windlass_core::store::{self, DeadFilter, Settle, Worker, WorkerKind};
use windlass_core::{
    self as core, Delay, Demand, Excerpt, Failure, JobId, Kind, Kinds, LeaseToken, Millis,
    QueueName, Queues, Verdict, WorkerId, WorkerVersion,
};

use super::job::{Job, Notes};
use super::new_job::lease_length;
use super::parse::{Faults, token};
use super::time::Time;
use crate::api::problem::{Document, Problem};
use crate::http::limits::{POLL_JOBS, POLL_NAMES, POLL_WAIT_MS, REPLAYS};

/// How a token is written.
const TOKEN: &str = r"^[1-9][0-9]{0,17}\.(0|[1-9][0-9]{0,17})$";

/// How a version is written.
const VERSION: &str = "^[ -~]{1,64}$";

/// A worker asks for jobs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Poll {
    /// Name of the worker, unique per start of its process.
    #[schemars(regex(pattern = super::new_job::NAME))]
    worker: String,
    /// Version of its program, for `GET /workers`.
    #[schemars(regex(pattern = VERSION))]
    version: Option<String>,
    /// The queues to take jobs from; `["default"]` if absent, `["*"]` for all of them.
    queues: Option<Vec<String>>,
    /// The kinds it can run; if absent, every kind but the built-in ones.
    kinds: Option<Vec<String>>,
    /// Maximum number of jobs to claim; 1 if absent. Fewer come when their payloads would exceed
    /// 32 MiB.
    #[schemars(range(min = 1, max = 1_000))]
    max: Option<i64>,
    /// Maximum time to wait for a job; 0 if absent, at most 30 000.
    #[schemars(range(min = 0))]
    wait_ms: Option<i64>,
    /// Length of the leases; that of each job if absent.
    #[schemars(range(min = 1_000, max = 43_200_000))]
    visibility_timeout_ms: Option<i64>,
}

impl Poll {
    /// The poll as core takes it; `host` is where it comes from.
    pub(crate) fn check(&self, host: &str) -> Result<machine::Poll, Problem> {
        let mut faults = Faults::default();
        let id = faults.check("/worker", WorkerId::new(&self.worker));
        let version = self.version.as_deref().map(WorkerVersion::new);
        let version = version.and_then(|version| faults.check("/version", version));
        let queues = match self.queues.as_deref() {
            None => Queues::only(vec![QueueName::default()]),
            Some([all]) if all == "*" => Queues::All,
            Some(names) => Queues::only(list(&mut faults, "/queues", names, QueueName::new)),
        };
        let kinds = match &self.kinds {
            None => crate::kinds::remote_kinds(),
            Some(names) => Kinds::only(list(&mut faults, "/kinds", names, Kind::new)),
        };
        let max = self.max.unwrap_or(1);
        if !(1..=POLL_JOBS).contains(&max) {
            faults.add("/max", format!("must be between 1 and {POLL_JOBS}, not {max}"));
        }
        let wait = u64::try_from(self.wait_ms.unwrap_or(0)).map_err(|_| "must not be negative");
        let wait = faults.check("/wait_ms", wait).unwrap_or(0).min(POLL_WAIT_MS);
        let length = lease_length(&mut faults, self.visibility_timeout_ms);
        faults.refuse()?;
        let id = id.ok_or_else(|| Problem::field("/worker", "is missing"))?;
        let demand = Demand { queues, kinds };
        let slots = usize::try_from(max).unwrap_or(1);
        let new = Worker::new(id, host, WorkerKind::Remote);
        let worker = Worker { version, demand, slots, ..new };
        Ok(machine::Poll { worker, wait: Millis::new(wait), length })
    }
}

fn list<T>(
    faults: &mut Faults,
    pointer: &str,
    names: &[String],
    new: impl Fn(&str) -> Result<T, core::NameError>,
) -> Vec<T> {
    if names.is_empty() || names.len() > POLL_NAMES {
        let given = names.len();
        faults.add(pointer, format!("must hold 1 to {POLL_NAMES} names, not {given}"));
        return Vec::new();
    }
    let check =
        |(index, name): (usize, &String)| faults.check(&format!("{pointer}/{index}"), new(name));
    names.iter().enumerate().filter_map(check).collect()
}

/// The claimed jobs; empty if none came in time.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Claims {
    pub(crate) jobs: Vec<LeasedJob>,
}

/// A job with the lease to run it. `last_error` and `progress` are those of earlier attempts.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct LeasedJob {
    #[serde(flatten)]
    job: Job,
    lease: Lease,
}

impl LeasedJob {
    /// `before` is what is stored of the earlier attempts of a job.
    pub(crate) fn of(run: Run, before: Option<&Notes>) -> Self {
        let until = run.job.lease().map_or(run.job.updated_at, |lease| lease.until);
        let lease = Lease::of(run.job.token(), until);
        let job = Job::bare(&run.job, run.payload);
        let job = before.into_iter().fold(job, Job::with_notes);
        Self { job, lease }
    }
}

/// The right to run a job.
#[derive(Debug, Clone, Serialize, JsonSchema)]
struct Lease {
    /// The lease token, to be sent with every report.
    token: String,
    /// End of the lease unless a heartbeat extends it.
    until: Time,
}

impl Lease {
    fn of(token: LeaseToken, until: core::Wall) -> Self {
        Self { token: token.to_string(), until: Time(until) }
    }
}

/// The heartbeat was recorded.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct LeaseExtended {
    lease: Lease,
}

impl LeaseExtended {
    pub(crate) fn of(token: LeaseToken, until: core::Wall) -> Self {
        Self { lease: Lease::of(token, until) }
    }
}

/// A verdict was recorded.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Settled {
    /// State of the job now.
    pub(crate) state: &'static str,
}

/// The job completed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Complete<'a> {
    /// The token of the lease, as the poll gave it.
    #[schemars(regex(pattern = TOKEN))]
    token: String,
    /// Any JSON, kept with the job.
    #[serde(borrow)]
    #[schemars(with = "Option<serde_json::Value>")]
    result: Option<&'a RawValue>,
}

impl Complete<'_> {
    pub(crate) fn check(&self, job: JobId) -> Result<Settle, Problem> {
        let token = token(&self.token, job)?;
        let mut faults = Faults::default();
        let result = faults.raw("/result", self.result);
        faults.refuse()?;
        Ok(Settle { token, verdict: Verdict::Complete { result } })
    }
}

/// The job failed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fail {
    /// The token of the lease, as the poll gave it.
    #[schemars(regex(pattern = TOKEN))]
    token: String,
    /// What went wrong, for people; 4 KiB of it are kept.
    error: String,
    /// Whether another attempt may help; `true` if absent.
    retryable: Option<bool>,
    /// Delay of the next attempt, instead of the one by the retry policy of the job.
    #[schemars(range(min = 0, max = 315_619_200_000_i64))]
    retry_in_ms: Option<i64>,
    /// The exit code of what the worker ran.
    exit_code: Option<i32>,
    /// Its standard output; the last 16 KiB are kept.
    stdout: Option<String>,
    /// Its standard error; the last 16 KiB are kept.
    stderr: Option<String>,
}

impl Fail {
    pub(crate) fn check(&self, job: JobId) -> Result<Settle, Problem> {
        let token = token(&self.token, job)?;
        let mut faults = Faults::default();
        let failure = Failure {
            retryable: self.retryable.unwrap_or(true),
            retry_in: retry_in(&mut faults, self.retry_in_ms),
            exit_code: self.exit_code,
            stdout: output(self.stdout.as_deref()),
            stderr: output(self.stderr.as_deref()),
            ..Failure::new(&self.error)
        };
        faults.refuse()?;
        Ok(Settle { token, verdict: Verdict::Fail(Box::new(failure)) })
    }
}

fn retry_in(faults: &mut Faults, given: Option<i64>) -> Option<Delay> {
    let bounds = (Delay::MIN.get(), Delay::MAX.get());
    faults.number("retry_in_ms", given, bounds, |delay| {
        let named = |error| core::OutOfRange { field: "retry_in_ms", ..error };
        Delay::new(delay).map_err(named)
    })
}

/// As much of an output as is kept: its end.
fn output(text: Option<&str>) -> Option<Excerpt> {
    text.map(|text| Excerpt::tail(text, OUTPUT_BYTES))
}

/// Extends a lease.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Heartbeat<'a> {
    /// The token of the lease, as the poll gave it.
    #[schemars(regex(pattern = TOKEN))]
    token: String,
    /// Length of the lease from now on.
    #[schemars(range(min = 1_000, max = 43_200_000))]
    extend_ms: Option<i64>,
    /// Progress of the job, any JSON.
    #[serde(borrow)]
    #[schemars(with = "Option<serde_json::Value>")]
    progress: Option<&'a RawValue>,
}

impl Heartbeat<'_> {
    pub(crate) fn check(&self, job: JobId) -> Result<store::Heartbeat, Problem> {
        let token = token(&self.token, job)?;
        let mut faults = Faults::default();
        let extend = extension(&mut faults, self.extend_ms);
        let progress = faults.raw("/progress", self.progress);
        faults.refuse()?;
        Ok(store::Heartbeat { token, extend, progress })
    }
}

fn extension(faults: &mut Faults, given: Option<i64>) -> Option<core::LeaseLength> {
    let bounds = (core::LeaseLength::MIN.get(), core::LeaseLength::MAX.get());
    faults.number("extend_ms", given, bounds, |length| {
        let named = |error| core::OutOfRange { field: "extend_ms", ..error };
        core::LeaseLength::new(length).map_err(named)
    })
}

/// Release a job: it is queued again, and the attempt is not charged.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Release {
    /// The token of the lease, as the poll gave it.
    #[schemars(regex(pattern = TOKEN))]
    token: String,
}

impl Release {
    pub(crate) fn check(&self, job: JobId) -> Result<Settle, Problem> {
        Ok(Settle { token: token(&self.token, job)?, verdict: Verdict::Release })
    }
}

/// Snooze a job: it is queued again after a delay, and the attempt is not charged.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Snooze {
    /// The token of the lease, as the poll gave it.
    #[schemars(regex(pattern = TOKEN))]
    token: String,
    /// Delay until it is due again.
    #[schemars(range(min = 0, max = 315_619_200_000_i64))]
    delay_ms: i64,
}

impl Snooze {
    pub(crate) fn check(&self, job: JobId) -> Result<Settle, Problem> {
        let token = token(&self.token, job)?;
        Ok(Settle { token, verdict: snoozed(self.delay_ms)? })
    }
}

fn snoozed(delay_ms: i64) -> Result<Verdict, Problem> {
    let mut faults = Faults::default();
    let bounds = (Delay::MIN.get(), Delay::MAX.get());
    let delay = faults.number("delay_ms", Some(delay_ms), bounds, Delay::new);
    faults.refuse()?;
    let delay = delay.ok_or_else(|| Problem::field("/delay_ms", "is missing"))?;
    Ok(Verdict::Snooze { delay })
}

/// Verdicts and heartbeats on many jobs, in one commit.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reports<'a> {
    /// Up to 10 000. Each has its own answer.
    #[serde(borrow)]
    #[schemars(with = "Vec<Report<'a>>")]
    pub(crate) reports: Vec<&'a RawValue>,
}

/// One verdict, or one heartbeat.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Report<'a> {
    /// The token of the lease, as the poll gave it.
    #[schemars(regex(pattern = TOKEN))]
    token: String,
    verdict: VerdictName,
    /// For `complete`: any JSON, kept with the job.
    #[serde(borrow)]
    #[schemars(with = "Option<serde_json::Value>")]
    result: Option<&'a RawValue>,
    /// For `fail`: what went wrong.
    error: Option<String>,
    /// For `fail`: whether another attempt may help; `true` if absent.
    retryable: Option<bool>,
    /// For `fail`: delay of the next attempt, instead of the one by the retry policy.
    #[schemars(range(min = 0, max = 315_619_200_000_i64))]
    retry_in_ms: Option<i64>,
    /// For `fail`: the exit code of what the worker ran.
    exit_code: Option<i32>,
    /// For `fail`: its standard output; the last 16 KiB are kept.
    stdout: Option<String>,
    /// For `fail`: its standard error; the last 16 KiB are kept.
    stderr: Option<String>,
    /// For `snooze`: the delay.
    #[schemars(range(min = 0, max = 315_619_200_000_i64))]
    delay_ms: Option<i64>,
    /// For `heartbeat`: length of the lease from now on.
    #[schemars(range(min = 1_000, max = 43_200_000))]
    extend_ms: Option<i64>,
    /// For `heartbeat`: progress of the job, any JSON.
    #[serde(borrow)]
    #[schemars(with = "Option<serde_json::Value>")]
    progress: Option<&'a RawValue>,
}

/// What a report asks for.
#[derive(Debug)]
pub(crate) enum Reported {
    Verdict(Settle),
    Heartbeat(store::Heartbeat),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Verdict")]
enum VerdictName {
    Complete,
    Fail,
    Release,
    Snooze,
    Heartbeat,
}

impl Report<'_> {
    pub(crate) fn check(&self) -> Result<Reported, Problem> {
        let mut faults = Faults::default();
        self.check_fields(&mut faults);
        let token = faults.check("/token", self.token.parse::<LeaseToken>());
        let missing = || Problem::field("/token", "is missing");
        if self.verdict == VerdictName::Heartbeat {
            let extend = extension(&mut faults, self.extend_ms);
            let progress = faults.raw("/progress", self.progress);
            faults.refuse()?;
            let token = token.ok_or_else(missing)?;
            return Ok(Reported::Heartbeat(store::Heartbeat { token, extend, progress }));
        }
        let verdict = self.verdict(&mut faults)?;
        faults.refuse()?;
        Ok(Reported::Verdict(Settle { token: token.ok_or_else(missing)?, verdict }))
    }

    /// Finds fields that belong to another verdict.
    fn check_fields(&self, faults: &mut Faults) {
        for (field, given, verdict) in [
            ("result", self.result.is_some(), VerdictName::Complete),
            ("error", self.error.is_some(), VerdictName::Fail),
            ("retryable", self.retryable.is_some(), VerdictName::Fail),
            ("retry_in_ms", self.retry_in_ms.is_some(), VerdictName::Fail),
            ("exit_code", self.exit_code.is_some(), VerdictName::Fail),
            ("stdout", self.stdout.is_some(), VerdictName::Fail),
            ("stderr", self.stderr.is_some(), VerdictName::Fail),
            ("delay_ms", self.delay_ms.is_some(), VerdictName::Snooze),
            ("extend_ms", self.extend_ms.is_some(), VerdictName::Heartbeat),
            ("progress", self.progress.is_some(), VerdictName::Heartbeat),
        ] {
            if given && self.verdict != verdict {
                faults.add(&format!("/{field}"), "does not belong to this verdict; leave it out");
            }
        }
    }

    fn verdict(&self, faults: &mut Faults) -> Result<Verdict, Problem> {
        Ok(match self.verdict {
            VerdictName::Complete => {
                Verdict::Complete { result: faults.raw("/result", self.result) }
            }
            VerdictName::Fail => {
                let error = faults.check("/error", self.error.as_deref().ok_or("is missing"));
                Verdict::Fail(Box::new(Failure {
                    retryable: self.retryable.unwrap_or(true),
                    retry_in: retry_in(faults, self.retry_in_ms),
                    exit_code: self.exit_code,
                    stdout: output(self.stdout.as_deref()),
                    stderr: output(self.stderr.as_deref()),
                    ..Failure::new(error.unwrap_or_default())
                }))
            }
            VerdictName::Release | VerdictName::Heartbeat => Verdict::Release,
            VerdictName::Snooze => {
                let delay = faults.check("/delay_ms", self.delay_ms.ok_or("is missing"));
                snoozed(delay.unwrap_or_default())?
            }
        })
    }
}

/// One answer per report, in the order of the request.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ReportsAnswer {
    pub(crate) results: Vec<ReportResult>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum ReportResult {
    /// A verdict was recorded.
    Recorded { state: &'static str },
    /// A lease was extended.
    Extended(LeaseExtended),
    /// The request was refused.
    Refused { error: Document },
}

impl ReportResult {
    pub(crate) fn refused(problem: &Problem) -> Self {
        Self::Refused { error: problem.document() }
    }
}

/// Which dead letters to replay or to purge, newest failure first.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Replay {
    /// Only those of this queue.
    queue: Option<String>,
    /// Only those of this kind.
    kind: Option<String>,
    /// Only those of this error group.
    group: Option<String>,
    /// Only those whose last error contains this text.
    error_contains: Option<String>,
    /// Maximum number; 1000 if absent.
    #[schemars(range(min = 1, max = 1_000))]
    limit: Option<i64>,
    /// Cursor: `next` of the previous answer.
    pub(crate) cursor: Option<String>,
}

impl Replay {
    pub(crate) fn check(&self) -> Result<(DeadFilter, usize), Problem> {
        let mut faults = Faults::default();
        let queue = faults.maybe("/queue", self.queue.as_deref().map(QueueName::new));
        let kind = faults.maybe("/kind", self.kind.as_deref().map(Kind::new));
        let group = faults.maybe("/group", self.group.as_deref().map(str::parse));
        let limit = match self.limit.map(usize::try_from) {
            None => REPLAYS,
            Some(Ok(limit)) if (1..=REPLAYS).contains(&limit) => limit,
            Some(_) => {
                faults.add("/limit", format!("must be between 1 and {REPLAYS}"));
                REPLAYS
            }
        };
        faults.refuse()?;
        let error_contains = self.error_contains.clone();
        Ok((DeadFilter { queue, kind, group, error_contains }, limit))
    }
}

/// Number of replayed dead letters.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Replayed")]
pub(crate) struct ReplayPage {
    pub(crate) replayed: usize,
    /// Whether more may match.
    pub(crate) more: bool,
    /// Cursor of the next page, if more may match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

/// Number of deleted dead letters.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Purged")]
pub(crate) struct PurgePage {
    pub(crate) purged: usize,
    /// Whether more may match.
    pub(crate) more: bool,
    /// Cursor of the next page, if more may match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}
