//! The filter of a bulk action, with the names of `GET /jobs`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass_core::bulk::{Action, Target};
use windlass_core::search::{Conditions, Search};
use windlass_core::store::Filter;
use windlass_core::{IdempotencyKey, JobId, Kind, QueueName, View, WorkerId};

use super::new_job::NAME;
use super::parse::Faults;
use super::search;
use super::time::{instant, rfc3339};
use crate::http::limits::SEARCH_TEXT;

/// Names of queues with commas between them.
const NAMES: &str = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}(,[A-Za-z0-9][A-Za-z0-9._:-]{0,127}){0,19}$";

/// A filter, with the names of `GET /jobs`.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct BulkFilter {
    /// `queued` (due), `scheduled`, `processing`, `done`, `failed` or `cancelled`. If absent: of
    /// `retry` failed jobs, of `cancel` all that wait or run; `delete` must name it.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    /// Only jobs of this queue, or of these: up to 20 names with commas between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = NAMES))]
    queue: Option<String>,
    /// Only jobs of this kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = NAME))]
    kind: Option<String>,
    /// Only jobs enqueued with this idempotency key.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// Only the job with this id.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    /// Only dead letters of this error group.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    /// Only jobs that this worker is running; `cancel` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = NAME))]
    worker: Option<String>,
    /// Only jobs from this instant on, by when they entered the state; without one, by creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    /// Only jobs before this instant.
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    /// Only jobs whose last error contains this text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = SEARCH_TEXT))]
    error_contains: Option<String>,
    /// Only jobs whose payload contains this text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = SEARCH_TEXT))]
    payload_contains: Option<String>,
    /// A place in the payload, as a JSON pointer like `/user/id`; goes with `payload_is`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = SEARCH_TEXT))]
    payload_at: Option<String>,
    /// Only jobs with this value there: a string, or JSON as it is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = SEARCH_TEXT))]
    payload_is: Option<String>,
    /// Only jobs with this number of attempts, or more.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts_min: Option<u32>,
    /// Only jobs of this priority, or a higher one.
    #[serde(skip_serializing_if = "Option::is_none")]
    priority_min: Option<i16>,
}

impl BulkFilter {
    pub(super) fn check(&self, action: Action, faults: &mut Faults) -> Target {
        let queues = faults.maybe("/filter/queue", self.queue.as_deref().map(search::queues));
        let mut queues = queues.unwrap_or_default();
        let mut filter = self.listed(action, faults);
        let conditions = self.conditions(faults);
        if conditions.worker.is_some() {
            if action != Action::Cancel {
                faults.add("/filter/worker", "is for `cancel` only: leave it out");
            }
            filter.view = filter.view.or(Some(View::Processing));
        }
        if let [queue] = queues.as_slice() {
            filter.queue = Some(queue.clone());
            queues.clear();
        }
        if queues.is_empty() && conditions.are_none() {
            return Target::Filter(filter);
        }
        Target::Search(Box::new(Search { filter, queues, conditions }))
    }

    /// What a list seeks, but for the queue.
    fn listed(&self, action: Action, faults: &mut Faults) -> Filter {
        let view = self.state.as_deref().map(|state| {
            let found = View::ALL.into_iter().find(|view| view.as_str() == state);
            let found = found.filter(|view| action.suits(view.state()));
            found.ok_or_else(|| format!("must be a state in which {} works", action.as_str()))
        });
        let view = faults.maybe("/filter/state", view);
        if action == Action::Delete && self.state.is_none() {
            faults.add("/filter/state", "is needed: deleted jobs cannot be restored");
        }
        let default = (action == Action::Retry).then_some(View::Failed);
        let id = self.id.map(|id| JobId::new(id).ok_or("is not a valid job id"));
        Filter {
            view: view.or(default),
            queue: None,
            kind: faults.maybe("/filter/kind", self.kind.as_deref().map(Kind::new)),
            key: faults.maybe("/filter/key", self.key.as_deref().map(IdempotencyKey::new)),
            id: faults.maybe("/filter/id", id),
            group: faults.maybe("/filter/group", self.group.as_deref().map(str::parse)),
        }
    }

    fn conditions(&self, faults: &mut Faults) -> Conditions {
        if self.payload_at.is_some() != self.payload_is.is_some() {
            faults.add("/filter/payload_at", "goes together with `payload_is`");
        }
        let at =
            faults.maybe("/filter/payload_at", self.payload_at.as_deref().map(search::pointer));
        let is = faults.maybe("/filter/payload_is", self.payload_is.as_deref().map(search::text));
        let mut text = |name: &str, text: &Option<String>| {
            faults.maybe(&format!("/filter/{name}"), text.as_deref().map(search::text))
        };
        Conditions {
            error_contains: text("error_contains", &self.error_contains),
            payload_contains: text("payload_contains", &self.payload_contains),
            payload: at.zip(is),
            from: faults.maybe("/filter/from", self.from.as_deref().map(instant)),
            to: faults.maybe("/filter/to", self.to.as_deref().map(instant)),
            worker: faults.maybe("/filter/worker", self.worker.as_deref().map(WorkerId::new)),
            attempts_min: self.attempts_min,
            priority_min: self.priority_min,
        }
    }

    /// The filter that selects the jobs; `None` if they are named by id.
    pub(super) fn of(target: &Target) -> Option<Self> {
        let Search { filter, queues, conditions } = target.search()?;
        let queues: Vec<&str> = queues.iter().chain(&filter.queue).map(QueueName::as_str).collect();
        let (at, is) = conditions.payload.unzip();
        Some(Self {
            state: filter.view.map(|view| view.as_str().into()),
            queue: (!queues.is_empty()).then(|| queues.join(",")),
            kind: filter.kind.as_ref().map(|kind| kind.as_str().into()),
            key: filter.key.as_ref().map(|key| key.as_str().into()),
            id: filter.id.map(JobId::get),
            group: filter.group.map(|group| group.to_string()),
            worker: conditions.worker.as_ref().map(|worker| worker.as_str().into()),
            from: conditions.from.map(rfc3339),
            to: conditions.to.map(rfc3339),
            error_contains: conditions.error_contains,
            payload_contains: conditions.payload_contains,
            payload_at: at.map(|at| at.as_str().into()),
            payload_is: is,
            attempts_min: conditions.attempts_min,
            priority_min: conditions.priority_min,
        })
    }
}
