//! A store of Windlass under measurement, used through `Store::commit` and `Store::reader`.

use std::time::Duration;

use windlass_core::store::{Batch, ClaimFor, Filter, Reader, Settle, Store, StoreError, Taker};
use windlass_core::{
    BatchId, Delay, Demand, Failure, Kind, NewJob, Payload, Policy, Priority, ProcessId, Verdict,
    View, Wall, When, WorkerId,
};

use crate::contender::{Contender, NOW, PROCESS, WORKER, payload};
use crate::measure::{Outcome, Spread, time};

/// A store that commits batch after batch.
pub(crate) struct Subject<S: Store> {
    store: S,
    seq: u64,
    worker: WorkerId,
    new: NewJob,
    settles: Vec<Settle>,
}

/// Operations that a bare loop does not have.
pub(crate) trait Measured: Contender {
    /// Enqueues this number of jobs for next year, with the highest priority.
    fn schedule(&mut self, jobs: usize) -> Outcome<()>;

    /// Enqueues these jobs in one commit; an error if one of them is refused.
    fn enqueue_jobs(&mut self, jobs: Vec<NewJob>) -> Outcome<()>;

    /// Number of completed jobs in all queues.
    fn done(&mut self) -> Outcome<u64>;

    /// Claims one job and fails it for good.
    fn fail(&mut self) -> Outcome<()>;

    /// Reads the first page of a list this many times; returns its number of jobs and the times.
    fn first_pages(&mut self, filter: &Filter, reads: usize) -> Outcome<(usize, Vec<Duration>)>;

    /// Durations of the reads that a dashboard makes.
    fn reads(&mut self) -> Outcome<Reads>;
}

/// Durations of each read.
#[derive(Debug)]
pub(crate) struct Reads {
    /// Every queue with its counters.
    pub(crate) counts: Spread,
    /// A page of a list.
    pub(crate) list: Spread,
    /// When the next scheduled job falls due.
    pub(crate) next_due: Spread,
}

/// Number of times that each read is made.
const READS: usize = 200;
/// Jobs on a page of a list.
const PAGE: usize = 50;

impl<S: Store> Subject<S> {
    pub(crate) fn new(store: S, payload_bytes: usize) -> Outcome<Self> {
        let text = Payload::new(&payload(payload_bytes))?;
        Ok(Self {
            store,
            seq: 0,
            worker: WorkerId::new(WORKER)?,
            new: NewJob::new(Kind::default(), text),
            settles: Vec::new(),
        })
    }

    fn batch(&mut self) -> Batch {
        self.seq += 1;
        let id = BatchId { process: ProcessId(PROCESS), seq: self.seq };
        Batch::new(id, Policy::default())
    }

    fn now(&self) -> Wall {
        Wall::new(NOW + self.seq.cast_signed())
    }
}

impl<S: Store> Contender for Subject<S> {
    fn enqueue(&mut self, jobs: usize) -> Outcome<()> {
        let mut commands = self.batch();
        commands.enqueues = vec![self.new.clone(); jobs];
        self.store.commit(self.now(), &commands)?;
        Ok(())
    }

    fn work(&mut self, jobs: usize) -> Outcome<()> {
        let mut commands = self.batch();
        commands.settles = std::mem::take(&mut self.settles);
        if jobs > 0 {
            let taker = Taker { worker: self.worker.clone(), max: jobs, length: None };
            commands.claims.push(ClaimFor { demand: Demand::ALL, takers: vec![taker] });
        }
        let out = self.store.commit(self.now(), &commands)?;
        let claimed = out.claims.iter().flat_map(|claimed| &claimed.jobs);
        let verdict = || Verdict::Complete { result: None };
        self.settles =
            claimed.map(|one| Settle { token: one.job.token(), verdict: verdict() }).collect();
        if self.settles.len() < jobs {
            return Err(format!("{jobs} jobs were asked for, {} got", self.settles.len()).into());
        }
        Ok(())
    }
}

impl<S: Store> Measured for Subject<S> {
    fn schedule(&mut self, jobs: usize) -> Outcome<()> {
        let mut commands = self.batch();
        let far = When::After(Delay::new(31_536_000_000)?);
        let new = NewJob { priority: Priority::MAX, when: far, ..self.new.clone() };
        commands.enqueues = vec![new; jobs];
        self.store.commit(self.now(), &commands)?;
        Ok(())
    }

    fn enqueue_jobs(&mut self, jobs: Vec<NewJob>) -> Outcome<()> {
        let mut commands = self.batch();
        commands.enqueues = jobs;
        let out = self.store.commit(self.now(), &commands)?;
        out.enqueues.into_iter().try_for_each(|receipt| receipt.map(drop))?;
        Ok(())
    }

    fn done(&mut self) -> Outcome<u64> {
        let queues = self.store.reader()?.queues()?;
        Ok(queues.iter().map(|queue| queue.total().get(View::Done)).sum())
    }

    fn fail(&mut self) -> Outcome<()> {
        self.work(1)?;
        for settle in &mut self.settles {
            settle.verdict = Verdict::Fail(Box::new(Failure::new("on purpose").permanent()));
        }
        self.work(0)
    }

    fn first_pages(&mut self, filter: &Filter, reads: usize) -> Outcome<(usize, Vec<Duration>)> {
        let mut reader = self.store.reader()?;
        let (mut found, mut times) = (0, Vec::with_capacity(reads));
        for _ in 0..reads {
            let (page, took) = time(|| reader.list(filter, None, PAGE))?;
            found = page.jobs.len();
            times.push(took);
        }
        Ok((found, times))
    }

    fn reads(&mut self) -> Outcome<Reads> {
        let mut reader = self.store.reader()?;
        let counts = spread(|| reader.queues())?;
        let [all, waiting] = [Filter::default(), waiting()];
        let mut filters = [&all, &waiting].into_iter().cycle();
        let list = spread(|| reader.list(filters.next().unwrap_or(&all), None, PAGE))?;
        let next_due = spread(|| reader.next_due())?;
        Ok(Reads { counts, list, next_due })
    }
}

fn waiting() -> Filter {
    Filter { view: Some(View::Queued), ..Filter::default() }
}

fn spread<R>(mut read: impl FnMut() -> Result<R, StoreError>) -> Outcome<Spread> {
    let times: Result<Vec<Duration>, StoreError> =
        (0..READS).map(|_| Ok(time(&mut read)?.1)).collect();
    Ok(Spread::of(times?))
}
