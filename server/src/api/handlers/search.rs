//! Searching jobs: what a list cannot seek is looked for row by row, newest first, within bounds.
//! An answer that stopped at a bound says how far it got, and its cursor goes on from there.

use tokio::time::Instant;
use windlass_core::search::{Conditions, Search, Spent};
use windlass_core::store::{Cursor, JobDetail, Page, Reader, StoreError};
use windlass_core::{Job, View, Wall, WorkerId};

use super::jobs;
use crate::api::problem::{self, Problem};
use crate::api::wire::{self, JobList, JobRow, Query, RowList, Time};
use crate::app::App;
use crate::http::limits::{PAGE_BYTES, SEARCH_BYTES, SEARCH_ROWS, SEARCH_TIME};
use crate::http::router::{self, Answer};

/// The names of a query that only a search understands.
pub(crate) const NAMES: [&str; 9] = [
    "worker",
    "from",
    "to",
    "error_contains",
    "payload_contains",
    "payload_at",
    "payload_is",
    "attempts_min",
    "priority_min",
];

/// Rows of one call of the store. Their documents are read in smaller steps.
pub(super) const STEP: usize = 512;

/// Matching jobs, and how far the search got.
struct Found {
    jobs: Vec<JobDetail>,
    next: Option<Cursor>,
    scanned: usize,
    reached: Option<Wall>,
}

/// What a query looks for; `None` if a list can seek all of it.
pub(crate) fn asked(query: &Query, view: Option<View>) -> Result<Option<Search>, Problem> {
    let queues = query.get("queue").unwrap_or_default();
    if !queues.contains(',') && NAMES.iter().all(|name| query.get(name).is_none()) {
        return Ok(None);
    }
    if query.get("id").is_some_and(|ids| ids.contains(',')) {
        return Err(invalid("several ids cannot be searched; leave the other filters out".into()));
    }
    let conditions = conditions(query)?;
    // Only a running job has a worker.
    let running = conditions.worker.as_ref().map(|_| View::Processing);
    let view = view.or(running);
    if queues.contains(',') {
        let queues = named("queue", wire::search::queues(queues))?;
        let filter = jobs::filter_without_queue(query, view)?;
        return Ok(Some(Search { filter, queues, conditions }));
    }
    let filter = jobs::filter(query, view)?;
    Ok(Some(Search { filter, queues: Vec::new(), conditions }))
}

/// What a search may cost.
pub(super) struct Bounds {
    begun: Instant,
    /// The documents that were read.
    pub(super) spent: Spent,
    /// Number of rows that were looked at.
    pub(super) rows: usize,
}

impl Bounds {
    pub(super) fn begin() -> Self {
        Self { begun: Instant::now(), spent: Spent::default(), rows: 0 }
    }

    pub(super) fn are_reached(&self) -> bool {
        self.rows >= SEARCH_ROWS
            || self.spent.bytes >= SEARCH_BYTES
            || self.begun.elapsed() >= SEARCH_TIME
    }
}

fn run(
    search: &Search,
    reader: &mut dyn Reader,
    after: Option<Cursor>,
    limit: usize,
) -> Result<Found, StoreError> {
    let mut found = Found { jobs: Vec::new(), next: None, scanned: 0, reached: None };
    let (mut bounds, mut kept, mut after) = (Bounds::begin(), 0, after);
    loop {
        let Page { jobs, next } = search.list(reader, after, STEP)?;
        let mut rest = jobs.as_slice();
        while !rest.is_empty() {
            let looked = search.look(reader, rest, &mut bounds.spent, |_| true)?;
            let (rows, later) = rest.split_at(looked.rows);
            rest = later;
            let is_full = take(search, rows, looked.found, (limit, &mut kept), &mut found);
            bounds.rows = found.scanned;
            if is_full || looked.over {
                return Ok(found);
            }
            if let Some(last) = rows.last().filter(|_| bounds.are_reached()) {
                found.next = Some(search.filter.place(last));
                found.reached = Some(search.instant(last));
                return Ok(found);
            }
        }
        let Some(next) = next else { return Ok(found) };
        after = Some(next);
    }
}

/// Takes the matching ones of some rows; whether the page is full.
fn take(
    search: &Search,
    rows: &[Job],
    matching: Vec<JobDetail>,
    (limit, kept): (usize, &mut usize),
    found: &mut Found,
) -> bool {
    let mut matching = matching.into_iter().peekable();
    for job in rows {
        found.scanned += 1;
        let Some(detail) = matching.next_if(|detail| detail.job.id == job.id) else { continue };
        *kept += detail.document_bytes();
        found.jobs.push(detail);
        if found.jobs.len() == limit || *kept > PAGE_BYTES {
            found.next = Some(search.filter.place(job));
            return true;
        }
    }
    false
}

/// A page of what is looked for, as rows or whole.
pub(super) async fn page(app: &App, search: Search, query: &Query, short: bool) -> Answer {
    let limit = jobs::limit(query)?;
    let after = query.get("cursor").map(jobs::cursor).transpose()?;
    let read = move |reader: &mut dyn Reader| run(&search, reader, after, limit);
    let Found { jobs, next, scanned, reached } = app.reads.read(read).await?;
    let (next, reached) = (next.map(jobs::written), reached.map(Time));
    let scanned = Some(scanned);
    if short {
        let jobs = jobs.iter().map(JobRow::of).collect();
        return router::ok(&RowList { jobs, next, scanned, reached });
    }
    let jobs = jobs.into_iter().map(wire::Job::of).collect();
    router::ok(&JobList { jobs, next, scanned, reached })
}

fn invalid(detail: String) -> Problem {
    Problem::new(problem::INVALID, detail)
}

/// What was read, or a refusal that names the field.
fn named<T>(name: &str, read: Result<T, String>) -> Result<T, Problem> {
    read.map_err(|said| invalid(format!("`{name}` {said}")))
}

fn conditions(query: &Query) -> Result<Conditions, Problem> {
    let text = |name| query.get(name).map(|text| named(name, wire::search::text(text))).transpose();
    let instant = |name| {
        let read = |text| wire::instant(text).map_err(|said| invalid(format!("`{name}`: {said}")));
        query.get(name).map(read).transpose()
    };
    Ok(Conditions {
        from: instant("from")?,
        to: instant("to")?,
        worker: query.get("worker").map(WorkerId::new).transpose()?,
        attempts_min: number(query, "attempts_min")?,
        priority_min: number(query, "priority_min")?,
        error_contains: text("error_contains")?,
        payload_contains: text("payload_contains")?,
        payload: match (query.get("payload_at"), text("payload_is")?) {
            (None, None) => None,
            (Some(at), Some(is)) => Some((named("payload_at", wire::search::pointer(at))?, is)),
            _ => return Err(invalid("`payload_at` and `payload_is` go together".into())),
        },
    })
}

fn number<N: std::str::FromStr>(query: &Query, name: &str) -> Result<Option<N>, Problem> {
    let refused = || invalid(format!("`{name}` must be a whole number"));
    query.get(name).map(|text| text.parse().map_err(|_| refused())).transpose()
}

#[cfg(test)]
mod tests {
    use windlass_core::limits::SEARCH_QUEUES;

    use super::*;
    use crate::http::limits::SEARCH_TEXT;

    #[test]
    fn what_cannot_be_searched_is_refused_by_name() {
        let allowed = [NAMES.as_slice(), &["queue", "id", "kind", "key"]].concat();
        let long = format!("error_contains={}", "x".repeat(SEARCH_TEXT + 1));
        let many: Vec<String> = (0..=SEARCH_QUEUES).map(|n| format!("q{n}")).collect();
        let many = format!("queue={}", many.join(","));
        for (text, named) in [
            ("from=yesterday", "`from`"),
            ("attempts_min=-1", "`attempts_min`"),
            ("priority_min=x", "`priority_min`"),
            ("payload_at=/x", "go together"),
            ("payload_is=x", "go together"),
            ("payload_at=x&payload_is=1", "JSON pointer"),
            ("id=1,2&worker=w", "several ids"),
            (long.as_str(), "up to 200 characters"),
            (many.as_str(), "up to 20 names"),
        ] {
            let query = Query::parse(text, &allowed).unwrap();
            let problem = asked(&query, None).unwrap_err();
            assert!(problem.detail().contains(named), "{text}: {}", problem.detail());
        }
        let plain = Query::parse("queue=a&kind=b", &allowed).unwrap();
        assert!(asked(&plain, None).unwrap().is_none());
    }

    #[test]
    fn a_search_ends_at_each_of_its_bounds() {
        let bounds =
            |bytes, rows| Bounds { spent: Spent { documents: 1, bytes }, rows, ..Bounds::begin() };
        assert!(bounds(SEARCH_BYTES, 1).are_reached() && bounds(0, SEARCH_ROWS).are_reached());
        assert!(!bounds(SEARCH_BYTES - 1, SEARCH_ROWS - 1).are_reached());
    }
}
