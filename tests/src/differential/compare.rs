//! Comparing what a store did with what was expected, with messages that say where they part.

use std::collections::BTreeMap;
use std::fmt::Debug;

use windlass_core::store::{
    Batch, Cursor, Disagreement, Dump, Filter, Next, Outcomes, Purged, Reader, Reaped, Store,
};
use windlass_core::{Figures, JobId, QueueName, View, Wall};

use crate::model::Expected;
use crate::model::figures::by_queue;

/// Everything found in one batch.
pub(crate) struct Differences(Vec<String>);

impl Differences {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn same<T: PartialEq + Debug>(&mut self, what: &str, expected: &T, found: &T) {
        if expected != found {
            self.0.push(format!("{what}\n  expected {expected:?}\n  found    {found:?}"));
        }
    }

    /// Compares lists one by one, so that only those that differ are shown.
    fn each<T: PartialEq + Debug>(&mut self, what: &str, expected: &[T], found: &[T]) {
        self.same(&format!("number of {what}"), &expected.len(), &found.len());
        for (at, (expected, found)) in expected.iter().zip(found).enumerate() {
            self.same(&format!("{what}[{at}]"), expected, found);
        }
    }

    pub(crate) fn answers(&mut self, batch: &Batch, expected: &Expected, found: &Outcomes) {
        let want = &expected.outcomes;
        self.same("now", &want.now, &found.now);
        self.each("settles", &want.settles, &found.settles);
        self.each("heartbeats", &want.heartbeats, &found.heartbeats);
        self.each("admin", &want.admin, &found.admin);
        self.each("enqueues", &want.enqueues, &found.enqueues);
        self.same("reaped", &want.reaped, &found.reaped);
        self.same("promoted", &want.promoted, &found.promoted);
        self.purged(want.purged.as_ref(), found.purged.as_ref());
        self.same("queues swept", &want.queues_swept, &found.queues_swept);
        self.each("claims", &want.claims, &found.claims);
        self.next("next due", want.next_due, found.next_due);
        // In the middle of a pass the rest is reported by the other pages.
        let begun = batch.reap.is_some_and(|reap| reap.after.is_some());
        let whole = !begun && !matches!(found.reaped, Some(Reaped::Page { next: Some(_), .. }));
        let stepped = matches!(found.reaped, Some(Reaped::ClockStepped));
        if whole && !stepped {
            self.next("next expiry", want.next_expiry, found.next_expiry);
        }
        self.next("next bulk step", want.next_bulk, found.next_bulk);
        self.each("changes", &want.changes, &found.changes);
        self.each("figures", &by_name(want), &by_name(found));
        for queue in expected.must_stir.iter().filter(|queue| !found.ready_queues.contains(queue)) {
            self.0.push(format!(
                "queue {queue} has claimable jobs now, but is not reported as ready"
            ));
        }
        for queue in found.ready_queues.iter().filter(|queue| !expected.may_stir.contains(queue)) {
            self.0.push(format!("queue {queue} is reported as ready, but nothing happened there"));
        }
        self.0.extend(expected.complaints.iter().cloned());
    }

    fn purged(&mut self, want: Option<&Purged>, found: Option<&Purged>) {
        let counted = |purged: &Purged| (purged.count, purged.more);
        self.same("purged", &want.map(counted), &found.map(counted));
        let next = |purged: Option<&Purged>| Next::Known(purged.and_then(|purged| purged.next));
        self.next("next purge", next(want), next(found));
    }

    /// What comes next may be reported too early, never too late.
    fn next(&mut self, what: &str, want: Next, found: Next) {
        let same_form = matches!(
            (want, found),
            (Next::Known(_), Next::Known(_)) | (Next::Written(_), Next::Written(_))
        );
        let late = want.at().is_some_and(|want| found.at().is_none_or(|found| found > want));
        if late || !same_form {
            self.same(what, &want, &found);
        }
    }

    pub(crate) fn rows(&mut self, expected: &Dump, found: &Dump) {
        self.same("next id", &expected.next_id, &found.next_id);
        self.each("jobs", &expected.jobs, &found.jobs);
        self.each("queues", &expected.queues, &found.queues);
        self.each("keys", &expected.keys, &found.keys);
        self.each("attempts", &expected.attempts, &found.attempts);
        self.each("workers", &expected.workers, &found.workers);
        self.each("settings", &expected.settings, &found.settings);
        self.each("markers", &expected.markers, &found.markers);
        let sets = |dump: &Dump| -> Vec<_> { dump.figures.iter().map(by_queue).collect() };
        self.each("bulk actions", &expected.bulk, &found.bulk);
        self.each("rows of figures", &sets(expected), &sets(found));
    }

    /// A batch that says it wrote nothing has changed nothing.
    pub(crate) fn wrote(&mut self, wrote: bool, before: &Dump, after: &Dump) {
        if !wrote && before != after {
            self.0.push("the batch says it wrote nothing, but the store has changed".to_owned());
        }
    }

    pub(crate) fn audit(&mut self, disagreements: &[Disagreement]) {
        self.0.extend(disagreements.iter().map(|one| format!("the audit says: {one}")));
    }

    /// The narrow reads agree with the dump.
    pub(crate) fn reads<S: Store>(&mut self, store: &S, dump: &Dump) -> Result<(), String> {
        let read = |error| format!("the store cannot be read: {error}");
        let mut reader = store.reader().map_err(read)?;
        self.same("the queues read", &dump.queues, &reader.queues().map_err(read)?);
        for row in &dump.queues {
            let name = &row.queue.name;
            let jobs = dump.jobs.iter().map(|row| &row.job).filter(|job| job.queue == *name);
            let ready = jobs.filter(|job| job.state.view() == View::Queued);
            let first = ready.min_by_key(|job| (job.rank.due, job.id));
            let oldest = first.map(|job| job.run_at);
            self.same("oldest ready", &oldest, &reader.oldest_ready(name).map_err(read)?);
        }
        Ok(())
    }

    pub(crate) fn same_text(&mut self, expected: &str, found: &str) {
        let (left, right): (Vec<&str>, Vec<&str>) =
            (expected.lines().collect(), found.lines().collect());
        self.each("lines of the dump", &left, &right);
    }

    pub(crate) fn report(self, number: usize, now: Wall, batch: &Batch) -> Result<(), String> {
        if self.0.is_empty() {
            return Ok(());
        }
        let found = self.0.join("\n");
        Err(format!("step {number} at {now} differs:\n{found}\nthe batch was {batch:?}"))
    }
}

/// What a batch did, one entry for each queue.
fn by_name(outcomes: &Outcomes) -> Vec<(QueueName, Figures)> {
    let mut sums: BTreeMap<QueueName, Figures> = BTreeMap::new();
    for (queue, figures) in &outcomes.figures {
        sums.entry(queue.clone()).or_default().add(figures);
    }
    sums.into_iter().collect()
}

/// Every list, read page by page to its end, holds the jobs it should, in its order.
pub(crate) fn lists<S: Store>(store: &S, dump: &Dump) -> Result<(), String> {
    let queues = [None].into_iter().chain(dump.queues.iter().map(|row| Some(&row.queue.name)));
    for queue in queues {
        for view in [None].into_iter().chain(View::ALL.map(Some)) {
            let filter = Filter { view, queue: queue.cloned(), ..Filter::default() };
            let found = read_list(store, &filter)?;
            let expected = expected_list(dump, &filter);
            if found != expected {
                return Err(format!("list {filter:?}: expected {expected:?}, found {found:?}"));
            }
        }
    }
    Ok(())
}

fn read_list<S: Store>(store: &S, filter: &Filter) -> Result<Vec<JobId>, String> {
    let read = |error| format!("the store cannot be read: {error}");
    let mut reader = store.reader().map_err(read)?;
    let mut found = Vec::new();
    let mut after: Option<Cursor> = None;
    loop {
        let page = reader.list(filter, after, 2).map_err(read)?;
        found.extend(page.jobs.iter().map(|job| job.id));
        if page.next.is_none() {
            return Ok(found);
        }
        if page.next == after {
            return Err(format!("list {filter:?} does not get behind {after:?}"));
        }
        after = page.next;
    }
}

/// Waiting jobs by when they are due, finished ones by when they finished, others by id; the
/// latest first.
fn expected_list(dump: &Dump, filter: &Filter) -> Vec<JobId> {
    let jobs = dump.jobs.iter().map(|row| &row.job);
    let wanted = jobs.filter(|job| {
        filter.view.is_none_or(|view| job.state.view() == view)
            && filter.queue.as_ref().is_none_or(|queue| job.queue == *queue)
    });
    let mut places: Vec<(Option<Wall>, JobId)> = wanted
        .map(|job| match filter.view {
            None => (None, job.id),
            Some(View::Processing) => (job.lease().map(|lease| lease.until), job.id),
            Some(View::Queued) => (Some(job.rank.due), job.id),
            Some(View::Scheduled) => (Some(job.run_at), job.id),
            Some(_) => (job.finished_at(), job.id),
        })
        .collect();
    places.sort();
    places.into_iter().rev().map(|(_, id)| id).collect()
}
