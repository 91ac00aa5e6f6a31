//! Queues with their settings, kinds, retry policies and pairs of queue and kind, by number: a copy
//! that is valid as long as its version is that of the store.
//!
//! Numbers never change. A batch that changes a queue or adds a queue, a kind or a pair, or marks
//! the store as moved, and a migration of the schema, hold the lock of the names alone and raise
//! the version; all other batches share that lock. So a batch whose names are of the current
//! version is of the current schema too.

use std::collections::{BTreeMap, BTreeSet};

use tokio_postgres::Row;
use windlass_core::store::{SEAL, Seal};
use windlass_core::{
    Flow, JobTimeout, Kind, LeaseLength, MaxQueued, MaxRetries, MaxRunning, Pause, Queue,
    QueueName, QueueSettings, RetryPolicy, Wall,
};

use crate::error::TxError;
use crate::open::newest;
use crate::rows::{bad, get, optional};
use crate::session::{Flight, FlightRows, Found, Place, Session, params};

/// What was read of the names.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// The version of the store when they were read; `None` before that.
    pub(crate) version: Option<i64>,
    queues: BTreeMap<i32, Queue>,
    queue_ids: BTreeMap<QueueName, i32>,
    kinds: BTreeMap<i32, Kind>,
    kind_ids: BTreeMap<Kind, i32>,
    retries: BTreeMap<i32, RetryPolicy>,
    retry_ids: BTreeMap<RetryKey, i32>,
    pairs: BTreeSet<Pair>,
    /// The mark of the store, which changes with the names.
    pub(crate) seal: Option<Seal>,
}

/// A queue and a kind, by number.
pub(crate) type Pair = (i32, i32);
pub(crate) type RetryKey = [i64; 5];

/// The number of the schema.
pub(crate) const SCHEMA: &str = "SELECT value FROM meta WHERE key = 'schema'";
/// The version of the names.
pub(crate) const VERSION: &str = "SELECT value FROM meta WHERE key = 'names'";

impl Names {
    /// Reads all names from one state, whose schema must be the one that is known here.
    pub(crate) fn load(session: &mut Session) -> Found<Self> {
        let mut flight = Flight::default();
        flight.add("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", vec![]);
        let schema = flight.add(SCHEMA, vec![]);
        // Before the other tables are named: in another schema they may be different.
        check_schema(&session.fly(flight, None)?.take(schema))?;
        let mut flight = Flight::default();
        let places = Places::ask(&mut flight);
        flight.add("COMMIT", vec![]);
        places.read(&mut session.fly(flight, None)?)
    }

    /// Reads all names within an open transaction that holds them alone.
    pub(crate) fn load_in(session: &mut Session) -> Found<Self> {
        let mut flight = Flight::default();
        let places = Places::ask(&mut flight);
        places.read(&mut session.fly(flight, None)?)
    }

    fn queue_of(&self, row: &Row) -> Found<Queue> {
        let small = |number: i64| u32::try_from(number).map_err(bad);
        let concurrency = get::<Option<i64>>(row, 4)?.map(small).transpose()?;
        let max_retries = get::<Option<i64>>(row, 6)?.map(small).transpose()?;
        let retry: Option<i32> = get(row, 8)?;
        let settings = QueueSettings {
            max_queued: optional(get(row, 3)?, MaxQueued::new)?,
            concurrency: concurrency.map(MaxRunning::new).transpose().map_err(bad)?,
            visibility_timeout: optional(get(row, 5)?, LeaseLength::new)?,
            max_retries: max_retries.map(MaxRetries::new).transpose().map_err(bad)?,
            timeout: optional(get(row, 7)?, JobTimeout::new)?,
            retry: retry.map(|id| self.retry(id)).transpose()?,
            flow: Flow::parse(get(row, 11)?).map_err(bad)?,
        };
        let name = QueueName::new(get(row, 1)?).map_err(bad)?;
        let (at, by): (Option<i64>, Option<&str>) = (get(row, 9)?, get(row, 10)?);
        let pause = Pause { at: at.map(Wall::new), by: by.map(Into::into) };
        let paused = get::<bool>(row, 2)?.then_some(pause);
        Ok(Queue { name, paused, settings })
    }

    /// Has them read again before they are used next.
    pub(crate) fn invalidate(&mut self) {
        self.version = None;
    }

    pub(crate) fn queue(&self, id: i32) -> Option<&Queue> {
        self.queues.get(&id)
    }

    pub(crate) fn queue_name(&self, id: i32) -> Found<&QueueName> {
        self.queues.get(&id).map(|queue| &queue.name).ok_or(TxError::StaleNames)
    }

    pub(crate) fn queue_id(&self, name: &QueueName) -> Option<i32> {
        self.queue_ids.get(name).copied()
    }

    pub(crate) fn queue_count(&self) -> usize {
        self.queues.len()
    }

    /// All queues by name, each with its number.
    pub(crate) fn queues_by_name(&self) -> impl Iterator<Item = (i32, &Queue)> {
        self.queue_ids.values().filter_map(|id| Some((*id, self.queues.get(id)?)))
    }

    /// The queues with a limit.
    pub(crate) fn limited(&self) -> impl Iterator<Item = (i32, &Queue)> {
        let limited = self.queues.iter().filter(|(_, queue)| queue.is_limited());
        limited.map(|(id, queue)| (*id, queue))
    }

    pub(crate) fn kind_name(&self, id: i32) -> Found<&Kind> {
        self.kinds.get(&id).ok_or(TxError::StaleNames)
    }

    pub(crate) fn kind_id(&self, kind: &Kind) -> Option<i32> {
        self.kind_ids.get(kind).copied()
    }

    pub(crate) fn retry(&self, id: i32) -> Found<RetryPolicy> {
        self.retries.get(&id).copied().ok_or(TxError::StaleNames)
    }

    pub(crate) fn retry_id(&self, policy: RetryPolicy) -> Option<i32> {
        self.retry_ids.get(&retry_key(policy)).copied()
    }

    /// Whether a queue has jobs of a kind, or has had some.
    pub(crate) fn has_pair(&self, queue: &QueueName, kind: &Kind) -> bool {
        let pair = self.queue_id(queue).zip(self.kind_id(kind));
        pair.is_some_and(|pair| self.pairs.contains(&pair))
    }

    pub(crate) fn pairs(&self) -> impl Iterator<Item = Pair> {
        self.pairs.iter().copied()
    }

    /// The pairs of one queue.
    pub(crate) fn pairs_of(&self, queue: i32) -> impl Iterator<Item = Pair> {
        self.pairs.range((queue, i32::MIN)..=(queue, i32::MAX)).copied()
    }

    /// Adds what the open transaction has written. It is forgotten when that ends.
    pub(crate) fn add_queue(&mut self, id: i32, queue: Queue) {
        self.queue_ids.insert(queue.name.clone(), id);
        self.queues.insert(id, queue);
    }

    pub(crate) fn add_kind(&mut self, id: i32, kind: Kind) {
        self.kind_ids.insert(kind.clone(), id);
        self.kinds.insert(id, kind);
    }

    pub(crate) fn add_retry(&mut self, id: i32, policy: RetryPolicy) {
        self.retry_ids.insert(retry_key(policy), id);
        self.retries.insert(id, policy);
    }
}

/// Refuses a schema that is not the one known here, which a row of [`SCHEMA`] tells.
pub(crate) fn check_schema(rows: &[Row]) -> Found<()> {
    let found: i64 = rows.first().map(|row| get(row, 0)).transpose()?.unwrap_or(0);
    if found == newest() { Ok(()) } else { Err(TxError::OtherSchema { found, known: newest() }) }
}

/// The places of the names in a flight.
struct Places {
    version: Place,
    retries: Place,
    kinds: Place,
    queues: Place,
    pairs: Place,
    seal: Place,
}

impl Places {
    fn ask(flight: &mut Flight) -> Self {
        Self {
            version: flight.add(VERSION, vec![]),
            retries: flight
                .add("SELECT id, strategy, factor, initial, cap, jitter FROM retries", vec![]),
            kinds: flight.add("SELECT id, name FROM kinds", vec![]),
            queues: flight.add(
                "SELECT id, name, paused, max_queued, concurrency, visibility_timeout, \
                 max_retries, timeout, retry, paused_at, paused_by, flow FROM queues",
                vec![],
            ),
            pairs: flight.add("SELECT queue, kind FROM pairs", vec![]),
            seal: flight.add(MARK, params![SEAL.to_owned()]),
        }
    }

    fn read(self, returned: &mut FlightRows) -> Found<Names> {
        let mut names = Names::default();
        let version = returned.take(self.version);
        names.version = version.first().map(|row| get(row, 0)).transpose()?;
        for row in returned.take(self.retries) {
            let mut key: RetryKey = [0; 5];
            for (at, part) in key.iter_mut().enumerate() {
                *part = get(&row, at + 1)?;
            }
            let policy = RetryPolicy::from_stored(key.map(i64::cast_unsigned));
            let policy = policy.ok_or_else(|| bad(format!("{key:?} is no retry policy")))?;
            names.retries.insert(get(&row, 0)?, policy);
            names.retry_ids.insert(key, get(&row, 0)?);
        }
        for row in returned.take(self.kinds) {
            let kind = Kind::new(get(&row, 1)?).map_err(bad)?;
            names.kind_ids.insert(kind.clone(), get(&row, 0)?);
            names.kinds.insert(get(&row, 0)?, kind);
        }
        for row in returned.take(self.queues) {
            let queue = names.queue_of(&row)?;
            names.queue_ids.insert(queue.name.clone(), get(&row, 0)?);
            names.queues.insert(get(&row, 0)?, queue);
        }
        for row in returned.take(self.pairs) {
            names.pairs.insert((get(&row, 0)?, get(&row, 1)?));
        }
        for row in returned.take(self.seal) {
            names.seal = Some(Seal::parse(get(&row, 0)?));
        }
        Ok(names)
    }
}

const MARK: &str = "SELECT value FROM settings WHERE key = $1::text";

pub(crate) fn retry_key(policy: RetryPolicy) -> RetryKey {
    policy.to_stored().map(u64::cast_signed)
}
