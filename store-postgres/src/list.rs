//! Lists of jobs, newest first. Every filter seeks: where an index holds several queues, kinds or
//! priorities one behind the other, their lists are merged.
//!
//! Most pages are one flight with one statement that finds and reads the rows. Where very many
//! lists are to be merged, the places are found first, with a few from each.

use std::collections::BTreeMap;

use windlass_core::store::{Cursor, Filter, Listing, Page};
use windlass_core::{Job, JobId, View, Wall};
use windlass_store_file::newest_of;

use crate::names::{Pair, VERSION};
use crate::reader::Reading;
use crate::rows::{
    count, get, id_code, id_codes, job_id, jobs, select_done, select_leased, select_ready,
    select_scheduled, view_code,
};
use crate::session::{Flight, Found, Param, Place, params};

/// More lists than this are not read whole to be merged.
const FEW_LISTS: usize = 8;

const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// A page of a list.
pub(crate) fn list(
    reading: &mut Reading<'_>,
    filter: &Filter,
    after: Option<Cursor>,
    limit: usize,
) -> Found<Page> {
    let mut listing = Listing::new(filter, after, limit);
    let Some((first, rows)) = listing.wanted() else { return Ok(listing.page()) };
    let mut flight = Flight::default();
    // Only of ready jobs is a chunk more than one statement.
    let ready = filter.view == Some(View::Queued);
    if ready {
        flight.add(BEGIN, vec![]);
    }
    let chunk = Chunk::ask(&mut flight, reading, filter, first, rows);
    // Behind the rows: if it is the same now, it was the same then.
    let version = flight.add(VERSION, vec![]);
    if ready {
        flight.add("COMMIT", vec![]);
    }
    let mut returned = reading.session.fly(flight, None)?;
    // Queues and kinds that are not known yet would be left out.
    reading.check_version(&returned.take(version))?;
    if let Some(found) = chunk.read(reading, filter, &mut returned)? {
        listing.add(found);
        if listing.wanted().is_none() {
            return Ok(listing.page());
        }
    }
    in_steps(reading, filter, after, limit)
}

/// A page for which one flight is not enough.
fn in_steps(
    reading: &mut Reading<'_>,
    filter: &Filter,
    after: Option<Cursor>,
    limit: usize,
) -> Found<Page> {
    let mut listing = Listing::new(filter, after, limit);
    reading.session.run(BEGIN)?;
    let version = reading.session.query(VERSION, vec![])?;
    reading.check_version(&version)?;
    while let Some((after, rows)) = listing.wanted() {
        let mut flight = Flight::default();
        let chunk = Chunk::ask(&mut flight, reading, filter, after, rows);
        let mut returned = reading.session.fly(flight, None)?;
        let found = match chunk.read(reading, filter, &mut returned)? {
            Some(found) => found,
            None => merged(reading, filter, after, rows)?,
        };
        listing.add(found);
    }
    reading.session.run("COMMIT")?;
    Ok(listing.page())
}

/// The next jobs behind a place by a filter's order: all that it includes, and perhaps others.
struct Chunk {
    /// `None` if very many lists are to be merged.
    rows: Option<Place>,
    /// How many lists there are, where only the store knows that.
    groups: Option<Place>,
}

impl Chunk {
    fn ask(
        flight: &mut Flight,
        reading: &Reading<'_>,
        filter: &Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Self {
        let found = |rows| Self { rows: Some(rows), groups: None };
        let limit = count(limit);
        let (at, id) = behind(after);
        if let Some(named) = filter.id {
            return found(flight.add(BY_ID, params![id_code(named)]));
        }
        if let Some(key) = &filter.key {
            return found(flight.add(BY_KEY, params![key.as_str().to_owned()]));
        }
        if let Some(group) = filter.group {
            return found(flight.add(OF_GROUP, params![group.0.to_vec(), at, id, limit]));
        }
        let narrow = filter.queue.is_some() || filter.kind.is_some();
        match filter.view {
            None if !narrow => return found(flight.add(ALL, params![id, limit])),
            // Leased jobs are few: no more than the workers have slots.
            Some(View::Processing) => return found(flight.add(LEASED, params![at, id, limit])),
            Some(View::Scheduled) if !narrow => {
                return found(flight.add(SCHEDULED, params![at, id, limit]));
            }
            Some(View::Done | View::Failed | View::Cancelled) if !narrow => {
                let view = filter.view.map(view_code);
                return found(flight.add(DONE, params![view, at, id, limit]));
            }
            _ => {}
        }
        let pairs = pairs(reading, filter);
        if pairs.len() > FEW_LISTS {
            return Self { rows: None, groups: None };
        }
        let (queues, kinds): (Vec<i32>, Vec<i32>) = pairs.into_iter().unzip();
        match filter.view {
            None => found(flight.add(ALL_OF_PAIRS, params![queues, kinds, id, limit])),
            Some(View::Scheduled) => {
                found(flight.add(SCHEDULED_OF_PAIRS, params![queues, kinds, at, id, limit]))
            }
            Some(View::Queued) => {
                let most = count(FEW_LISTS + 1);
                let groups = params![queues.clone(), kinds.clone(), most];
                let groups = Some(flight.add(COUNT_GROUPS, groups));
                let rows = params![queues, kinds, most, at, id, limit];
                Self { rows: Some(flight.add(READY_OF_GROUPS, rows)), groups }
            }
            Some(view) => {
                let view = view_code(view);
                found(flight.add(DONE_OF_PAIRS, params![queues, kinds, at, id, limit, view]))
            }
        }
    }

    /// The rows; `None` if too many lists are to be merged.
    fn read(
        self,
        reading: &Reading<'_>,
        filter: &Filter,
        returned: &mut crate::session::FlightRows,
    ) -> Found<Option<Vec<Job>>> {
        let Some(rows) = self.rows else { return Ok(None) };
        let groups = returned.take_of(self.groups);
        let groups: i64 = groups.first().map(|row| get(row, 0)).transpose()?.unwrap_or(0);
        if groups > count(FEW_LISTS) {
            return Ok(None);
        }
        let mut jobs = jobs(reading.names, &returned.take(rows))?;
        jobs.sort_by_key(|job| std::cmp::Reverse(filter.place(job)));
        Ok(Some(jobs))
    }
}

/// Merges very many lists: first their places.
fn merged(
    reading: &mut Reading<'_>,
    filter: &Filter,
    after: Option<Cursor>,
    limit: usize,
) -> Found<Vec<Job>> {
    let pairs = pairs(reading, filter);
    let found = if filter.view == Some(View::Queued) {
        let groups = groups(reading, &pairs)?;
        newest_of(&groups, after, limit, |group, after, limit| {
            let (at, id) = behind(after);
            let Group { pair, class, turn } = *group;
            let params = params![pair.0, pair.1, class, turn, at, id, count(limit)];
            places(reading, READY_OF_GROUP, params)
        })?
    } else {
        newest_of(&pairs, after, limit, |pair, after, limit| {
            of_pair(reading, *pair, filter.view, after, limit)
        })?
    };
    let ids: Vec<JobId> = found.iter().map(|place| place.id).collect();
    let rows = reading.session.query(BY_IDS, params![id_codes(&ids)])?;
    let jobs = jobs(reading.names, &rows)?;
    let mut jobs: BTreeMap<JobId, Job> = jobs.into_iter().map(|job| (job.id, job)).collect();
    Ok(ids.iter().filter_map(|id| jobs.remove(id)).collect())
}

/// The jobs of one queue and kind behind `after`.
fn of_pair(
    reading: &mut Reading<'_>,
    (queue, kind): Pair,
    view: Option<View>,
    after: Option<Cursor>,
    limit: usize,
) -> Found<Vec<Cursor>> {
    let (at, id) = behind(after);
    let limit = count(limit);
    match view {
        None => places(reading, OF_PAIR, params![queue, kind, id, limit]),
        Some(View::Scheduled) => {
            places(reading, SCHEDULED_OF_PAIR, params![queue, kind, at, id, limit])
        }
        Some(view) => {
            places(reading, DONE_OF_PAIR, params![queue, kind, view_code(view), at, id, limit])
        }
    }
}

/// The queues and kinds that may have jobs which the filter includes.
fn pairs(reading: &Reading<'_>, filter: &Filter) -> Vec<Pair> {
    let names = reading.names;
    let queue = filter.queue.as_ref().map(|queue| names.queue_id(queue));
    let kind = filter.kind.as_ref().map(|kind| names.kind_id(kind));
    let included = |pair: &Pair| {
        queue.is_none_or(|queue| queue == Some(pair.0))
            && kind.is_none_or(|kind| kind == Some(pair.1))
    };
    names.pairs().filter(included).collect()
}

/// Ready jobs of one queue and kind that are ordered by when they fell due.
struct Group {
    pair: Pair,
    class: i16,
    turn: i64,
}

fn groups(reading: &mut Reading<'_>, pairs: &[Pair]) -> Found<Vec<Group>> {
    let (queues, kinds): (Vec<i32>, Vec<i32>) = pairs.iter().copied().unzip();
    let rows = reading.session.query(GROUPS, params![queues, kinds])?;
    let group = |row: &tokio_postgres::Row| {
        let pair = (get(row, 0)?, get(row, 1)?);
        Ok(Group { pair, class: get(row, 2)?, turn: get(row, 3)? })
    };
    rows.iter().map(group).collect()
}

fn behind(after: Option<Cursor>) -> (i64, i64) {
    after.map_or((i64::MAX, i64::MAX), |after| (after.at.get(), id_code(after.id)))
}

fn places(reading: &mut Reading<'_>, sql: &'static str, params: Vec<Param>) -> Found<Vec<Cursor>> {
    let rows = reading.session.query(sql, params)?;
    let place = |row: &tokio_postgres::Row| {
        Ok(Cursor { at: Wall::new(get(row, 0)?), id: job_id(get(row, 1)?)? })
    };
    rows.iter().map(place).collect()
}

/// Jobs whose ids are `found` by a query.
macro_rules! those {
    ($found:expr, $select:expr) => {
        concat!(
            "WITH found AS MATERIALIZED (",
            $found,
            ") ",
            $select,
            "WHERE t.id = ANY(ARRAY(SELECT id FROM found))"
        )
    };
}

/// The same, in whichever table they are.
macro_rules! those_anywhere {
    ($found:expr) => {
        concat!(
            those!($found, select_ready!()),
            " UNION ALL ",
            select_scheduled!(),
            "WHERE t.id = ANY(ARRAY(SELECT id FROM found)) UNION ALL ",
            select_leased!(),
            "WHERE t.id = ANY(ARRAY(SELECT id FROM found)) UNION ALL ",
            select_done!(),
            "WHERE t.id = ANY(ARRAY(SELECT id FROM found))"
        )
    };
}

const BY_ID: &str = those_anywhere!("SELECT $1::bigint AS id");
const BY_IDS: &str = those_anywhere!("SELECT unnest($1::bigint[]) AS id");
const BY_KEY: &str = those_anywhere!("SELECT id FROM jobs WHERE idempotency_key = $1::text");
const ALL: &str =
    those_anywhere!("SELECT id FROM jobs WHERE id < $1::bigint ORDER BY id DESC LIMIT $2");
const LEASED: &str = those!(
    "SELECT id FROM leased WHERE epoch >= 0 AND (lease_until, id) < ($1::bigint, $2::bigint) \
     ORDER BY lease_until DESC, id DESC LIMIT $3",
    select_leased!()
);
const SCHEDULED: &str = those!(
    "SELECT id FROM scheduled WHERE epoch >= 0 AND (run_at, id) < ($1::bigint, $2::bigint) \
     ORDER BY run_at DESC, id DESC LIMIT $3",
    select_scheduled!()
);
const DONE: &str = those!(
    "SELECT id FROM done WHERE view = $1::smallint \
     AND (finished_at, id) < ($2::bigint, $3::bigint) \
     ORDER BY finished_at DESC, id DESC LIMIT $4",
    select_done!()
);

const OF_GROUP: &str = those!(
    "SELECT id FROM done WHERE error_group = $1::bytea \
     AND (finished_at, id) < ($2::bigint, $3::bigint) \
     ORDER BY finished_at DESC, id DESC LIMIT $4",
    select_done!()
);

/// The newest of some pairs, of each as many as are wanted.
macro_rules! of_pairs {
    ($table:literal, $at:literal, $where:literal, $limit:literal) => {
        concat!(
            "SELECT one.at, one.id FROM unnest($1::integer[], $2::integer[]) AS pair (queue, kind) \
             CROSS JOIN LATERAL (SELECT ",
            $at,
            " AS at, r.id FROM ",
            $table,
            " r WHERE r.queue = pair.queue AND r.kind = pair.kind ",
            $where,
            $limit,
            ") AS one ORDER BY one.at DESC, one.id DESC LIMIT ",
            $limit
        )
    };
}

const ALL_OF_PAIRS: &str = those_anywhere!(of_pairs!(
    "jobs",
    "0::bigint",
    "AND r.id < $3::bigint ORDER BY r.id DESC LIMIT ",
    "$4::bigint"
));
const SCHEDULED_OF_PAIRS: &str = those!(
    of_pairs!(
        "scheduled",
        "r.run_at",
        "AND r.epoch >= 0 AND (r.run_at, r.id) < ($3::bigint, $4::bigint) \
         ORDER BY r.run_at DESC, r.id DESC LIMIT ",
        "$5::bigint"
    ),
    select_scheduled!()
);
const DONE_OF_PAIRS: &str = those!(
    of_pairs!(
        "done",
        "r.finished_at",
        "AND r.view = $6::smallint AND (r.finished_at, r.id) < ($3::bigint, $4::bigint) \
         ORDER BY r.finished_at DESC, r.id DESC LIMIT ",
        "$5::bigint"
    ),
    select_done!()
);

/// The classes and turns of the ready jobs of each pair, found by seeking from one to the next.
macro_rules! groups {
    () => {
        "SELECT pair.queue, pair.kind, heads.class, heads.turn \
         FROM unnest($1::integer[], $2::integer[]) AS pair (queue, kind) CROSS JOIN LATERAL \
         (WITH RECURSIVE head AS ( \
             (SELECT class, turn FROM ready r WHERE r.epoch >= 0 \
              AND r.queue = pair.queue AND r.kind = pair.kind \
              ORDER BY class, turn, due, id LIMIT 1) \
             UNION ALL \
             SELECT next.class, next.turn FROM head CROSS JOIN LATERAL \
             (SELECT class, turn FROM ready r WHERE r.epoch >= 0 \
              AND r.queue = pair.queue AND r.kind = pair.kind \
              AND (r.class, r.turn) > (head.class, head.turn) \
              ORDER BY class, turn, due, id LIMIT 1) next) \
         SELECT class, turn FROM head) heads"
    };
}

const GROUPS: &str = groups!();
const COUNT_GROUPS: &str =
    concat!("SELECT count(*) FROM (", groups!(), " LIMIT $3::bigint) AS head_of");
const READY_OF_GROUPS: &str = those!(
    concat!(
        "SELECT one.due, one.id FROM (",
        groups!(),
        " LIMIT $3::bigint) AS head_of CROSS JOIN LATERAL (SELECT r.due, r.id FROM ready r \
         WHERE r.epoch >= 0 AND r.queue = head_of.queue AND r.kind = head_of.kind \
         AND r.class = head_of.class \
         AND r.turn = head_of.turn AND (r.due, r.id) < ($4::bigint, $5::bigint) \
         ORDER BY r.due DESC, r.id DESC LIMIT $6::bigint) AS one \
         ORDER BY one.due DESC, one.id DESC LIMIT $6::bigint"
    ),
    select_ready!()
);
const READY_OF_GROUP: &str = "SELECT due, id FROM ready WHERE epoch >= 0 \
    AND queue = $1 AND kind = $2 AND class = $3 AND turn = $4 \
    AND (due, id) < ($5::bigint, $6::bigint) \
    ORDER BY due DESC, id DESC LIMIT $7";
const OF_PAIR: &str = "SELECT 0::bigint, id FROM jobs WHERE queue = $1 AND kind = $2 AND id < $3 \
    ORDER BY id DESC LIMIT $4";
const SCHEDULED_OF_PAIR: &str = "SELECT run_at, id FROM scheduled WHERE epoch >= 0 \
    AND queue = $1 AND kind = $2 \
    AND (run_at, id) < ($3::bigint, $4::bigint) ORDER BY run_at DESC, id DESC LIMIT $5";
const DONE_OF_PAIR: &str = "SELECT finished_at, id FROM done WHERE queue = $1 AND kind = $2 \
    AND view = $3 AND (finished_at, id) < ($4::bigint, $5::bigint) \
    ORDER BY finished_at DESC, id DESC LIMIT $6";
