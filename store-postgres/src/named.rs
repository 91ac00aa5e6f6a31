//! Jobs that a batch names, each held in the table it is in.
//!
//! Reports name leased jobs, so these are looked for among the leased ones first. A job that
//! another transaction moves meanwhile may be found nowhere although it exists: then the next look
//! finds it.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::store::Batch;
use windlass_core::{Job, JobId};

use crate::names::Names;
use crate::rows::{
    get, id_codes, job, job_id, select_done, select_leased, select_ready, select_scheduled,
};
use crate::session::{Flight, FlightRows, Found, Place, params};

/// How often a job that exists is looked for.
pub(crate) const TRIES: usize = 8;

/// Where the jobs are found in a flight.
#[derive(Debug)]
pub(crate) struct Places {
    tables: Vec<Place>,
    exist: Option<Place>,
}

macro_rules! held {
    ($select:expr) => {
        concat!($select, "WHERE t.id = ANY($1::bigint[]) ORDER BY t.id FOR UPDATE OF t")
    };
}

const LEASED: &str = held!(select_leased!());
const READY: &str = held!(select_ready!());
const SCHEDULED: &str = held!(select_scheduled!());
const DONE: &str = held!(select_done!());
const EXIST: &str = "SELECT id FROM jobs WHERE id = ANY($1::bigint[])";

/// Asks for these jobs: for those that are reported on among the leased ones, for others
/// everywhere.
pub(crate) fn ask(flight: &mut Flight, batch: &Batch, ids: &[JobId]) -> Option<Places> {
    if ids.is_empty() {
        return None;
    }
    let mut tables = vec![flight.add(LEASED, params![id_codes(ids)])];
    let settled = batch.settles.iter().map(|settle| settle.token.job);
    let reported = settled.chain(batch.heartbeats.iter().map(|beat| beat.token.job));
    let reported: BTreeSet<JobId> = reported.collect();
    let others: Vec<i64> = id_codes(ids.iter().filter(|id| !reported.contains(id)));
    if !others.is_empty() {
        for sql in [READY, SCHEDULED, DONE] {
            tables.push(flight.add(sql, params![others.clone()]));
        }
    }
    Some(Places { tables, exist: None })
}

/// Asks for these jobs in all tables, and whether they exist.
pub(crate) fn ask_everywhere(flight: &mut Flight, ids: &[JobId]) -> Places {
    let tables = [LEASED, READY, SCHEDULED, DONE];
    let tables = tables.map(|sql| flight.add(sql, params![id_codes(ids)])).into();
    Places { tables, exist: Some(flight.add(EXIST, params![id_codes(ids)])) }
}

impl Places {
    pub(crate) fn read(
        &self,
        names: &Names,
        returned: &mut FlightRows,
    ) -> Found<BTreeMap<JobId, Job>> {
        let mut found = BTreeMap::new();
        for place in &self.tables {
            for row in returned.take(*place) {
                let job = job(names, &row)?;
                found.insert(job.id, job);
            }
        }
        Ok(found)
    }

    /// The ids of the asked jobs that are stored.
    pub(crate) fn existing(&self, returned: &mut FlightRows) -> Found<BTreeSet<JobId>> {
        returned.take_of(self.exist).iter().map(|row| job_id(get(row, 0)?)).collect()
    }
}
