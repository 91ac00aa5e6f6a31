//! Answers that no store should give: honest ones, changed at random. `Apply` refuses them or
//! copes with them; it never panics, and it never asks without end.

use std::cell::Cell;

use windlass_core::store::{
    Answers, BadAnswer, Batch, BulkRow, Candidate, ClaimFor, CommitError, Cursor, DeadJob,
    KeyFound, KindFound, Outcomes, Questions, Reader, Store, StoreError, Taker,
};
use windlass_core::{
    Apply, ApplyStep, BatchId, BulkId, Counts, Demand, Epoch, GroupId, Job, JobId, Kind, NewJob,
    Pause, Payload, Policy, ProcessId, Queue, QueueName, Tats, Usage, View, Wall, When, WorkerId,
};
use windlass_store_memory::{Asked, MemoryReader, MemoryStore};
use windlass_tests::differential::count_rounds;

/// How often each batch is applied to changed answers.
const TRIES: u64 = 6;

/// More rounds than any batch of these tests needs.
const MOST_ROUNDS: usize = 60;

#[test]
fn an_invalid_answer_is_refused_or_harmless_and_never_a_panic() {
    let (refused, accepted) = (Cell::new(0_u64), Cell::new(0_u64));
    let make = || Doubtful { inner: MemoryStore::new(), refused: &refused, accepted: &accepted };
    count_rounds(make, 400, |_| 0, |_, _, _, _| Ok(()));
    let (refused, accepted) = (refused.into_inner(), accepted.into_inner());
    assert!(refused > 1_000 && accepted > 1_000, "{refused} refused, {accepted} accepted");
}

/// What comes of an answer to the first questions of a batch, changed like this. Two scheduled jobs
/// are due, and two ready ones are stored before them.
fn changed(change: impl FnOnce(&mut Answers)) -> Result<ApplyStep, BadAnswer> {
    let mut store = MemoryStore::new();
    let id = |seq| BatchId { process: ProcessId(1), seq };
    let now = NewJob::new(Kind::default(), Payload::null());
    let later = NewJob { when: When::At(Wall::new(5)), ..now.clone() };
    let mut batch = Batch::new(id(1), Policy::default());
    batch.enqueues = vec![now.clone(), now.clone(), later.clone(), later];
    store.commit(Wall::new(1), &batch).expect("it commits");
    let mut batch = Batch::new(id(2), Policy::default());
    batch.enqueues = vec![now];
    batch.promote = Some(10);
    let takers = vec![Taker { worker: WorkerId::new("w").expect("a name"), max: 9, length: None }];
    batch.claims = vec![ClaimFor { demand: Demand::ALL, takers }];
    let (mut apply, asked) = Apply::new(&batch);
    let mut transaction = store.begin(batch.id.process);
    let Asked::Answers(mut answers) = transaction.ask(&asked, Wall::new(9)) else {
        panic!("it answers");
    };
    change(&mut answers);
    apply.answer(answers)
}

#[test]
fn the_id_of_a_stored_job_is_not_given_to_a_new_one() {
    assert!(changed(|_| {}).is_ok());
    for stored in [0, 1] {
        let result =
            changed(|answers| answers.ids = vec![answers.candidates[0].jobs[stored].job.id]);
        assert!(result.is_err(), "a candidate: {result:?}");
        let result = changed(|answers| answers.ids = vec![answers.due.jobs[stored].id]);
        assert!(result.is_err(), "a job that is due: {result:?}");
    }
}

#[test]
fn a_page_out_of_order_or_with_a_job_twice_is_refused() {
    assert!(changed(|answers| answers.due.jobs.reverse()).is_err());
    assert!(changed(|answers| answers.due.jobs[1] = answers.due.jobs[0].clone()).is_err());
    assert!(changed(|answers| answers.candidates[0].jobs.reverse()).is_err());
}

#[test]
fn what_was_not_asked_for_is_refused() {
    let queue = Queue::new(QueueName::default());
    assert!(changed(|answers| answers.empty_queues.queues.push(queue)).is_err());
    assert!(changed(|answers| answers.idle_groups.push(GroupId::LOST)).is_err());
    assert!(changed(|answers| answers.silent = true).is_err());
    let row = BulkRow { id: BulkId(1), data: Vec::new() };
    assert!(changed(|answers| answers.bulk.push(row)).is_err());
}

/// A store that applies each batch to changed answers first, without a commit, and then commits it
/// as it should.
struct Doubtful<'a> {
    inner: MemoryStore,
    refused: &'a Cell<u64>,
    accepted: &'a Cell<u64>,
}

impl Doubtful<'_> {
    /// Applies a batch to changed answers.
    fn try_out(&self, now: Wall, batch: &Batch, known: &[Job], random: &mut Random) {
        let mut transaction = self.inner.begin(ProcessId(u64::MAX));
        let (mut apply, mut asked) = Apply::new(batch);
        for _ in 0..MOST_ROUNDS {
            let Asked::Answers(mut answers) = transaction.ask(&asked, now) else { return };
            if random.below(3) > 0 {
                for _ in 0..=random.below(2) {
                    change(&mut answers, &asked, known, random);
                }
            }
            match apply.answer(answers) {
                Ok(ApplyStep::Ask(more)) => asked = more,
                Ok(ApplyStep::Write(_)) => {
                    let _ = apply.finish();
                    return self.accepted.set(self.accepted.get() + 1);
                }
                Err(_) => return self.refused.set(self.refused.get() + 1),
            }
        }
        panic!("it asked more than {MOST_ROUNDS} times");
    }
}

impl Store for Doubtful<'_> {
    type Reader = MemoryReader;

    fn commit(&mut self, now: Wall, batch: &Batch) -> Result<Outcomes, CommitError> {
        let dump = self.inner.reader().and_then(|mut reader| reader.dump()).expect("it dumps");
        let known: Vec<Job> = dump.jobs.into_iter().map(|row| row.job).collect();
        for at in 0..TRIES {
            // The same for the same trace, so that a failure can be made smaller.
            let mut random = Random(batch.id.seq.wrapping_mul(1_000_003).wrapping_add(at));
            self.try_out(now, batch, &known, &mut random);
        }
        self.inner.commit(now, batch)
    }

    fn was_committed(&mut self, batch: BatchId) -> Result<bool, StoreError> {
        self.inner.was_committed(batch)
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        self.inner.reopen()
    }

    fn reader(&self) -> Result<MemoryReader, StoreError> {
        self.inner.reader()
    }
}

/// Changes one thing in answers.
fn change(answers: &mut Answers, asked: &Questions, known: &[Job], random: &mut Random) {
    match random.below(6) {
        0 | 1 => change_list(answers, random),
        2 => change_numbers(answers, random),
        3 => add_job(answers, known, random),
        4 => change_queues(answers, asked, known, random),
        _ => {
            let ids = answers.ids.clone();
            let mut jobs: Vec<&mut Job> = jobs_of(answers).collect();
            if let Some(at) = random.place(jobs.len()) {
                change_job(jobs[at], &ids, known, random);
            }
        }
    }
}

/// Every list of the answers, each of which may lose, repeat or swap a row.
fn change_list(answers: &mut Answers, random: &mut Random) {
    match random.below(22) {
        0 => random.spoil(&mut answers.jobs),
        1 => random.spoil(&mut answers.keys),
        2 => random.spoil(&mut answers.queues),
        3 => random.spoil(&mut answers.kinds),
        4 => random.spoil(&mut answers.workers),
        5 => random.spoil(&mut answers.due.jobs),
        6 => random.spoil(&mut answers.expired.jobs),
        7 => random.spoil(&mut answers.finished),
        8 => answers.finished.iter_mut().for_each(|page| random.spoil(&mut page.jobs)),
        9 => random.spoil(&mut answers.dead),
        10 => answers.dead.iter_mut().for_each(|page| random.spoil(&mut page.jobs)),
        11 => random.spoil(&mut answers.orphans),
        12 => random.spoil(&mut answers.groups),
        13 => random.spoil(&mut answers.idle_groups),
        14 => random.spoil(&mut answers.empty_queues.queues),
        15 => random.spoil(&mut answers.figures),
        16 => answers.old_figures.iter_mut().for_each(|page| random.spoil(page)),
        17 => random.spoil(&mut answers.candidates),
        18 => answers.candidates.iter_mut().for_each(|found| random.spoil(&mut found.jobs)),
        19 => random.spoil(&mut answers.payloads),
        20 => random.spoil(&mut answers.ids),
        _ => random.spoil(&mut answers.bulk),
    }
}

/// Numbers, instants, counters and bytes.
fn change_numbers(answers: &mut Answers, random: &mut Random) {
    let most = [0, 1, usize::MAX - 1, usize::MAX][random.below(4)];
    match random.below(12) {
        0 => answers.now = random.wall(),
        1 => answers.queue_count = most,
        2 => answers.group_count = most,
        3 => answers.kinds.iter_mut().for_each(|kind| *kind = KindFound::New { others: most }),
        4 => answers.kinds.iter_mut().for_each(|kind| *kind = KindFound::Known),
        5 => answers.due.next = Some(random.wall()),
        6 => answers.finished.iter_mut().for_each(|page| page.next = Some(random.wall())),
        7 => {
            let bytes = [None, Some(0), Some(u32::MAX)][random.below(3)];
            answers.candidates.iter_mut().for_each(|found| found.next_bytes = bytes);
        }
        8 => {
            let bytes = [None, Some(vec![]), Some(vec![9; 40])][random.below(3)].clone();
            answers.figures.iter_mut().for_each(|data| data.clone_from(&bytes));
        }
        9 => answers.groups.iter_mut().flatten().for_each(|row| row.live = most as u64),
        10 => answers.idle_groups.push(GroupId::LOST),
        _ => (answers.silent, answers.skipped) = (!answers.silent, !answers.skipped),
    }
}

/// A job where it does not belong.
fn add_job(answers: &mut Answers, known: &[Job], random: &mut Random) {
    let Some(at) = random.place(known.len()) else { return };
    let job = known[at].clone();
    let cursor = Cursor { at: random.wall(), id: job.id };
    match random.below(8) {
        0 => answers.jobs.iter_mut().for_each(|row| *row = Some(job.clone())),
        1 => answers.due.jobs.push(job),
        2 => answers.expired.jobs.push(job),
        3 => answers.finished.iter_mut().for_each(|page| page.jobs.push(job.clone())),
        4 => answers.dead.iter_mut().for_each(|page| {
            page.jobs.push(DeadJob { job: job.clone(), error: None });
            page.next = Some(cursor);
        }),
        5 => answers.keys.iter_mut().flatten().for_each(|KeyFound { record, job: named }| {
            (record.job, *named) = (job.id, Some(job.clone()));
        }),
        6 => answers.ids = vec![job.id; answers.ids.len()],
        _ => answers.candidates.iter_mut().for_each(|found| {
            found.jobs.push(Candidate { job: job.clone(), payload: Payload::null() });
        }),
    }
}

/// Queues and bulk actions.
fn change_queues(answers: &mut Answers, asked: &Questions, known: &[Job], random: &mut Random) {
    let counts = [Counts::default(), Counts::new([u64::MAX; View::ALL.len()])][random.below(2)];
    let tats =
        [Tats::default(), Tats::parse(Some("-1\n9223372036854775807 x")).expect("it is one")];
    let usage = Usage { counts, tats: tats[random.below(2)].clone(), ..Usage::default() };
    let usage = [Some(Box::new(usage)), None][random.below(2)].clone();
    match random.below(4) {
        0 => answers.queues.iter_mut().for_each(|found| found.usage.clone_from(&usage)),
        1 => {
            let name = random.place(known.len()).map(|at| known[at].queue.clone());
            let name = name.or(asked.queues.first().cloned()).unwrap_or_default();
            answers.empty_queues.queues.push(Queue::new(name));
            answers.empty_queues.next = Some(QueueName::default());
        }
        2 => answers.bulk.push(BulkRow { id: BulkId(u32::MAX), data: vec![1; random.below(9)] }),
        _ => {
            for found in &mut answers.queues {
                found.queue.paused = Some(Pause::default());
            }
        }
    }
}

/// Something about a job.
fn change_job(job: &mut Job, ids: &[JobId], known: &[Job], random: &mut Random) {
    let other = random.place(known.len()).map(|at| &known[at]);
    match random.below(10) {
        0 => job.id = random.place(ids.len()).map_or(JobId::LAST, |at| ids[at]),
        1 => job.id = other.map_or(JobId::FIRST, |other| other.id),
        2 => job.queue = QueueName::new("nowhere").expect("a name"),
        3 => job.state = other.map_or(job.state.clone(), |other| other.state.clone()),
        4 => job.epoch = Epoch::new(u64::MAX),
        5 => job.attempts = u32::MAX,
        6 => job.rank = other.map_or(job.rank, |other| other.rank),
        7 => job.payload_bytes = u32::MAX,
        8 => job.generation = u32::MAX,
        _ => (job.run_at, job.created_at) = (random.wall(), random.wall()),
    }
}

/// Every job in answers.
fn jobs_of(answers: &mut Answers) -> impl Iterator<Item = &mut Job> {
    let Answers { jobs, keys, due, expired, finished, dead, candidates, .. } = answers;
    let keyed = keys.iter_mut().flatten().filter_map(|found| found.job.as_mut());
    let swept = finished.iter_mut().chain([due, expired]).flat_map(|page| &mut page.jobs);
    let dead = dead.iter_mut().flat_map(|page| &mut page.jobs).map(|dead| &mut dead.job);
    let candidates = candidates.iter_mut().flat_map(|found| &mut found.jobs);
    let candidates = candidates.map(|candidate| &mut candidate.job);
    jobs.iter_mut().flatten().chain(keyed).chain(swept).chain(dead).chain(candidates)
}

/// Random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((bits ^ bits >> 31) % end as u64).unwrap_or(0)
    }

    /// A place in a list of this length, unless it is empty.
    fn place(&mut self, length: usize) -> Option<usize> {
        (length > 0).then(|| self.below(length))
    }

    fn wall(&mut self) -> Wall {
        Wall::new([i64::MIN, -1, 0, 1_700_000_000_000, i64::MAX][self.below(5)])
    }

    /// Removes, repeats or swaps rows of a list, or turns it around.
    fn spoil<T: Clone>(&mut self, list: &mut Vec<T>) {
        let Some(at) = self.place(list.len()) else { return };
        let row = list[at].clone();
        match self.below(5) {
            0 => drop(list.remove(at)),
            1 => list.push(row),
            2 => list.insert(0, row),
            3 => list.fill(row),
            _ => list.reverse(),
        }
    }
}
