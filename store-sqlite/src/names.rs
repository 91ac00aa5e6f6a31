//! Names and retry policies by number, cached once they were looked up.
//!
//! Numbers never change and are never used again, so what is cached stays true, with two
//! exceptions. Numbers given out by a transaction that was rolled back: then the cache is cleared.
//! Queues that were deleted, and perhaps made again: a process looks numbers of queues up again
//! once another has committed.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, params};
use windlass_core::{Job, Kind, QueueName, RetryPolicy};
use windlass_store_file::{Lookup, Pair};

use crate::error::TxError;

/// A cache of names and numbers, valid until another process commits.
#[derive(Debug, Default)]
pub(crate) struct Names {
    queues: Lookup<QueueName>,
    queue_ids: Numbers<QueueName>,
    kinds: Lookup<Kind>,
    kind_ids: Numbers<Kind>,
    retries: BTreeMap<i64, RetryPolicy>,
    retry_ids: BTreeMap<RetryKey, i64>,
}

type RetryKey = [i64; 5];

/// Numbers by name.
#[derive(Debug)]
struct Numbers<N> {
    /// By the address of the text, which most jobs share with what was looked up before. The names
    /// are kept, so no other text gets their addresses.
    shared: Lookup<(N, i64)>,
    all: BTreeMap<N, i64>,
}

impl<N> Default for Numbers<N> {
    fn default() -> Self {
        Self { shared: Lookup::default(), all: BTreeMap::new() }
    }
}

impl<N: Ord + Clone> Numbers<N> {
    fn get(&self, name: &N, address: u64) -> Option<i64> {
        let shared = self.shared.get(address).map(|(_, id)| id);
        shared.or_else(|| self.all.get(name)).copied()
    }

    fn insert(&mut self, id: i64, name: N, address: u64) {
        self.shared.insert(address, (name.clone(), id));
        self.all.insert(name, id);
    }

    fn remove(&mut self, name: &N) {
        // Which of the addresses are this name's is not known; names are rarely removed.
        self.shared = Lookup::default();
        self.all.remove(name);
    }
}

type Found<T> = Result<T, TxError>;

impl Names {
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn queue(&mut self, conn: &Connection, id: i64) -> Found<QueueName> {
        if let Some(name) = self.queues.get(id.cast_unsigned()) {
            return Ok(name.clone());
        }
        let text = text_of(conn, "SELECT name FROM queues WHERE id = ?1", id)?;
        let name = QueueName::new(&text).map_err(|error| TxError::BadRow(error.to_string()))?;
        self.cache_queue(id, name.clone());
        Ok(name)
    }

    /// The numbers of a job's queue and kind, which are known.
    pub(crate) fn pair(&mut self, conn: &Connection, job: &Job) -> Found<Pair> {
        let queue = self.ensure_queue(conn, &job.queue)?;
        Ok(Pair { queue, kind: self.ensure_kind(conn, &job.kind)? })
    }

    /// The number of a queue, if it has one.
    pub(crate) fn queue_id(&mut self, conn: &Connection, name: &QueueName) -> Found<Option<i64>> {
        let known = self.queue_ids.get(name, name.address());
        if known.is_some() {
            return Ok(known);
        }
        let id = id_of(conn, "SELECT id FROM queues WHERE name = ?1", name.as_str())?;
        if let Some(id) = id {
            self.cache_queue(id, name.clone());
        }
        Ok(id)
    }

    /// The number of a queue; it is written if it is new.
    pub(crate) fn ensure_queue(&mut self, conn: &Connection, name: &QueueName) -> Found<i64> {
        if let Some(id) = self.queue_id(conn, name)? {
            return Ok(id);
        }
        // The number of a deleted queue is not given out again.
        let sql = "INSERT INTO queues (id, name) \
                   SELECT max(value, ifnull((SELECT max(id) FROM queues), 0)) + 1, ?1 \
                   FROM meta WHERE key = 'last_queue'";
        let id = conn.prepare_cached(sql)?.insert([name.as_str()])?;
        self.cache_queue(id, name.clone());
        Ok(id)
    }

    /// Deletes a queue, which has no jobs.
    pub(crate) fn drop_queue(&mut self, conn: &Connection, name: &QueueName) -> Found<()> {
        let Some(id) = self.queue_id(conn, name)? else { return Ok(()) };
        let sql = "UPDATE meta SET value = max(value, ?1) WHERE key = 'last_queue'";
        conn.prepare_cached(sql)?.execute([id])?;
        conn.prepare_cached("DELETE FROM queues WHERE id = ?1")?.execute([id])?;
        conn.prepare_cached("DELETE FROM rates WHERE queue = ?1")?.execute([id])?;
        self.queues.remove(id.cast_unsigned());
        self.queue_ids.remove(name);
        Ok(())
    }

    /// Drops the numbers of queues from the cache: another process may have deleted some.
    pub(crate) fn clear_queue_ids(&mut self) {
        self.queue_ids = Numbers::default();
    }

    fn cache_queue(&mut self, id: i64, name: QueueName) {
        self.queue_ids.insert(id, name.clone(), name.address());
        self.queues.insert(id.cast_unsigned(), name);
    }

    pub(crate) fn kind(&mut self, conn: &Connection, id: i64) -> Found<Kind> {
        if let Some(name) = self.kinds.get(id.cast_unsigned()) {
            return Ok(name.clone());
        }
        let text = text_of(conn, "SELECT name FROM kinds WHERE id = ?1", id)?;
        let name = Kind::new(&text).map_err(|error| TxError::BadRow(error.to_string()))?;
        self.cache_kind(id, name.clone());
        Ok(name)
    }

    /// The number of a kind, if it has one.
    pub(crate) fn kind_id(&mut self, conn: &Connection, name: &Kind) -> Found<Option<i64>> {
        let known = self.kind_ids.get(name, name.address());
        if known.is_some() {
            return Ok(known);
        }
        let id = id_of(conn, "SELECT id FROM kinds WHERE name = ?1", name.as_str())?;
        if let Some(id) = id {
            self.cache_kind(id, name.clone());
        }
        Ok(id)
    }

    /// The number of a kind; it is written if it is new.
    pub(crate) fn ensure_kind(&mut self, conn: &Connection, name: &Kind) -> Found<i64> {
        if let Some(id) = self.kind_id(conn, name)? {
            return Ok(id);
        }
        let mut insert = conn.prepare_cached("INSERT INTO kinds (name) VALUES (?1)")?;
        let id = insert.insert([name.as_str()])?;
        self.cache_kind(id, name.clone());
        Ok(id)
    }

    fn cache_kind(&mut self, id: i64, name: Kind) {
        self.kind_ids.insert(id, name.clone(), name.address());
        self.kinds.insert(id.cast_unsigned(), name);
    }

    pub(crate) fn retry(&mut self, conn: &Connection, id: i64) -> Found<RetryPolicy> {
        if let Some(policy) = self.retries.get(&id) {
            return Ok(*policy);
        }
        let sql = "SELECT strategy, factor, initial, cap, jitter FROM retries WHERE id = ?1";
        let key: RetryKey = conn.prepare_cached(sql)?.query_row([id], |row| {
            Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?])
        })?;
        let policy = policy_of(key)?;
        self.cache_retry(id, key, policy);
        Ok(policy)
    }

    /// The number of a retry policy; it is written if it is new.
    pub(crate) fn ensure_retry(&mut self, conn: &Connection, policy: RetryPolicy) -> Found<i64> {
        let key = key_of(policy);
        if let Some(id) = self.retry_ids.get(&key) {
            return Ok(*id);
        }
        let [strategy, factor, initial, cap, jitter] = key;
        let params = params![strategy, factor, initial, cap, jitter];
        let sql = "SELECT id FROM retries WHERE strategy = ?1 AND factor = ?2 AND initial = ?3 \
                   AND cap = ?4 AND jitter = ?5";
        let found = conn.prepare_cached(sql)?.query_row(params, |row| row.get(0)).optional()?;
        let id = if let Some(id) = found {
            id
        } else {
            let sql = "INSERT INTO retries (strategy, factor, initial, cap, jitter) \
                       VALUES (?1, ?2, ?3, ?4, ?5)";
            conn.prepare_cached(sql)?.insert(params)?
        };
        self.cache_retry(id, key, policy);
        Ok(id)
    }

    fn cache_retry(&mut self, id: i64, key: RetryKey, policy: RetryPolicy) {
        self.retry_ids.insert(key, id);
        self.retries.insert(id, policy);
    }
}

/// The key of a queue and kind in `counts`. Numbers are given out from 1 on, so that both fit.
pub(crate) fn pair_key(queue: i64, kind: i64) -> i64 {
    queue << 32 | kind
}

/// The first and the last key of a queue in `counts`.
pub(crate) fn pair_range(queue: i64) -> [i64; 2] {
    [pair_key(queue, 0), pair_key(queue, i64::from(u32::MAX))]
}

fn text_of(conn: &Connection, sql: &str, id: i64) -> Found<String> {
    Ok(conn.prepare_cached(sql)?.query_row([id], |row| row.get(0))?)
}

fn id_of(conn: &Connection, sql: &str, name: &str) -> Found<Option<i64>> {
    Ok(conn.prepare_cached(sql)?.query_row([name], |row| row.get(0)).optional()?)
}

fn key_of(policy: RetryPolicy) -> RetryKey {
    policy.to_stored().map(u64::cast_signed)
}

fn policy_of(key: RetryKey) -> Found<RetryPolicy> {
    let policy = RetryPolicy::from_stored(key.map(i64::cast_unsigned));
    policy.ok_or_else(|| TxError::BadRow(format!("{key:?} is no retry policy")))
}
