//! What a commit did to each job, one deed after the other: told from the batch, its outcomes and
//! the rows before and after. No rule of the core is asked; what cannot be told is `Unexplained`.

use std::collections::BTreeMap;

use windlass_core::store::{Admin, AdminDone, Batch, JobDetail, Outcomes, Reaped};
use windlass_core::{Epoch, Job, JobId, Millis, State, StateName, Verdict, Wall, WorkerId};

use super::Ledger;

/// What a report said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// It ran well.
    Complete,
    /// It failed; another attempt may help.
    Fail,
    /// It failed for good.
    FailForGood,
    /// Not now.
    Snooze,
    /// Not by us.
    Release,
}

impl Said {
    /// What a verdict says.
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

/// One thing that was done to a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deed {
    /// It was stored.
    Enqueued,
    /// Its holder's report was taken.
    Settled {
        /// What it said.
        said: Said,
        /// By which token.
        epoch: Epoch,
        /// Where the job went.
        to: StateName,
        /// The wait the report asked for.
        asked: Option<Millis>,
    },
    /// A report was answered with ok though its token holds nothing: a repetition, one hopes.
    Repeated {
        /// What it said.
        said: Said,
        /// By which token.
        epoch: Epoch,
    },
    /// A heartbeat was taken.
    LeaseExtended {
        /// By which token.
        epoch: Epoch,
        /// Whether that token held the job.
        held: bool,
    },
    /// It was cancelled.
    Cancelled {
        /// From where.
        from: StateName,
    },
    /// It was cancelled, which it already was.
    CancelledAgain,
    /// It was replayed.
    Replayed {
        /// From where.
        from: StateName,
    },
    /// Its lease was taken back.
    Reaped {
        /// Where it went.
        to: StateName,
    },
    /// Its lease was written by a clock that was set back since, and counts anew.
    Renewed,
    /// It fell due.
    FellDue,
    /// It was removed.
    Removed {
        /// From where.
        from: StateName,
    },
    /// It was claimed.
    Claimed {
        /// With which token.
        epoch: Epoch,
        /// By whom.
        worker: WorkerId,
        /// From where, if it was there at all.
        from: Option<StateName>,
    },
    /// It is not where all of this leads to.
    Unexplained {
        /// Where it should be.
        expected: Option<(StateName, Epoch)>,
        /// Where it is.
        found: Option<(StateName, Epoch)>,
    },
}

/// What a commit did to a job.
#[derive(Debug, Clone)]
pub struct Story {
    /// Which.
    pub id: JobId,
    /// Its row before.
    pub before: Option<Job>,
    /// Its row and documents after.
    pub after: Option<JobDetail>,
    /// What was done, in order.
    pub deeds: Vec<Deed>,
}

impl Story {
    /// The row after.
    pub fn row(&self) -> Option<&Job> {
        self.after.as_ref().map(|detail| &detail.job)
    }
}

/// A story while it is being told.
struct Draft {
    story: Story,
    state: Option<StateName>,
    epoch: Epoch,
    generation: u32,
}

/// Tells what a commit did. `read` reads rows as they are after it.
pub fn tell(
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
        let story = Story { id, before, after, deeds: Vec::new() };
        drafts.insert(id, Draft { story, state, epoch, generation });
    }
    tell_reports(&mut drafts, batch, out);
    tell_admin(&mut drafts, batch, out);
    for receipt in out.enqueues.iter().flatten().filter(|receipt| !receipt.duplicate) {
        if let Some(draft) = drafts.get_mut(&receipt.id) {
            draft.state = Some(StateName::Queued);
            draft.story.deeds.push(Deed::Enqueued);
        }
    }
    let claimed: BTreeMap<JobId, (Epoch, &WorkerId)> = claims(out).collect();
    tell_sweeps(&mut drafts, out, &claimed);
    for (id, (epoch, worker)) in claimed {
        let Some(draft) = drafts.get_mut(&id) else { continue };
        let (worker, from) = (worker.clone(), draft.state);
        draft.story.deeds.push(Deed::Claimed { epoch, worker, from });
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
    ids.extend(batch.heartbeats.iter().map(|beat| beat.token.job));
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

fn tell_reports(drafts: &mut BTreeMap<JobId, Draft>, batch: &Batch, out: &Outcomes) {
    for (settle, result) in batch.settles.iter().zip(&out.settles) {
        let (Ok(to), Some(draft)) = (result, drafts.get_mut(&settle.token.job)) else { continue };
        let (said, epoch) = (Said::of(&settle.verdict), settle.token.epoch);
        let holds = draft.state == Some(StateName::Processing) && draft.epoch == epoch;
        if holds {
            let asked = match &settle.verdict {
                Verdict::Fail(failure) => failure.retry_in.map(windlass_core::Delay::millis),
                _ => None,
            };
            draft.story.deeds.push(Deed::Settled { said, epoch, to: *to, asked });
            draft.state = Some(*to);
        } else {
            draft.story.deeds.push(Deed::Repeated { said, epoch });
        }
    }
    for (beat, result) in batch.heartbeats.iter().zip(&out.heartbeats) {
        let (Ok(_), Some(draft)) = (result, drafts.get_mut(&beat.token.job)) else { continue };
        let epoch = beat.token.epoch;
        let held = draft.state == Some(StateName::Processing) && draft.epoch == epoch;
        draft.story.deeds.push(Deed::LeaseExtended { epoch, held });
    }
}

fn tell_admin(drafts: &mut BTreeMap<JobId, Draft>, batch: &Batch, out: &Outcomes) {
    // Replays by name that are still to come: the rest were by page.
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
                let deed = match draft.state {
                    Some(StateName::Cancelled) | None => Deed::CancelledAgain,
                    Some(from) => Deed::Cancelled { from },
                };
                draft.story.deeds.push(deed);
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

fn tell_sweeps(
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
                draft.story.deeds.push(Deed::Reaped { to });
                draft.state = Some(to);
            } else if draft.is_renewed() {
                draft.story.deeds.push(Deed::Renewed);
            }
        }
        let after = draft.story.row().map(|job| &job.state);
        let was = draft.story.before.as_ref().map(|job| &job.state);
        let ready = again || matches!(after, Some(State::Queued { ready: true, .. }));
        if out.promoted.is_some()
            && ready
            && matches!(was, Some(State::Queued { ready: false, .. }))
        {
            draft.story.deeds.push(Deed::FellDue);
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
        draft.story.deeds.push(Deed::Unexplained { expected, found });
    }
    draft.story
}

impl Draft {
    fn replay(&mut self) {
        let from = self.state.unwrap_or(StateName::Queued);
        self.story.deeds.push(Deed::Replayed { from });
        self.state = Some(StateName::Queued);
        self.generation += 1;
    }

    fn remove(&mut self) {
        if let Some(from) = self.state.take() {
            self.story.deeds.push(Deed::Removed { from });
        }
    }

    /// Whether its lease ends elsewhere, though nobody was heard.
    fn is_renewed(&self) -> bool {
        let until = |job: &Job| job.lease().map(|lease| lease.until);
        let heard = self.story.deeds.iter().any(|deed| matches!(deed, Deed::LeaseExtended { .. }));
        !heard && self.story.before.as_ref().and_then(until) != self.story.row().and_then(until)
    }
}
