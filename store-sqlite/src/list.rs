//! Lists of jobs, newest first. Every filter seeks: where an index holds several queues, kinds or
//! priorities one behind the other, their lists are merged.

use rusqlite::params;
use windlass_core::store::{Cursor, Filter, Listing, Page};
use windlass_core::{IdempotencyKey, Job, JobId, View, Wall};
use windlass_store_file::{Pair, newest_of};

use crate::find::{Found, Rows, count};
use crate::names::{pair_key, pair_range};
use crate::rows::{id_code, job_id, select_jobs, view_code};

/// A page of a list.
pub(crate) fn list(
    tx: &mut Rows<'_>,
    filter: &Filter,
    after: Option<Cursor>,
    limit: usize,
) -> Found<Page> {
    let mut listing = Listing::new(filter, after, limit);
    while let Some((after, rows)) = listing.wanted() {
        listing.add(newest(tx, filter, after, rows)?);
    }
    Ok(listing.page())
}

/// The next jobs behind `after` by the filter's order: all that it includes, and perhaps others.
fn newest(
    tx: &mut Rows<'_>,
    filter: &Filter,
    after: Option<Cursor>,
    limit: usize,
) -> Found<Vec<Job>> {
    if let Some(id) = filter.id {
        return named(tx, filter, after, &[id]);
    }
    if let Some(key) = &filter.key {
        let ids = with_key(tx, key)?;
        return named(tx, filter, after, &ids);
    }
    if let Some(group) = filter.group {
        return tx.of_group(group, after, limit);
    }
    let narrow = filter.queue.is_some() || filter.kind.is_some();
    match filter.view {
        None if !narrow => {
            let sql = concat!(select_jobs!(), "WHERE id < ?1 ORDER BY id DESC LIMIT ?2");
            let id = after.map_or(i64::MAX, |after| id_code(after.id));
            tx.find(sql, params![id, count(limit)])
        }
        Some(View::Queued) => {
            let pairs = pairs(tx, filter)?;
            let groups = groups(tx, &pairs)?;
            let found = newest_of(&groups, after, limit, |group, after, limit| {
                ready(tx, group, after, limit)
            });
            indexed(tx, &found?)
        }
        // Leased jobs are few: no more than the workers have slots.
        Some(view) if !narrow || view == View::Processing => tx.newest(view, after, limit),
        view => {
            let pairs = pairs(tx, filter)?;
            let found = newest_of(&pairs, after, limit, |pair, after, limit| match view {
                None => of_pair(tx, *pair, after, limit),
                Some(view) => settled(tx, *pair, view, after, limit),
            });
            indexed(tx, &found?)
        }
    }
}

/// Those of these jobs that are behind `after`, in the filter's order.
fn named(
    tx: &mut Rows<'_>,
    filter: &Filter,
    after: Option<Cursor>,
    ids: &[JobId],
) -> Found<Vec<Job>> {
    let mut jobs: Vec<Job> = tx.jobs(ids)?.into_iter().flatten().collect();
    jobs.retain(|job| filter.includes(job) && after.is_none_or(|after| filter.place(job) < after));
    jobs.sort_by_key(|job| std::cmp::Reverse(filter.place(job)));
    Ok(jobs)
}

/// The jobs that an index has named.
fn indexed(tx: &mut Rows<'_>, found: &[Cursor]) -> Found<Vec<Job>> {
    let ids: Vec<JobId> = found.iter().map(|place| place.id).collect();
    Ok(tx.jobs(&ids)?.into_iter().flatten().collect())
}

fn with_key(tx: &Rows<'_>, key: &IdempotencyKey) -> Found<Vec<JobId>> {
    let mut statement =
        tx.conn.prepare_cached("SELECT job FROM bodies WHERE idempotency_key = ?1")?;
    let mut rows = statement.query([key.as_str()])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(job_id(row.get(0)?)?);
    }
    Ok(found)
}

/// The queues and kinds that may have jobs which the filter includes.
fn pairs(tx: &mut Rows<'_>, filter: &Filter) -> Found<Vec<Pair>> {
    let kind = match &filter.kind {
        None => None,
        Some(kind) => match tx.names.kind_id(tx.conn, kind)? {
            None => return Ok(Vec::new()),
            known => known,
        },
    };
    let range = match &filter.queue {
        None => [i64::MIN, i64::MAX],
        Some(queue) => match (tx.names.queue_id(tx.conn, queue)?, kind) {
            (None, _) => return Ok(Vec::new()),
            (Some(queue), None) => pair_range(queue),
            (Some(queue), Some(kind)) => [pair_key(queue, kind); 2],
        },
    };
    let sql = "SELECT pair >> 32, pair & 4294967295, queued, scheduled, processing, done, failed, \
               cancelled FROM counts WHERE pair BETWEEN ?1 AND ?2";
    let mut statement = tx.conn.prepare_cached(sql)?;
    let mut rows = statement.query(range)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let pair = Pair { queue: row.get(0)?, kind: row.get(1)? };
        let empty = match filter.view {
            Some(view) => row.get::<_, i64>(2 + view.index())? == 0,
            None => false,
        };
        if !empty && kind.is_none_or(|kind| kind == pair.kind) {
            found.push(pair);
        }
    }
    Ok(found)
}

/// Ready jobs of one queue and kind that are ordered by when they fell due.
struct Group {
    pair: Pair,
    class: i64,
    turn: i64,
}

fn groups(tx: &Rows<'_>, pairs: &[Pair]) -> Found<Vec<Group>> {
    let sql = "SELECT class, turn FROM jobs WHERE view = 0 AND queue = ?1 AND kind = ?2 \
               AND (class, turn) > (?3, ?4) ORDER BY class, turn, due LIMIT 1";
    let mut statement = tx.conn.prepare_cached(sql)?;
    let mut found = Vec::new();
    for pair in pairs {
        let mut last = (i64::MIN, i64::MIN);
        loop {
            let mut rows = statement.query(params![pair.queue, pair.kind, last.0, last.1])?;
            let Some(row) = rows.next()? else { break };
            last = (row.get(0)?, row.get(1)?);
            found.push(Group { pair: *pair, class: last.0, turn: last.1 });
        }
    }
    Ok(found)
}

fn ready(tx: &Rows<'_>, group: &Group, after: Option<Cursor>, limit: usize) -> Found<Vec<Cursor>> {
    let sql = "SELECT due, id FROM jobs INDEXED BY ready WHERE view = 0 AND queue = ?1 \
               AND kind = ?2 AND class = ?3 AND turn = ?4 AND (due, id) < (?5, ?6) \
               ORDER BY due DESC, id DESC LIMIT ?7";
    let Group { pair, class, turn } = group;
    let (at, id) = behind(after);
    places(tx, sql, params![pair.queue, pair.kind, class, turn, at, id, count(limit)])
}

fn settled(
    tx: &Rows<'_>,
    pair: Pair,
    view: View,
    after: Option<Cursor>,
    limit: usize,
) -> Found<Vec<Cursor>> {
    let sql = "SELECT at, id FROM jobs INDEXED BY settled WHERE view <> 0 AND view <> 2 \
               AND queue = ?1 AND kind = ?2 AND view = ?3 AND (at, id) < (?4, ?5) \
               ORDER BY at DESC, id DESC LIMIT ?6";
    let (at, id) = behind(after);
    places(tx, sql, params![pair.queue, pair.kind, view_code(view), at, id, count(limit)])
}

fn of_pair(tx: &Rows<'_>, pair: Pair, after: Option<Cursor>, limit: usize) -> Found<Vec<Cursor>> {
    let sql = "SELECT 0, id FROM jobs INDEXED BY by_pair WHERE queue = ?1 AND kind = ?2 \
               AND id < ?3 ORDER BY id DESC LIMIT ?4";
    let (_, id) = behind(after);
    places(tx, sql, params![pair.queue, pair.kind, id, count(limit)])
}

fn behind(after: Option<Cursor>) -> (i64, i64) {
    after.map_or((i64::MAX, i64::MAX), |after| (after.at.get(), id_code(after.id)))
}

fn places(tx: &Rows<'_>, sql: &str, params: impl rusqlite::Params) -> Found<Vec<Cursor>> {
    let mut statement = tx.conn.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(Cursor { at: Wall::new(row.get(0)?), id: job_id(row.get(1)?)? });
    }
    Ok(found)
}
