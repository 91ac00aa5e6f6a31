//! The tables and their keys. Keys are bytes that sort as what they encode, so that each view
//! is a table that is walked in its own order.
//!
//! The text of a job and its row are stored apart: a row is rewritten with each step of its job, a
//! text never. The holder of a lease is in `leased`, beside the row, so that rows keep their
//! length.

use redb::{
    Key, MultimapTableHandle, ReadOnlyTable, ReadTransaction, ReadableTable, Table,
    TableDefinition, TableHandle, Value, WriteTransaction,
};
use windlass_core::store::{Cursor, FigureKey};
use windlass_core::{Epoch, GroupId, JobId, ProcessId, Rank, Span, View, Wall};
use windlass_store_file::Pair;

use crate::error::TxError;

pub(crate) type Found<T> = Result<T, TxError>;

/// A text key or a row, as its bytes.
type Raw = &'static [u8];

/// Values of the whole store: see the keys below.
pub(crate) const META: TableDefinition<Raw, u64> = TableDefinition::new("meta");
/// Job by id.
pub(crate) const JOBS: TableDefinition<u64, Raw> = TableDefinition::new("jobs");
/// Payload by job.
pub(crate) const PAYLOADS: TableDefinition<u64, Raw> = TableDefinition::new("payloads");
/// Result by job.
pub(crate) const RESULTS: TableDefinition<u64, Raw> = TableDefinition::new("results");
/// Progress by job.
pub(crate) const PROGRESS: TableDefinition<u64, Raw> = TableDefinition::new("progress");
/// Last error by job.
pub(crate) const ERRORS: TableDefinition<u64, Raw> = TableDefinition::new("errors");
/// Attempt by job and epoch.
pub(crate) const ATTEMPTS: TableDefinition<&[u8; 16], Raw> = TableDefinition::new("attempts");
/// Ready jobs by queue, kind and rank: claims seek here.
pub(crate) const READY: TableDefinition<&[u8; 34], ()> = TableDefinition::new("ready2");
/// Ready jobs before the third schema, with shorter keys. Only the migration uses it.
pub(crate) const OLD_READY: TableDefinition<&[u8; 26], ()> = TableDefinition::new("ready");
/// Ready jobs by queue and due time before the fourth schema. Only the migration uses it.
pub(crate) const OLD_WAITING: TableDefinition<&[u8; 20], ()> = TableDefinition::new("waiting");
/// Every job by queue, kind and id, from its enqueue to its removal: lists seek here.
pub(crate) const PAIRS: TableDefinition<&[u8; 16], ()> = TableDefinition::new("pairs");
/// Scheduled and finished jobs by queue, kind, view and instant: lists seek here.
pub(crate) const SETTLED: TableDefinition<&[u8; 25], ()> = TableDefinition::new("settled");
/// Jobs with an idempotency key, by key and id.
pub(crate) const KEYED: TableDefinition<Raw, ()> = TableDefinition::new("keyed");
/// Jobs not yet due, by when they are.
pub(crate) const SCHEDULED: TimeTable = TableDefinition::new("scheduled");
/// Leases by when they end, with their holder.
pub(crate) const LEASED: TableDefinition<&[u8; 16], Raw> = TableDefinition::new("leased");
/// Jobs done, by when they were.
pub(crate) const DONE: TimeTable = TableDefinition::new("done");
/// Dead-lettered jobs, by when they failed.
pub(crate) const FAILED: TimeTable = TableDefinition::new("failed");
/// Cancelled jobs, by when they were.
pub(crate) const CANCELLED: TimeTable = TableDefinition::new("cancelled");
/// Counters by queue and kind.
pub(crate) const COUNTS: TableDefinition<&[u8; 8], Raw> = TableDefinition::new("counts");
/// Idempotency keys.
pub(crate) const KEYS: TableDefinition<Raw, Raw> = TableDefinition::new("keys");
/// Keys whose job is gone, by when their window ends.
pub(crate) const ORPHANS: TableDefinition<Raw, ()> = TableDefinition::new("orphans");
/// Queue by number.
pub(crate) const QUEUES: TableDefinition<u32, Raw> = TableDefinition::new("queues");
/// The number of a name, behind its tag.
pub(crate) const NUMBERS: TableDefinition<Raw, u32> = TableDefinition::new("numbers");
/// The name with a number, behind its tag.
pub(crate) const NAMES: TableDefinition<&[u8; 5], Raw> = TableDefinition::new("names");
/// Worker by id.
pub(crate) const WORKERS: TableDefinition<Raw, Raw> = TableDefinition::new("workers");
/// Setting by name.
pub(crate) const SETTINGS: TableDefinition<Raw, Raw> = TableDefinition::new("settings");
/// The latest committed batch of each process: proof of a commit.
pub(crate) const MARKERS: TableDefinition<u64, Raw> = TableDefinition::new("markers");

/// Figures by span, slot and process.
pub(crate) const FIGURES: TableDefinition<&[u8; 17], Raw> = TableDefinition::new("figures");

/// The error group of each dead letter, by job.
pub(crate) const DEAD_LETTERS: TableDefinition<u64, &[u8; 16]> =
    TableDefinition::new("dead_letters");
/// Dead letters by error group and instant: lists seek here.
pub(crate) const GROUPED: TableDefinition<&[u8; 32], ()> = TableDefinition::new("grouped");
/// Error groups by id.
pub(crate) const ERROR_GROUPS: TableDefinition<&[u8; 16], Raw> =
    TableDefinition::new("error_groups");
/// The state of the rates of a queue, by its number.
pub(crate) const RATES: TableDefinition<u32, Raw> = TableDefinition::new("rates");
/// Bulk action by id.
pub(crate) const BULK: TableDefinition<u32, Raw> = TableDefinition::new("bulk");

/// Jobs by an instant.
pub(crate) type TimeTable = TableDefinition<'static, &'static [u8; 16], ()>;

/// Keys of [`META`].
pub(crate) const APPLICATION: &[u8] = b"application";
pub(crate) const SCHEMA: &[u8] = b"schema";
pub(crate) const LAST_ID: &[u8] = b"last_id";

/// Runs a macro for every table.
macro_rules! each_table {
    ($run:ident) => {
        $crate::tables::each_table!(
            $run, META, JOBS, PAYLOADS, RESULTS, PROGRESS, ERRORS, ATTEMPTS, READY, PAIRS,
            SETTLED, KEYED, SCHEDULED, LEASED, DONE, FAILED, CANCELLED, COUNTS, KEYS, ORPHANS,
            QUEUES, NUMBERS, NAMES, WORKERS, SETTINGS, MARKERS, FIGURES,
            DEAD_LETTERS, GROUPED, ERROR_GROUPS, BULK, RATES
        )
    };
    ($run:ident, $($table:ident),*) => { $($run!($crate::tables::$table);)* };
}
pub(crate) use each_table;

/// An open transaction: one that writes, or a snapshot.
pub(crate) trait Access: Copy {
    /// A table of it.
    type Table<K: Key + 'static, V: Value + 'static>: ReadableTable<K, V>;

    /// Opens a table.
    fn open<K: Key + 'static, V: Value + 'static>(
        self,
        table: TableDefinition<'_, K, V>,
    ) -> Found<Self::Table<K, V>>;
}

impl<'t> Access for &'t WriteTransaction {
    type Table<K: Key + 'static, V: Value + 'static> = Table<'t, K, V>;

    fn open<K: Key + 'static, V: Value + 'static>(
        self,
        table: TableDefinition<'_, K, V>,
    ) -> Found<Table<'t, K, V>> {
        Ok(self.open_table(table)?)
    }
}

impl Access for &ReadTransaction {
    type Table<K: Key + 'static, V: Value + 'static> = ReadOnlyTable<K, V>;

    fn open<K: Key + 'static, V: Value + 'static>(
        self,
        table: TableDefinition<'_, K, V>,
    ) -> Found<ReadOnlyTable<K, V>> {
        Ok(self.open_table(table)?)
    }
}

/// The names of all tables of a file.
pub(crate) fn table_names(txn: &WriteTransaction) -> Found<Vec<String>> {
    let names = txn.list_tables()?.map(|table| table.name().to_string());
    let more = txn.list_multimap_tables()?.map(|table| table.name().to_string());
    Ok(names.chain(more).collect())
}

/// A table of ours that is not among these.
pub(crate) fn missing_table(names: &[String]) -> Option<String> {
    let mut missing = None;
    macro_rules! look {
        ($table:expr) => {
            let name = $table.name();
            if !names.iter().any(|other| other == name) {
                missing.get_or_insert_with(|| name.to_string());
            }
        };
    }
    each_table!(look);
    missing
}

/// The table of jobs in this view by their instant, if that is all it holds.
pub(crate) fn time_table(view: View) -> Option<TimeTable> {
    match view {
        View::Scheduled => Some(SCHEDULED),
        View::Done => Some(DONE),
        View::Failed => Some(FAILED),
        View::Cancelled => Some(CANCELLED),
        View::Queued | View::Processing => None,
    }
}

// Keys.

/// A key that sorts as (instant, id) do.
pub(crate) fn time_key(at: Wall, id: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&sortable(at));
    key[8..].copy_from_slice(&id.to_be_bytes());
    key
}

/// The place that a key by time encodes.
pub(crate) fn time_place(key: &[u8; 16]) -> Found<Cursor> {
    let (at, id) = halves(key);
    Ok(Cursor { at: instant(at), id: job_id(u64::from_be_bytes(id))? })
}

pub(crate) fn cursor_key(cursor: Cursor) -> [u8; 16] {
    time_key(cursor.at, cursor.id.get())
}

/// A key that sorts as (queue, kind, rank) do.
pub(crate) fn ready_key(queue: u32, kind: u32, rank: Rank) -> [u8; 34] {
    let mut key = [0; 34];
    key[..8].copy_from_slice(&pair_key(queue, kind));
    let class = rank.class.cast_unsigned() ^ (1 << 15);
    key[8..10].copy_from_slice(&class.to_be_bytes());
    key[10..18].copy_from_slice(&rank.turn.to_be_bytes());
    key[18..].copy_from_slice(&time_key(rank.due, rank.id.get()));
    key
}

/// The queue, kind and rank that a ready key encodes.
pub(crate) fn ready_place(key: &[u8; 34]) -> Found<(Pair, Rank)> {
    let (mut numbers, mut turn, mut time) = ([0; 8], [0; 8], [0; 16]);
    numbers.copy_from_slice(&key[..8]);
    turn.copy_from_slice(&key[10..18]);
    time.copy_from_slice(&key[18..]);
    let (queue, kind) = pair(numbers);
    let class = (u16::from_be_bytes([key[8], key[9]]) ^ (1 << 15)).cast_signed();
    let Cursor { at, id } = time_place(&time)?;
    let rank = Rank { class, turn: u64::from_be_bytes(turn), due: at, id };
    Ok((Pair { queue: queue.into(), kind: kind.into() }, rank))
}

/// The keys before and behind all ready jobs of a queue and kind.
pub(crate) fn ready_bounds(queue: u32, kind: u32) -> ([u8; 34], [u8; 34]) {
    let (mut first, mut last) = ([0; 34], [0xff; 34]);
    first[..8].copy_from_slice(&pair_key(queue, kind));
    last[..8].copy_from_slice(&pair_key(queue, kind));
    (first, last)
}

/// A key that sorts as (queue, kind, id) do.
pub(crate) fn job_key(queue: u32, kind: u32, id: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&pair_key(queue, kind));
    key[8..].copy_from_slice(&id.to_be_bytes());
    key
}

/// A key that sorts as (queue, kind, view, instant, id) do.
pub(crate) fn settled_key(queue: u32, kind: u32, view: View, place: [u8; 16]) -> [u8; 25] {
    let mut key = [0; 25];
    key[..8].copy_from_slice(&pair_key(queue, kind));
    key[8] = u8::try_from(view.index()).unwrap_or(u8::MAX);
    key[9..].copy_from_slice(&place);
    key
}

/// A key that sorts as (error group, instant, id) do.
pub(crate) fn grouped_key(group: GroupId, place: [u8; 16]) -> [u8; 32] {
    let mut key = [0; 32];
    key[..16].copy_from_slice(&group.0);
    key[16..].copy_from_slice(&place);
    key
}

/// The instant and the id at the end of a key.
pub(crate) fn last_place(key: &[u8]) -> Found<Cursor> {
    let place = key.last_chunk::<16>();
    time_place(place.ok_or_else(|| TxError::BadRow("a key is too short".into()))?)
}

/// The id at the end of a key.
pub(crate) fn last_id(key: &[u8]) -> Found<JobId> {
    let id = key.last_chunk::<8>();
    let id = id.ok_or_else(|| TxError::BadRow("a key is too short".into()))?;
    job_id(u64::from_be_bytes(*id))
}

/// The key of a job with an idempotency key.
pub(crate) fn keyed_key(key: &str, id: u64) -> Vec<u8> {
    [key.as_bytes(), &id.to_be_bytes()].concat()
}

/// A key that sorts as (queue, kind) do.
pub(crate) fn pair_key(queue: u32, kind: u32) -> [u8; 8] {
    let mut key = [0; 8];
    key[..4].copy_from_slice(&queue.to_be_bytes());
    key[4..].copy_from_slice(&kind.to_be_bytes());
    key
}

pub(crate) fn pair(key: [u8; 8]) -> (u32, u32) {
    let number = |at: usize| u32::from_be_bytes([key[at], key[at + 1], key[at + 2], key[at + 3]]);
    (number(0), number(4))
}

/// The numbers of a queue and kind: 32 bits here, 64 in what the stores share.
pub(crate) fn pair_numbers(pair: Pair) -> Found<(u32, u32)> {
    match (u32::try_from(pair.queue), u32::try_from(pair.kind)) {
        (Ok(queue), Ok(kind)) => Ok((queue, kind)),
        _ => Err(TxError::BadRow(format!("{pair:?} is no queue and kind"))),
    }
}

/// A key that sorts as (job, epoch) do.
pub(crate) fn attempt_key(job: JobId, epoch: Epoch) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&job.get().to_be_bytes());
    key[8..].copy_from_slice(&epoch.get().to_be_bytes());
    key
}

pub(crate) fn attempt_place(key: &[u8; 16]) -> Found<(JobId, Epoch)> {
    let (job, epoch) = halves(key);
    Ok((job_id(u64::from_be_bytes(job))?, Epoch::new(u64::from_be_bytes(epoch))))
}

/// A key that sorts as (end of the window, idempotency key) do.
pub(crate) fn orphan_key(until: Wall, key: &[u8]) -> Vec<u8> {
    [&sortable(until), key].concat()
}

/// A key that sorts as (span, slot, process) do.
pub(crate) fn figures_key(span: Span, slot: Wall, process: u64) -> [u8; 17] {
    let mut key = [0; 17];
    key[0] = span.code();
    key[1..].copy_from_slice(&time_key(slot, process));
    key
}

pub(crate) fn figures_place(key: &[u8; 17]) -> Found<FigureKey> {
    let [code, rest @ ..] = key;
    let (slot, process) = halves(rest);
    let span = Span::from_code(*code);
    let span = span.ok_or_else(|| TxError::BadRow(format!("{code} is no span of figures")))?;
    let process = ProcessId(u64::from_be_bytes(process));
    Ok(FigureKey { span, slot: instant(slot), process })
}

pub(crate) fn job_id(number: u64) -> Found<JobId> {
    JobId::new(number).ok_or_else(|| TxError::BadRow(format!("{number} is no job id")))
}

fn sortable(at: Wall) -> [u8; 8] {
    (at.get().cast_unsigned() ^ (1 << 63)).to_be_bytes()
}

fn instant(bytes: [u8; 8]) -> Wall {
    Wall::new((u64::from_be_bytes(bytes) ^ (1 << 63)).cast_signed())
}

fn halves(key: &[u8; 16]) -> ([u8; 8], [u8; 8]) {
    let (mut a, mut b) = ([0; 8], [0; 8]);
    a.copy_from_slice(&key[..8]);
    b.copy_from_slice(&key[8..]);
    (a, b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Parts = (u32, u32, i16, u64, i64, u64);

    fn parts() -> impl Strategy<Value = Parts> {
        // Few values, so that two keys often agree up to some part.
        let small = || prop_oneof![Just(0_u32), Just(1), Just(256), any::<u32>()];
        let turn = prop_oneof![Just(0_u64), Just(1), any::<u64>()];
        let due = prop_oneof![Just(-1_i64), Just(0), Just(1), any::<i64>()];
        let class = prop_oneof![Just(-1_i16), Just(0), Just(1), any::<i16>()];
        (small(), small(), class, turn, due, 1..=1_u64 << 62)
    }

    fn ready((queue, kind, class, turn, due, id): Parts) -> ((Pair, Rank), [u8; 34]) {
        let id = JobId::new(id).expect("it is an id");
        let rank = Rank { class, turn, due: Wall::new(due), id };
        let pair = Pair { queue: queue.into(), kind: kind.into() };
        ((pair, rank), ready_key(queue, kind, rank))
    }

    proptest! {
        #[test]
        fn keys_sort_as_what_they_stand_for(a in parts(), b in parts()) {
            let ((a_place, a_key), (b_place, b_key)) = (ready(a), ready(b));
            prop_assert_eq!(a_place.cmp(&b_place), a_key.cmp(&b_key));
            let time = |(.., at, id): Parts| time_key(Wall::new(at), id);
            let figures = |(_, _, _, turn, at, id): Parts| {
                let span = Span::ALL[usize::try_from(turn % 5).expect("small")];
                let key = figures_key(span, Wall::new(at), id);
                (figures_place(&key).expect("it is a place"), key)
            };
            let ((a_place, a_key), (b_place, b_key)) = (figures(a), figures(b));
            prop_assert_eq!(a_place.cmp(&b_place), a_key.cmp(&b_key));
            prop_assert_eq!((a_place.slot.get(), a_place.process.0), (a.4, a.5));
            prop_assert_eq!((a.4, a.5).cmp(&(b.4, b.5)), time(a).cmp(&time(b)));
        }

        #[test]
        fn keys_come_back_as_what_they_stand_for(a in parts()) {
            let (place, key) = ready(a);
            prop_assert_eq!(ready_place(&key).expect("it is a place"), place);
            prop_assert_eq!(pair_numbers(place.0).expect("they are numbers"), (a.0, a.1));
            prop_assert_eq!(last_id(&key).expect("it is an id").get(), a.5);
            let (first, last) = ready_bounds(a.0, a.1);
            prop_assert!(first < key && key <= last);
            let place = time_place(&time_key(Wall::new(a.4), a.5)).expect("it is a place");
            prop_assert_eq!((place.at.get(), place.id.get()), (a.4, a.5));
        }
    }

    #[test]
    fn a_key_with_an_impossible_id_is_refused() {
        assert!(time_place(&[0; 16]).is_err());
        assert!(time_place(&[0xff; 16]).is_err());
        assert!(ready_place(&[0; 34]).is_err() && ready_place(&[0xff; 34]).is_err());
        assert!(attempt_place(&[0; 16]).is_err());
        assert!(figures_place(&[5; 17]).is_err());
    }
}
