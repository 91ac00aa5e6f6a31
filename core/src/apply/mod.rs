//! Runs a batch through a store's transaction: the only place where commands meet stored jobs.
//!
//! Four movements: load everything the commands name, in a handful of questions; decide each
//! command in order on a working set in memory; write every changed row once; ask when something
//! is next due. A refused command leaves no trace and does not spoil the others.

mod admin;
mod claim;
mod enqueue;
mod settle;
mod sweep;
mod work;

use alloc::vec::Vec;

use self::work::Work;
use crate::limits::PAGE_ROWS;
use crate::store::{Admin, Batch, Outcomes, Tx};
use crate::{JobId, Queues};

/// Applies `batch` and writes what it changed; the store then makes that durable, or forgets it.
///
/// The work is proportional to the batch and to what it touches, never to what is stored.
pub fn apply<T: Tx>(tx: &mut T, batch: &Batch) -> Result<Outcomes, T::Error> {
    let mut work = Work::new(tx, &batch.policy);
    load(&mut work, batch)?;
    let mut out = Outcomes { now: work.now, ..Outcomes::default() };
    out.settles = batch.settles.iter().map(|command| settle::settle(&mut work, command)).collect();
    out.beats = batch.beats.iter().map(|command| settle::beat(&mut work, command)).collect();
    out.admin = collect(&batch.admin, |command| admin::admin(&mut work, command))?;
    out.enqueues = enqueue::enqueue(&mut work, &batch.enqueues, &batch.policy)?;
    out.reaped = batch.reap.map(|reap| sweep::reap(&mut work, &reap)).transpose()?;
    out.promoted = batch.promote.map(|limit| sweep::promote(&mut work, limit)).transpose()?;
    out.purged = batch.purge.map(|purge| sweep::purge(&mut work, &purge)).transpose()?;
    out.claims = claim::claim(&mut work, &batch.claims)?;
    enqueue::echo(&work, &batch.enqueues, &mut out.enqueues);
    work.write(batch.id, &mut out)?;
    if let (Some(purge), Some(purged)) = (&batch.purge, &mut out.purged) {
        purged.next = sweep::next_purge(&mut work, &purge.retention)?;
    }
    Ok(out)
}

/// Loads the jobs, keys and queues that the commands name, each with one question.
fn load<T: Tx>(work: &mut Work<'_, T>, batch: &Batch) -> Result<(), T::Error> {
    let mut ids: Vec<JobId> = Vec::with_capacity(batch.settles.len() + batch.beats.len());
    ids.extend(batch.settles.iter().map(|command| command.token.job));
    ids.extend(batch.beats.iter().map(|command| command.token.job));
    ids.extend(batch.admin.iter().filter_map(|command| match command {
        Admin::Cancel(id) | Admin::Replay(id) | Admin::Delete(id) => Some(*id),
        _ => None,
    }));
    let claims = batch.claims.iter().flat_map(|claim| &claim.takers).map(|taker| taker.max);
    work.reserve(ids.len() + batch.enqueues.len() + claims.sum::<usize>().min(PAGE_ROWS));
    let keyed = batch.enqueues.iter().filter_map(|new| new.idempotency.as_ref());
    work.load_keys(keyed.map(|idem| idem.key.clone()).collect(), &mut ids)?;
    work.load_queues(&wanted_queues(batch))?;
    let workers = batch.admin.iter().filter_map(|command| match command {
        Admin::SeeWorker(worker) => Some(worker.id.clone()),
        Admin::StopWorker(id) | Admin::LookAtWorker(id) => Some(id.clone()),
        _ => None,
    });
    work.load_workers(workers.collect())?;
    work.load_jobs(ids)
}

fn wanted_queues(batch: &Batch) -> Queues {
    let mut names = Vec::new();
    for claim in &batch.claims {
        match &claim.demand.queues {
            Queues::All => return Queues::All,
            Queues::Only(some) => names.extend(some.iter().cloned()),
        }
    }
    for command in &batch.admin {
        if let Admin::Pause(name) | Admin::Resume(name) | Admin::SetQueue(name, _) = command {
            names.push(name.clone());
        }
    }
    for new in &batch.enqueues {
        if names.last().is_none_or(|last| !last.same(&new.queue)) {
            names.push(new.queue.clone());
        }
    }
    Queues::only(names)
}

fn collect<C, R, E>(commands: &[C], mut run: impl FnMut(&C) -> Result<R, E>) -> Result<Vec<R>, E> {
    commands.iter().map(&mut run).collect()
}
