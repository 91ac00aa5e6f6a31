//! The events of each job in a commit, in order: derived from the batch, its outcomes and the rows
//! before and after, without the rules of core. A row that does not follow is `Unexplained`.

use std::collections::BTreeMap;

use windlass_core::store::{Admin, AdminDone, Batch, JobDetail, Outcomes, Reaped};
use windlass_core::{Epoch, Job, JobId, Millis, State, StateName, Verdict, Wall, WorkerId};

use super::Ledger;

/// The verdict of a report, without its details.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerdictKind {
    /// The attempt completed.
    Complete,
    /// The attempt failed; another one may help.
    Fail,
    /// The attempt failed; the job becomes a dead letter.
    FailForGood,
    /// Postpone the job, uncharged.
    Snooze,
    /// Return the job, uncharged.
    Release,
}

impl VerdictKind {
    /// Drops the details of a verdict.
    pub fn of(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Complete { .. } => Self::Complete,
            Verdict::Fail(failure) if failure.retryable => Self::Fail,
            Verdict::Fail(_) => Self::FailForGood,
            Verdict::Snooze { .. } => Self::Snooze,
            Verdict::Release => Self::Release,
        }
    }

    /// Whether it gives the attempt back.
    pub fn gives_back(self) -> bool {
        matches!(self, Self::Snooze | Self::Release)
    }
}

/// The effect of one command on a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobEvent {
    /// A new row was stored.
    Enqueued,
    /// A report of its holder was accepted.
    Settled {
        /// The reported verdict.
        verdict: VerdictKind,
        /// The epoch of the report's token.
        epoch: Epoch,
        /// State after the report.
        to: StateName,
        /// The delay that the report asked for.
        asked: Option<Millis>,
    },
    /// A report was answered with ok though its token holds nothing: it should be a repetition.
    Repeated {
        /// The reported verdict.
        verdict: VerdictKind,
        /// The epoch of the report's token.
        epoch: Epoch,
    },
    /// A heartbeat was accepted.
    LeaseExtended {
        /// The epoch of the heartbeat's token.
        epoch: Epoch,
        /// Whether that token held the job.
        held: bool,
    },
    /// Cancelled by an operator.
    Cancelled {
        /// State before the cancel.
        from: StateName,
    },
    /// A cancel of a cancelled job, which changes nothing.
    CancelledAgain,
    /// Replayed by an operator.
    Replayed {
        /// State before the replay.
        from: StateName,
    },
    /// Its expired lease was taken back.
    Reaped {
        /// State after the lease was taken back.
        to: StateName,
    },
    /// Its lease was written by a clock that was set back since, and counts again.
    Renewed,
    /// Promoted from scheduled to ready.
    FellDue,
    /// Deleted by an operator, or purged.
    Removed {
        /// State before the removal.
        from: StateName,
    },
    /// Leased to a worker.
    Claimed {
        /// The epoch of the new token.
        epoch: Epoch,
        /// The worker that holds it.
        worker: WorkerId,
        /// State before the claim; `None` if the job did not exist.
        from: Option<StateName>,
    },
    /// The row after the commit does not follow from the other events.
    Unexplained {
        /// State and epoch that would follow; `None` for no row.
        expected: Option<(StateName, Epoch)>,
        /// State and epoch of the stored row; `None` for no row.
        found: Option<(StateName, Epoch)>,
    },
}

/// The effect of one commit on a job.
#[derive(Debug, Clone)]
pub struct Story {
    /// The id of the job.
    pub id: JobId,
    /// `None` if the job did not exist.
    pub before: Option<Job>,
    /// Row and documents after the commit; `None` if the job was removed.
    pub after: Option<JobDetail>,
    /// In the order in which they were applied.
    pub events: Vec<JobEvent>,
}

impl Story {
    /// The row after.
    pub fn row(&self) -> Option<&Job> {
        self.after.as_ref().map(|detail| &detail.job)
    }
}

/// A story that is being derived.
struct Draft {
    story: Story,
    state: Option<StateName>,
    epoch: Epoch,
    generation: u32,
}

/// Derives the stories of a commit. `read` reads rows as they are after it.
pub fn derive(
    ledger: &Ledger,
    batch: &Batch,
    out: &Outcomes,
    read: impl FnOnce(&[JobId]) -> Vec<Option<JobDetail>>,
) -> Vec<Story> {
    let ids = touched(ledger, batch, out);
    let rows = read(&ids);
    let mut drafts: BTreeMap<JobId, Draft> = BTreeMap::new();
    for (id, after) in ids.into_iter().zip(rows) {
        let before = ledger.row(id).cloned();
        let state = before.as_ref().map(|job| job.state.name());
        let epoch = before.as_ref().map_or(Epoch::NEVER, |job| job.epoch);
        let generation = before.as_ref().map_or(0, |job| job.generation);
        let story = Story { id, before, after, events: Vec::new() };
        drafts.insert(id, Draft { story, state, epoch, generation });
    }
    add_reports(&mut drafts, batch, out);
    add_admin(&mut drafts, batch, out);
    add_bulk(&mut drafts, batch);
    for receipt in out.enqueues.iter().flatten().filter(|receipt| !receipt.duplicate) {
        if let Some(draft) = drafts.get_mut(&receipt.id) {
            draft.state = Some(StateName::Queued);
            draft.story.events.push(JobEvent::Enqueued);
        }
    }
    let claimed: BTreeMap<JobId, (Epoch, &WorkerId)> = claims(out).collect();
    add_sweeps(&mut drafts, out, &claimed);
    for (id, (epoch, worker)) in claimed {
        let Some(draft) = drafts.get_mut(&id) else { continue };
        let (worker, from) = (worker.clone(), draft.state);
        draft.story.events.push(JobEvent::Claimed { epoch, worker, from });
        (draft.state, draft.epoch) = (Some(StateName::Processing), epoch);
    }
    drafts.into_values().map(finish).collect()
}

fn claims(out: &Outcomes) -> impl Iterator<Item = (JobId, (Epoch, &WorkerId))> {
    let leased = out.claims.iter().flat_map(|claimed| &claimed.jobs);
    leased.filter_map(|leased| {
        let worker = &leased.job.lease()?.worker;
        Some((leased.job.id, (leased.job.epoch, worker)))
    })
}

/// Every job that a commit may have touched.
fn touched(ledger: &Ledger, batch: &Batch, out: &Outcomes) -> Vec<JobId> {
    let mut ids: Vec<JobId> = Vec::new();
    ids.extend(batch.settles.iter().map(|settle| settle.token.job));
    ids.extend(batch.heartbeats.iter().map(|heartbeat| heartbeat.token.job));
    ids.extend(batch.admin.iter().filter_map(|command| match command {
        Admin::Cancel(id) | Admin::Replay(id) | Admin::Delete(id) => Some(*id),
        _ => None,
    }));
    let receipts = out.enqueues.iter().flatten().filter(|receipt| !receipt.duplicate);
    ids.extend(receipts.map(|receipt| receipt.id));
    ids.extend(out.changes.iter().map(|change| change.id));
    ids.extend(claims(out).map(|(id, _)| id));
    if out.promoted.is_some_and(|promoted| promoted.count > 0) {
        ids.extend(ledger.scheduled_by(out.now));
    }
    if let (Some(reap), Some(Reaped::Page { .. })) = (batch.reap, &out.reaped) {
        let until = if reap.all { Wall::MAX } else { out.now };
        ids.extend(ledger.leased_by(until));
    }
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn add_reports(drafts: &mut BTreeMap<JobId, Draft>, batch: &Batch, out: &Outcomes) {
    for (settle, result) in batch.settles.iter().zip(&out.settles) {
        let (Ok(to), Some(draft)) = (result, drafts.get_mut(&settle.token.job)) else { continue };
        let (verdict, epoch) = (VerdictKind::of(&settle.verdict), settle.token.epoch);
        let holds = draft.state == Some(StateName::Processing) && draft.epoch == epoch;
        if holds {
            let asked = match &settle.verdict {
                Verdict::Fail(failure) => failure.retry_in.map(windlass_core::Delay::millis),
                _ => None,
            };
            draft.story.events.push(JobEvent::Settled { verdict, epoch, to: *to, asked });
            draft.state = Some(*to);
        } else {
            draft.story.events.push(JobEvent::Repeated { verdict, epoch });
        }
    }
    for (heartbeat, result) in batch.heartbeats.iter().zip(&out.heartbeats) {
        let (Ok(_), Some(draft)) = (result, drafts.get_mut(&heartbeat.token.job)) else { continue };
        let epoch = heartbeat.token.epoch;
        let held = draft.state == Some(StateName::Processing) && draft.epoch == epoch;
        draft.story.events.push(JobEvent::LeaseExtended { epoch, held });
    }
}

fn add_admin(drafts: &mut BTreeMap<JobId, Draft>, batch: &Batch, out: &Outcomes) {
    // Replays by id that are not counted yet: the rest were by page.
    let mut named: BTreeMap<JobId, u32> = BTreeMap::new();
    for (command, result) in batch.admin.iter().zip(&out.admin) {
        if let (Admin::Replay(id), Ok(_)) = (command, result) {
            *named.entry(*id).or_default() += 1;
        }
    }
    for (command, result) in batch.admin.iter().zip(&out.admin) {
        let Ok(done) = result else { continue };
        match (command, done) {
            (Admin::Cancel(id), _) => {
                let Some(draft) = drafts.get_mut(id) else { continue };
                let event = match draft.state {
                    Some(StateName::Cancelled) | None => JobEvent::CancelledAgain,
                    Some(from) => JobEvent::Cancelled { from },
                };
                draft.story.events.push(event);
                draft.state = Some(StateName::Cancelled);
            }
            (Admin::Replay(id), _) => {
                named.entry(*id).and_modify(|left| *left -= 1);
                if let Some(draft) = drafts.get_mut(id) {
                    draft.replay();
                }
            }
            (Admin::ReplayDead { .. }, AdminDone::Replayed { count, .. }) if *count > 0 => {
                for draft in drafts.values_mut() {
                    let generation = draft.story.row().map_or(0, |job| job.generation);
                    let later = named.get(&draft.story.id).copied().unwrap_or(0);
                    let dead = draft.state == Some(StateName::Failed);
                    if dead && generation > draft.generation + later {
                        draft.replay();
                    }
                }
            }
            (Admin::Delete(id), _) => {
                if let Some(draft) = drafts.get_mut(id) {
                    draft.remove();
                }
            }
            _ => {}
        }
    }
}

/// Adds releases by steps of bulk actions: replays that no other command explains.
fn add_bulk(drafts: &mut BTreeMap<JobId, Draft>, batch: &Batch) {
    for place in batch.bulk.iter().flat_map(|step| &step.jobs) {
        let Some(draft) = drafts.get_mut(&place.id) else { continue };
        let generation = draft.story.row().map_or(0, |job| job.generation);
        if generation > draft.generation {
            draft.replay();
        }
    }
}

fn add_sweeps(
    drafts: &mut BTreeMap<JobId, Draft>,
    out: &Outcomes,
    claimed: &BTreeMap<JobId, (Epoch, &WorkerId)>,
) {
    let reaped = matches!(out.reaped, Some(Reaped::Page { .. }));
    for (id, draft) in drafts {
        let again = claimed.contains_key(id);
        let after = draft.story.row().map(|job| &job.state);
        if reaped && draft.state == Some(StateName::Processing) {
            let to = match after {
                _ if again => Some(StateName::Queued),
                Some(State::Queued { .. }) => Some(StateName::Queued),
                Some(State::Failed { .. }) => Some(StateName::Failed),
                _ => None,
            };
            if let Some(to) = to {
                draft.story.events.push(JobEvent::Reaped { to });
                draft.state = Some(to);
            } else if draft.is_renewed() {
                draft.story.events.push(JobEvent::Renewed);
            }
        }
        let after = draft.story.row().map(|job| &job.state);
        let was = draft.story.before.as_ref().map(|job| &job.state);
        let ready = again || matches!(after, Some(State::Queued { ready: true, .. }));
        if out.promoted.is_some()
            && ready
            && matches!(was, Some(State::Queued { ready: false, .. }))
        {
            draft.story.events.push(JobEvent::FellDue);
        }
        let gone = draft.story.after.is_none() && out.purged.is_some();
        if gone && draft.state.is_some_and(StateName::is_finished) {
            draft.remove();
        }
    }
}

fn finish(mut draft: Draft) -> Story {
    let found = draft.story.row().map(|job| (job.state.name(), job.epoch));
    let expected = draft.state.map(|state| (state, draft.epoch));
    if found != expected {
        draft.story.events.push(JobEvent::Unexplained { expected, found });
    }
    draft.story
}

impl Draft {
    fn replay(&mut self) {
        let from = self.state.unwrap_or(StateName::Queued);
        self.story.events.push(JobEvent::Replayed { from });
        self.state = Some(StateName::Queued);
        self.generation += 1;
    }

    fn remove(&mut self) {
        if let Some(from) = self.state.take() {
            self.story.events.push(JobEvent::Removed { from });
        }
    }

    /// Whether its lease has another end, without a heartbeat.
    fn is_renewed(&self) -> bool {
        let until = |job: &Job| job.lease().map(|lease| lease.until);
        let extended =
            self.story.events.iter().any(|event| matches!(event, JobEvent::LeaseExtended { .. }));
        !extended && self.story.before.as_ref().and_then(until) != self.story.row().and_then(until)
    }
}
