//! Bulk actions in a trace: orders, and steps that are planned naively from a dump.

use windlass_core::bulk::{Action, Bulk, BulkState, Canary, Step, Target, Terms};
use windlass_core::search::{Conditions, Search};
use windlass_core::store::{Admin, Cursor, Dump, Filter};
use windlass_core::{BulkId, Job, JobId, QueueName, View};

/// An order, before its jobs are known by number.
#[derive(Debug, Clone)]
pub(crate) enum BulkPlan {
    Start {
        action: Action,
        /// All jobs of the view, or those with the first ids.
        view: Option<View>,
        queue: Option<QueueName>,
        /// Further queues, and the least number of attempts, that are searched for.
        searched: Option<(Vec<QueueName>, u32)>,
        most: Option<u64>,
        /// A canary of this number, of which one fewer may fail.
        canary: Option<u32>,
    },
    /// The one that holds, or else the first.
    Continue,
    /// The n-th.
    Stop(u32),
}

impl BulkPlan {
    pub(crate) fn resolve(&self, dump: &Dump) -> Admin {
        match self {
            Self::Start { action, view, queue, searched, most, canary } => {
                let target = match view {
                    None => Target::Jobs((1..=3).filter_map(JobId::new).collect()),
                    view => target(*view, queue.clone(), searched.as_ref()),
                };
                let canary = canary.map(|count| Canary { count, max_failed: count - 1 });
                let canary = canary.filter(|_| *action == Action::Retry);
                let by = "ops".into();
                let (action, most) = (*action, *most);
                let terms = Terms { action, target, by, of: 3, most, pace: None, canary };
                Admin::StartBulk(Box::new(terms))
            }
            Self::Continue => {
                let held = live(dump).find(|bulk| bulk.state == BulkState::Held);
                Admin::ContinueBulk(held.map_or(BulkId(1), |bulk| bulk.id))
            }
            Self::Stop(id) => Admin::StopBulk(BulkId(*id)),
        }
    }
}

fn target(
    view: Option<View>,
    queue: Option<QueueName>,
    searched: Option<&(Vec<QueueName>, u32)>,
) -> Target {
    let filter = Filter { view, ..Filter::default() };
    let Some((more, least)) = searched else {
        return Target::Filter(Filter { queue, ..filter });
    };
    let mut queues: Vec<QueueName> = more.iter().chain(&queue).cloned().collect();
    queues.sort();
    queues.dedup();
    let conditions = Conditions { attempts_min: Some(*least), ..Conditions::default() };
    Target::Search(Box::new(Search { filter, queues, conditions }))
}

fn live(dump: &Dump) -> impl Iterator<Item = Bulk> {
    dump.bulk.iter().filter_map(|row| row.decode().ok())
}

/// What comes next of each bulk action, at most `limit` jobs of each; of a canary that is out, all
/// that have not ended, as a step is planned: a job that it leaves out counts as gone.
pub(crate) fn planned(dump: &Dump, limit: usize) -> Vec<Step> {
    let live = live(dump).filter(Bulk::is_live);
    live.map(|bulk| {
        let (all, limit) = if bulk.awaits_verdicts() {
            let waiting = &bulk.verdicts.waiting;
            (waiting.iter().map(|id| place(None, *id)).collect(), waiting.len())
        } else {
            (rest(dump, &bulk), limit)
        };
        let jobs: Vec<Cursor> = all.iter().take(limit).copied().collect();
        let next = jobs.last().copied().filter(|_| all.len() > limit);
        let (action, revision) = (bulk.terms.action, bulk.revision);
        Step { bulk: bulk.id, action, revision, jobs, next }
    })
    .collect()
}

/// The jobs that a bulk action has not taken yet, as its list has them.
fn rest(dump: &Dump, bulk: &Bulk) -> Vec<Cursor> {
    match (&bulk.terms.target, bulk.terms.target.search()) {
        (Target::Jobs(ids), _) => {
            let left = ids.iter().filter(|id| bulk.cursor.is_none_or(|last| last.id < **id));
            left.map(|id| place(None, *id)).collect()
        }
        (_, None) => Vec::new(),
        // What the conditions leave out is seen when the step is taken.
        (_, Some(Search { filter, .. })) => {
            let jobs = dump.jobs.iter().map(|row| &row.job).filter(|job| filter.includes(job));
            let places = jobs.map(|job| place(filter.view.map(|_| job), job.id));
            let behind = |at: &Cursor| bulk.cursor.is_none_or(|last| *at < last);
            let mut places: Vec<Cursor> = places.filter(behind).collect();
            places.sort_by(|a, b| b.cmp(a));
            places
        }
    }
}

fn place(job: Option<&Job>, id: JobId) -> Cursor {
    let at = job.map_or(windlass_core::Wall::new(0), |job| job.index_key().at);
    Cursor { at, id }
}
