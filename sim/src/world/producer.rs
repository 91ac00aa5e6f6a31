//! Producers: they enqueue, wait for an answer, and try again with the same key when none comes.

use windlass_core::machine::{Answer, Refused, Request};
use windlass_core::{Fingerprint, NewJob};

use super::World;
use super::event::{Event, Sender};

/// A job that a producer enqueues, with its tries.
#[derive(Debug)]
pub(super) struct Submission {
    jobs: Vec<NewJob>,
    /// Whether it is sent again after a timeout: it has a key, or may be stored twice.
    again: bool,
    tries: u32,
    /// Whether the producer waits for an answer.
    pub(super) open: bool,
}

impl World {
    pub(super) fn begin_producers(&mut self) {
        for producer in 0..self.options.producers {
            let at = self.work.below(1_000);
            self.after(at, Event::Produce(usize::try_from(producer).unwrap_or(0)));
        }
    }

    /// Enqueues a job, and schedules the next.
    pub(super) fn produce(&mut self, producer: usize) {
        let wanted =
            self.submissions.iter().map(|submission| submission.jobs.len() as u64).sum::<u64>();
        if self.healed.is_some() || wanted >= self.options.jobs {
            return;
        }
        let count = if self.work.chance(150) { self.work.range(2, 8) } else { 1 };
        let keyed = self.work.chance(600);
        let mut jobs: Vec<NewJob> =
            (0..count).map(|at| self.draw_job(wanted + at, keyed)).collect();
        if self.options.seed.is_multiple_of(32) && self.work.chance(10) {
            // A request with more jobs than the limit.
            let many = vec![jobs[0].clone(); windlass_core::limits::JOBS_PER_REQUEST + 1];
            let to = self.any_process();
            self.send(to, Sender::Operator, &Request::EnqueueMany(many));
        }
        if keyed && self.work.chance(30) {
            self.send_conflict(&jobs[0]);
        }
        if self.work.chance(200) {
            jobs.truncate(1);
        }
        let again = keyed || self.work.chance(300);
        self.submissions.push(Submission { jobs, again, tries: 0, open: true });
        self.send_submission(self.submissions.len() - 1);
        let pace = 2 * self.options.millis * self.options.producers / (self.options.jobs + 1);
        let pause = if self.work.chance(300) { 0 } else { self.work.below(pace + 1) };
        self.after(pause, Event::Produce(producer));
    }

    /// Sends another request with the key of a job, before the job itself.
    fn send_conflict(&mut self, job: &NewJob) {
        let mut other = job.clone();
        if let Some(idempotency) = &mut other.idempotency {
            idempotency.payload = Fingerprint(7);
        }
        let to = self.any_process();
        self.send(to, Sender::Operator, &Request::Enqueue(other));
    }

    fn send_submission(&mut self, at: usize) {
        let to = self.any_process();
        let submission = &mut self.submissions[at];
        submission.tries += 1;
        let tries = submission.tries;
        let request = match submission.jobs.as_slice() {
            [one] => Request::Enqueue(one.clone()),
            many => Request::EnqueueMany(many.to_vec()),
        };
        self.send(to, Sender::Producer(at), &request);
        let wait_ms = self.net.range(500, 6_000);
        self.after(wait_ms, Event::GiveUp(at, tries));
    }

    /// Ends a producer's wait for an answer: it sends again, or gives up.
    pub(super) fn give_up(&mut self, at: usize, tries: u32) {
        let submission = &mut self.submissions[at];
        if !submission.open || submission.tries != tries {
            return;
        }
        // Within its window a key makes it safe; beyond, it would be another job.
        if submission.again && submission.tries < 6 {
            self.send_submission(at);
        } else {
            submission.open = false;
        }
    }

    pub(super) fn producer_answered(&mut self, at: usize, answer: &Answer) {
        let submission = &mut self.submissions[at];
        let known = match answer {
            Answer::Refused(Refused::Unknown(_)) => false,
            Answer::Refused(_) => submission.tries >= 4,
            _ => true,
        };
        if known {
            submission.open = false;
        }
    }
}
