//! What was promised, and whether a store keeps it.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::StateName;
use windlass_core::store::{JobDetail, Reader, Store};

/// Everything that children said, and what was seen at the last check.
#[derive(Debug, Default)]
pub struct Promises {
    /// The latest batch that each process acknowledged.
    acked: BTreeMap<u64, u64>,
    payloads: BTreeMap<u64, String>,
    /// Who claimed a job in an epoch.
    holders: BTreeMap<(u64, u64), u64>,
    done: BTreeMap<u64, u64>,
    /// The epochs seen last.
    epochs: BTreeMap<u64, u64>,
}

impl Promises {
    /// Takes a line of output. What the test harness says is no promise.
    pub fn hear(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        // The harness may begin the line.
        if !words.any(|word| word == "ack") {
            return;
        }
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
        let (Some(process), Some(seq)) = (number(), number()) else {
            panic!("half a line: {line}")
        };
        let before = self.acked.insert(process, seq);
        assert_eq!(before.unwrap_or(0) + 1, seq, "a batch was not acknowledged: {line}");
        let words: Vec<&str> = words.collect();
        for said in words.chunks(3) {
            let [what, id, with] = said[..] else { panic!("half a promise: {line}") };
            let id = id.parse().expect("ids are numbers");
            self.promise(process, what, id, with);
        }
    }

    fn promise(&mut self, process: u64, what: &str, id: u64, with: &str) {
        let epoch = || with.parse::<u64>().expect("epochs are numbers");
        match what {
            "enqueued" => {
                let before = self.payloads.insert(id, with.into());
                assert_eq!(before, None, "id {id} was given twice");
            }
            "claimed" => {
                let before = self.holders.insert((id, epoch()), process);
                assert_eq!(before, None, "job {id} was claimed twice in epoch {with}");
            }
            "done" => {
                let before = self.done.insert(id, epoch());
                assert_eq!(before, None, "job {id} was done twice");
                let holder = self.holders.get(&(id, epoch()));
                assert_eq!(holder, Some(&process), "job {id} was done by another than its holder");
            }
            other => panic!("no promise: {other}"),
        }
    }

    /// Compares the store with all that was promised.
    pub fn check(&mut self, store: &impl Store) {
        let mut reader = store.reader().expect("a healthy store gives readers");
        let dump = reader.dump().expect("a healthy store can be dumped");
        let jobs: BTreeMap<u64, &JobDetail> =
            dump.jobs.iter().map(|row| (row.job.id.get(), row)).collect();
        for (id, payload) in &self.payloads {
            let found = jobs.get(id).map(|row| row.payload.as_str());
            assert_eq!(found, Some(payload.as_str()), "acknowledged job {id} is lost");
        }
        for ((id, epoch), process) in &self.holders {
            let now = jobs[id].job.epoch.get();
            assert!(now >= *epoch, "job {id}: epoch {epoch} of {process} is lost, it is {now}");
        }
        for (id, epoch) in &self.done {
            let job = &jobs[id].job;
            let is_done = (job.state.name(), job.epoch.get()) == (StateName::Done, *epoch);
            assert!(is_done, "job {id} was done in epoch {epoch}, but is {:?}", job.state);
        }
        for (id, epoch) in &self.epochs {
            assert!(jobs[id].job.epoch.get() >= *epoch, "the epoch of job {id} went back");
        }
        self.epochs = jobs.iter().map(|(id, row)| (*id, row.job.epoch.get())).collect();
        self.check_batches(&jobs);
    }

    /// Every job is of a batch that was acknowledged, or of the one behind it, which is there as a
    /// whole; none is there twice.
    fn check_batches(&self, jobs: &BTreeMap<u64, &JobDetail>) {
        let mut batches: BTreeMap<(u64, u64, u64), BTreeSet<u64>> = BTreeMap::new();
        for (id, row) in jobs {
            let name = row.payload.as_str().trim_matches('"');
            let numbers: Vec<u64> = name.split('.').filter_map(|part| part.parse().ok()).collect();
            let [process, seq, number, count] = numbers[..] else { panic!("job {id} is not ours") };
            let acked = self.acked.get(&process).copied().unwrap_or(0);
            assert!(seq <= acked + 1, "job {id} of batch {seq}: {process} only came to {acked}");
            let fresh = batches.entry((process, seq, count)).or_default().insert(number);
            assert!(fresh, "job {id} is there twice: {name}");
        }
        for ((process, seq, count), numbers) in batches {
            let there = u64::try_from(numbers.len()).unwrap_or(0);
            assert_eq!(there, count, "batch {seq} of process {process} is there in part");
        }
    }

    /// Enough batches were acknowledged, jobs done and jobs claimed again.
    pub fn assert_much_happened(&self, batches: u64) {
        let acked: u64 = self.acked.values().sum();
        assert!(acked >= batches, "only {acked} batches were acknowledged");
        let again = self.holders.keys().filter(|(_, epoch)| *epoch > 1).count();
        let (done, jobs) = (self.done.len(), self.payloads.len());
        assert!(again > 0 && done > 10, "{jobs} jobs, {done} done, {again} claimed again");
    }

    /// Some jobs were claimed by two processes, in different epochs.
    pub fn assert_both_took_part(&self) {
        let mut holders: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for ((id, _), process) in &self.holders {
            holders.entry(*id).or_default().insert(*process);
        }
        let shared = holders.values().filter(|holders| holders.len() > 1).count();
        assert!(shared > 0, "no job went from one process to another");
    }
}
