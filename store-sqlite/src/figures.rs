//! Rows of figures: found by span and slot, put in place, removed. What is in them is core's.

use rusqlite::{Connection, OptionalExtension, params};
use windlass_core::store::{Changes, FigureKey, FigurePage, FigureRange, FigureRow};
use windlass_core::{ProcessId, Span, Wall};

use crate::find::{Found, count};
use crate::rows::bad;

/// The data of these rows, in this order.
pub(crate) fn data(conn: &Connection, keys: &[FigureKey]) -> Found<Vec<Option<Vec<u8>>>> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let sql = "SELECT data FROM figures WHERE span = ?1 AND slot = ?2 AND process = ?3";
    let mut statement = conn.prepare_cached(sql)?;
    let mut one = |key: &FigureKey| {
        let (span, slot, process) = place(key);
        Ok(statement.query_row(params![span, slot, process], |row| row.get(0)).optional()?)
    };
    keys.iter().map(&mut one).collect()
}

/// The first rows of a span that are old enough.
pub(crate) fn old(conn: &Connection, now: Wall, page: FigurePage) -> Found<Vec<FigureRow>> {
    let sql = "SELECT span, slot, process, data FROM figures WHERE span = ?1 AND slot <= ?2 \
               ORDER BY slot, process LIMIT ?3";
    let to = now.minus(page.age).get();
    rows(conn, sql, params![page.span.code(), to, count(page.limit)])
}

/// The rows of these ranges.
pub(crate) fn within(conn: &Connection, ranges: &[FigureRange]) -> Found<Vec<FigureRow>> {
    let sql = "SELECT span, slot, process, data FROM figures \
               WHERE span = ?1 AND slot >= ?2 AND slot < ?3 ORDER BY slot, process";
    let mut found = Vec::new();
    for FigureRange { span, from, to } in ranges {
        found.append(&mut rows(conn, sql, params![span.code(), from.get(), to.get()])?);
    }
    Ok(found)
}

/// The rows behind a key, in the order of the table.
pub(crate) fn behind(
    conn: &Connection,
    after: Option<&FigureKey>,
    limit: usize,
) -> Found<Vec<FigureRow>> {
    let sql = "SELECT span, slot, process, data FROM figures \
               WHERE (span, slot, process) > (?1, ?2, ?3) ORDER BY span, slot, process LIMIT ?4";
    let (span, slot, process) =
        after.map_or((-1, 0, 0), |key| (i64::from(place(key).0), place(key).1, place(key).2));
    in_order(conn, sql, params![span, slot, process, count(limit)])
}

/// Every row, by key.
pub(crate) fn all(conn: &Connection) -> Found<Vec<FigureRow>> {
    let sql = "SELECT span, slot, process, data FROM figures ORDER BY span, slot, process";
    rows(conn, sql, [])
}

/// Writes what a batch changed.
pub(crate) fn write(conn: &Connection, changes: &Changes) -> Found<()> {
    for FigureRow { key, data } in &changes.figures {
        let sql = "INSERT INTO figures (span, slot, process, data) VALUES (?1, ?2, ?3, ?4) \
                   ON CONFLICT DO UPDATE SET data = excluded.data";
        let (span, slot, process) = place(key);
        conn.prepare_cached(sql)?.execute(params![span, slot, process, data])?;
    }
    for key in &changes.dropped_figures {
        let sql = "DELETE FROM figures WHERE span = ?1 AND slot = ?2 AND process = ?3";
        let (span, slot, process) = place(key);
        conn.prepare_cached(sql)?.execute(params![span, slot, process])?;
    }
    Ok(())
}

fn place(key: &FigureKey) -> (u8, i64, i64) {
    let FigureKey { span, slot, process } = key;
    (span.code(), slot.get(), process.0.cast_signed())
}

fn rows(conn: &Connection, sql: &str, params: impl rusqlite::Params) -> Found<Vec<FigureRow>> {
    let mut found = in_order(conn, sql, params)?;
    // Numbers of processes are signed in the table.
    found.sort_by_key(|row| row.key);
    Ok(found)
}

fn in_order(conn: &Connection, sql: &str, params: impl rusqlite::Params) -> Found<Vec<FigureRow>> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let code = row.get(0)?;
        let key = FigureKey {
            span: Span::from_code(code).ok_or_else(|| bad(format!("{code} is no span")))?,
            slot: Wall::new(row.get(1)?),
            process: ProcessId(row.get::<_, i64>(2)?.cast_unsigned()),
        };
        found.push(FigureRow { key, data: row.get(3)? });
    }
    Ok(found)
}
