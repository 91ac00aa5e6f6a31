//! Bulk actions, stated naively: without a pace.

use windlass_core::bulk::{Action, Bulk, BulkRefused, BulkState, Step, Terms};
use windlass_core::search::Search;
use windlass_core::store::{Admin, AdminDone, AdminRefused, Batch, BulkRow, Next};
use windlass_core::{BulkId, Job, JobId, Policy, StateName, Wall};

use super::Model;
use super::job::ModelJob;

impl Model {
    pub(super) fn start_bulk(
        &mut self,
        now: Wall,
        terms: &Terms,
    ) -> Result<AdminDone, AdminRefused> {
        let over = |bulk: &Bulk| matches!(bulk.state, BulkState::Done | BulkState::Stopped);
        if self.bulk.iter().filter(|bulk| !over(bulk)).count() == 16 {
            return Err(BulkRefused::TooMany.into());
        }
        let id = self.bulk.last().map_or(1, |last| last.id.0 + 1);
        while self.bulk.iter().filter(|bulk| over(bulk)).count() > 50 {
            let oldest = self.bulk.iter().position(over).expect("there are some");
            self.bulk.remove(oldest);
        }
        self.note("start a bulk action");
        let bulk = Bulk::begin(BulkId(id), terms.clone(), now);
        self.bulk.push(bulk.clone());
        Ok(AdminDone::Bulk(Box::new(bulk)))
    }

    pub(super) fn order_bulk(
        &mut self,
        now: Wall,
        id: BulkId,
        goes_on: bool,
    ) -> Result<AdminDone, AdminRefused> {
        let found = self.bulk.iter_mut().find(|bulk| bulk.id == id);
        let bulk = found.ok_or(BulkRefused::NotFound(id))?;
        match bulk.state {
            BulkState::Held if goes_on => bulk.state = BulkState::Running,
            state if goes_on => return Err(BulkRefused::NotHeld(state).into()),
            BulkState::Done | BulkState::Stopped => {
                return Err(BulkRefused::Ended(bulk.state).into());
            }
            _ => (bulk.state, bulk.ended_at) = (BulkState::Stopped, Some(now)),
        }
        bulk.verdicts.waiting.clear();
        bulk.revision += 1;
        let bulk = Box::new(bulk.clone());
        if !goes_on {
            self.note("stop a bulk action");
        }
        Ok(AdminDone::Bulk(bulk))
    }

    pub(super) fn step_bulk(&mut self, now: Wall, step: &Step, policy: &Policy) {
        let live = |bulk: &Bulk| {
            bulk.id == step.bulk
                && bulk.revision == step.revision
                && matches!(bulk.state, BulkState::Canary | BulkState::Running)
        };
        let Some(at) = self.bulk.iter().position(live) else { return };
        let mut bulk = self.bulk[at].clone();
        let before = bulk.clone();
        let released = bulk.verdicts.passed + bulk.verdicts.failed;
        let released = released as usize + bulk.verdicts.waiting.len();
        let canary = bulk.terms.canary.filter(|_| bulk.state == BulkState::Canary);
        if canary.is_some_and(|canary| canary.count as usize == released) {
            self.judge_bulk(&mut bulk);
        } else {
            let most = bulk.terms.most.map_or(usize::MAX, |most| {
                usize::try_from(most.saturating_sub(bulk.done + bulk.refused)).expect("it is small")
            });
            let left = canary.map_or(usize::MAX, |canary| canary.count as usize - released);
            self.take_bulk(now, &mut bulk, step, most.min(left).min(1_000), policy);
        }
        if bulk != before {
            bulk.revision = before.revision + 1;
        }
        self.bulk[at] = bulk;
    }

    fn judge_bulk(&mut self, bulk: &mut Bulk) {
        let most = bulk.terms.canary.expect("it has one").max_failed;
        for id in std::mem::take(&mut bulk.verdicts.waiting) {
            match self.jobs.iter().find(|job| job.id == id).map(|job| job.state) {
                Some(StateName::Queued | StateName::Processing) => bulk.verdicts.waiting.push(id),
                Some(StateName::Done | StateName::Cancelled) => bulk.verdicts.passed += 1,
                Some(StateName::Failed) | None => bulk.verdicts.failed += 1,
            }
        }
        if bulk.verdicts.failed > most {
            self.note("a bulk action holds when its canary fails");
            bulk.state = BulkState::Held;
        } else if bulk.verdicts.waiting.is_empty() {
            self.note("a bulk action goes on after its canary");
            bulk.state = BulkState::Running;
        }
    }

    fn take_bulk(&mut self, now: Wall, bulk: &mut Bulk, step: &Step, room: usize, policy: &Policy) {
        let taken = &step.jobs[..step.jobs.len().min(room)];
        for place in taken {
            match self.act(now, bulk, place.id, policy) {
                Some(true) => {
                    bulk.done += 1;
                    bulk.took = true;
                    if bulk.state == BulkState::Canary {
                        bulk.verdicts.waiting.push(place.id);
                    }
                }
                Some(false) => bulk.refused += 1,
                None => {}
            }
        }
        bulk.verdicts.waiting.sort();
        let all = taken.len() == step.jobs.len();
        let to = step.next.filter(|_| all).or(taken.last().copied());
        bulk.cursor = to.or(bulk.cursor);
        let full = bulk.terms.most.is_some_and(|most| bulk.done + bulk.refused >= most);
        let listed = all && step.next.is_none();
        let view = bulk.terms.target.search().and_then(|search| search.filter.view);
        let moves = view.is_some_and(|view| view.index() < 3);
        let again = !full && moves && bulk.took;
        if listed && again {
            (bulk.cursor, bulk.took) = (None, false);
        } else if listed || full {
            match &mut bulk.terms.canary {
                Some(canary) if bulk.state == BulkState::Canary && bulk.done > 0 => {
                    canary.count = u32::try_from(bulk.done).expect("it is small");
                }
                _ => {
                    self.note("a bulk action comes to its end");
                    (bulk.state, bulk.ended_at) = (BulkState::Done, Some(now));
                }
            }
        }
    }

    /// Whether a job allowed it; nothing if it is not part of the bulk action.
    fn act(&mut self, now: Wall, bulk: &Bulk, id: JobId, policy: &Policy) -> Option<bool> {
        let job = self.jobs.iter().find(|job| job.id == id).map(ModelJob::job);
        if let Some(search) = bulk.terms.target.search() {
            let job = job.filter(|job| search.filter.includes(job) && searched(&search, job))?;
            let unfinished = matches!(job.state.name(), StateName::Queued | StateName::Processing);
            let fits = match bulk.terms.action {
                Action::Retry => !unfinished && job.state.name() != StateName::Done,
                Action::Cancel => unfinished,
                Action::Delete => !unfinished,
            };
            if !fits || job.finished_at().unwrap_or(job.created_at) > bulk.as_of {
                self.note("a bulk action leaves out what came later");
                return None;
            }
            if bulk.verdicts.waiting.contains(&id) {
                return None;
            }
        } else if job.is_some_and(|job| job.state.name() == StateName::Cancelled)
            && bulk.terms.action == Action::Cancel
        {
            return Some(false);
        }
        let done = match bulk.terms.action {
            Action::Retry => self.replay(now, id),
            Action::Cancel => self.cancel(now, id),
            Action::Delete => self.delete(now, id, policy),
        };
        Some(done.is_ok())
    }

    /// A batch that reaps, or has to do with bulk actions, learns when the next step is due.
    pub(super) fn next_bulk(&self, now: Wall, batch: &Batch) -> Next {
        let order = |command: &Admin| {
            matches!(command, Admin::StartBulk(_) | Admin::ContinueBulk(_) | Admin::StopBulk(_))
        };
        if batch.reap.is_none() && batch.bulk.is_empty() && !batch.admin.iter().any(order) {
            return Next::default();
        }
        let step = |bulk: &Bulk| match bulk.state {
            BulkState::Running => Some(now),
            BulkState::Canary => {
                let Bulk { terms, verdicts, .. } = bulk;
                let released = verdicts.passed + verdicts.failed;
                let released = released as usize + verdicts.waiting.len();
                let left = terms.canary.is_none_or(|canary| released < canary.count as usize);
                Some(if left { now } else { Wall::new((now.get() / 500 + 1) * 500) })
            }
            _ => None,
        };
        Next::Known(self.bulk.iter().filter_map(step).min())
    }

    pub(super) fn bulk_rows(&self) -> Vec<BulkRow> {
        self.bulk.iter().map(BulkRow::of).collect()
    }
}

/// Whether a row meets the conditions that are generated.
fn searched(search: &Search, job: &Job) -> bool {
    let Search { queues, conditions, .. } = search;
    (queues.is_empty() || queues.contains(&job.queue))
        && conditions.attempts_min.is_none_or(|least| job.attempts >= least)
        && conditions.priority_min.is_none_or(|least| job.priority.get() >= least)
}
