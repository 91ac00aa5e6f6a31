//! Bulk actions as clients order and see them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass_core::bulk::{Action, Bulk as Stored, Canary, Pace, Target, Terms};
use windlass_core::limits::BULK_NAMED;
use windlass_core::{JobId, JobsPerSecond, QueueName, Wall};

use super::bulk_filter::BulkFilter;
use super::parse::Faults;
use super::row::JobRow;
use crate::api::problem::Problem;

/// A bulk action to start.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewBulk {
    /// `retry` (of failed and cancelled jobs), `cancel` (of waiting and running ones) or `delete`
    /// (of finished ones).
    action: String,
    /// The jobs that `GET /jobs` lists for these; or name them by `ids`.
    filter: Option<BulkFilter>,
    /// Jobs by id, at most 1000.
    ids: Option<Vec<u64>>,
    /// Only count the jobs, and change nothing.
    #[serde(default)]
    pub(crate) dry_run: bool,
    /// Expected number of jobs. Over 10 % more are refused; where they cannot be counted, the
    /// action ends after this number.
    pub(crate) expect: Option<u64>,
    /// Maximum pace; unlimited if absent.
    pace: Option<NewPace>,
    /// Jobs to retry first; `retry` only.
    canary: Option<NewCanary>,
}

/// Maximum pace of a bulk action.
#[derive(Debug, Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewPace {
    /// Maximum number of jobs per second.
    #[schemars(range(min = 1, max = 100_000))]
    per_s: u32,
}

/// Jobs that go first: the others wait for their verdicts.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewCanary {
    /// Number of jobs that go first.
    #[schemars(range(min = 1, max = 1_000))]
    count: u32,
    /// If more of them fail, the action is held until it is continued.
    #[serde(default)]
    max_failed: u32,
}

impl NewBulk {
    /// The order, not counted yet.
    pub(crate) fn check(&self) -> Result<Terms, Problem> {
        let mut faults = Faults::default();
        let action = Action::ALL.into_iter().find(|action| action.as_str() == self.action);
        let action = action.ok_or("must be retry, cancel or delete");
        let action = faults.check("/action", action).unwrap_or(Action::Retry);
        let target = match (&self.filter, &self.ids) {
            (Some(filter), None) => filter.check(action, &mut faults),
            (None, Some(ids)) => Target::Jobs(named(ids, &mut faults)),
            _ => {
                faults.add("", "select jobs with either `filter` or `ids`");
                Target::Jobs(Vec::new())
            }
        };
        let per_s = self.pace.map(|pace| JobsPerSecond::new(pace.per_s));
        let per_s = faults.maybe("/pace/per_s", per_s);
        let canary = self.canary.as_ref().map(|canary| canary.check(action, &mut faults));
        faults.refuse()?;
        Ok(Terms {
            action,
            target,
            by: String::new(),
            of: 0,
            most: None,
            // It begins when the action does.
            pace: per_s.map(|per_s| Pace::new(per_s, Wall::new(0))),
            canary,
        })
    }
}

impl NewCanary {
    fn check(&self, action: Action, faults: &mut Faults) -> Canary {
        if action != Action::Retry {
            faults.add("/canary", "is for `retry` only: leave it out");
        }
        let most = u32::try_from(BULK_NAMED).unwrap_or(u32::MAX);
        if !(1..=most).contains(&self.count) {
            faults.add("/canary/count", format!("must be between 1 and {most}"));
        }
        Canary { count: self.count, max_failed: self.max_failed }
    }
}

fn named(ids: &[u64], faults: &mut Faults) -> Vec<JobId> {
    if ids.is_empty() || ids.len() > BULK_NAMED {
        faults.add("/ids", format!("must hold 1 to {BULK_NAMED} ids, not {}", ids.len()));
    }
    let all = ids.iter().map(|id| JobId::new(*id).ok_or("contains an invalid job id"));
    let ids: Result<Vec<JobId>, &str> = all.collect();
    let mut ids = faults.check("/ids", ids).unwrap_or_default();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Response of a bulk action with `dry_run`: the jobs that match.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct DryRun {
    /// Number of jobs that match, as far as they were counted.
    pub(crate) matched: u64,
    /// Whether all were counted.
    pub(crate) exact: bool,
    /// The same by queue, the largest number first.
    pub(crate) queues: Vec<QueueCount>,
    /// At most a few of these jobs, as examples.
    pub(crate) sample: Vec<JobRow>,
}

/// Number of jobs of a queue.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct QueueCount {
    pub(crate) name: String,
    pub(crate) count: u64,
}

impl QueueCount {
    /// The counts by queue, most first.
    pub(crate) fn all(counts: BTreeMap<QueueName, u64>) -> Vec<Self> {
        let row = |(name, count): (QueueName, u64)| Self { name: name.as_str().into(), count };
        let mut rows: Vec<Self> = counts.into_iter().map(row).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.count));
        rows
    }
}

/// The bulk actions that are kept.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct BulkList {
    /// Newest first; of those that have ended, the newest 50 are kept.
    pub(crate) bulk: Vec<Bulk>,
}

/// A single bulk action.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct BulkAnswer {
    pub(crate) bulk: Bulk,
}

/// A bulk action: one order for many jobs, carried out page by page.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Bulk {
    pub(crate) id: u32,
    /// `retry`, `cancel` or `delete`.
    pub(crate) action: String,
    /// The filter that selects its jobs; `null` if they were named by id.
    filter: Option<serde_json::Value>,
    /// Name of the token that started it; `null` without one.
    by: Option<String>,
    /// Jobs that were enqueued, or ended, later are not part of it.
    as_of: String,
    /// `canary` (the first ones are released, or run), `held` (too many of them failed: continue or
    /// stop it), `running`, `done` or `stopped`.
    pub(crate) state: String,
    /// Number of jobs when it was started.
    pub(crate) of: u64,
    /// Jobs done.
    pub(crate) done: u64,
    /// Jobs skipped: wrong state, or deleted.
    pub(crate) refused: u64,
    pace: Option<NewPace>,
    pub(crate) canary: Option<CanarySeen>,
    /// Remaining time at its pace; `null` without a pace, or once it has ended.
    pub(crate) eta_ms: Option<u64>,
    ended_at: Option<String>,
}

/// The jobs that go first.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CanarySeen {
    pub(crate) count: u32,
    pub(crate) max_failed: u32,
    /// Number that were queued again.
    pub(crate) released: u32,
    /// Number that completed, or were cancelled.
    pub(crate) passed: u32,
    /// Number that failed, or were deleted.
    pub(crate) failed: u32,
}

impl Bulk {
    pub(crate) fn of(bulk: &Stored) -> Self {
        let Terms { action, target, by, of, pace, canary, .. } = &bulk.terms;
        let filter = BulkFilter::of(target);
        let filter = filter.and_then(|filter| serde_json::to_value(filter).ok());
        let left = of.saturating_sub(bulk.taken());
        let eta = |pace: &Pace| left.saturating_mul(1_000) / u64::from(pace.per_s.get());
        let verdicts = &bulk.verdicts;
        let canary = canary.map(|Canary { count, max_failed }| CanarySeen {
            count,
            max_failed,
            released: verdicts.released(),
            passed: verdicts.passed,
            failed: verdicts.failed,
        });
        Self {
            id: bulk.id.0,
            action: action.as_str().into(),
            filter,
            by: (!by.is_empty()).then(|| by.clone()),
            as_of: super::rfc3339(bulk.as_of),
            state: bulk.state.as_str().into(),
            of: *of,
            done: bulk.done,
            refused: bulk.refused,
            pace: pace.map(|pace| NewPace { per_s: pace.per_s.get() }),
            canary,
            eta_ms: pace.as_ref().filter(|_| bulk.is_live()).map(eta),
            ended_at: bulk.ended_at.map(super::rfc3339),
        }
    }
}

/// A bulk action in a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct BulkLine {
    pub(crate) id: u32,
    pub(crate) state: &'static str,
    pub(crate) done: u64,
    pub(crate) of: u64,
}

impl BulkLine {
    pub(crate) fn of(bulk: &Stored) -> Self {
        Self { id: bulk.id.0, state: bulk.state.as_str(), done: bulk.taken(), of: bulk.terms.of }
    }
}
