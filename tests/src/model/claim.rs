//! Claims: the best job that is due, of an open queue, again and again until all are served.

use windlass_core::limits::CLAIM_BYTES;
use windlass_core::store::{ClaimFor, Claimed, Leased, Taker};
use windlass_core::{Demand, Kinds, Queues, StateName, Wall, WorkerId};

use super::Model;
use super::job::ModelJob;

impl Model {
    pub(super) fn claim(&mut self, now: Wall, claim: &ClaimFor, own: Option<&WorkerId>) -> Claimed {
        let (mut jobs, mut bytes) = (Vec::new(), 0);
        for (place, taker) in claim.takers.iter().enumerate() {
            for _ in 0..taker.max {
                let Some(at) = self.best(now, &claim.demand) else {
                    self.note("a claim finds less than it asked for");
                    return Claimed { jobs, dry: true, cut: false };
                };
                bytes += self.jobs[at].payload.as_str().len();
                if bytes > CLAIM_BYTES && !jobs.is_empty() {
                    return Claimed { jobs, dry: false, cut: true };
                }
                self.take(now, at, taker, own);
                let job = &self.jobs[at];
                jobs.push(Leased { taker: place, job: job.job(), payload: job.payload.clone() });
            }
        }
        Claimed { jobs, dry: false, cut: false }
    }

    fn take(&mut self, now: Wall, at: usize, taker: &Taker, own: Option<&WorkerId>) {
        let job = &mut self.jobs[at];
        let length = taker.length.unwrap_or(job.visibility_timeout);
        job.state = StateName::Processing;
        job.due = false;
        job.attempts += 1;
        job.epoch += 1;
        job.worker = Some(taker.worker.clone());
        job.lease_length = Some(length);
        job.started_at = Some(now);
        let end = job.lease_ends_at(now, own, None);
        let until = now.plus(length.millis());
        job.lease_until = Some(end.map_or(until, |end| end.min(until)));
        job.updated_at = now;
        job.spoken = None;
        let (queue, waited) = (job.queue.clone(), now.since(job.run_at));
        let figures = self.did(&queue);
        figures.started += 1;
        figures.wait.record(waited);
        if end.is_some_and(|end| end < until) {
            self.note("a lease ends with the timeout of its attempt");
        }
        self.spend(now, at);
        self.note("claim");
    }

    /// Higher priority first, then due earlier, then enqueued earlier; with aging, by how long it
    /// has waited.
    fn best(&mut self, now: Wall, demand: &Demand) -> Option<usize> {
        let mut found: Vec<usize> = (0..self.jobs.len()).collect();
        found.retain(|at| self.jobs[*at].is_ready() && wants(demand, &self.jobs[*at]));
        let ready = found.len();
        found.retain(|at| self.is_open(&self.jobs[*at]));
        if found.len() < ready {
            self.note("a paused or full queue lets nothing start");
        }
        found.retain(|at| self.flow_lets_start(now, &self.jobs[*at]));
        found.sort_by_key(|at| (self.jobs[*at].rank, self.jobs[*at].id));
        found.first().copied()
    }

    pub(super) fn is_open(&self, job: &ModelJob) -> bool {
        let running = self
            .jobs
            .iter()
            .filter(|other| other.queue == job.queue && other.state == StateName::Processing);
        let running = running.count() as u64;
        let queue = self.queues.iter().find(|queue| queue.name == job.queue);
        queue.is_none_or(|queue| {
            let full = queue.settings.concurrency.is_some_and(|most| running >= most.get().into());
            !queue.is_paused() && !full
        })
    }
}

pub(super) fn wants(demand: &Demand, job: &ModelJob) -> bool {
    let queue = match &demand.queues {
        Queues::All => true,
        Queues::Only(names) => names.contains(&job.queue),
    };
    let kind = match &demand.kinds {
        Kinds::All => true,
        Kinds::Only(kinds) => kinds.contains(&job.kind),
        Kinds::Except(kinds) => !kinds.contains(&job.kind),
    };
    queue && kind
}
