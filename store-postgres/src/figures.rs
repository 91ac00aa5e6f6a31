//! Rows of figures: found by span and slot, put in place, removed. What is in them is core's.

use tokio_postgres::Row;
use windlass_core::store::{Changes, FigureKey, FigurePage, FigureRange, FigureRow};
use windlass_core::{ProcessId, Span, Wall};

use crate::find::now;
use crate::rows::{bad, count, get};
use crate::session::{Flight, Found, Place, Session, params};

const HELD: &str = "SELECT span, slot, process, data FROM figures WHERE (span, slot, process) IN \
    (SELECT * FROM unnest($1::smallint[], $2::bigint[], $3::bigint[])) FOR UPDATE";
const OLD: &str = concat!(
    "SELECT span, slot, process, data FROM figures WHERE span = $2::smallint AND slot <= ",
    now!(),
    " - $3::bigint ORDER BY slot, process LIMIT $4 FOR UPDATE SKIP LOCKED"
);
const WITHIN: &str = "SELECT span, slot, process, data FROM figures WHERE span = $1::smallint \
    AND slot >= $2 AND slot < $3";
pub(crate) const ALL: &str = "SELECT span, slot, process, data FROM figures";
const PUT: &str = "INSERT INTO figures (span, slot, process, data) \
    SELECT * FROM unnest($1::smallint[], $2::bigint[], $3::bigint[], $4::bytea[]) \
    ON CONFLICT (span, slot, process) DO UPDATE SET data = excluded.data";
const DROP: &str = "DELETE FROM figures WHERE (span, slot, process) IN \
    (SELECT * FROM unnest($1::smallint[], $2::bigint[], $3::bigint[]))";

/// Asks for rows, which are held.
pub(crate) fn ask(flight: &mut Flight, keys: &[FigureKey]) -> Option<Place> {
    let Keys { spans, slots, processes } = Keys::of(keys.iter());
    (!keys.is_empty()).then(|| flight.add(HELD, params![spans, slots, processes]))
}

/// The data of these rows, in this order.
pub(crate) fn read(keys: &[FigureKey], found: &[Row]) -> Found<Vec<Option<Vec<u8>>>> {
    let mut found = rows(found)?;
    let data = |key: &FigureKey| {
        let at = found.binary_search_by_key(key, |row| row.key).ok()?;
        Some(std::mem::take(&mut found[at].data))
    };
    Ok(keys.iter().map(data).collect())
}

/// Asks for the first rows of a span that are old enough.
pub(crate) fn ask_old(flight: &mut Flight, clock: Option<i64>, page: FigurePage) -> Place {
    let (span, age) = (i16::from(page.span.code()), page.age.get().cast_signed());
    flight.add(OLD, params![clock, span, age, count(page.limit)])
}

/// The rows of these ranges.
pub(crate) fn within(session: &mut Session, ranges: &[FigureRange]) -> Found<Vec<FigureRow>> {
    let mut flight = Flight::default();
    flight.add("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", vec![]);
    let mut places = Vec::new();
    for FigureRange { span, from, to } in ranges {
        let params = params![i16::from(span.code()), from.get(), to.get()];
        places.push(flight.add(WITHIN, params));
    }
    flight.add("COMMIT", vec![]);
    let mut returned = session.fly(flight, None)?;
    let mut found = Vec::new();
    for place in places {
        found.append(&mut rows(&returned.take(place))?);
    }
    Ok(found)
}

/// Writes what a batch changed.
pub(crate) fn write(flight: &mut Flight, changes: &Changes) {
    if !changes.figures.is_empty() {
        let Keys { spans, slots, processes } = Keys::of(changes.figures.iter().map(|row| &row.key));
        let data: Vec<Vec<u8>> = changes.figures.iter().map(|row| row.data.clone()).collect();
        flight.add(PUT, params![spans, slots, processes, data]);
    }
    if !changes.dropped_figures.is_empty() {
        let Keys { spans, slots, processes } = Keys::of(changes.dropped_figures.iter());
        flight.add(DROP, params![spans, slots, processes]);
    }
}

/// Keys as columns.
struct Keys {
    spans: Vec<i16>,
    slots: Vec<i64>,
    processes: Vec<i64>,
}

impl Keys {
    fn of<'k>(keys: impl Iterator<Item = &'k FigureKey>) -> Self {
        let mut all = Self { spans: Vec::new(), slots: Vec::new(), processes: Vec::new() };
        for FigureKey { span, slot, process } in keys {
            all.spans.push(span.code().into());
            all.slots.push(slot.get());
            all.processes.push(process.0.cast_signed());
        }
        all
    }
}

/// Rows by key.
pub(crate) fn rows(found: &[Row]) -> Found<Vec<FigureRow>> {
    let mut rows = in_order(found)?;
    // Numbers of processes are signed in the table.
    rows.sort_by_key(|row| row.key);
    Ok(rows)
}

/// Rows in the order in which they were read.
pub(crate) fn in_order(found: &[Row]) -> Found<Vec<FigureRow>> {
    let read = |row: &Row| {
        let code: i16 = get(row, 0)?;
        let span = u8::try_from(code).ok().and_then(Span::from_code);
        let key = FigureKey {
            span: span.ok_or_else(|| bad(format!("{code} is no span")))?,
            slot: Wall::new(get(row, 1)?),
            process: ProcessId(get::<i64>(row, 2)?.cast_unsigned()),
        };
        Ok(FigureRow { key, data: get(row, 3)? })
    };
    found.iter().map(read).collect()
}
