//! Finds rows for a batch: pages of sweeps, dead letters, candidates, keys. Rows that another
//! transaction holds are left out.
//!
//! PostgreSQL does not say what it has left out. So each search comes with a look at the same keys
//! that takes no locks: what only the look has seen was left out, or is gone since.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;
use tokio_postgres::Row;
use windlass_core::store::{
    ByteBudget, Candidate, Candidates, Cursor, DeadFound, DeadJob, DeadPage, ExpiredPage, Filter,
    FinishedPage, JobPage, KeyFound, Want,
};
use windlass_core::{
    Counts, Fingerprint, IdempotencyKey, Job, JobId, KeyRecord, Payload, Rank, View, Wall, WorkerId,
};

use crate::heads::{Heads, Look};
use crate::names::{Names, Pair};
use crate::rows::{
    MORE, bad, count, excerpt, get, id_code, job, job_id, jobs, ready_columns, select_done,
    select_leased, select_scheduled, view_code,
};
use crate::session::{Flight, FlightRows, Found, Param, Place, Session, params};

/// The instant to go by: the first parameter, else the server's clock when the statement began.
macro_rules! now {
    () => {
        "coalesce($1::bigint, (extract(epoch FROM statement_timestamp()) * 1000)::bigint)"
    };
}
pub(crate) use now;

/// The server's clock.
pub(crate) const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
pub(crate) const KEYS: &str = "SELECT key, job, request, created_at, orphan_until FROM keys \
    WHERE key = ANY($1::text[])";
/// The jobs that keys name. A batch that removes a job holds its key.
pub(crate) const KEYED: &str = concat!(
    "WITH named AS MATERIALIZED (SELECT job FROM keys WHERE key = ANY($1::text[])) ",
    crate::rows::ready_columns!(""),
    " FROM ready t JOIN jobs j ON j.id = t.id WHERE t.id IN (SELECT job FROM named) UNION ALL ",
    crate::rows::select_scheduled!(),
    "WHERE t.id IN (SELECT job FROM named) UNION ALL ",
    crate::rows::select_leased!(),
    "WHERE t.id IN (SELECT job FROM named) UNION ALL ",
    crate::rows::select_done!(),
    "WHERE t.id IN (SELECT job FROM named)"
);
pub(crate) const WORKERS: &str = "SELECT id, stopping FROM workers WHERE id = ANY($1::text[])";
pub(crate) const ORPHANS: &str = concat!(
    "SELECT key FROM keys WHERE orphan_until IS NOT NULL AND orphan_until <= ",
    now!(),
    " ORDER BY orphan_until, key LIMIT $2 FOR UPDATE SKIP LOCKED"
);
pub(crate) const SILENT: &str = concat!(
    "SELECT EXISTS (SELECT 1 FROM markers WHERE at < ",
    now!(),
    " - $2::bigint) OR EXISTS (SELECT 1 FROM workers WHERE last_seen < ",
    now!(),
    " - $2::bigint)"
);
pub(crate) const PAYLOADS: &str = "SELECT id, payload FROM jobs WHERE id = ANY($1::bigint[])";

/// A page of a sweep, by the instant of its view.
macro_rules! page {
    ($select:expr, $at:literal, $view:literal) => {
        concat!(
            $select,
            "WHERE ",
            $view,
            $at,
            " <= CASE WHEN $2::bigint IS NULL THEN 9223372036854775807 ELSE ",
            now!(),
            " - $2::bigint END AND (",
            $at,
            ", t.id) > ($3::bigint, $4::bigint) ORDER BY ",
            $at,
            ", t.id LIMIT $5::bigint FOR UPDATE OF t SKIP LOCKED"
        )
    };
}

/// The first keys of the same view, and whether each is due.
macro_rules! look {
    ($table:literal, $at:literal, $view:literal) => {
        concat!(
            "SELECT ",
            $at,
            ", t.id, ",
            $at,
            " <= CASE WHEN $2::bigint IS NULL THEN 9223372036854775807 ELSE ",
            now!(),
            " - $2::bigint END FROM ",
            $table,
            " t WHERE ",
            $view,
            "(",
            $at,
            ", t.id) > ($3::bigint, $4::bigint) ORDER BY ",
            $at,
            ", t.id LIMIT $5::bigint + 1"
        )
    };
}

const DUE: &str = page!(select_scheduled!(), "t.run_at", "t.epoch >= 0 AND ");
const DUE_KEYS: &str = look!("scheduled", "t.run_at", "t.epoch >= 0 AND ");
const EXPIRED: &str = page!(select_leased!(), "t.lease_until", "t.epoch >= 0 AND ");
const EXPIRED_KEYS: &str = look!("leased", "t.lease_until", "t.epoch >= 0 AND ");
const FINISHED: &str = page!(select_done!(), "t.finished_at", "t.view = $6::smallint AND ");
const FINISHED_KEYS: &str = look!("done", "t.finished_at", "t.view = $6::smallint AND ");
/// Dead letters, newest first.
macro_rules! dead {
    ($where:literal) => {
        concat!(
            crate::rows::select_jobs!(
                "t.view",
                "t.finished_at",
                "t.run_at",
                "t.spent",
                "NULL::int8",
                "NULL::text",
                "t.error_group",
                ", e.text, e.cut"
            ),
            " FROM done t JOIN jobs j ON j.id = t.id LEFT JOIN errors e ON e.job = t.id WHERE ",
            $where,
            " AND (t.finished_at, t.id) < ($1::bigint, $2::bigint) \
             ORDER BY t.finished_at DESC, t.id DESC LIMIT $3 FOR UPDATE OF t SKIP LOCKED"
        )
    };
}

/// The keys of the same.
macro_rules! dead_keys {
    ($where:literal) => {
        concat!(
            "SELECT finished_at, id, true FROM done WHERE ",
            $where,
            " AND (finished_at, id) < ($1::bigint, $2::bigint) \
             ORDER BY finished_at DESC, id DESC LIMIT $3"
        )
    };
}

const DEAD: &str = dead!("t.view = 4");
const DEAD_KEYS: &str = dead_keys!("view = 4");
const DEAD_OF_GROUP: &str = dead!("t.error_group = $4::bytea");
const DEAD_KEYS_OF_GROUP: &str = dead_keys!("error_group = $4::bytea");

/// The places of a page and of the look at its keys in a flight.
#[derive(Debug)]
pub(crate) struct PagePlaces {
    keys: Place,
    rows: Place,
}

pub(crate) fn ask_due(flight: &mut Flight, clock: Option<i64>, limit: usize) -> PagePlaces {
    let params = || params![clock, Some(0_i64), i64::MIN, 0_i64, count(limit)];
    PagePlaces { keys: flight.add(DUE_KEYS, params()), rows: flight.add(DUE, params()) }
}

pub(crate) fn ask_expired(
    flight: &mut Flight,
    clock: Option<i64>,
    page: ExpiredPage,
) -> PagePlaces {
    let age = (!page.all).then_some(0_i64);
    let (at, id) = page.after.map_or((i64::MIN, 0), |after| (after.at.get(), id_code(after.id)));
    let params = || params![clock, age, at, id, count(page.limit)];
    PagePlaces { keys: flight.add(EXPIRED_KEYS, params()), rows: flight.add(EXPIRED, params()) }
}

pub(crate) fn ask_finished(
    flight: &mut Flight,
    clock: Option<i64>,
    page: FinishedPage,
) -> PagePlaces {
    let (age, view) = (Some(page.age.get().cast_signed()), view_code(page.view));
    let params = || params![clock, age, i64::MIN, 0_i64, count(page.limit), view];
    PagePlaces { keys: flight.add(FINISHED_KEYS, params()), rows: flight.add(FINISHED, params()) }
}

pub(crate) fn ask_dead(flight: &mut Flight, page: &DeadPage) -> PagePlaces {
    let last = (i64::MAX, i64::MAX);
    let (at, id) = page.after.map_or(last, |after| (after.at.get(), id_code(after.id)));
    let limit = count(page.limit);
    let Some(group) = page.group else {
        let params = || params![at, id, limit];
        return PagePlaces {
            keys: flight.add(DEAD_KEYS, params()),
            rows: flight.add(DEAD, params()),
        };
    };
    let params = || params![at, id, limit, group.0.to_vec()];
    let keys = flight.add(DEAD_KEYS_OF_GROUP, params());
    PagePlaces { keys, rows: flight.add(DEAD_OF_GROUP, params()) }
}

impl PagePlaces {
    pub(crate) fn read(
        &self,
        names: &Names,
        returned: &mut FlightRows,
        skipped: &mut bool,
    ) -> Found<JobPage> {
        let keys: Vec<(Cursor, bool)> =
            returned.take(self.keys).iter().map(key).collect::<Found<_>>()?;
        let jobs = jobs(names, &returned.take(self.rows))?;
        let last = jobs.last().map(|job| Cursor { at: job.index_key().at, id: job.id });
        let behind = |(key, due): &&(Cursor, bool)| match last {
            Some(last) => *key > last,
            None => !due,
        };
        // If all of them are due and held by others, the next one is not known: it may be given too
        // early.
        let next = keys.iter().find(behind).or_else(|| keys.last().filter(|_| last.is_none()));
        let next = next.map(|(key, _)| key.at);
        let ids: BTreeSet<JobId> = jobs.iter().map(|job| job.id).collect();
        let seen = |(key, due): &(Cursor, bool)| *due && last.is_none_or(|last| *key <= last);
        *skipped |= keys.iter().filter(|key| seen(key)).any(|(key, _)| !ids.contains(&key.id));
        Ok(JobPage { jobs, next })
    }

    pub(crate) fn read_dead(
        &self,
        names: &Names,
        returned: &mut FlightRows,
        asked: &DeadPage,
        skipped: &mut bool,
    ) -> Found<DeadFound> {
        let keys: Vec<(Cursor, bool)> =
            returned.take(self.keys).iter().map(key).collect::<Found<_>>()?;
        let next = keys.last().map(|(key, _)| *key).filter(|_| keys.len() == asked.limit);
        let DeadPage { queue, kind, group, .. } = asked.clone();
        let filter = Filter { view: Some(View::Failed), queue, kind, group, ..Filter::default() };
        let mut found = Vec::new();
        let mut ids = BTreeSet::new();
        for row in returned.take(self.rows) {
            let job = job(names, &row)?;
            ids.insert(job.id);
            // Where some were left out, the search has gone further than the page.
            if filter.includes(&job) && next.is_none_or(|next| filter.place(&job) >= next) {
                found.push(DeadJob { error: excerpt(&row, MORE)?, job });
            }
        }
        *skipped |= keys.iter().any(|(key, _)| !ids.contains(&key.id));
        Ok(DeadFound { jobs: found, next })
    }
}

fn key(row: &Row) -> Found<(Cursor, bool)> {
    Ok((Cursor { at: Wall::new(get(row, 0)?), id: job_id(get(row, 1)?)? }, get(row, 2)?))
}

/// A search for candidates.
#[derive(Debug)]
pub(crate) struct Claim {
    /// Not all pairs were searched from the start.
    hinted: bool,
    /// The pairs that were.
    from_start: Vec<Pair>,
    /// How many jobs of each pair are searched for.
    share: usize,
    looked: Option<Place>,
    rows: Option<Place>,
    /// The pairs that were left out because of a rate, and when to look again.
    later: Vec<(Pair, Wall)>,
    /// Which of these have ready jobs.
    waiting: Option<Place>,
}

/// What claims have seen beside their candidates.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Jobs whose payload was not read.
    pub(crate) large: Vec<JobId>,
    /// Rows were skipped that others hold, or that are before a head.
    pub(crate) skipped: bool,
    /// Searches from the start.
    pub(crate) looks: Vec<Look>,
}

/// Payloads up to this length come with their candidates.
const SMALL_PAYLOAD: usize = 64 * 1024;

const CANDIDATES: &str = concat!(
    ready_columns!(", CASE WHEN j.payload_bytes <= 65536 THEN j.payload END"),
    " FROM unnest($1::integer[], $2::integer[], $3::smallint[], $4::bigint[], $5::bigint[], \
     $6::bigint[]) AS pair (queue, kind, class, turn, due, id) CROSS JOIN LATERAL \
     (SELECT * FROM ready r WHERE r.epoch >= 0 AND r.queue = pair.queue AND r.kind = pair.kind \
      AND (r.class, r.turn, r.due, r.id) > (pair.class, pair.turn, pair.due, pair.id) \
      ORDER BY r.class, r.turn, r.due, r.id LIMIT $7::bigint FOR UPDATE SKIP LOCKED) t \
     JOIN jobs j ON j.id = t.id"
);
/// Which of these pairs have ready jobs.
const WAITING: &str = "SELECT pair.queue, pair.kind FROM unnest($1::integer[], $2::integer[]) \
    AS pair (queue, kind) WHERE EXISTS (SELECT 1 FROM ready r WHERE r.epoch >= 0 \
    AND r.queue = pair.queue AND r.kind = pair.kind)";
const LOOKED: &str = "SELECT count(*) FROM unnest($1::integer[], $2::integer[], \
    $3::smallint[], $4::bigint[], $5::bigint[], $6::bigint[]) \
    AS pair (queue, kind, class, turn, due, id) CROSS JOIN LATERAL \
    (SELECT 1 FROM ready r WHERE r.epoch >= 0 AND r.queue = pair.queue AND r.kind = pair.kind \
    AND (r.class, r.turn, r.due, r.id) > (pair.class, pair.turn, pair.due, pair.id) \
    ORDER BY r.class, r.turn, r.due, r.id LIMIT $7::bigint) t";

impl Claim {
    /// Asks for candidates of these pairs: of each a share, since most are taken from several. A
    /// claim that goes on behind a rank has used its shares up, and gets what it wants of each.
    pub(crate) fn ask(
        flight: &mut Flight,
        want: &Want,
        pairs: &[Pair],
        later: Vec<(Pair, Wall)>,
        heads: Option<&Heads>,
    ) -> Self {
        let mut from_start = Vec::new();
        let (queues, kinds): (Vec<i32>, Vec<i32>) = later.iter().map(|(pair, _)| *pair).unzip();
        let waiting = (!later.is_empty()).then(|| flight.add(WAITING, params![queues, kinds]));
        if pairs.is_empty() {
            let (looked, rows) = (None, None);
            return Self { hinted: false, from_start, share: 0, looked, rows, later, waiting };
        }
        let now = Instant::now();
        let even = want.limit.div_ceil(pairs.len());
        let share = if pairs.len() == 1 || want.after.is_some() { want.limit } else { even + 2 };
        let mut starts = Starts::default();
        let mut hinted = false;
        for pair in pairs {
            let head = heads.and_then(|heads| heads.behind(*pair, now));
            hinted |= head.is_some();
            if head.is_none() && want.after.is_none() {
                from_start.push(*pair);
            }
            starts.add(*pair, want.after.max(head));
        }
        let looked = Some(flight.add(LOOKED, starts.params(share)));
        let rows = Some(flight.add(CANDIDATES, starts.params(share)));
        Self { hinted, from_start, share, looked, rows, later, waiting }
    }

    /// When to look again at pairs with ready jobs that were left out because of a rate.
    fn opens(&self, returned: &mut FlightRows) -> Found<Option<Wall>> {
        let waiting = returned.take_of(self.waiting);
        let waiting: BTreeSet<Pair> =
            waiting.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?))).collect::<Found<_>>()?;
        let later = self.later.iter().filter(|(pair, _)| waiting.contains(pair));
        Ok(later.map(|(_, at)| *at).min())
    }

    /// The best-ranked candidates.
    pub(crate) fn read(
        &self,
        names: &Names,
        returned: &mut FlightRows,
        want: &Want,
        seen_by: &mut Seen,
    ) -> Found<Candidates> {
        let rows = returned.take_of(self.rows);
        let looked = returned.take_of(self.looked);
        let seen: i64 = looked.first().map(|row| get(row, 0)).transpose()?.unwrap_or(0);
        // Before the heads there may be more.
        seen_by.skipped |= seen > count(rows.len()) || (self.hinted && rows.len() < want.limit);
        let mut ranked: Vec<(Rank, &Row)> = Vec::with_capacity(rows.len());
        let mut end: Option<Rank> = None;
        let mut run: Option<(Pair, usize)> = None;
        let mut firsts: BTreeMap<Pair, Rank> = BTreeMap::new();
        for row in &rows {
            let pair: Pair = (get(row, 3)?, get(row, 4)?);
            let length = run.filter(|run| run.0 == pair).map_or(1, |run| run.1 + 1);
            run = Some((pair, length));
            let rank = rank(row)?;
            firsts.entry(pair).or_insert(rank);
            // Behind a share that is used up there may be a better one.
            if length == self.share {
                end = Some(end.map_or(rank, |end| end.min(rank)));
            }
            ranked.push((rank, row));
        }
        let look = |pair: &Pair| Look { pair: *pair, first: firsts.get(pair).copied() };
        seen_by.looks.extend(self.from_start.iter().map(look));
        ranked.sort_unstable_by_key(|(rank, _)| *rank);
        ranked.retain(|(rank, _)| end.is_none_or(|end| *rank <= end));
        let opens = self.opens(returned)?;
        let mut found = Candidates { opens, ..Candidates::default() };
        let mut budget = ByteBudget::new(want.bytes);
        found.next_bytes = end.map(|_| 0);
        for (_, row) in ranked {
            let bytes = get::<i32>(row, 24)?.cast_unsigned();
            if found.jobs.len() == want.limit || !budget.takes(bytes as usize) {
                found.next_bytes = Some(bytes);
                break;
            }
            let job = job(names, row)?;
            let payload = match get::<Option<&str>>(row, MORE)? {
                Some(text) => Payload::new(text).map_err(bad)?,
                None if bytes as usize > SMALL_PAYLOAD => {
                    seen_by.large.push(job.id);
                    Payload::null()
                }
                None => return Err(bad(format!("job {} has no payload", job.id))),
            };
            found.jobs.push(Candidate { job, payload });
        }
        Ok(found)
    }
}

/// Where the search starts in each pair, as columns.
#[derive(Default)]
struct Starts {
    queues: Vec<i32>,
    kinds: Vec<i32>,
    classes: Vec<i16>,
    turns: Vec<i64>,
    dues: Vec<i64>,
    ids: Vec<i64>,
}

impl Starts {
    fn add(&mut self, (queue, kind): Pair, behind: Option<Rank>) {
        let first = (i16::MIN, i64::MIN, i64::MIN, 0);
        let (class, turn, due, id) = behind.map_or(first, |rank| {
            (rank.class, rank.turn.cast_signed(), rank.due.get(), id_code(rank.id))
        });
        self.queues.push(queue);
        self.kinds.push(kind);
        self.classes.push(class);
        self.turns.push(turn);
        self.dues.push(due);
        self.ids.push(id);
    }

    fn params(&self, share: usize) -> Vec<Param> {
        params![
            self.queues.clone(),
            self.kinds.clone(),
            self.classes.clone(),
            self.turns.clone(),
            self.dues.clone(),
            self.ids.clone(),
            count(share),
        ]
    }
}

fn rank(row: &Row) -> Found<Rank> {
    Ok(Rank {
        class: get(row, 5)?,
        turn: get::<i64>(row, 6)?.cast_unsigned(),
        due: Wall::new(get(row, 7)?),
        id: job_id(get(row, 0)?)?,
    })
}

/// The keys in the order of the question, each with the job it names.
pub(crate) fn keys_found(
    names: &Names,
    asked: &[IdempotencyKey],
    keys: &[Row],
    keyed: &[Row],
) -> Found<Vec<Option<KeyFound>>> {
    let records: Found<Vec<KeyRecord>> = keys.iter().map(key_record).collect();
    let mut records = records?;
    records.sort_by(|a, b| a.key.cmp(&b.key));
    let jobs: Vec<Job> = jobs(names, keyed)?;
    let found = |key: &IdempotencyKey| {
        let at = records.binary_search_by(|record| record.key.cmp(key)).ok()?;
        let record = records[at].clone();
        let job = jobs.iter().find(|job| job.id == record.job).cloned();
        Some(KeyFound { record, job })
    };
    Ok(asked.iter().map(found).collect())
}

/// A row of [`KEYS`].
pub(crate) fn key_record(row: &Row) -> Found<KeyRecord> {
    let request: &[u8] = get(row, 2)?;
    let request: [u8; 16] = request.try_into().map_err(bad)?;
    Ok(KeyRecord {
        key: IdempotencyKey::new(get(row, 0)?).map_err(bad)?,
        job: job_id(get(row, 1)?)?,
        request: Fingerprint(u128::from_le_bytes(request)),
        created_at: Wall::new(get(row, 3)?),
        orphan_until: get::<Option<i64>>(row, 4)?.map(Wall::new),
    })
}

/// In the order of the question: whether a worker was asked to stop.
pub(crate) fn stop_marks(asked: &[WorkerId], rows: &[Row]) -> Found<Vec<Option<bool>>> {
    let mut marks: Vec<(&str, bool)> = Vec::with_capacity(rows.len());
    for row in rows {
        marks.push((get(row, 0)?, get(row, 1)?));
    }
    let mark = |id: &WorkerId| marks.iter().find(|(of, _)| *of == id.as_str());
    Ok(asked.iter().map(|id| mark(id).map(|(_, stopping)| *stopping)).collect())
}

/// The kinds of a queue that have jobs.
pub(crate) fn kinds_with_jobs(session: &mut Session, queue: i32) -> Found<BTreeSet<i32>> {
    let sql = "SELECT kind FROM counts WHERE queue = $1 GROUP BY kind HAVING \
               sum(queued + scheduled + processing + done + failed + cancelled) > 0";
    session.query(sql, params![queue])?.iter().map(|row| get(row, 0)).collect()
}

/// Counters in the order of the views, from this column on, and the retrying jobs behind them.
pub(crate) fn counts(row: &Row, from: usize) -> Found<Counts> {
    let number = |at: usize| Found::Ok(u64::try_from(get::<i64>(row, from + at)?).unwrap_or(0));
    let mut counts = [0; View::ALL.len()];
    for (at, count) in counts.iter_mut().enumerate() {
        *count = number(at)?;
    }
    Ok(Counts::new(counts).with_retrying(number(View::ALL.len())?))
}
