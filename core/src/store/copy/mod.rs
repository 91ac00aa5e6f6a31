//! Moving everything from one store to another, page by page.
//!
//! Both stores are marked first ([`Seal`]), so that no batch changes the source meanwhile and none
//! gets into the target. Then each page is one commit at the target, with the place it reaches: a
//! copy that was interrupted at any point goes on where it stopped. In the end both stores are
//! read again and compared, the source is marked as moved, and the target is opened, in this order.

mod check;
mod error;
mod place;
mod rows;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use self::check::Check;
use super::seal::is_seal;
use super::{
    Admin, Batch, CommitError, CopyId, Reader, Seal, Store, StoreError, Worker, WorkerKind,
};
use crate::{BatchId, Counts, GroupRow, Policy, ProcessId, QueueRow, Wall, WorkerId};

pub use error::CopyError;
pub use place::CopyPlace;
pub use rows::{CopyRows, PageSize};

/// Maximum bytes of payloads and results in one page, unless it is one job.
const PAGE_BYTES: usize = 8 * 1024 * 1024;
/// Maximum number of running processes that an error names.
const NAMED: usize = 5;

/// One of the two stores.
#[derive(Debug)]
pub struct CopyEnd<S> {
    /// Open, and used by no one else while it is copied.
    pub store: S,
    /// Where it is, as text without a password. It is kept in the mark of the other one.
    pub name: String,
}

/// A copy on its way. Call [`step`](Self::step) until it has finished.
pub struct Copying<A: Store, B: Store> {
    source: Side<A>,
    target: Side<B>,
    copy: CopyId,
    phase: Phase,
    /// Number of jobs of the source.
    total: u64,
    /// Number of jobs that are copied.
    copied: u64,
    /// Most rows of a page, if fewer than usual.
    most_rows: usize,
}

/// A store, and a reader of it.
struct Side<S: Store> {
    end: CopyEnd<S>,
    reader: S::Reader,
    process: ProcessId,
    seq: u64,
}

enum Phase {
    Rows(CopyPlace),
    Check(Box<Check>),
    Finished(CopyDone),
}

/// The result of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyStep {
    /// Rows were copied.
    Copied {
        /// The section that the rows belong to: jobs, attempts, keys, …
        section: &'static str,
        /// Jobs that are copied, those of earlier runs included.
        jobs: u64,
        /// Jobs of the source.
        of: u64,
    },
    /// Rows were compared.
    Checked {
        /// Jobs that were read, of both stores together.
        jobs: u64,
        /// Jobs of both stores.
        of: u64,
    },
    /// The target is in use, and the source is marked as moved.
    Finished(CopyDone),
}

/// Number of rows copied, and how long they are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CopyDone {
    /// The number of rows of each section, in the order of the sections.
    pub rows: Vec<(&'static str, u64)>,
    /// The checksum of all rows, which is that of both stores.
    pub checksum: String,
}

impl<A: Store, B: Store> fmt::Debug for Copying<A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Copying")
            .field("from", &self.source.end.name)
            .field("to", &self.target.end.name)
            .field("copied", &self.copied)
            .finish_non_exhaustive()
    }
}

impl<A: Store, B: Store> Copying<A, B> {
    /// Marks both stores, or goes on with a copy between them that was interrupted. Nothing is
    /// written if the copy is refused.
    ///
    /// `copy` and `process` are random numbers. `is_dead` tells of a worker process that counts as
    /// alive whether it is known to be dead.
    pub fn begin(
        source: CopyEnd<A>,
        target: CopyEnd<B>,
        (copy, process): (CopyId, ProcessId),
        now: Wall,
        is_dead: &dyn Fn(&Worker) -> bool,
    ) -> Result<Self, CopyError> {
        if source.name == target.name {
            return Err(CopyError::Same(source.name));
        }
        let (mut source, mut target) = (Side::new(source, process)?, Side::new(target, process)?);
        let marks = (source.seal()?, target.seal()?);
        let (copy, place) = match marks {
            (Some(Seal::Moving { copy, .. } | Seal::Moved { copy, .. }), Some(there))
                if is_filling(&there, copy) =>
            {
                let Seal::Filling { place, .. } = there else { unreachable!("it is filling") };
                (copy, Some(place))
            }
            (Some(Seal::Moved { to, .. }), None) if to == target.end.name => {
                return Err(match target.holds()? {
                    Some(_) => CopyError::AlreadyMoved { from: source.end.name, to },
                    None => source.sealed()?,
                });
            }
            (None | Some(Seal::Moving { .. }), None) => (copy, None),
            (Some(Seal::Moving { .. }) | None, Some(Seal::Filling { from, .. })) => {
                return Err(CopyError::Leftover { target: target.end.name, from });
            }
            (Some(Seal::Moving { .. }) | None, Some(_)) => return Err(target.sealed()?),
            (Some(_), _) => return Err(source.sealed()?),
        };
        source.refuse_if_in_use(now, is_dead)?;
        target.refuse_if_in_use(now, is_dead)?;
        let place = match place {
            Some(place) => place,
            None => mark_both(&mut source, &mut target, copy, now)?,
        };
        let total = source.jobs()?;
        let copied = target.jobs()?;
        let phase = Phase::Rows(place);
        Ok(Self { source, target, copy, phase, total, copied, most_rows: usize::MAX })
    }

    /// Copies at most this many rows at once.
    #[must_use]
    pub fn pages(mut self, rows: usize) -> Self {
        self.most_rows = rows.max(1);
        self
    }

    /// Copies a page, or compares one, or finishes.
    pub fn step(&mut self, now: Wall) -> Result<CopyStep, CopyError> {
        match &mut self.phase {
            Phase::Rows(CopyPlace::Whole) => {
                self.phase = Phase::Check(Box::default());
                self.step(now)
            }
            Phase::Rows(place) => {
                let place = place.clone();
                let section = place.section();
                let next = self.copy_page(&place, now)?;
                self.phase = Phase::Rows(next);
                Ok(CopyStep::Copied { section, jobs: self.copied, of: self.total })
            }
            Phase::Check(check) => {
                let Some(done) = check.step(&mut self.source, &mut self.target)? else {
                    let (jobs, of) = (check.jobs(), self.total.saturating_mul(2));
                    return Ok(CopyStep::Checked { jobs, of });
                };
                self.finish(now)?;
                self.phase = Phase::Finished(done.clone());
                Ok(CopyStep::Finished(done))
            }
            Phase::Finished(done) => Ok(CopyStep::Finished(done.clone())),
        }
    }

    /// Copies the page behind a place; returns the place that is reached.
    fn copy_page(&mut self, place: &CopyPlace, now: Wall) -> Result<CopyPlace, CopyError> {
        let rows = self.source.page(place, self.most_rows)?;
        let mut settings = Vec::new();
        let next = match reached(place, &rows) {
            Some(next) => next,
            None if *place == CopyPlace::Settings => {
                let kept = self.source.settings()?;
                settings.extend(kept.into_iter().map(|(key, value)| (key, Some(value))));
                CopyPlace::Whole
            }
            None => return Ok(place.next_section()),
        };
        let from = self.source.end.name.clone();
        let seal = Seal::Filling { copy: self.copy, from, place: next.clone() };
        let jobs = rows.jobs.len() as u64;
        self.target.commit(now, |batch| {
            batch.admin.push(Seal::command(Some(&seal)));
            let set = |(key, value)| Admin::set_setting(key, value);
            batch.admin.extend(settings.into_iter().map(set));
            batch.import = Some(Box::new(rows));
        })?;
        self.copied += jobs;
        Ok(next)
    }

    /// Marks the source as moved, then lets the target be used. If it stops in between, the target
    /// is still marked as an unfinished copy of this very source, and the next run ends it.
    fn finish(&mut self, now: Wall) -> Result<(), CopyError> {
        let moved = Seal::Moved { copy: self.copy, to: self.target.end.name.clone() };
        self.source.put_seal(now, Some(&moved))?;
        self.target.put_seal(now, None)
    }
}

impl<S: Store> CopyEnd<S> {
    /// Takes the mark off a store that was being moved or was moved, so that it can be used again.
    /// Returns the mark, if there was one.
    pub fn undo(self, process: ProcessId, now: Wall) -> Result<Option<Seal>, CopyError> {
        let mut side = Side::new(self, process)?;
        let seal = side.seal()?;
        match &seal {
            None => {}
            Some(Seal::Filling { .. }) => return Err(side.sealed()?),
            Some(_) => side.put_seal(now, None)?,
        }
        Ok(seal)
    }
}

fn is_filling(seal: &Seal, of: CopyId) -> bool {
    matches!(seal, Seal::Filling { copy, .. } if *copy == of)
}

/// Marks a source and an empty target; returns where the copy starts.
fn mark_both<A: Store, B: Store>(
    source: &mut Side<A>,
    target: &mut Side<B>,
    copy: CopyId,
    now: Wall,
) -> Result<CopyPlace, CopyError> {
    let not_empty = |side: &Side<B>, what| {
        let target = side.end.name.clone();
        CopyError::NotEmpty { target, what }
    };
    if let Some(what) = target.holds()? {
        return Err(not_empty(target, what));
    }
    // The source first: if it stops in between, the next run marks both again.
    source.put_seal(now, Some(&Seal::Moving { copy, to: target.end.name.clone() }))?;
    let from = source.end.name.clone();
    let filling = Seal::Filling { copy, from, place: CopyPlace::START };
    target.put_seal(now, Some(&filling))?;
    // Something may have got in before the mark.
    if let Some(what) = target.holds()? {
        target.put_seal(now, None)?;
        source.put_seal(now, None)?;
        return Err(not_empty(target, what));
    }
    Ok(CopyPlace::START)
}

/// The place of the last of these rows; `None` if there are none.
fn reached(place: &CopyPlace, rows: &CopyRows) -> Option<CopyPlace> {
    let CopyRows { queues, tats: _, figures, jobs, groups, attempts, keys, next_id: _ } = rows;
    Some(match place {
        CopyPlace::Queues(_) => CopyPlace::Queues(Some(queues.last()?.name.clone())),
        CopyPlace::Figures(_) => CopyPlace::Figures(Some(figures.last()?.key)),
        CopyPlace::Jobs(_) => CopyPlace::Jobs(Some(jobs.last()?.job.id)),
        CopyPlace::Groups(_) => CopyPlace::Groups(Some(groups.last()?.id)),
        CopyPlace::Attempts(_) => {
            let last = attempts.last()?;
            let (job, epoch) = (last.job, last.epoch);
            CopyPlace::Attempts(Some(crate::LeaseToken { job, epoch }))
        }
        CopyPlace::Keys(_) => CopyPlace::Keys(Some(keys.last()?.key.clone())),
        CopyPlace::Settings | CopyPlace::Whole => return None,
    })
}

impl<S: Store> Side<S> {
    fn new(end: CopyEnd<S>, process: ProcessId) -> Result<Self, CopyError> {
        let opened = end.store.reader();
        let reader = opened.map_err(|error| CopyError::Read { store: end.name.clone(), error })?;
        Ok(Self { end, reader, process, seq: 0 })
    }

    fn read<R>(
        &mut self,
        read: impl FnOnce(&mut S::Reader) -> Result<R, StoreError>,
    ) -> Result<R, CopyError> {
        read(&mut self.reader)
            .map_err(|error| CopyError::Read { store: self.end.name.clone(), error })
    }

    fn commit(&mut self, now: Wall, fill: impl FnOnce(&mut Batch)) -> Result<(), CopyError> {
        self.seq += 1;
        let id = BatchId { process: self.process, seq: self.seq };
        // The queues were counted where they come from.
        let policy = Policy { max_queues: usize::MAX, ..Policy::default() };
        let mut batch = Batch::new(id, policy);
        fill(&mut batch);
        match self.end.store.commit(now, &batch) {
            Ok(_) => Ok(()),
            Err(CommitError::Unknown { .. }) if self.end.store.was_committed(id) == Ok(true) => {
                Ok(())
            }
            Err(error) => Err(CopyError::Write { store: self.end.name.clone(), error }),
        }
    }

    fn seal(&mut self) -> Result<Option<Seal>, CopyError> {
        Ok(Seal::of(&self.read(Reader::settings)?))
    }

    fn put_seal(&mut self, now: Wall, seal: Option<&Seal>) -> Result<(), CopyError> {
        self.commit(now, |batch| batch.admin.push(Seal::command(seal)))
    }

    /// The error that tells the mark of this store.
    fn sealed(&mut self) -> Result<CopyError, CopyError> {
        let seal = self.seal()?.unwrap_or_else(|| Seal::Unknown("no mark".into()));
        Ok(CopyError::Sealed { store: self.end.name.clone(), seal })
    }

    /// The settings, without the mark.
    fn settings(&mut self) -> Result<Vec<(crate::SettingKey, crate::SettingValue)>, CopyError> {
        let mut settings = self.read(Reader::settings)?;
        settings.retain(|(key, _)| !is_seal(key));
        Ok(settings)
    }

    /// The number of jobs, by the counters.
    fn jobs(&mut self) -> Result<u64, CopyError> {
        let queues = self.read(Reader::queues)?;
        let all = queues.iter().fold(Counts::default(), |sum, row| sum.plus(&row.total()));
        Ok(all.all())
    }

    /// The rows behind a place, of its section.
    fn page(&mut self, place: &CopyPlace, most_rows: usize) -> Result<CopyRows, CopyError> {
        let size = PageSize { rows: place.page_rows().min(most_rows), bytes: PAGE_BYTES };
        match place {
            CopyPlace::Queues(after) => {
                let mut found = CopyRows::default();
                let behind =
                    |row: &QueueRow| after.as_ref().is_none_or(|last| row.queue.name > *last);
                let rows = self.read(Reader::queues)?.into_iter().filter(behind);
                for QueueRow { queue, tats, .. } in rows.take(size.rows) {
                    let used = (!tats.is_empty()).then(|| (queue.name.clone(), tats));
                    found.tats.extend(used);
                    found.queues.push(queue);
                }
                Ok(found)
            }
            CopyPlace::Groups(after) => {
                let rows = self.read(Reader::error_groups)?.into_iter();
                let behind = |row: &GroupRow| after.is_none_or(|last| row.id > last);
                let groups = rows.filter(behind).take(size.rows).collect();
                Ok(CopyRows { groups, ..CopyRows::default() })
            }
            _ => self.read(|reader| reader.copy_page(place, size)),
        }
    }

    /// What it holds, if anything.
    fn holds(&mut self) -> Result<Option<&'static str>, CopyError> {
        let mut place = CopyPlace::START;
        while place != CopyPlace::Settings {
            if !self.page(&place, 1)?.is_empty() {
                return Ok(Some(place.section()));
            }
            place = place.next_section();
        }
        Ok((!self.settings()?.is_empty()).then_some("settings"))
    }

    /// Refuses a store that processes are running on, by its clock. Remote workers have no store
    /// open: their server has. `own` is the wall clock of this process.
    fn refuse_if_in_use(
        &mut self,
        own: Wall,
        is_dead: &dyn Fn(&Worker) -> bool,
    ) -> Result<(), CopyError> {
        let rows = self.read(Reader::workers)?;
        let now = self.read(|reader| reader.now(own))?;
        let running = rows.iter().filter(|row| {
            row.worker.kind != WorkerKind::Remote && row.is_alive(now) && !is_dead(&row.worker)
        });
        let workers: Vec<WorkerId> = running.map(|row| row.worker.id.clone()).take(NAMED).collect();
        if workers.is_empty() {
            return Ok(());
        }
        Err(CopyError::InUse { store: self.end.name.clone(), workers })
    }
}
