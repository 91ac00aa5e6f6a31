//! New rows, several by one statement: its cursors stay where the last row went, which is where the
//! next one goes, since new jobs have the highest numbers.

use rusqlite::{Connection, Statement, ToSql};

use crate::tx::Found;

/// How many rows a statement inserts, by the larger first.
const SIZES: [usize; 4] = [64, 16, 4, 1];

/// A table that rows are inserted into.
pub(crate) struct Table {
    /// The statement up to its values.
    into: &'static str,
    columns: usize,
}

/// The hot rows of jobs.
pub(crate) const JOBS: Table = Table {
    into: "INSERT OR FAIL INTO jobs (id, view, at, queue, kind, rank, run_at, attempts, max_retries, \
           epoch, generation, visibility_timeout, retry, created_at, updated_at, started_at, \
           timeout, spent, lease_length, worker, idempotency_key) VALUES ",
    columns: 21,
};

/// Their payloads.
pub(crate) const PAYLOADS: Table =
    Table { into: "INSERT OR FAIL INTO payloads (job, text) VALUES ", columns: 2 };

impl Table {
    /// The statement that inserts so many rows.
    fn sql(&self, rows: usize) -> String {
        let row = format!("({})", vec!["?"; self.columns].join(", "));
        format!("{}{}", self.into, vec![row; rows].join(", "))
    }
}

/// The place of one row among the parameters of a statement.
pub(crate) struct Row<'a, 'conn> {
    statement: &'a mut Statement<'conn>,
    /// How many parameters come before its own.
    before: usize,
}

impl Row<'_, '_> {
    /// Gives the row its values.
    pub(crate) fn put(&mut self, values: &[&dyn ToSql]) -> Found<()> {
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
    for size in SIZES {
        if all.len() < size {
            continue;
        }
        let mut statement = conn.prepare_cached(&table.sql(size))?;
        while let Some((some, rest)) = all.split_at_checked(size) {
            for (at, one) in some.iter().enumerate() {
                fill(one, &mut Row { statement: &mut statement, before: at * table.columns })?;
            }
            statement.raw_execute()?;
            all = rest;
        }
    }
    Ok(())
}
