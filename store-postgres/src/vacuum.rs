//! Which tables a node vacuums, and when: the small ones that every batch rewrites, and those that
//! purged jobs leave their dead rows in, while these are small.
//!
//! Dead rows are counted in statistics that a crash of the server discards. So the first dead row
//! after one has the table vacuumed, with all that was dead before.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::open::Side;
use crate::rows::get;
use crate::session::Found;
use crate::xmin;

/// How long a vacuum may take.
const VACUUM_LIMIT: Duration = Duration::from_mins(10);

/// What is remembered from round to round.
#[derive(Default)]
pub(crate) struct Tables {
    /// Those whose last vacuum has removed little.
    rests: BTreeMap<String, Rest>,
    /// The age of the oldest snapshot at the latest look.
    held: Option<i64>,
}

impl Tables {
    /// Vacuums the tables that need it; not those whose last vacuum was of little use lately.
    pub(crate) async fn vacuum(&mut self, side: &Side) -> Found<()> {
        if !self.rests.is_empty() {
            let rows = side.query(xmin::AGE, &[]).await?;
            let age: Option<i64> = rows.first().map(|row| get(row, 0)).transpose()?.flatten();
            self.look_at(age);
        }
        let mut wanted = dead_rows(side, HOT_ROWS, &HOT, FEWEST_DEAD).await?;
        wanted.append(&mut dead_rows(side, PURGED_ROWS, &PURGED, FEWEST_DEAD).await?);
        for (table, before) in wanted {
            if self.rests.get_mut(&table).is_some_and(|rest| !rest.is_over()) {
                continue;
            }
            let sql = format!("VACUUM (SKIP_LOCKED, TRUNCATE off, INDEX_CLEANUP on) {table}");
            side.run_long(&sql, VACUUM_LIMIT).await?;
            let after = dead_rows(side, HOT_ROWS, &[&table], 0).await?;
            let after = after.first().map_or(0, |(_, dead)| *dead);
            self.learn(table, before, after);
        }
        Ok(())
    }

    /// Takes in how old the oldest snapshot is, if that can be seen. It only grows while it is
    /// held: if it is less, rows can be removed that could not be.
    fn look_at(&mut self, age: Option<i64>) {
        if age.zip(self.held).is_some_and(|(age, before)| age < before) {
            self.rests.clear();
        }
        self.held = age;
    }

    /// Notes how many dead rows a vacuum of a table has found and left.
    fn learn(&mut self, table: String, before: i64, after: i64) {
        if after > before / 2 {
            self.rests.entry(table).or_default().grow();
        } else {
            self.rests.remove(&table);
        }
    }
}

/// The pause between vacuums of a table: it grows while they remove little.
#[derive(Debug, Default)]
struct Rest {
    rounds: u32,
    left: u32,
}

/// The longest pause, in rounds.
const LONGEST_REST: u32 = 16;

impl Rest {
    /// Whether it is time; counts a round otherwise.
    fn is_over(&mut self) -> bool {
        let over = self.left == 0;
        self.left = self.left.saturating_sub(1);
        over
    }

    fn grow(&mut self) {
        self.rounds = (self.rounds * 2).clamp(1, LONGEST_REST);
        self.left = self.rounds;
    }
}

/// The small tables that every batch rewrites.
const HOT: [&str; 5] = ["ready", "leased", "scheduled", "counts", "markers"];
/// Those that jobs are purged from.
const PURGED: [&str; 7] = ["jobs", "done", "keys", "results", "progress", "errors", "attempts"];
/// Fewer dead rows are left alone.
const FEWEST_DEAD: i64 = 1_000;
/// From this number of dead rows among the ready jobs on, claims start at the last head seen.
const MANY_DEAD: i64 = 10_000;

/// Whether claims are not to walk over the dead rows of the ready jobs, because of their number.
/// Who may vacuum the table makes no difference.
pub(crate) async fn are_many_dead(side: &Side) -> Found<bool> {
    Ok(!side.query(READY_DEAD, &[&MANY_DEAD]).await?.is_empty())
}

/// The tables that a query finds, with their dead rows.
async fn dead_rows(
    side: &Side,
    sql: &str,
    tables: &[&str],
    fewest: i64,
) -> Found<Vec<(String, i64)>> {
    let rows = side.query(sql, &[&tables, &fewest]).await?;
    rows.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?))).collect()
}

const READY_DEAD: &str = "SELECT 1 FROM pg_stat_user_tables WHERE schemaname = current_schema() \
    AND relname = 'ready' AND n_dead_tup >= $1";
macro_rules! own_tables {
    ($where:literal) => {
        concat!(
            "SELECT s.relname::text, n_dead_tup FROM pg_stat_user_tables s \
             JOIN pg_class c ON c.oid = s.relid WHERE s.schemaname = current_schema() \
             AND s.relname = ANY($1) AND pg_has_role(c.relowner, 'USAGE') AND ",
            $where
        )
    };
}
/// Tables of this user's with dead rows.
const HOT_ROWS: &str = own_tables!(
    "CASE WHEN last_vacuum IS NULL AND last_autovacuum IS NULL THEN n_dead_tup > 0 \
     ELSE n_dead_tup >= $2::bigint END"
);
/// The same of tables that may be large: from a twentieth of the rows on, and up to 256 MB, since
/// hints wait for a vacuum. Larger ones are left to autovacuum.
const PURGED_ROWS: &str = own_tables!(
    "pg_relation_size(c.oid) < 268435456 AND CASE \
     WHEN last_vacuum IS NULL AND last_autovacuum IS NULL THEN n_dead_tup > 0 \
     ELSE n_dead_tup >= greatest($2::bigint, (c.reltuples / 20)::bigint) END"
);

#[cfg(test)]
mod tests {
    use super::*;

    /// How many rounds go by until the next vacuum.
    fn pause(tables: &mut Tables) -> u32 {
        let mut pause = 0;
        while tables.rests.get_mut("ready").is_some_and(|rest| !rest.is_over()) {
            pause += 1;
        }
        pause
    }

    #[test]
    fn a_vacuum_that_removes_little_is_repeated_less_and_less_often() {
        let mut tables = Tables::default();
        let mut pauses = Vec::new();
        for _ in 0..8 {
            pauses.push(pause(&mut tables));
            tables.learn("ready".into(), 10_000, 9_000);
        }
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 16, 16]);
        tables.learn("ready".into(), 10_000, 100);
        assert_eq!(pause(&mut tables), 0, "one that helps is repeated in the next round");
    }

    #[test]
    fn vacuums_rest_no_longer_once_the_oldest_snapshot_is_gone() {
        let mut tables = Tables::default();
        let rest = |tables: &mut Tables| (0..9).for_each(|_| tables.learn("ready".into(), 9, 9));
        rest(&mut tables);
        for age in [None, Some(5), Some(5), Some(900)] {
            tables.look_at(age);
            assert_eq!(tables.rests.len(), 1, "{age:?}");
        }
        tables.look_at(Some(7));
        assert_eq!(pause(&mut tables), 0);
        rest(&mut tables);
        tables.look_at(None);
        assert!(pause(&mut tables) > 0, "it is not known");
    }
}
