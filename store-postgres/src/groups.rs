//! Error groups: their rows, and the dead letters of each. What a row says is core's.

use tokio_postgres::Row;
use windlass_core::store::{Changes, IdleGroups};
use windlass_core::{ErrorText, GroupId, GroupRow, GroupTally, Wall};

use crate::find::now;
use crate::locks::LockIds;
use crate::names::Names;
use crate::rows::{bad, count, get};
use crate::session::{Flight, FlightRows, Found, Place, Session, params};

const NAMED: &str = "SELECT id, data FROM error_groups WHERE id = ANY($1::bytea[])";
const NUMBER: &str = "SELECT count(*) FROM error_groups";
const IDLE: &str = concat!(
    "SELECT id FROM error_groups WHERE idle_since IS NOT NULL AND idle_since <= ",
    now!(),
    " - $2::bigint ORDER BY idle_since LIMIT $3"
);
pub(crate) const ALL: &str = "SELECT id, data FROM error_groups ORDER BY id";
const PUT: &str = "INSERT INTO error_groups (id, idle_since, data) \
    SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::text[]) ON CONFLICT (id) DO UPDATE SET \
    idle_since = excluded.idle_since, data = excluded.data";
const DROP: &str = "DELETE FROM error_groups WHERE id = ANY($1::bytea[])";
const LOCK: &str = "SELECT pg_advisory_xact_lock(id) FROM unnest($1::bigint[]) AS id";

/// The places of groups in a flight.
#[derive(Debug)]
pub(crate) struct Places {
    rows: Place,
    number: Place,
}

/// Asks for groups, which are held, also where there is none.
pub(crate) fn ask(flight: &mut Flight, locks: LockIds, ids: &[GroupId]) -> Option<Places> {
    if ids.is_empty() {
        return None;
    }
    let mut held: Vec<i64> = ids.iter().map(|id| locks.group(*id)).collect();
    held.sort_unstable();
    held.dedup();
    flight.add(LOCK, params![held]);
    let rows = flight.add(NAMED, params![codes(ids)]);
    Some(Places { rows, number: flight.add(NUMBER, vec![]) })
}

impl Places {
    /// The groups in the order of the question, and how many there are.
    pub(crate) fn read(
        &self,
        asked: &[GroupId],
        returned: &mut FlightRows,
    ) -> Found<(Vec<Option<GroupRow>>, usize)> {
        let mut found = rows(&returned.take(self.rows))?;
        found.sort_by_key(|row| row.id);
        let one = |id: &GroupId| {
            let at = found.binary_search_by_key(id, |row| row.id).ok()?;
            Some(found[at].clone())
        };
        let number = returned.take(self.number);
        let number: i64 = number.first().map(|row| get(row, 0)).transpose()?.unwrap_or(0);
        Ok((asked.iter().map(one).collect(), usize::try_from(number).map_err(bad)?))
    }
}

/// Asks for groups that had no dead letter for long.
pub(crate) fn ask_idle(flight: &mut Flight, clock: Option<i64>, page: IdleGroups) -> Place {
    flight.add(IDLE, params![clock, page.age.get().cast_signed(), count(page.limit)])
}

pub(crate) fn ids(rows: &[Row]) -> Found<Vec<GroupId>> {
    rows.iter().map(|row| id(row, 0)).collect()
}

/// One group.
pub(crate) fn one(session: &mut Session, id: GroupId) -> Found<Option<GroupRow>> {
    let found = session.query(NAMED, params![codes(&[id])])?;
    Ok(rows(&found)?.pop())
}

/// Rows as they were read.
pub(crate) fn rows(found: &[Row]) -> Found<Vec<GroupRow>> {
    let row = |row: &Row| GroupRow::from_text(id(row, 0)?, get(row, 1)?).map_err(bad);
    found.iter().map(row).collect()
}

/// The group in a column.
pub(crate) fn id(row: &Row, at: usize) -> Found<GroupId> {
    let bytes: Option<&[u8]> = get(row, at)?;
    bytes.map_or(Ok(GroupId::LOST), |bytes| bytes.try_into().map(GroupId).map_err(bad))
}

/// Writes what a batch changed.
pub(crate) fn write(flight: &mut Flight, changes: &Changes) {
    put(flight, &changes.groups);
    if !changes.dropped_groups.is_empty() {
        flight.add(DROP, params![codes(&changes.dropped_groups)]);
    }
}

fn put(flight: &mut Flight, groups: &[GroupRow]) {
    if !groups.is_empty() {
        let ids: Vec<Vec<u8>> = groups.iter().map(|row| row.id.0.to_vec()).collect();
        let idle: Vec<Option<i64>> =
            groups.iter().map(|row| row.idle_since().map(Wall::get)).collect();
        let data: Vec<String> = groups.iter().map(GroupRow::to_text).collect();
        flight.add(PUT, params![ids, idle, data]);
    }
}

fn codes(ids: &[GroupId]) -> Vec<Vec<u8>> {
    ids.iter().map(|id| id.0.to_vec()).collect()
}

/// How many dead letters are read at a time.
const PAGE: i64 = 1_000;
const DEAD: &str = "SELECT t.id, t.queue, t.kind, t.finished_at, e.text, a.exit_code, a.stderr \
    FROM done t LEFT JOIN errors e ON e.job = t.id \
    LEFT JOIN attempts a ON a.job = t.id AND a.epoch = t.epoch \
    WHERE t.view = 4 AND t.id > $1 ORDER BY t.id LIMIT $2";
const REGROUP: &str = "UPDATE done SET error_group = d.error_group \
    FROM unnest($1::bigint[], $2::bytea[]) AS d (id, error_group) WHERE done.id = d.id";

/// Groups the dead letters that are stored: in the step of the schema that begins to group them,
/// and in a repair. Of groups that exist the times of failures are kept.
pub(crate) fn regroup(session: &mut Session) -> Found<()> {
    let names = Names::load_in(session)?;
    let known = rows(&session.query(ALL, vec![])?).unwrap_or_default();
    let mut tally = GroupTally::recount(known);
    session.run(
        "DELETE FROM error_groups; \
                 UPDATE done SET error_group = NULL WHERE error_group IS NOT NULL",
    )?;
    let mut last = 0_i64;
    loop {
        let found = session.query(DEAD, params![last, PAGE])?;
        let (mut jobs, mut groups) = (Vec::new(), Vec::new());
        for row in &found {
            last = get(row, 0)?;
            let (queue, kind) = (names.queue_name(get(row, 1)?)?, names.kind_name(get(row, 2)?)?);
            let error = get::<Option<&str>>(row, 4)?.unwrap_or_default();
            let text = ErrorText { error, exit_code: get(row, 5)?, stderr: get(row, 6)? };
            jobs.push(last);
            groups.push(tally.add(queue, kind, Wall::new(get(row, 3)?), &text));
        }
        if jobs.is_empty() {
            break;
        }
        session.query(REGROUP, params![jobs, codes(&groups)])?;
    }
    let mut flight = Flight::default();
    put(&mut flight, &tally.finish());
    session.fly(flight, None)?;
    Ok(())
}
