//! Error groups: their rows, and the dead letters of each. What a row says is core's.

use rusqlite::{Connection, OptionalExtension, params};
use windlass_core::store::{Changes, Cursor, IdleGroups};
use windlass_core::{ErrorText, GroupId, GroupRow, GroupTally, JobId, Wall};

use crate::find::{Found, count};
use crate::names::Names;
use crate::rows::{bad, id_code, job_id, text};

/// The group of a dead letter.
pub(crate) fn of_job(conn: &Connection, id: i64) -> Found<GroupId> {
    let sql = "SELECT error_group FROM dead_letters WHERE job = ?1";
    let found = conn.prepare_cached(sql)?.query_row([id], |row| row.get(0)).optional()?;
    Ok(found.map_or(GroupId::LOST, GroupId))
}

/// These groups, in this order.
pub(crate) fn named(conn: &Connection, ids: &[GroupId]) -> Found<Vec<Option<GroupRow>>> {
    let sql = "SELECT data FROM error_groups WHERE id = ?1";
    let mut one = |id: &GroupId| {
        let mut statement = conn.prepare_cached(sql)?;
        let mut rows = statement.query([id.0])?;
        let row = rows.next()?;
        row.map(|row| group(*id, text(row, 0)?.unwrap_or_default())).transpose()
    };
    ids.iter().map(&mut one).collect()
}

/// The number of groups: counts the rows.
pub(crate) fn number(conn: &Connection) -> Found<usize> {
    let sql = "SELECT count(*) FROM error_groups";
    let number: i64 = conn.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
    usize::try_from(number).map_err(bad)
}

/// Every group, by id.
pub(crate) fn all(conn: &Connection) -> Found<Vec<GroupRow>> {
    let mut statement = conn.prepare_cached("SELECT id, data FROM error_groups ORDER BY id")?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(group(GroupId(row.get(0)?), text(row, 1)?.unwrap_or_default())?);
    }
    Ok(found)
}

/// Groups that had no dead letter for long.
pub(crate) fn idle(conn: &Connection, now: Wall, page: IdleGroups) -> Found<Vec<GroupId>> {
    let sql = "SELECT id FROM error_groups WHERE idle_since IS NOT NULL AND idle_since <= ?1 \
               ORDER BY idle_since LIMIT ?2";
    let mut statement = conn.prepare_cached(sql)?;
    let params = params![now.minus(page.age).get(), count(page.limit)];
    let ids = statement.query_map(params, |row| row.get(0).map(GroupId))?;
    Ok(ids.collect::<rusqlite::Result<_>>()?)
}

/// The dead letters of a group, newest first, behind `after`.
pub(crate) fn newest(
    conn: &Connection,
    group: GroupId,
    after: Option<Cursor>,
    limit: usize,
) -> Found<Vec<JobId>> {
    let sql = "SELECT job FROM dead_letters WHERE error_group = ?1 AND (at, job) < (?2, ?3) \
               ORDER BY at DESC, job DESC LIMIT ?4";
    let (at, id) = after.map_or((i64::MAX, i64::MAX), |after| (after.at.get(), id_code(after.id)));
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(params![group.0, at, id, count(limit)])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(job_id(row.get(0)?)?);
    }
    Ok(found)
}

/// Writes what a batch changed.
pub(crate) fn write(conn: &Connection, changes: &Changes) -> Found<()> {
    for (id, _) in changes.no_longer_dead() {
        let sql = "DELETE FROM dead_letters WHERE job = ?1";
        conn.prepare_cached(sql)?.execute([id_code(id)])?;
    }
    for (id, group, at) in changes.newly_dead() {
        put_dead_letter(conn, id_code(id), group, at)?;
    }
    for group in &changes.groups {
        put(conn, group)?;
    }
    for id in &changes.dropped_groups {
        conn.prepare_cached("DELETE FROM error_groups WHERE id = ?1")?.execute([id.0])?;
    }
    Ok(())
}

/// Groups the dead letters that are stored: in the step of the schema that begins to group them,
/// and in a repair. Of groups that exist the times of failures are kept.
pub(crate) fn regroup(conn: &Connection) -> Found<()> {
    let mut tally = GroupTally::recount(all(conn).unwrap_or_default());
    conn.execute_batch("DELETE FROM dead_letters; DELETE FROM error_groups")?;
    let mut names = Names::default();
    let sql = "SELECT id, queue, kind, at, text, exit_code, stderr FROM jobs \
               LEFT JOIN errors ON errors.job = id \
               LEFT JOIN attempts ON attempts.job = id AND attempts.epoch = jobs.epoch \
               WHERE view = 4 ORDER BY id";
    let mut statement = conn.prepare(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (queue, kind) = (names.queue(conn, row.get(1)?)?, names.kind(conn, row.get(2)?)?);
        let error = text(row, 4)?.unwrap_or_default();
        let of = ErrorText { error, exit_code: row.get(5)?, stderr: text(row, 6)? };
        let at = Wall::new(row.get(3)?);
        let group = tally.add(&queue, &kind, at, &of);
        put_dead_letter(conn, row.get(0)?, group, at)?;
    }
    tally.finish().iter().try_for_each(|row| put(conn, row))
}

fn put_dead_letter(conn: &Connection, id: i64, group: GroupId, at: Wall) -> Found<()> {
    let sql = "INSERT INTO dead_letters (job, error_group, at) VALUES (?1, ?2, ?3)";
    conn.prepare_cached(sql)?.execute(params![id, group.0, at.get()])?;
    Ok(())
}

fn put(conn: &Connection, row: &GroupRow) -> Found<()> {
    let sql = "INSERT INTO error_groups (id, idle_since, data) VALUES (?1, ?2, ?3) \
               ON CONFLICT DO UPDATE SET idle_since = excluded.idle_since, data = excluded.data";
    let idle_since = row.idle_since().map(Wall::get);
    conn.prepare_cached(sql)?.execute(params![row.id.0, idle_since, row.to_text()])?;
    Ok(())
}

fn group(id: GroupId, text: &str) -> Found<GroupRow> {
    GroupRow::from_text(id, text).map_err(bad)
}
