//! What a process knows of a store that it alone has written since: leased rows, the places of
//! ready jobs, queues. The store says when another has committed, or a transaction has failed.

use windlass_core::store::Changes;
use windlass_core::{Job, Queue, QueueName, View};

use crate::{Heads, Lookup, Pair, Recent};

/// What is known, as of one version of the data.
#[derive(Debug, Default)]
pub struct Cache {
    version: Option<i64>,
    /// Leased rows.
    pub recent: Recent,
    /// Queues and kinds with ready jobs, with their best ranks.
    pub heads: Heads,
    /// Queues by their numbers.
    pub queues: Lookup<Queue>,
}

impl Cache {
    /// Begins a transaction at this version of the data: one that another process changed is not
    /// known. Returns whether it is known.
    pub fn begin(&mut self, version: i64) -> bool {
        let known = self.version == Some(version);
        if !known {
            self.clear();
            self.version = Some(version);
        }
        known
    }

    /// Gives up everything that is known.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Follows what was written. `pair` tells the numbers of a job's queue and kind, `queue` the
    /// number of a queue. If the transaction fails, everything must be cleared.
    pub fn absorb<E>(
        &mut self,
        changes: Changes,
        mut pair: impl FnMut(&Job) -> Result<Pair, E>,
        mut queue: impl FnMut(&QueueName) -> Result<i64, E>,
    ) -> Result<(), E> {
        for changed in &changes.queues {
            let number = queue(&changed.name)?.cast_unsigned();
            self.queues.insert(number, changed.clone());
        }
        for dropped in &changes.dropped_queues {
            self.queues.remove(queue(dropped)?.cast_unsigned());
        }
        // Most batches are of one queue and kind.
        let mut latest: Option<(&Job, Pair)> = None;
        let mut pair_of = |job| match latest {
            Some((last, pair)) if same(last, job) => Ok(pair),
            _ => {
                let pair = pair(job)?;
                latest = Some((job, pair));
                Ok(pair)
            }
        };
        for moved in changes.updates.iter().chain(&changes.removes) {
            if moved.from.view == View::Queued {
                self.heads.remove(pair_of(&moved.job)?, moved.from.rank);
            }
        }
        let updates = changes.updates.iter().map(|moved| &moved.job);
        for job in changes.inserts.iter().chain(updates) {
            if job.state.view() == View::Queued {
                self.heads.add(pair_of(job)?, job.rank);
            }
        }
        self.recent.absorb(changes);
        Ok(())
    }
}

/// Whether both are of one queue and kind.
fn same(a: &Job, b: &Job) -> bool {
    a.queue.same(&b.queue) && a.kind.same(&b.kind)
}
