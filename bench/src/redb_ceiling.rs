//! The ceiling of the redb store: the same bytes in the same tables, written by a bare loop with
//! the same durability and batch size. It has no rules, no checks and no callers; and its keys are
//! in order, so it walks along tables and never seeks.

use std::ops::{Bound, RangeInclusive};
use std::path::Path;

use redb::{
    Builder, Database, Durability, ReadableTable, Table, TableDefinition, WriteTransaction,
};
use windlass_store_redb::RedbStore;

use crate::contender::{Contender, LEASE, NOW, PROCESS, WORKER, payload, seed};
use crate::measure::Outcome;

type Raw = &'static [u8];

const META: TableDefinition<Raw, u64> = TableDefinition::new("meta");
const JOBS: TableDefinition<u64, Raw> = TableDefinition::new("jobs");
const PAYLOADS: TableDefinition<u64, Raw> = TableDefinition::new("payloads");
const READY: TableDefinition<&[u8; 34], ()> = TableDefinition::new("ready2");
const PAIRS: TableDefinition<&[u8; 16], ()> = TableDefinition::new("pairs");
const SETTLED: TableDefinition<&[u8; 25], ()> = TableDefinition::new("settled");
const LEASED: TableDefinition<&[u8; 16], Raw> = TableDefinition::new("leased");
const DONE: TableDefinition<&[u8; 16], ()> = TableDefinition::new("done");
const COUNTS: TableDefinition<&[u8; 8], Raw> = TableDefinition::new("counts");
const MARKERS: TableDefinition<u64, Raw> = TableDefinition::new("markers");

/// Page cache in bytes, as in the store.
const CACHE: usize = 128 * 1024 * 1024;
/// The number of the only queue, kind and retry policy.
const ONE: u8 = 1;
const VERSION: u8 = 1;
const JOB_VERSION: u8 = 2;

/// A bare database with the store's tables.
pub(crate) struct RedbCeiling {
    db: Database,
    payload: String,
    in_row: bool,
    last_id: u64,
    commits: u64,
    queued: u64,
    done: u64,
    held: Option<RangeInclusive<u64>>,
}

/// States of a job in this loop.
#[derive(Clone, Copy)]
enum View {
    Queued,
    Processing,
    Done,
}

impl RedbCeiling {
    /// Makes the file with our own tables, then writes with a plain loop. The payload is in its own
    /// table, or in the row of its job.
    pub(crate) fn open(path: &Path, payload_bytes: usize, in_row: bool) -> Outcome<Self> {
        seed(RedbStore::open(path)?)?;
        let db = Builder::new().set_cache_size(CACHE).open(path)?;
        let payload = payload(payload_bytes);
        Ok(Self { db, payload, in_row, last_id: 1, commits: 2, queued: 0, done: 0, held: None })
    }

    fn begin(&self) -> Outcome<WriteTransaction> {
        let mut txn = self.db.begin_write()?;
        txn.set_quick_repair(true);
        txn.set_two_phase_commit(true);
        txn.set_durability(Durability::Immediate)?;
        Ok(txn)
    }

    /// Counts, marks the commit and makes it.
    fn commit(&mut self, txn: WriteTransaction) -> Outcome<()> {
        self.commits += 1;
        let processing = self.held.as_ref().map_or(0, |held| held.end() - held.start() + 1);
        let mut row = vec![VERSION];
        for count in [self.queued, 0, processing, self.done, 0, 0, 0] {
            put(&mut row, count);
        }
        txn.open_table(COUNTS)?.insert(&[0, 0, 0, ONE, 0, 0, 0, ONE], row.as_slice())?;
        let mut row = vec![VERSION];
        put(&mut row, self.commits);
        put_signed(&mut row, NOW);
        txn.open_table(MARKERS)?.insert(PROCESS, row.as_slice())?;
        txn.commit()?;
        Ok(())
    }

    /// Rewrites the rows of these jobs.
    fn update(
        &self,
        jobs: &mut Table<'_, u64, Raw>,
        ids: RangeInclusive<u64>,
        view: View,
    ) -> Outcome<()> {
        let mut row = Vec::new();
        for id in ids {
            row.clear();
            self.row(&mut row, view);
            jobs.insert(id, row.as_slice())?;
        }
        Ok(())
    }

    fn row(&self, row: &mut Vec<u8>, view: View) {
        put_job(row, view, self.payload.len() as u64);
        if self.in_row {
            row.extend_from_slice(self.payload.as_bytes());
        }
    }

    fn complete(&mut self, txn: &WriteTransaction, ids: &RangeInclusive<u64>) -> Outcome<()> {
        let (first, last) = (time_key(LEASE, *ids.start()), time_key(LEASE, *ids.end()));
        let mut leased = txn.open_table(LEASED)?;
        leased.retain_in::<&[u8; 16], _>(&first..=&last, |_, _| false)?;
        append(&mut txn.open_table(DONE)?, ids.clone().map(|id| time_key(0, id)))?;
        append(&mut txn.open_table(SETTLED)?, ids.clone().map(settled_key))?;
        self.done += ids.end() - ids.start() + 1;
        self.update(&mut txn.open_table(JOBS)?, ids.clone(), View::Done)
    }

    fn claim(&mut self, txn: &WriteTransaction, count: usize) -> Outcome<RangeInclusive<u64>> {
        let mut ready = txn.open_table(READY)?;
        let mut found = Vec::with_capacity(count);
        for row in ready.iter()?.take(count) {
            found.push(*row?.0.value());
        }
        let (Some(first), Some(last)) = (found.first(), found.last()) else {
            return Err("there is nothing to claim".into());
        };
        let ids = id_of(first)..=id_of(last);
        ready.retain_in::<&[u8; 34], _>(first..=last, |_, ()| false)?;
        let mut jobs = txn.open_table(JOBS)?;
        std::hint::black_box(read(&jobs, &ids)?);
        self.update(&mut jobs, ids.clone(), View::Processing)?;
        if !self.in_row {
            std::hint::black_box(read(&txn.open_table(PAYLOADS)?, &ids)?);
        }
        lease(txn, &ids)?;
        self.queued -= ids.end() - ids.start() + 1;
        Ok(ids)
    }
}

/// Leases these jobs to the one worker.
fn lease(txn: &WriteTransaction, ids: &RangeInclusive<u64>) -> Outcome<()> {
    let mut leased = txn.open_table(LEASED)?;
    let mut end = leased.upper_bound_mut(Bound::<&[u8; 16]>::Unbounded)?;
    let mut holder = Vec::new();
    for id in ids.clone() {
        holder.clear();
        holder.push(VERSION);
        put(&mut holder, LEASE.cast_unsigned());
        holder.extend_from_slice(WORKER.as_bytes());
        end.insert_before(&time_key(LEASE, id), holder.as_slice())?;
    }
    Ok(end.close()?)
}

/// Copies of what these jobs have in a table.
fn read(table: &Table<'_, u64, Raw>, ids: &RangeInclusive<u64>) -> Outcome<Vec<Box<[u8]>>> {
    table.range(ids.clone())?.map(|row| Ok(row?.1.value().into())).collect()
}

/// Adds keys behind all others.
fn append<const N: usize>(
    table: &mut Table<'_, &'static [u8; N], ()>,
    keys: impl Iterator<Item = [u8; N]>,
) -> Outcome<()> {
    let mut end = table.upper_bound_mut(Bound::<&[u8; N]>::Unbounded)?;
    for key in keys {
        end.insert_before(&key, ())?;
    }
    Ok(end.close()?)
}

/// Adds rows behind all others, each as it is written.
fn append_rows(
    table: &mut Table<'_, u64, Raw>,
    ids: RangeInclusive<u64>,
    write: impl Fn(&mut Vec<u8>),
) -> Outcome<()> {
    let mut end = table.upper_bound_mut(Bound::<u64>::Unbounded)?;
    let mut row = Vec::new();
    for id in ids {
        row.clear();
        write(&mut row);
        end.insert_before(id, row.as_slice())?;
    }
    Ok(end.close()?)
}

impl Contender for RedbCeiling {
    fn enqueue(&mut self, count: usize) -> Outcome<()> {
        let count = u64::try_from(count)?;
        let ids = self.last_id + 1..=self.last_id + count;
        let txn = self.begin()?;
        append_rows(&mut txn.open_table(JOBS)?, ids.clone(), |row| self.row(row, View::Queued))?;
        if !self.in_row {
            let put = |row: &mut Vec<u8>| row.extend_from_slice(self.payload.as_bytes());
            append_rows(&mut txn.open_table(PAYLOADS)?, ids.clone(), put)?;
        }
        append(&mut txn.open_table(READY)?, ids.clone().map(ready_key))?;
        append(&mut txn.open_table(PAIRS)?, ids.map(pair_key))?;
        self.last_id += count;
        self.queued += count;
        txn.open_table(META)?.insert(b"last_id".as_slice(), self.last_id)?;
        self.commit(txn)
    }

    fn work(&mut self, count: usize) -> Outcome<()> {
        let txn = self.begin()?;
        if let Some(ids) = self.held.take() {
            self.complete(&txn, &ids)?;
        }
        if count > 0 {
            self.held = Some(self.claim(&txn, count)?);
        }
        self.commit(txn)
    }
}

// Keys and rows, as the store writes them.

fn ready_key(id: u64) -> [u8; 34] {
    let mut key = [0; 34];
    // Class 0, with its sign turned, and turn 0.
    (key[3], key[7], key[8]) = (ONE, ONE, 0x80);
    key[18..].copy_from_slice(&time_key(0, id));
    key
}

fn id_of(ready: &[u8; 34]) -> u64 {
    let mut id = [0; 8];
    id.copy_from_slice(&ready[26..]);
    u64::from_be_bytes(id)
}

fn pair_key(id: u64) -> [u8; 16] {
    let mut key = [0; 16];
    (key[3], key[7]) = (ONE, ONE);
    key[8..].copy_from_slice(&id.to_be_bytes());
    key
}

/// The key of a done job: the fourth view.
fn settled_key(id: u64) -> [u8; 25] {
    let mut key = [0; 25];
    (key[3], key[7], key[8]) = (ONE, ONE, 3);
    key[9..].copy_from_slice(&time_key(0, id));
    key
}

fn time_key(since: i64, id: u64) -> [u8; 16] {
    let mut key = [0; 16];
    let at = (NOW + since).cast_unsigned() ^ (1 << 63);
    key[..8].copy_from_slice(&at.to_be_bytes());
    key[8..].copy_from_slice(&id.to_be_bytes());
    key
}

/// A job's row. Everything happens at one instant, but for the end of its lease. Its rank is made
/// of its priority and when it is due, and so is not written out.
fn put_job(out: &mut Vec<u8>, view: View, payload_bytes: u64) {
    let (flags, claims, at) = match view {
        View::Queued => (0, 0, 0),
        View::Processing => (0x10 | 2, 1, LEASE),
        View::Done => (0x10 | 3, 1, 0),
    };
    out.extend_from_slice(&[JOB_VERSION, flags, 0]);
    for number in [payload_bytes, ONE.into(), ONE.into(), ONE.into(), 0, claims, 3, claims, 0] {
        put(out, number);
    }
    put(out, LEASE.cast_unsigned());
    put_signed(out, NOW);
    for since in [0, 0, 0, at] {
        put_wide(out, since);
    }
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

fn put_signed(out: &mut Vec<u8>, number: i64) {
    put(out, number.cast_unsigned() << 1);
}

/// A distance in five bytes.
fn put_wide(out: &mut Vec<u8>, number: i64) {
    let mut number = number.cast_unsigned() << 1;
    for _ in 0..4 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_writes_is_a_store_of_ours_without_a_fault() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bare.redb");
        let mut ceiling = RedbCeiling::open(&path, 100, false).unwrap();
        ceiling.enqueue(20).unwrap();
        ceiling.work(10).unwrap();
        ceiling.work(5).unwrap();
        drop(ceiling);
        let store = RedbStore::open(&path).unwrap();
        assert_eq!(store.verify().unwrap(), []);
        crate::store::tests::assert_counts(&store, [5, 0, 5, 10, 0, 0]);
    }

    #[test]
    fn with_the_payload_in_the_row_it_does_the_same_work() {
        let dir = tempfile::tempdir().unwrap();
        let mut ceiling = RedbCeiling::open(&dir.path().join("bare.redb"), 9_000, true).unwrap();
        ceiling.enqueue(20).unwrap();
        ceiling.work(10).unwrap();
        ceiling.work(0).unwrap();
        let txn = ceiling.begin().unwrap();
        let jobs = read(&txn.open_table(JOBS).unwrap(), &(2..=21)).unwrap();
        let done = jobs.iter().filter(|row| row.len() > 9_000 && row[1] & 0x0f == 3);
        assert_eq!((jobs.len(), done.count()), (20, 10));
    }
}
