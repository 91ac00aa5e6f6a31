//! Producers: they enqueue, wait for an answer, and try again with the same key when none comes.

use windlass_core::machine::{Answer, Refused, Request};
use windlass_core::{Fingerprint, NewJob};

use super::World;
use super::event::{Event, Who};

/// Something a producer wants enqueued.
#[derive(Debug)]
pub(super) struct Wish {
    jobs: Vec<NewJob>,
    /// Whether it is safe, or wanted, to send it again.
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

    /// A producer enqueues something, and comes again after a while.
    pub(super) fn produce(&mut self, producer: usize) {
        let wanted = self.wishes.iter().map(|wish| wish.jobs.len() as u64).sum::<u64>();
        if self.healed.is_some() || wanted >= self.options.jobs {
            return;
        }
        let count = if self.work.chance(150) { self.work.range(2, 8) } else { 1 };
        let keyed = self.work.chance(600);
        let mut jobs: Vec<NewJob> =
            (0..count).map(|at| self.draw_job(wanted + at, keyed)).collect();
        if self.options.seed.is_multiple_of(32) && self.work.chance(10) {
            // One request that asks for more than may be asked.
            let many = vec![jobs[0].clone(); windlass_core::limits::JOBS_PER_REQUEST + 1];
            let to = self.any_process();
            self.send(to, Who::Operator, &Request::EnqueueMany(many));
        }
        if keyed && self.work.chance(30) {
            self.send_conflict(&jobs[0]);
        }
        if self.work.chance(200) {
            jobs.truncate(1);
        }
        let again = keyed || self.work.chance(300);
        self.wishes.push(Wish { jobs, again, tries: 0, open: true });
        self.send_wish(self.wishes.len() - 1);
        let pace = 2 * self.options.millis * self.options.producers / (self.options.jobs + 1);
        let pause = if self.work.chance(300) { 0 } else { self.work.below(pace + 1) };
        self.after(pause, Event::Produce(producer));
    }

    /// Another request under the key of a job, before the job itself.
    fn send_conflict(&mut self, job: &NewJob) {
        let mut other = job.clone();
        if let Some(idempotency) = &mut other.idempotency {
            idempotency.payload = Fingerprint(7);
        }
        let to = self.any_process();
        self.send(to, Who::Operator, &Request::Enqueue(other));
    }

    fn send_wish(&mut self, at: usize) {
        let to = self.any_process();
        let wish = &mut self.wishes[at];
        wish.tries += 1;
        let tries = wish.tries;
        let request = match wish.jobs.as_slice() {
            [one] => Request::Enqueue(one.clone()),
            many => Request::EnqueueMany(many.to_vec()),
        };
        self.send(to, Who::Producer(at), &request);
        let patience = self.net.range(500, 6_000);
        self.after(patience, Event::GiveUp(at, tries));
    }

    /// A producer has waited long enough: it sends again, or leaves it.
    pub(super) fn give_up(&mut self, at: usize, tries: u32) {
        let wish = &mut self.wishes[at];
        if !wish.open || wish.tries != tries {
            return;
        }
        // Within its window a key makes it safe; beyond, it would be another wish.
        if wish.again && wish.tries < 6 {
            self.send_wish(at);
        } else {
            wish.open = false;
        }
    }

    pub(super) fn producer_hears(&mut self, at: usize, answer: &Answer) {
        let wish = &mut self.wishes[at];
        let known = match answer {
            Answer::Refused(Refused::Unknown(_)) => false,
            Answer::Refused(_) => wish.tries >= 4,
            _ => true,
        };
        if known {
            wish.open = false;
        }
    }
}
