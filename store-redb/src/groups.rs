//! Error groups: their rows, and the dead letters of each. What a row says is core's.

use std::ops::Bound;

use redb::{ReadableTable, ReadableTableMetadata, WriteTransaction};
use windlass_core::store::{Changes, Cursor, IdleGroups};
use windlass_core::{Attempt, ErrorText, Excerpt, GroupId, GroupRow, GroupTally, JobId, Wall};

use crate::bytes::utf8;
use crate::find::Rows;
use crate::names::Names;
use crate::rows::{self, bad};
use crate::tables::{
    ATTEMPTS, Access, DEAD_LETTERS, ERROR_GROUPS, FAILED, Found, GROUPED, attempt_key, grouped_key,
    last_place, time_key, time_place,
};

/// The group of a dead letter.
pub(crate) fn of_job(access: impl Access, id: JobId) -> Found<GroupId> {
    let group = access.open(DEAD_LETTERS)?.get(id.get())?.map(|group| GroupId(*group.value()));
    Ok(group.unwrap_or(GroupId::LOST))
}

/// These groups, in this order.
pub(crate) fn named(access: impl Access, ids: &[GroupId]) -> Found<Vec<Option<GroupRow>>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let table = access.open(ERROR_GROUPS)?;
    let one = |id: &GroupId| {
        let row = table.get(&id.0)?;
        row.map(|row| group(*id, row.value())).transpose()
    };
    ids.iter().map(one).collect()
}

/// How many groups there are.
pub(crate) fn number(txn: &WriteTransaction) -> Found<usize> {
    Ok(usize::try_from(txn.open(ERROR_GROUPS)?.len()?).unwrap_or(usize::MAX))
}

/// Every group, by id.
pub(crate) fn all(access: impl Access) -> Found<Vec<GroupRow>> {
    let table = access.open(ERROR_GROUPS)?;
    let rows = table.iter()?.map(|row| {
        let (id, row) = row?;
        group(GroupId(*id.value()), row.value())
    });
    rows.collect()
}

/// Groups that had no dead letter for long. It looks at every group.
pub(crate) fn idle(access: impl Access, now: Wall, page: IdleGroups) -> Found<Vec<GroupId>> {
    let before = now.minus(page.age);
    let idle = |row: &GroupRow| row.idle_since().is_some_and(|since| since <= before);
    let all = all(access)?.into_iter();
    Ok(all.filter(idle).take(page.limit).map(|row| row.id).collect())
}

/// The places of the dead letters of a group, newest first, behind `after`.
pub(crate) fn newest(
    access: impl Access,
    group: GroupId,
    after: Option<Cursor>,
    limit: usize,
) -> Found<Vec<Cursor>> {
    let first = grouped_key(group, [0; 16]);
    let last = match after {
        Some(after) => Bound::Excluded(grouped_key(group, time_key(after.at, after.id.get()))),
        None => Bound::Included(grouped_key(group, [0xff; 16])),
    };
    let table = access.open(GROUPED)?;
    let range = table.range::<&[u8; 32]>((Bound::Included(&first), last.as_ref()))?;
    range.rev().take(limit).map(|row| last_place(row?.0.value())).collect()
}

/// Writes what a batch changed.
pub(crate) fn write(txn: &WriteTransaction, changes: &Changes) -> Found<()> {
    let mut moves = changes.no_longer_dead().map(drop).chain(changes.newly_dead().map(drop));
    if moves.next().is_some() {
        let (mut dead, mut grouped) = (txn.open(DEAD_LETTERS)?, txn.open(GROUPED)?);
        for (id, at) in changes.no_longer_dead() {
            if let Some(group) = dead.remove(id.get())? {
                let place = time_key(at, id.get());
                grouped.remove(&grouped_key(GroupId(*group.value()), place))?;
            }
        }
        for (id, group, at) in changes.newly_dead() {
            dead.insert(id.get(), &group.0)?;
            grouped.insert(&grouped_key(group, time_key(at, id.get())), ())?;
        }
    }
    if !changes.groups.is_empty() || !changes.dropped_groups.is_empty() {
        let mut table = txn.open(ERROR_GROUPS)?;
        for group in &changes.groups {
            table.insert(&group.id.0, group.to_text().as_bytes())?;
        }
        for id in &changes.dropped_groups {
            table.remove(&id.0)?;
        }
    }
    Ok(())
}

/// Groups the dead letters that are stored: in the step of the schema that begins to group them,
/// and in a repair. Of groups that exist the times of failures are kept.
pub(crate) fn regroup(txn: &WriteTransaction) -> Found<()> {
    let mut tally = GroupTally::recount(all(txn).unwrap_or_default());
    let mut names = Names::default();
    let mut rows = Rows { access: txn, names: &mut names };
    let mut ids: Vec<JobId> = Vec::new();
    for row in txn.open(FAILED)?.iter()? {
        ids.push(time_place(row?.0.value())?.id);
    }
    ids.sort_unstable();
    let mut places = Vec::with_capacity(ids.len());
    for id in ids {
        let Some(job) = rows.jobs(&[id])?.pop().flatten() else { continue };
        let at = job.index_key().at;
        let error = rows.last_error(id)?;
        let attempts = txn.open(ATTEMPTS)?;
        let last = attempts.get(&attempt_key(id, job.epoch))?;
        let last: Option<Attempt> =
            last.map(|row| rows::attempt(id, job.epoch, row.value())).transpose()?;
        let of = last.as_ref().map(ErrorText::of).unwrap_or_default();
        let of = ErrorText { error: error.as_ref().map_or("", Excerpt::as_str), ..of };
        places.push((id, tally.add(&job.queue, &job.kind, at, &of), at));
    }
    let (mut dead, mut grouped) = (txn.open(DEAD_LETTERS)?, txn.open(GROUPED)?);
    dead.retain(|_, _| false)?;
    grouped.retain(|_, ()| false)?;
    for (id, group, at) in places {
        dead.insert(id.get(), &group.0)?;
        grouped.insert(&grouped_key(group, time_key(at, id.get())), ())?;
    }
    let mut table = txn.open(ERROR_GROUPS)?;
    table.retain(|_, _| false)?;
    for row in tally.finish() {
        table.insert(&row.id.0, row.to_text().as_bytes())?;
    }
    Ok(())
}

fn group(id: GroupId, row: &[u8]) -> Found<GroupRow> {
    GroupRow::from_text(id, utf8(row)?).map_err(bad)
}
