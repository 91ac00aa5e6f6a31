//! New rows, several by one statement: its cursors stay where the last row went, which is where the
//! next one goes, since new jobs have the highest numbers.

use std::sync::LazyLock;

use rusqlite::{Connection, Statement, ToSql};

use crate::find::Found;
use crate::rows::{fixed_columns, hot_columns};

/// Rows per statement: as many as fit, the larger first.
const SIZES: [usize; 4] = [64, 16, 4, 1];

/// A table that rows are inserted into.
pub(crate) struct Table {
    columns: usize,
    /// The statements, by the number of their rows as in [`SIZES`].
    sql: [String; SIZES.len()],
}

/// The rows of jobs that their steps rewrite.
pub(crate) static JOBS: LazyLock<Table> =
    LazyLock::new(|| Table::new(concat!("jobs (", hot_columns!(), ")")));

/// The columns of jobs that never change, and their payloads.
pub(crate) static BODIES: LazyLock<Table> =
    LazyLock::new(|| Table::new(concat!("bodies (job, ", fixed_columns!(), ", text)")));

/// Counters. Rows that are there are added to.
pub(crate) static COUNTS: LazyLock<Table> = LazyLock::new(|| {
    let table = "counts (pair, queued, scheduled, processing, done, failed, cancelled, retrying)";
    let add = "ON CONFLICT (pair) DO UPDATE SET queued = queued + excluded.queued, \
               scheduled = scheduled + excluded.scheduled, \
               processing = processing + excluded.processing, done = done + excluded.done, \
               failed = failed + excluded.failed, cancelled = cancelled + excluded.cancelled, \
               retrying = retrying + excluded.retrying";
    let Table { columns, sql } = Table::new(table);
    Table { columns, sql: sql.map(|sql| format!("{sql} {add}")) }
});

impl Table {
    /// A table by its name and columns. An insert that fails undoes nothing: the transaction ends
    /// then, and SQLite need not keep what it would undo.
    fn new(table: &str) -> Self {
        let columns = table.split(',').count();
        let row = format!("({})", vec!["?"; columns].join(", "));
        let rows = |rows| vec![row.as_str(); rows].join(", ");
        let sql = SIZES.map(|size| format!("INSERT OR FAIL INTO {table} VALUES {}", rows(size)));
        Self { columns, sql }
    }
}

/// The place of one row among the parameters of a statement.
pub(crate) struct Row<'a, 'conn> {
    statement: &'a mut Statement<'conn>,
    /// The number of parameters before its own, and of its own.
    before: usize,
    columns: usize,
}

impl Row<'_, '_> {
    /// Gives the row its values.
    pub(crate) fn put(&mut self, values: &[&dyn ToSql]) -> Found<()> {
        debug_assert_eq!(values.len(), self.columns, "one left out would be that of another row");
        for (at, value) in (self.before + 1..).zip(values) {
            self.statement.raw_bind_parameter(at, value)?;
        }
        Ok(())
    }
}

/// Inserts a row for each of `all`, whose values `fill` gives.
pub(crate) fn insert_rows<'t, T>(
    conn: &Connection,
    table: &Table,
    mut all: &'t [T],
    mut fill: impl FnMut(&'t T, &mut Row<'_, '_>) -> Found<()>,
) -> Found<()> {
    for (size, sql) in SIZES.into_iter().zip(&table.sql) {
        if all.len() < size {
            continue;
        }
        let mut statement = conn.prepare_cached(sql)?;
        while let Some((some, rest)) = all.split_at_checked(size) {
            for (at, one) in some.iter().enumerate() {
                let (columns, before) = (table.columns, at * table.columns);
                fill(one, &mut Row { statement: &mut statement, before, columns })?;
            }
            statement.raw_execute()?;
            all = rest;
        }
    }
    Ok(())
}
