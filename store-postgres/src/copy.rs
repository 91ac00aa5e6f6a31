//! Pages of rows for a copy to another store, each section by its key.

use windlass_core::store::{ByteBudget, CopyPlace, CopyRows, FigureKey, JobDetail, PageSize};
use windlass_core::{IdempotencyKey, JobId};

use crate::details::Details;
use crate::figures;
use crate::find::key_record;
use crate::names::VERSION;
use crate::reader::{BEGIN, LAST_ID, Reading, attempt_columns, attempts, next_id};
use crate::rows::{count, get, id_code, job_id};
use crate::session::{Flight, Found, Session, params};

/// The rows of a section behind a place.
pub(crate) fn page(
    reading: &mut Reading<'_>,
    after: &CopyPlace,
    size: PageSize,
) -> Found<CopyRows> {
    let limit = count(size.rows);
    let mut page = CopyRows::default();
    match after {
        CopyPlace::Figures(after) => {
            let (span, slot, process) = after.map_or((-1, 0, 0), |key: FigureKey| {
                (i16::from(key.span.code()), key.slot.get(), key.process.0.cast_signed())
            });
            let rows = reading.session.query(FIGURES, params![span, slot, process, limit])?;
            page.figures = figures::in_order(&rows)?;
        }
        CopyPlace::Jobs(after) => page.jobs = jobs(reading, *after, size)?,
        CopyPlace::Attempts(after) => {
            let (job, epoch) =
                after.map_or((0, 0), |token| (id_code(token.job), token.epoch.get().cast_signed()));
            page.attempts =
                attempts(&reading.session.query(ATTEMPTS, params![job, epoch, limit])?)?;
        }
        CopyPlace::Keys(after) => {
            let after = after.as_ref().map_or("", IdempotencyKey::as_str).to_owned();
            let rows = reading.session.query(KEYS, params![after, limit])?;
            page.keys = rows.iter().map(key_record).collect::<Found<_>>()?;
        }
        CopyPlace::Settings => {
            page.next_id = Some(next_id(&reading.session.query(LAST_ID, vec![])?)?);
        }
        CopyPlace::Queues(_) | CopyPlace::Groups(_) | CopyPlace::Whole => {}
    }
    Ok(page)
}

/// Jobs behind this id: first their sizes, then as many as fit.
fn jobs(reading: &mut Reading<'_>, after: Option<JobId>, size: PageSize) -> Found<Vec<JobDetail>> {
    let ids = ids_behind(reading.session, after, size)?;
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut flight = Flight::default();
    flight.add(BEGIN, vec![]);
    let version = flight.add(VERSION, vec![]);
    let places = Details::ask(&mut flight, Some(&ids));
    flight.add("COMMIT", vec![]);
    let mut returned = reading.session.fly(flight, None)?;
    reading.check_version(&returned.take(version))?;
    places.read(reading.names, &mut returned)
}

/// The ids behind this one of as many jobs as fit, by their sizes.
pub(crate) fn ids_behind(
    session: &mut Session,
    after: Option<JobId>,
    size: PageSize,
) -> Found<Vec<JobId>> {
    let rows = session.query(SIZES, params![after.map_or(0, id_code), count(size.rows)])?;
    let mut budget = ByteBudget::new(size.bytes);
    let mut ids = Vec::with_capacity(rows.len());
    for row in &rows {
        let bytes: i64 = get(row, 1)?;
        if !budget.takes(usize::try_from(bytes).unwrap_or(usize::MAX)) {
            break;
        }
        ids.push(job_id(get(row, 0)?)?);
    }
    Ok(ids)
}

const SIZES: &str = "SELECT id, payload_bytes + coalesce(octet_length(text), 0)::bigint FROM \
    (SELECT id, payload_bytes FROM jobs WHERE id > $1::bigint ORDER BY id LIMIT $2::bigint) page \
    LEFT JOIN results ON job = id ORDER BY id";
const ATTEMPTS: &str = concat!(
    attempt_columns!(),
    "WHERE (job, epoch) > ($1::bigint, $2::bigint) ORDER BY job, epoch LIMIT $3::bigint"
);
const KEYS: &str = "SELECT key, job, request, created_at, orphan_until FROM keys \
    WHERE key > $1::text ORDER BY key LIMIT $2::bigint";
const FIGURES: &str = "SELECT span, slot, process, data FROM figures \
    WHERE (span, slot, process) > ($1::smallint, $2::bigint, $3::bigint) \
    ORDER BY span, slot, process LIMIT $4::bigint";
