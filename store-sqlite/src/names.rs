//! Names and retry policies by number, remembered once they were looked up.
//!
//! Numbers never change, so what is remembered stays true, with one exception: numbers given out
//! by a transaction that was rolled back. Then everything is forgotten.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, params};
use windlass_core::{Job, Kind, QueueName, RetryPolicy};
use windlass_store_file::Pair;

use crate::error::TxError;

/// What was looked up so far.
#[derive(Debug, Default)]
pub(crate) struct Names {
    queues: BTreeMap<i64, QueueName>,
    queue_ids: BTreeMap<QueueName, i64>,
    kinds: BTreeMap<i64, Kind>,
    kind_ids: BTreeMap<Kind, i64>,
    retries: BTreeMap<i64, RetryPolicy>,
    retry_ids: BTreeMap<RetryKey, i64>,
}

type RetryKey = [i64; 5];

type Found<T> = Result<T, TxError>;

impl Names {
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn queue(&mut self, conn: &Connection, id: i64) -> Found<QueueName> {
        if let Some(name) = self.queues.get(&id) {
            return Ok(name.clone());
        }
        let text = text_of(conn, "SELECT name FROM queues WHERE id = ?1", id)?;
        let name = QueueName::new(&text).map_err(|error| TxError::BadRow(error.to_string()))?;
        self.learn_queue(id, name.clone());
        Ok(name)
    }

    /// The numbers of a job's queue and kind, which are known.
    pub(crate) fn pair(&mut self, conn: &Connection, job: &Job) -> Found<Pair> {
        let queue = self.ensure_queue(conn, &job.queue)?;
        Ok(Pair { queue, kind: self.ensure_kind(conn, &job.kind)? })
    }

    /// The number of a queue, if it has one.
    pub(crate) fn queue_id(&mut self, conn: &Connection, name: &QueueName) -> Found<Option<i64>> {
        if let Some(id) = self.queue_ids.get(name) {
            return Ok(Some(*id));
        }
        let id = id_of(conn, "SELECT id FROM queues WHERE name = ?1", name.as_str())?;
        if let Some(id) = id {
            self.learn_queue(id, name.clone());
        }
        Ok(id)
    }

    /// The number of a queue; it is written if it is new.
    pub(crate) fn ensure_queue(&mut self, conn: &Connection, name: &QueueName) -> Found<i64> {
        if let Some(id) = self.queue_id(conn, name)? {
            return Ok(id);
        }
        let mut insert = conn.prepare_cached("INSERT INTO queues (name) VALUES (?1)")?;
        let id = insert.insert([name.as_str()])?;
        self.learn_queue(id, name.clone());
        Ok(id)
    }

    fn learn_queue(&mut self, id: i64, name: QueueName) {
        self.queue_ids.insert(name.clone(), id);
        self.queues.insert(id, name);
    }

    pub(crate) fn kind(&mut self, conn: &Connection, id: i64) -> Found<Kind> {
        if let Some(name) = self.kinds.get(&id) {
            return Ok(name.clone());
        }
        let text = text_of(conn, "SELECT name FROM kinds WHERE id = ?1", id)?;
        let name = Kind::new(&text).map_err(|error| TxError::BadRow(error.to_string()))?;
        self.learn_kind(id, name.clone());
        Ok(name)
    }

    /// The number of a kind, if it has one.
    pub(crate) fn kind_id(&mut self, conn: &Connection, name: &Kind) -> Found<Option<i64>> {
        if let Some(id) = self.kind_ids.get(name) {
            return Ok(Some(*id));
        }
        let id = id_of(conn, "SELECT id FROM kinds WHERE name = ?1", name.as_str())?;
        if let Some(id) = id {
            self.learn_kind(id, name.clone());
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
        self.learn_kind(id, name.clone());
        Ok(id)
    }

    fn learn_kind(&mut self, id: i64, name: Kind) {
        self.kind_ids.insert(name.clone(), id);
        self.kinds.insert(id, name);
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
        self.learn_retry(id, key, policy);
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
        self.learn_retry(id, key, policy);
        Ok(id)
    }

    fn learn_retry(&mut self, id: i64, key: RetryKey, policy: RetryPolicy) {
        self.retry_ids.insert(key, id);
        self.retries.insert(id, policy);
    }
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
