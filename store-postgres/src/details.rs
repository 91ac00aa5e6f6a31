//! Jobs with what is kept beside them: payload, result, progress and last error. Those of some ids,
//! or all.

use std::collections::BTreeMap;

use tokio_postgres::Row;
use windlass_core::store::JobDetail;
use windlass_core::{Excerpt, Job, JobId, Payload};

use crate::error::TxError;
use crate::names::Names;
use crate::rows::{
    bad, excerpt, get, id_codes, job_id, jobs, select_done, select_leased, select_ready,
    select_scheduled,
};
use crate::session::{Flight, FlightRows, Found, Place, Session, params};

/// A query for the rows of some jobs.
macro_rules! of_ids {
    ($select:expr, $id:literal) => {
        concat!($select, "WHERE ", $id, " = ANY($1::bigint[])")
    };
}

/// The places of jobs and what is kept beside them in a flight.
pub(crate) struct Details {
    jobs: [Place; 4],
    texts: [Place; 3],
    errors: Place,
}

impl Details {
    /// Asks for these jobs, or for all.
    pub(crate) fn ask(flight: &mut Flight, ids: Option<&[JobId]>) -> Self {
        let mut ask = |all: &'static str, some: &'static str| match ids {
            None => flight.add(all, vec![]),
            Some(ids) => flight.add(some, params![id_codes(ids)]),
        };
        Self {
            jobs: ask_jobs(&mut ask),
            texts: [
                ask("SELECT id, payload FROM jobs", crate::find::PAYLOADS),
                ask(
                    "SELECT job, text FROM results",
                    of_ids!("SELECT job, text FROM results ", "job"),
                ),
                ask(
                    "SELECT job, text FROM progress",
                    of_ids!("SELECT job, text FROM progress ", "job"),
                ),
            ],
            errors: ask(
                "SELECT job, text, cut FROM errors",
                of_ids!("SELECT job, text, cut FROM errors ", "job"),
            ),
        }
    }

    /// The jobs with what is kept beside them, by id.
    pub(crate) fn read(self, names: &Names, returned: &mut FlightRows) -> Found<Vec<JobDetail>> {
        let rows = jobs_of(names, returned, self.jobs)?;
        let [mut payloads, mut results, mut progress] = [
            texts(&returned.take(self.texts[0]))?,
            texts(&returned.take(self.texts[1]))?,
            texts(&returned.take(self.texts[2]))?,
        ];
        let mut errors: BTreeMap<JobId, Excerpt> = BTreeMap::new();
        for row in returned.take(self.errors) {
            let id = job_id(get(&row, 0)?)?;
            errors.extend(excerpt(&row, 1)?.map(|error| (id, error)));
        }
        let detail = |job: Job| {
            let payload = payloads.remove(&job.id);
            let missing = || TxError::BadRow(format!("job {} has no payload", job.id));
            Ok(JobDetail {
                payload: payload.ok_or_else(missing)?,
                result: results.remove(&job.id),
                progress: progress.remove(&job.id),
                last_error: errors.remove(&job.id),
                job,
            })
        };
        rows.into_iter().map(detail).collect()
    }
}

/// Asks each of the four tables.
fn ask_jobs(ask: &mut impl FnMut(&'static str, &'static str) -> Place) -> [Place; 4] {
    [
        ask(select_ready!(), of_ids!(select_ready!(), "t.id")),
        ask(select_scheduled!(), of_ids!(select_scheduled!(), "t.id")),
        ask(select_leased!(), of_ids!(select_leased!(), "t.id")),
        ask(select_done!(), of_ids!(select_done!(), "t.id")),
    ]
}

/// The jobs that were asked for, by id.
fn jobs_of(names: &Names, returned: &mut FlightRows, places: [Place; 4]) -> Found<Vec<Job>> {
    let mut rows: Vec<Job> = Vec::new();
    for place in places {
        rows.append(&mut jobs(names, &returned.take(place))?);
    }
    rows.sort_by_key(|job| job.id);
    Ok(rows)
}

/// Some jobs without what is kept beside them.
pub(crate) fn bare_jobs(session: &mut Session, names: &Names, ids: &[JobId]) -> Found<Vec<Job>> {
    let mut flight = Flight::default();
    let places = ask_jobs(&mut |_, some| flight.add(some, params![id_codes(ids)]));
    jobs_of(names, &mut session.fly(flight, None)?, places)
}

fn texts(rows: &[Row]) -> Found<BTreeMap<JobId, Payload>> {
    let text = |row: &Row| Ok((job_id(get(row, 0)?)?, Payload::new(get(row, 1)?).map_err(bad)?));
    rows.iter().map(text).collect()
}
