//! What is remembered of an attempt that did not end well. The happy path writes nothing here.

use alloc::format;

use crate::limits::{ATTEMPTS_KEPT, ERROR_BYTES};
use crate::{Epoch, Excerpt, FailureKind, Job, JobId, Verdict, Wall, WorkerId};

/// How an attempt that did not complete ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttemptOutcome {
    /// It reported a failure.
    Failed,
    /// It ran longer than its timeout.
    TimedOut,
    /// Its lease ran out without a report.
    Expired,
    /// It panicked.
    Panicked,
    /// It was given back.
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
    /// Of which job.
    pub job: JobId,
    /// By which claim.
    pub epoch: Epoch,
    /// By whom.
    pub worker: WorkerId,
    /// When it was claimed.
    pub started_at: Wall,
    /// When its end was recorded.
    pub ended_at: Wall,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// What went wrong.
    pub error: Option<Excerpt>,
    /// The exit code of a command.
    pub exit_code: Option<i32>,
    /// The end of its standard output.
    pub stdout: Option<Excerpt>,
    /// The end of its standard error.
    pub stderr: Option<Excerpt>,
}

impl Attempt {
    /// What to remember of the attempt that `held` (a job as it was while leased) when its holder
    /// gives `verdict`; nothing of one that completed or was put off.
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

    /// What to remember of the attempt that `held` when its lease ran out.
    pub fn expired(held: &Job, now: Wall) -> Option<Self> {
        let lease = held.lease()?;
        let text = format!(
            "the lease ran out: worker {} sent no heartbeat and no report for {}",
            lease.worker,
            lease.length.millis()
        );
        let attempt = Self::ended(held, AttemptOutcome::Expired, now)?;
        Some(Self { error: Some(Excerpt::head(&text, ERROR_BYTES)), ..attempt })
    }

    /// The newest epoch of its job whose attempt is no longer kept beside this one.
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
