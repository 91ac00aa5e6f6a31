//! The keys by which jobs are found, moved with the rows: each table once, in the order of its
//! keys.

use redb::{Table, WriteTransaction};
use windlass_core::{IndexKey, Job, View};

use crate::rows::{self, Numbers};
use crate::sorted::{put_all, remove_all};
use crate::tables::{
    Access, CANCELLED, DONE, FAILED, Found, KEYED, LEASED, PAIRS, READY, SCHEDULED, SETTLED,
    TimeTable, job_key, keyed_key, ready_key, settled_key, time_key,
};
use crate::write::{Arena, expect};

/// The keys by which jobs are found: those to put in place and those to remove.
#[derive(Debug, Default)]
pub(crate) struct Index<'j> {
    ready: Moves<[u8; 34]>,
    pairs: Moves<[u8; 16]>,
    settled: Moves<[u8; 25]>,
    keyed: Moves<Vec<u8>>,
    /// By time, in the order of [`View::ALL`]; leases are put in place with their holder.
    times: [Moves<[u8; 16]>; View::ALL.len()],
    holders: Vec<([u8; 16], &'j Job)>,
}

impl<'j> Index<'j> {
    /// Adds the keys of a new job.
    pub(crate) fn add(&mut self, job: &'j Job, numbers: Numbers) {
        let id = job.id.get();
        self.pairs.put.push(job_key(numbers.queue, numbers.kind, id));
        self.keyed.put.extend(job.idempotency_key.as_ref().map(|key| keyed_key(key.as_str(), id)));
        self.add_at(&job.index_key(), job, numbers);
    }

    fn add_at(&mut self, to: &IndexKey, job: &'j Job, Numbers { queue, kind, .. }: Numbers) {
        let place = time_key(to.at, job.id.get());
        match to.view {
            View::Queued => self.ready.put.push(ready_key(queue, kind, to.rank)),
            View::Processing => self.holders.push((place, job)),
            view => {
                self.times[view.index()].put.push(place);
                self.settled.put.push(settled_key(queue, kind, view, place));
            }
        }
    }

    /// Removes the keys of a job that is removed.
    pub(crate) fn remove(&mut self, from: &IndexKey, job: &Job, numbers: Numbers) {
        let id = job.id.get();
        self.pairs.removed.push(job_key(numbers.queue, numbers.kind, id));
        let key = job.idempotency_key.as_ref();
        self.keyed.removed.extend(key.map(|key| keyed_key(key.as_str(), id)));
        self.remove_at(from, job, numbers);
    }

    fn remove_at(&mut self, from: &IndexKey, job: &Job, Numbers { queue, kind, .. }: Numbers) {
        let place = time_key(from.at, job.id.get());
        match from.view {
            View::Queued => self.ready.removed.push(ready_key(queue, kind, from.rank)),
            view => {
                self.times[view.index()].removed.push(place);
                if view != View::Processing {
                    self.settled.removed.push(settled_key(queue, kind, view, place));
                }
            }
        }
    }

    /// Moves the keys of a job from where it was to where it is.
    pub(crate) fn change(&mut self, from: &IndexKey, job: &'j Job, numbers: Numbers) {
        let to = job.index_key();
        let stays = (from.view, from.at, from.rank) == (to.view, to.at, to.rank);
        // A lease may have another length, though it ends at the same instant.
        if !stays || to.view == View::Processing {
            self.remove_at(from, job, numbers);
            self.add_at(&to, job, numbers);
        }
    }

    /// Moves all keys, in their order.
    pub(crate) fn write(mut self, txn: &WriteTransaction) -> Found<()> {
        if !self.ready.is_empty() {
            self.ready.write("ready", &mut txn.open(READY)?)?;
        }
        if !self.pairs.is_empty() {
            self.pairs.write("pairs", &mut txn.open(PAIRS)?)?;
        }
        if !self.settled.is_empty() {
            self.settled.write("settled", &mut txn.open(SETTLED)?)?;
        }
        if !self.keyed.is_empty() {
            let mut keyed = txn.open(KEYED)?;
            for key in &self.keyed.removed {
                keyed.remove(key.as_slice())?;
            }
            for key in &self.keyed.put {
                keyed.insert(key.as_slice(), ())?;
            }
        }
        let tables: [(View, TimeTable); 4] = [
            (View::Scheduled, SCHEDULED),
            (View::Done, DONE),
            (View::Failed, FAILED),
            (View::Cancelled, CANCELLED),
        ];
        for (view, table) in tables {
            let moves = &mut self.times[view.index()];
            if !moves.is_empty() {
                moves.write(view.as_str(), &mut txn.open(table)?)?;
            }
        }
        self.write_leases(txn)
    }

    fn write_leases(&mut self, txn: &WriteTransaction) -> Found<()> {
        let removed = &mut self.times[View::Processing.index()].removed;
        if removed.is_empty() && self.holders.is_empty() {
            return Ok(());
        }
        let mut leased = txn.open(LEASED)?;
        removed.sort_unstable();
        expect("leases to remove", removed.len(), remove_all(&mut leased, removed)?)?;
        self.holders.sort_unstable_by_key(|(key, _)| *key);
        let mut arena = Arena::default();
        let mut places = Vec::with_capacity(self.holders.len());
        for (key, job) in &self.holders {
            let Some(lease) = job.lease() else { continue };
            let row = arena.add(|out| rows::put_holder(out, &lease.worker, lease.length));
            places.push((*key, row));
        }
        let put: Vec<([u8; 16], &[u8])> =
            places.iter().map(|(key, row)| (*key, arena.slice(*row))).collect();
        put_all(&mut leased, &put)?;
        Ok(())
    }
}

/// Keys of one table: those to put in place and those to remove.
#[derive(Debug)]
struct Moves<K> {
    put: Vec<K>,
    removed: Vec<K>,
}

impl<K> Default for Moves<K> {
    fn default() -> Self {
        Self { put: Vec::new(), removed: Vec::new() }
    }
}

impl<K> Moves<K> {
    fn is_empty(&self) -> bool {
        self.put.is_empty() && self.removed.is_empty()
    }
}

impl<const N: usize> Moves<[u8; N]> {
    fn write(&mut self, name: &str, table: &mut Table<'_, &'static [u8; N], ()>) -> Found<()> {
        self.removed.sort_unstable();
        self.put.sort_unstable();
        let removed = remove_all(table, &self.removed)?;
        expect(format_args!("{name} keys to remove"), self.removed.len(), removed)?;
        let put: Vec<([u8; N], ())> = self.put.iter().map(|key| (*key, ())).collect();
        put_all(table, &put)?;
        Ok(())
    }
}
