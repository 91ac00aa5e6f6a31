//! The reasons why a job is in its state, and when that can next change by itself.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::{Demand, Gate, InUse, Job, Queue, State, View, Wall, WorkerId};

/// What `explain` has to know beside the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surroundings<'a> {
    /// The queue of the job.
    pub queue: &'a Queue,
    /// What counts against the limits of that queue and of the job's kind in it.
    pub in_use: InUse,
    /// Upper bound of the number of ready jobs of that queue that rank before it.
    pub before_it: u64,
    /// The demand of every worker pool and waiting poll, busy or not.
    pub demands: &'a [Demand],
}

/// The answer of [`explain`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// Every reason that holds; at least one.
    pub reasons: Vec<Reason>,
    /// When the state can next change by itself; `None` if only a worker or an operator can change
    /// it.
    pub next_change_at: Option<Wall>,
}

/// One reason why a job is in its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// It can be claimed; the next free worker takes it.
    Ready,
    /// It is not due yet.
    Delayed {
        /// When the job may be claimed.
        until: Wall,
        /// Charged attempts so far.
        attempts: u32,
    },
    /// The queue of the job was paused by an operator.
    QueuePaused,
    /// No worker asks for its queue and kind.
    NoWorker,
    /// Its queue is at its concurrency limit.
    ConcurrencyFull {
        /// Number of running jobs of the queue.
        running: u64,
    },
    /// Its kind is at its concurrency limit in the queue.
    KindFull {
        /// Number of running jobs of the kind in the queue.
        running: u64,
    },
    /// Its queue, or its kind in it, is at its rate.
    RateLimited {
        /// When a job may start, if no other starts before.
        until: Wall,
    },
    /// Other jobs rank before it.
    Behind {
        /// Upper bound of their number.
        at_most: u64,
    },
    /// A worker runs it.
    Leased {
        /// The owner of the lease.
        worker: WorkerId,
        /// When the lease expires, unless a heartbeat extends it.
        until: Wall,
        /// The number of the attempt, and the number allowed.
        attempt: (u32, u32),
    },
    /// The last attempt completed.
    Done {
        /// When the completion was recorded.
        at: Wall,
    },
    /// It is a dead letter.
    Failed {
        /// When the last failure was recorded.
        at: Wall,
        /// Charged attempts.
        attempts: u32,
    },
    /// A client or operator cancelled it.
    Cancelled {
        /// When the cancel was recorded.
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
            Self::KindFull { .. } => "kind_full",
            Self::RateLimited { .. } => "rate_limited",
            Self::Behind { .. } => "behind",
            Self::Leased { .. } => "leased",
            Self::Done { .. } => "done",
            Self::Failed { .. } => "failed",
            Self::Cancelled { .. } => "cancelled",
        }
    }

    /// A sentence for people. `time` formats instants.
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
                let times = Count(u64::from(*attempts), "time");
                write!(f, "it failed {times} and is due again at {}", time(*until))
            }
            Reason::QueuePaused => f.write_str("its queue is paused; resume it"),
            Reason::NoWorker => {
                f.write_str("no worker asks for its queue and kind; start one that does")
            }
            Reason::ConcurrencyFull { running } => {
                let jobs = Count(*running, "running job");
                write!(f, "its queue is at its concurrency limit: it has {jobs}")
            }
            Reason::KindFull { running: 0 } => f.write_str(
                "its kind is paused in its queue: the concurrency limit of the kind is 0",
            ),
            Reason::KindFull { running } => {
                let jobs = Count(*running, "running job");
                write!(f, "its kind is at its concurrency limit in its queue: it has {jobs}")
            }
            Reason::RateLimited { until } => {
                let until = time(*until);
                write!(f, "its queue or kind is at its rate; the next job may start at {until}")
            }
            Reason::Behind { at_most } => {
                write!(f, "it is behind at most {}", Count(*at_most, "other job"))
            }
            Reason::Leased { worker, until, attempt: (which, of) } => {
                let until = time(*until);
                write!(f, "{worker} runs it, attempt {which} of {of}; its lease runs until {until}")
            }
            Reason::Done { at } => write!(f, "it completed at {}", time(*at)),
            Reason::Failed { at, attempts } => {
                let (at, attempts) = (time(*at), Count(u64::from(*attempts), "attempt"));
                write!(f, "it has been in the dead-letter queue since {at}, after {attempts}")
            }
            Reason::Cancelled { at } => write!(f, "it was cancelled at {}", time(*at)),
        }
    }
}

/// A number with its noun, in the plural unless it is one.
struct Count(u64, &'static str);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(number, noun) = self;
        write!(f, "{number} {noun}{}", if *number == 1 { "" } else { "s" })
    }
}

/// Lists every reason why `job` is in its state, and when that can next change by itself.
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
    let InUse { running, of_kind, .. } = around.in_use;
    let gate = around.queue.gate_of(&job.kind, &around.in_use, now);
    match gate {
        Gate::Open => {}
        Gate::Paused => reasons.push(Reason::QueuePaused),
        Gate::Full => reasons.push(Reason::ConcurrencyFull { running }),
        Gate::KindFull => reasons.push(Reason::KindFull { running: of_kind }),
        // It says nothing about the time when the job is due.
        Gate::RateLimited { .. } if delayed => {}
        Gate::RateLimited { until } => reasons.push(Reason::RateLimited { until }),
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
    let next_change_at = if delayed { Some(job.run_at) } else { gate.until() };
    Explanation { reasons, next_change_at }
}

fn one(reason: Reason, next_change_at: Option<Wall>) -> Explanation {
    Explanation { reasons: Vec::from([reason]), next_change_at }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_a_thing_is_not_in_the_plural() {
        let detail = |reason: Reason| reason.detail(|at| at.to_string());
        let delayed = |attempts| detail(Reason::Delayed { until: Wall::new(7), attempts });
        assert_eq!(delayed(1), "it failed 1 time and is due again at 7");
        assert_eq!(delayed(2), "it failed 2 times and is due again at 7");
        assert_eq!(detail(Reason::Behind { at_most: 1 }), "it is behind at most 1 other job");
    }
}
