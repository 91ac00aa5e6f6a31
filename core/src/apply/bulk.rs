//! Bulk actions: orders to start, continue and stop them, and their steps.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem;

use super::sweep;
use super::work::Work;
use crate::bulk::{Action, Bulk, BulkRefused, Step, Terms};
use crate::limits::{BULK_KEPT, BULK_LIVE};
use crate::store::{
    AdminDone, AdminRefused, Answers, BadAnswer, BulkAsk, BulkRow, Changes, Next, Questions,
};
use crate::{BulkId, Event, JobId, Step as JobStep, Wall, transition};

/// The bulk actions, as they are now.
#[derive(Debug, Default)]
pub(super) struct BulkWork {
    asked: bool,
    rows: BTreeMap<BulkId, Row>,
    dropped: Vec<BulkId>,
    /// Whether a step was planned for a row that has changed since.
    pub(super) lost: bool,
}

#[derive(Debug)]
struct Row {
    bulk: Bulk,
    changed: bool,
}

impl BulkWork {
    /// Takes in what the store answered.
    pub(super) fn take_in(
        &mut self,
        asked: &Questions,
        answers: &mut Answers,
    ) -> Result<(), BadAnswer> {
        self.asked |= asked.bulk != BulkAsk::No;
        for BulkRow { id, data } in mem::take(&mut answers.bulk) {
            let bulk = Bulk::from_bytes(id, &data);
            let bulk = bulk.map_err(|bad| BadAnswer(alloc::format!("{id}: {bad}")))?;
            self.rows.insert(id, Row { bulk, changed: false });
        }
        Ok(())
    }

    /// When the next step is due, if the store was asked.
    pub(super) fn next(&self, now: Wall) -> Next {
        let steps = self.rows.values().filter_map(|row| row.bulk.next_step(now));
        if self.asked { Next::Known(steps.min()) } else { Next::default() }
    }

    /// Adds the changed and the dropped actions to the changes.
    pub(super) fn gather(&mut self, changes: &mut Changes) {
        let written = self.rows.values().filter(|row| row.changed);
        changes.bulk = written.map(|row| BulkRow::of(&row.bulk)).collect();
        changes.dropped_bulk = mem::take(&mut self.dropped);
    }

    /// Starts a bulk action. Of those that have ended, the oldest are dropped.
    pub(super) fn start(&mut self, terms: &Terms, now: Wall) -> Result<AdminDone, AdminRefused> {
        let ended = |row: &Row| row.bulk.state.is_ended();
        let live = self.rows.values().filter(|row| !ended(row)).count();
        if live >= BULK_LIVE {
            return Err(BulkRefused::TooMany.into());
        }
        let id = self.rows.last_key_value().map_or(0, |(id, _)| id.0);
        let id = BulkId(id.saturating_add(1));
        let old = self.rows.len() - live;
        let old =
            self.rows.iter().filter(|(_, row)| ended(row)).take(old.saturating_sub(BULK_KEPT));
        // One that was started by this very batch is not stored yet, and has not ended.
        let old: Vec<BulkId> = old.map(|(id, _)| *id).collect();
        for id in old {
            self.rows.remove(&id);
            self.dropped.push(id);
        }
        let bulk = Bulk::begin(id, terms.clone(), now);
        let done = AdminDone::Bulk(Box::new(bulk.clone()));
        self.rows.insert(id, Row { bulk, changed: true });
        Ok(done)
    }

    /// Changes a bulk action by an operator's order.
    pub(super) fn order(
        &mut self,
        id: BulkId,
        change: impl FnOnce(&mut Bulk) -> Result<(), BulkRefused>,
    ) -> Result<AdminDone, AdminRefused> {
        let row = self.rows.get_mut(&id).ok_or(BulkRefused::NotFound(id))?;
        change(&mut row.bulk)?;
        row.note_change();
        Ok(AdminDone::Bulk(Box::new(row.bulk.clone())))
    }

    /// Takes a step, unless the bulk action has changed since it was planned.
    pub(super) fn step(&mut self, work: &mut Work, step: &Step) {
        let planned = |row: &&mut Row| row.bulk.revision == step.revision && row.bulk.is_live();
        let Some(row) = self.rows.get_mut(&step.bulk).filter(planned) else {
            self.lost = true;
            return;
        };
        let now = work.now;
        let changed = if row.bulk.awaits_verdicts() {
            row.bulk.judge(|id| Some(work.job(id).ok()?.state.name()))
        } else {
            let clock = row.bulk.note_clock(now);
            take(&mut row.bulk, work, step) || clock
        };
        if changed {
            row.note_change();
        }
    }
}

impl Row {
    fn note_change(&mut self) {
        self.bulk.revision = self.bulk.revision.saturating_add(1);
        self.changed = true;
    }
}

/// Takes as many jobs of a step as it may; says whether the bulk action has changed.
fn take(bulk: &mut Bulk, work: &mut Work, step: &Step) -> bool {
    let room = bulk.room(work.now);
    if room == 0 && !bulk.is_complete() {
        return false;
    }
    let (mut done, mut refused) = (Vec::new(), 0);
    let taken = step.jobs.len().min(room);
    for place in &step.jobs[..taken] {
        match one(bulk, work, place.id) {
            Some(true) => done.push(place.id),
            Some(false) => refused += 1,
            // It has left the list since.
            None => {}
        }
    }
    let all = taken == step.jobs.len();
    let last = step.jobs[..taken].last().copied();
    bulk.take(&done, refused, if all { step.next.or(last) } else { last }, work.now);
    if all && step.next.is_none() && bulk.is_live() {
        bulk.end_of_list(work.now);
    }
    true
}

/// Does to one job what is ordered; `None` if it is not part of the bulk action.
fn one(bulk: &Bulk, work: &mut Work, id: JobId) -> Option<bool> {
    let Ok(slot) = work.find(id) else { return bulk.names_jobs().then_some(false) };
    let job = work.job_at(slot).filter(|job| bulk.wants(job))?;
    let event = match bulk.terms.action {
        Action::Retry => Event::Replay,
        Action::Cancel => Event::Cancel,
        Action::Delete => {
            let finished = job.state.name().is_finished();
            if finished {
                sweep::remove(work, slot);
            }
            return Some(finished);
        }
    };
    let Ok(JobStep::Moved(job)) = transition(job, event, work.now) else { return Some(false) };
    work.put_at(slot, job);
    Some(true)
}
