//! Contents of jobs and behaviour of their handlers: drawn from the seed and the lease alone, so
//! that a handler does the same in any process and at any time.

use windlass_core::{
    Delay, Failure, FailureKind, Fingerprint, Idempotency, IdempotencyKey, JobTimeout, Kind,
    LeaseLength, LeaseToken, MaxRetries, Millis, NewJob, Payload, Priority, QueueName, RetryPolicy,
    Strategy, Verdict, Wall, When,
};

use super::World;
use crate::faults::Fault;
use crate::rng::{Rng, mix};

/// The end of a handler, drawn when it starts; times in milliseconds.
#[derive(Debug)]
pub(super) enum Behaviour {
    /// Ends after this time with this verdict.
    Ends(u64, Verdict),
    /// Runs until it is stopped.
    Hang,
    /// Crashes its process after this time.
    Crash(u64),
}

pub(super) fn kind(number: u64) -> Kind {
    Kind::new(&format!("kind-{number}")).expect("a plain name")
}

pub(super) fn queue(number: u64) -> QueueName {
    QueueName::new(&format!("queue-{number}")).expect("a plain name")
}

impl World {
    /// Draws the behaviour of the handler of a run; `length` is that of its lease in ms.
    pub(super) fn behaviour(&mut self, token: LeaseToken, length: u64) -> Behaviour {
        let scattered = mix(token.job.get() ^ token.epoch.get().rotate_left(40));
        let mut rng = Rng::new(self.options.seed ^ scattered, 9);
        let brief = 1 + rng.below(self.options.run_ms);
        if self.healed.is_some() {
            return Behaviour::Ends(brief.min(200), complete(&mut rng));
        }
        let faults = [
            Fault::HandlerFails,
            Fault::HandlerGivesUp,
            Fault::HandlerPanics,
            Fault::HandlerHangs,
            Fault::HandlerOutlives,
            Fault::HandlerSnoozes,
            Fault::HandlerCrashes,
        ];
        let fault = faults.into_iter().find(|fault| {
            let per_mille = match fault {
                Fault::HandlerFails => 250,
                Fault::HandlerCrashes => 15,
                Fault::HandlerHangs => 30,
                _ => 60,
            };
            rng.chance(per_mille) && self.strikes(*fault, 1_000)
        });
        match fault {
            None => Behaviour::Ends(brief, complete(&mut rng)),
            Some(Fault::HandlerFails) => {
                let mut failure = Failure::new("it failed");
                if rng.chance(100) {
                    failure.retry_in = Delay::new(rng.below(3_000)).ok();
                }
                Behaviour::Ends(brief, Verdict::Fail(failure.into()))
            }
            Some(Fault::HandlerGivesUp) => {
                let failure = Failure::new("it cannot be done").permanent();
                Behaviour::Ends(brief, Verdict::Fail(failure.into()))
            }
            Some(Fault::HandlerPanics) => {
                let failure = Failure::new("it panicked").of_kind(FailureKind::Panicked);
                Behaviour::Ends(brief, Verdict::Fail(failure.into()))
            }
            Some(Fault::HandlerHangs) => Behaviour::Hang,
            Some(Fault::HandlerOutlives) => {
                Behaviour::Ends(length + rng.below(length), complete(&mut rng))
            }
            Some(Fault::HandlerSnoozes) => {
                let delay = Delay::new(rng.below(4_000)).unwrap_or(Delay::MIN);
                Behaviour::Ends(brief, Verdict::Snooze { delay })
            }
            Some(_) => Behaviour::Crash(brief),
        }
    }

    /// Draws a job that some worker wants, with a payload that no other has.
    pub(super) fn draw_job(&mut self, number: u64, keyed: bool) -> NewJob {
        let rng = &mut self.work;
        let options = &self.options;
        let payload = Payload::new(&format!("{{\"n\":{number}}}")).expect("a short text");
        let mut new = NewJob::new(kind(rng.below(options.kinds)), payload.clone());
        new.queue = queue(rng.below(options.queues));
        let priority = i16::try_from(rng.below(3)).unwrap_or(0);
        new.priority = Priority::new(priority).unwrap_or(Priority::DEFAULT);
        new.when = match rng.below(10) {
            0..=6 => When::Now,
            7 | 8 => When::After(Delay::new(rng.below(8_000)).unwrap_or(Delay::MIN)),
            _ => {
                let wall = self.wall.read(self.now);
                When::At(Wall::new(wall + rng.below(10_000).cast_signed() - 2_000))
            }
        };
        if rng.chance(5) {
            new.when = When::At(Wall::MAX);
        }
        let (low, high) = options.lease_ms;
        new.visibility_timeout = LeaseLength::new(rng.range(low, high)).ok();
        let retries = u32::try_from(rng.below(options.retries + 1)).unwrap_or(0);
        new.max_retries = MaxRetries::new(retries).ok();
        if rng.chance(200) && options.faults.has(Fault::HandlerHangs) {
            new.timeout = JobTimeout::new(rng.range(500, 10_000)).ok();
        }
        new.retry = Some(draw_retry(rng));
        if keyed {
            let key = IdempotencyKey::new(&format!("key-{number}")).expect("a plain key");
            let payload = Fingerprint::of(payload.as_str().as_bytes());
            new.idempotency = Some(Idempotency { key, payload });
        }
        new
    }
}

fn draw_retry(rng: &mut Rng) -> RetryPolicy {
    let strategy = match rng.below(3) {
        0 => Strategy::Fixed,
        1 => Strategy::Linear,
        _ => Strategy::Exponential {
            factor: u32::try_from(rng.range(1_000, 100_000)).unwrap_or(2_000),
        },
    };
    let initial = Millis::new(rng.below(3_000));
    let cap = Millis::new(rng.range(1_000, 8_000));
    let jitter = u32::try_from(rng.below(1_001)).unwrap_or(0);
    RetryPolicy::new(strategy, initial, cap, jitter).unwrap_or_default()
}

fn complete(rng: &mut Rng) -> Verdict {
    let result = rng.chance(200).then(|| Payload::new("\"done\"").expect("a short text"));
    Verdict::Complete { result }
}
