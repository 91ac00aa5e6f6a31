//! The stored record of an attempt that did not complete its job. A completed attempt writes none.

use alloc::format;
use alloc::string::String;

use crate::limits::{ATTEMPTS_KEPT, ERROR_BYTES};
use crate::{Epoch, Excerpt, FailureKind, Job, JobId, LastVerdict, Lease, Verdict, Wall, WorkerId};

/// How an attempt that did not complete ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttemptOutcome {
    /// The holder reported a failure.
    Failed,
    /// It ran longer than its timeout.
    TimedOut,
    /// Its lease expired without a report, or its worker died.
    Expired,
    /// The handler panicked.
    Panicked,
    /// The holder gave the job back; not charged.
    Released,
}

impl AttemptOutcome {
    /// Every outcome, in the order of their stored codes.
    pub const ALL: [Self; 5] =
        [Self::Failed, Self::TimedOut, Self::Expired, Self::Panicked, Self::Released];

    /// The name used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Expired => "expired",
            Self::Panicked => "panicked",
            Self::Released => "released",
        }
    }
}

/// One attempt that did not complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The job that was attempted.
    pub job: JobId,
    /// The epoch of its claim.
    pub epoch: Epoch,
    /// The worker that held the lease.
    pub worker: WorkerId,
    /// When the claim was committed, by the store's clock.
    pub started_at: Wall,
    /// When its end was recorded.
    pub ended_at: Wall,
    /// The verdict, or what ended the lease without one.
    pub outcome: AttemptOutcome,
    /// The error message; `None` if the job was given back.
    pub error: Option<Excerpt>,
    /// The exit code; `None` if no command ran or a signal ended it.
    pub exit_code: Option<i32>,
    /// The end of the standard output of a command.
    pub stdout: Option<Excerpt>,
    /// The end of the standard error of a command.
    pub stderr: Option<Excerpt>,
}

impl Attempt {
    /// The record of an attempt whose holder gave `verdict`; `None` if it completed or snoozed.
    /// `held` is the job as it was while leased.
    pub fn settled(held: &Job, verdict: &Verdict, now: Wall) -> Option<Self> {
        match verdict {
            Verdict::Complete { .. } | Verdict::Snooze { .. } => None,
            Verdict::Release => Self::ended(held, AttemptOutcome::Released, now),
            Verdict::Fail(failure) => {
                let outcome = match failure.kind {
                    FailureKind::Failed => AttemptOutcome::Failed,
                    FailureKind::TimedOut => AttemptOutcome::TimedOut,
                    FailureKind::Panicked => AttemptOutcome::Panicked,
                };
                let attempt = Self::ended(held, outcome, now)?;
                Some(Self {
                    error: Some(failure.error.clone()),
                    exit_code: failure.exit_code,
                    stdout: failure.stdout.clone(),
                    stderr: failure.stderr.clone(),
                    ..attempt
                })
            }
        }
    }

    /// The record of an attempt whose lease was taken back: it expired, the attempt timed out, or
    /// its worker is known to be `dead`. `held` is the job as it was while leased, `next` as it is
    /// now; `None` if it was not leased.
    pub fn reaped(held: &Job, next: &Job, dead: bool, now: Wall) -> Option<Self> {
        let timed_out = next.state.last_verdict() == Some(LastVerdict::TimedOut);
        let (outcome, text) = lost(held, timed_out, dead);
        let attempt = Self::ended(held, outcome, now)?;
        Some(Self { error: Some(Excerpt::head(&text, ERROR_BYTES)), ..attempt })
    }

    /// Records of this job up to this epoch are deleted when this one is stored.
    pub fn drops_up_to(&self) -> Option<Epoch> {
        let epoch = self.epoch.get().checked_sub(ATTEMPTS_KEPT).filter(|epoch| *epoch > 0)?;
        Some(Epoch::new(epoch))
    }

    fn ended(held: &Job, outcome: AttemptOutcome, now: Wall) -> Option<Self> {
        Some(Self {
            job: held.id,
            epoch: held.epoch,
            worker: held.lease()?.worker.clone(),
            started_at: held.started_at.unwrap_or(now),
            ended_at: now,
            outcome,
            error: None,
            exit_code: None,
            stdout: None,
            stderr: None,
        })
    }
}

/// How an attempt ended whose lease was taken back, and the error that is kept of it.
pub(crate) fn lost(held: &Job, timed_out: bool, dead: bool) -> (AttemptOutcome, String) {
    let Some(Lease { worker, length, .. }) = held.lease() else {
        return (AttemptOutcome::Expired, String::new());
    };
    match held.timeout {
        Some(timeout) if timed_out => {
            let timeout = timeout.millis();
            let text = format!("worker {worker} ran longer than the timeout of {timeout}");
            (AttemptOutcome::TimedOut, text)
        }
        _ if dead => (AttemptOutcome::Expired, format!("worker {worker} died")),
        _ => {
            let length = length.millis();
            let silent = "sent no heartbeat and no report";
            let text = format!("the lease ran out: worker {worker} {silent} for {length}");
            (AttemptOutcome::Expired, text)
        }
    }
}
