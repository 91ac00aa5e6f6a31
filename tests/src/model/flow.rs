//! Rates, limits of kinds and aging, stated naively.

use windlass_core::limits::PAGE_ROWS;
use windlass_core::store::{Batch, Claimed, Outcomes};
use windlass_core::{Kind, Priority, Queue, QueueName, Rate, StateName, Tat, Tats, Wall};

use super::Model;
use super::job::ModelJob;

/// A rate that was used: of the queue, or of a kind in it. When the starts so far are paid for, in
/// nanoseconds.
#[derive(Debug, Clone)]
pub(super) struct ModelTat {
    queue: QueueName,
    kind: Option<Kind>,
    paid_until: i128,
}

impl Model {
    /// A job waits from now on: its place among the ready ones.
    pub(super) fn place(&mut self, at: usize) {
        let job = &self.jobs[at];
        let queue = self.queues.iter().find(|queue| queue.name == job.queue);
        let aging = queue.and_then(|queue| queue.settings.flow.aging);
        let priority = i64::from(job.priority.get());
        let (class, due) = match aging {
            None => (-job.priority.get(), job.run_at),
            Some(aging) => {
                let bonus = priority * i64::try_from(aging.get()).expect("it is small");
                (0, Wall::new(job.run_at.get() - bonus))
            }
        };
        if aging.is_some() && job.priority != Priority::DEFAULT {
            self.note("a job of a queue with aging is ranked by how long it has waited");
        }
        self.jobs[at].rank = (class, due);
    }

    /// Whether the limits of the job's kind, and the rates, let it start.
    pub(super) fn flow_lets_start(&self, now: Wall, job: &ModelJob) -> bool {
        !self.kind_is_full(job) && !self.is_rate_limited(now, job)
    }

    fn kind_is_full(&self, job: &ModelJob) -> bool {
        let Some(queue) = self.queues.iter().find(|queue| queue.name == job.queue) else {
            return false;
        };
        let limits = queue.settings.flow.kinds.iter().find(|(kind, _)| *kind == job.kind);
        let Some(most) = limits.and_then(|(_, limits)| limits.concurrency) else { return false };
        let same = |other: &&ModelJob| other.queue == job.queue && other.kind == job.kind;
        let running = self.jobs.iter().filter(same);
        let running = running.filter(|other| other.state == StateName::Processing).count();
        running >= most.get() as usize
    }

    fn is_rate_limited(&self, now: Wall, job: &ModelJob) -> bool {
        let rates = self.rates_of(job);
        rates.iter().any(|(kind, rate)| {
            let after = self.paid(&job.queue, kind.as_ref(), rate, now) + interval(rate);
            after - nanos(now) > tolerance(rate)
        })
    }

    fn rates_of(&self, job: &ModelJob) -> Vec<(Option<Kind>, Rate)> {
        let Some(queue) = self.queues.iter().find(|queue| queue.name == job.queue) else {
            return Vec::new();
        };
        let of_queue = queue.settings.flow.rate.map(|rate| (None, rate));
        let of_kind = queue.settings.flow.kinds.iter().filter(|(kind, _)| *kind == job.kind);
        let of_kind = of_kind.filter_map(|(kind, limits)| Some((Some(kind.clone()), limits.rate?)));
        of_queue.into_iter().chain(of_kind).collect()
    }

    /// Until when the starts of a rate are paid for: not before now, and at most by the burst
    /// ahead. What is ahead by a second more was written by a clock that was set back, and is void.
    fn paid(&self, queue: &QueueName, kind: Option<&Kind>, rate: &Rate, now: Wall) -> i128 {
        let known = self.tats.iter().find(|tat| tat.queue == *queue && tat.kind.as_ref() == kind);
        let until = known.map_or(i128::MIN, |tat| tat.paid_until);
        if until > nanos(now) + tolerance(rate) + 1_000_000_000 {
            return nanos(now);
        }
        until.max(nanos(now)).min(nanos(now) + tolerance(rate))
    }

    /// A job has started.
    pub(super) fn spend(&mut self, now: Wall, at: usize) {
        let job = self.jobs[at].clone();
        for (kind, rate) in self.rates_of(&job) {
            self.note("a start counts against a rate");
            let paid_until = self.paid(&job.queue, kind.as_ref(), &rate, now) + interval(&rate);
            self.tats.retain(|tat| tat.queue != job.queue || tat.kind != kind);
            self.tats.push(ModelTat { queue: job.queue.clone(), kind, paid_until });
        }
    }

    /// The settings of a queue have changed, or it is gone: rates that it has no more are dropped.
    pub(super) fn drop_rates(&mut self, name: &QueueName) {
        let queue = self.queues.iter().find(|queue| queue.name == *name);
        let has = |queue: &Queue, kind: Option<&Kind>| match kind {
            None => queue.settings.flow.rate.is_some(),
            Some(kind) => {
                let mut kinds = queue.settings.flow.kinds.iter();
                kinds.any(|(of, limits)| of == kind && limits.rate.is_some())
            }
        };
        self.tats.retain(|tat| {
            tat.queue != *name || queue.is_some_and(|queue| has(queue, tat.kind.as_ref()))
        });
    }

    pub(super) fn tats_of(&self, queue: &QueueName) -> Tats {
        let mut tats = Tats::default();
        for tat in self.tats.iter().filter(|tat| tat.queue == *queue) {
            let nanos = i64::try_from(tat.paid_until).expect("it is not far ahead");
            tats.put(tat.kind.as_ref(), Tat::new(nanos));
        }
        tats
    }

    /// A claim that a rate alone kept from a job has to say when to look again: no later than when
    /// the jobs of ten milliseconds, or of the burst, may start.
    pub(super) fn check_next_open(
        &mut self,
        now: Wall,
        batch: &Batch,
        claims: &[Claimed],
        found: &Outcomes,
    ) {
        let short = batch.claims.iter().zip(claims).filter(|(_, claimed)| claimed.dry);
        let mut latest: Vec<Wall> = Vec::new();
        for (claim, _) in short {
            for job in self.jobs.iter().filter(|job| job.is_ready()) {
                let open = self.is_open(job) && !self.kind_is_full(job);
                if open && super::claim::wants(&claim.demand, job) && self.is_rate_limited(now, job)
                {
                    let again = self.rates_of(job).into_iter().map(|(kind, rate)| {
                        let starts = (10_000_000 / interval(&rate)).clamp(1, rate.burst().into());
                        let paid = self.paid(&job.queue, kind.as_ref(), &rate, now);
                        let wait = paid - nanos(now) + starts * interval(&rate) - tolerance(&rate);
                        let millis =
                            i64::try_from(wait.max(0) / 1_000_000 + 1).expect("it is soon");
                        Wall::new(now.get() + millis)
                    });
                    latest.extend(again.max());
                }
            }
        }
        let Some(latest) = latest.into_iter().min() else { return };
        self.note("a claim that a rate keeps from jobs says when to look again");
        if found.next_open.is_none_or(|at| at > latest) {
            let at = found.next_open;
            self.complaints.push(format!("a rate opens by {latest:?}, but is said to at {at:?}"));
        }
    }

    pub(super) fn note_full_kinds(&mut self) {
        let full = |job: &&ModelJob| job.is_ready() && self.kind_is_full(job);
        if self.jobs.iter().take(PAGE_ROWS).any(|job| full(&job)) {
            self.note("a kind at its limit waits");
        }
    }
}

fn nanos(at: Wall) -> i128 {
    i128::from(at.get()) * 1_000_000
}

/// Nanoseconds per start, rounded up.
fn interval(rate: &Rate) -> i128 {
    let (per, limit) = (i128::from(rate.per.get()) * 1_000_000, i128::from(rate.limit.get()));
    per / limit + i128::from(per % limit > 0)
}

fn tolerance(rate: &Rate) -> i128 {
    i128::from(rate.burst()) * interval(rate)
}
