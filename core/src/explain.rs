//! Why a job is where it is, and when that can next change.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::{Demand, Gate, Job, Queue, State, View, Wall, WorkerId};

/// What lies around a job when somebody asks about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surroundings<'a> {
    /// Its queue.
    pub queue: &'a Queue,
    /// How many jobs of its queue run.
    pub running: u64,
    /// An upper bound on the ready jobs of its queue that rank before it.
    pub before_it: u64,
    /// Who would run jobs: worker pools and waiting pollers, busy or not.
    pub demands: &'a [Demand],
}

/// Why a job is where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// Every reason that holds.
    pub reasons: Vec<Reason>,
    /// When something can next change by itself; `None` if only somebody's act changes it.
    pub next_change_at: Option<Wall>,
}

/// One reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// It can be claimed; the next free worker takes it.
    Ready,
    /// It is not due yet.
    Delayed {
        /// When it is.
        until: Wall,
        /// How many attempts it has behind it.
        attempts: u32,
    },
    /// Its queue is paused.
    QueuePaused,
    /// No worker asks for its queue and kind.
    NoWorker,
    /// As many jobs of its queue run as may.
    ConcurrencyFull {
        /// How many.
        running: u64,
    },
    /// Others go first.
    Behind {
        /// At most so many.
        at_most: u64,
    },
    /// A worker runs it.
    Leased {
        /// Who.
        worker: WorkerId,
        /// Until when without a heartbeat.
        until: Wall,
        /// Which attempt of how many.
        attempt: (u32, u32),
    },
    /// It finished well.
    Done {
        /// When.
        at: Wall,
    },
    /// It is in the dead-letter queue.
    Failed {
        /// Since when.
        at: Wall,
        /// After how many attempts.
        attempts: u32,
    },
    /// It was cancelled.
    Cancelled {
        /// When.
        at: Wall,
    },
}

impl Reason {
    /// A stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Delayed { .. } => "delayed",
            Self::QueuePaused => "queue_paused",
            Self::NoWorker => "no_worker",
            Self::ConcurrencyFull { .. } => "concurrency_full",
            Self::Behind { .. } => "behind",
            Self::Leased { .. } => "leased",
            Self::Done { .. } => "done",
            Self::Failed { .. } => "failed",
            Self::Cancelled { .. } => "cancelled",
        }
    }

    /// The sentence for people. Instants are written by `time`, in the caller's own form.
    pub fn detail(&self, time: impl Fn(Wall) -> String) -> String {
        Sentence { reason: self, time: &time }.to_string()
    }
}

struct Sentence<'a> {
    reason: &'a Reason,
    time: &'a dyn Fn(Wall) -> String,
}

impl fmt::Display for Sentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = self.time;
        match self.reason {
            Reason::Ready => f.write_str("it can start: the next free worker takes it"),
            Reason::Delayed { until, attempts: 0 } => write!(f, "it is due at {}", time(*until)),
            Reason::Delayed { until, attempts } => {
                write!(f, "it failed {attempts} times and is due again at {}", time(*until))
            }
            Reason::QueuePaused => f.write_str("its queue is paused; resume it"),
            Reason::NoWorker => {
                f.write_str("no worker asks for its queue and kind; start one that does")
            }
            Reason::ConcurrencyFull { running } => {
                write!(f, "{running} jobs of its queue run, as many as its concurrency allows")
            }
            Reason::Behind { at_most } => write!(f, "at most {at_most} jobs go before it"),
            Reason::Leased { worker, until, attempt: (which, of) } => {
                let until = time(*until);
                write!(f, "{worker} runs it, attempt {which} of {of}; its lease runs until {until}")
            }
            Reason::Done { at } => write!(f, "it finished well at {}", time(*at)),
            Reason::Failed { at, attempts } => {
                let at = time(*at);
                write!(f, "it is in the dead-letter queue since {at}, after {attempts} attempts")
            }
            Reason::Cancelled { at } => write!(f, "it was cancelled at {}", time(*at)),
        }
    }
}

/// Lists every reason why `job` is where it is, and when that can next change by itself.
pub fn explain(job: &Job, around: &Surroundings<'_>, now: Wall) -> Explanation {
    let attempts = job.attempts;
    match &job.state {
        State::Queued { .. } => explain_waiting(job, around, now),
        State::Processing(lease) => {
            let attempt = (attempts, job.max_retries.attempts());
            let (worker, until) = (lease.worker.clone(), lease.until);
            one(Reason::Leased { worker, until, attempt }, Some(until))
        }
        State::Done { finished_at } => one(Reason::Done { at: *finished_at }, None),
        State::Failed { finished_at, .. } => {
            one(Reason::Failed { at: *finished_at, attempts }, None)
        }
        State::Cancelled { finished_at, .. } => one(Reason::Cancelled { at: *finished_at }, None),
    }
}

fn explain_waiting(job: &Job, around: &Surroundings<'_>, now: Wall) -> Explanation {
    let mut reasons = Vec::new();
    let delayed = job.state.view() == View::Scheduled && job.run_at > now;
    if delayed {
        reasons.push(Reason::Delayed { until: job.run_at, attempts: job.attempts });
    }
    match around.queue.gate(around.running) {
        Gate::Open => {}
        Gate::Paused => reasons.push(Reason::QueuePaused),
        Gate::Full => reasons.push(Reason::ConcurrencyFull { running: around.running }),
    }
    if !around.demands.iter().any(|demand| demand.wants(&job.queue, &job.kind)) {
        reasons.push(Reason::NoWorker);
    }
    if !delayed && around.before_it > 0 {
        reasons.push(Reason::Behind { at_most: around.before_it });
    }
    if reasons.is_empty() {
        reasons.push(Reason::Ready);
    }
    Explanation { reasons, next_change_at: delayed.then_some(job.run_at) }
}

fn one(reason: Reason, next_change_at: Option<Wall>) -> Explanation {
    Explanation { reasons: Vec::from([reason]), next_change_at }
}
