//! New job ids: taken from a sequence in blocks, given out in order.

use std::collections::VecDeque;

use tokio_postgres::Row;
use windlass_core::JobId;

use crate::rows::{count, get, id_code, job_id};
use crate::session::{Flight, Found, Place, Session, params};

/// Ids that this process has and no job has yet.
#[derive(Debug)]
pub(crate) struct IdStock {
    ids: VecDeque<JobId>,
    /// How many are taken at once.
    block: usize,
}

const TAKE: &str = "SELECT nextval('ids') FROM generate_series(1, $1::bigint)";
/// A process that takes some at the same instant may get the same ids: then one of the two batches
/// meets a row with that id, and is applied again.
const GIVE_BACK: &str = "SELECT setval('ids', $1::bigint, false) FROM ids WHERE last_value = $2";

impl IdStock {
    pub(crate) fn new(block: usize) -> Self {
        Self { ids: VecDeque::new(), block }
    }

    /// Asks for more if there are fewer than this many.
    pub(crate) fn ask(&self, flight: &mut Flight, wanted: usize) -> Option<Place> {
        let missing = wanted.saturating_sub(self.ids.len());
        (missing > 0).then(|| flight.add(TAKE, params![count(missing.max(self.block))]))
    }

    /// The ids of a batch, which keeps them until it is committed.
    pub(crate) fn take(&mut self, wanted: usize, taken: &[Row]) -> Found<Vec<JobId>> {
        for row in taken {
            self.ids.push_back(job_id(get(row, 0)?)?);
        }
        Ok(self.ids.iter().take(wanted).copied().collect())
    }

    /// If none are to be kept: puts those back that no job got, unless others have taken some.
    pub(crate) fn give_back(&mut self, session: &mut Session) -> Found<()> {
        if self.block > 0 {
            return Ok(());
        }
        let ends = self.ids.front().copied().zip(self.ids.back().copied());
        self.ids.clear();
        if let Some((first, last)) = ends {
            session.query(GIVE_BACK, params![id_code(first), id_code(last)])?;
        }
        Ok(())
    }

    /// Drops all: jobs of others may have some of them.
    pub(crate) fn clear(&mut self) {
        self.ids.clear();
    }

    /// Drops those that jobs have now.
    pub(crate) fn used(&mut self, last: JobId) {
        while self.ids.front().is_some_and(|id| *id <= last) {
            self.ids.pop_front();
        }
    }
}
