//! A store of one job that records the changes it is to write, for answers that no real store
//! gives today: `Apply` must not depend on them.

use windlass_core::store::{
    Answers, Batch, Candidate, Candidates, Changes, KindFound, Outcomes, Questions, QueueFound,
};
use windlass_core::{Apply, ApplyStep, Job, JobId, Payload, Queue, View};

/// A store of one job.
pub(crate) struct SingleJobStore {
    job: Job,
    payload: Payload,
    /// The id of the next new job, whatever is stored.
    pub(crate) next_id: JobId,
    /// The changes of the last commit.
    pub(crate) written: Option<Changes>,
}

impl SingleJobStore {
    pub(crate) fn holding(job: Job, payload: Payload) -> Self {
        let next_id = job.id.plus(1);
        let job = Job { payload_bytes: payload.bytes(), ..job };
        Self { job, payload, next_id, written: None }
    }

    pub(crate) fn commit(&mut self, batch: &Batch) -> Outcomes {
        let (mut apply, mut asked) = Apply::new(batch);
        loop {
            match apply.answer(self.answer(&asked)).expect("the answer fits") {
                ApplyStep::Ask(more) => asked = more,
                ApplyStep::Write(changes) => {
                    self.written = Some(changes);
                    return apply.finish();
                }
            }
        }
    }

    fn answer(&self, asked: &Questions) -> Answers {
        let mine = |id: &JobId| (*id == self.job.id).then(|| self.job.clone());
        let ready = self.job.state.view() == View::Queued;
        let candidate = Candidate { job: self.job.clone(), payload: self.payload.clone() };
        let candidates =
            Candidates { jobs: vec![candidate; usize::from(ready)], ..Candidates::default() };
        Answers {
            now: self.job.updated_at,
            jobs: asked.jobs.iter().map(mine).collect(),
            keys: vec![None; asked.keys.len()],
            queues: vec![QueueFound { queue: Queue::new(self.job.queue.clone()), usage: None }],
            kinds: vec![KindFound::Known; asked.kinds.len()],
            candidates: vec![candidates; asked.wants.len()],
            ids: (0..asked.ids as u64).map(|at| self.next_id.plus(at)).collect(),
            ..Answers::default()
        }
    }
}
