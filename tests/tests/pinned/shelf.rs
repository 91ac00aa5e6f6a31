//! A transaction over one stored job that keeps what it is given to write, for what no store
//! does today: `apply` must not rest on it.

use std::convert::Infallible;

use windlass_core::store::{Changes, Cursor, DeadJob, LeaseCursor, Tx};
use windlass_core::{
    Counts, IdempotencyKey, Job, JobId, KeyRecord, Kind, Payload, Queue, QueueName, QueueRow,
    Queues, Rank, View, Wall, WorkerId,
};

/// A transaction over one stored job.
pub(crate) struct Shelf {
    job: Job,
    payload: Payload,
    /// The id of the next new job, whatever is stored.
    pub(crate) next_id: JobId,
    /// What was written.
    pub(crate) written: Option<Changes>,
}

impl Shelf {
    pub(crate) fn holding(job: Job, payload: Payload) -> Self {
        let next_id = job.id.plus(1);
        Self { job, payload, next_id, written: None }
    }
}

type Found<T> = Result<T, Infallible>;

impl Tx for Shelf {
    type Error = Infallible;

    fn now(&self) -> Wall {
        self.job.updated_at
    }

    fn jobs(&mut self, ids: &[JobId]) -> Found<Vec<Option<Job>>> {
        Ok(ids.iter().map(|id| (*id == self.job.id).then(|| self.job.clone())).collect())
    }

    fn keys(&mut self, keys: &[IdempotencyKey]) -> Found<Vec<Option<KeyRecord>>> {
        Ok(vec![None; keys.len()])
    }

    fn queues(&mut self, _: &Queues) -> Found<Vec<QueueRow>> {
        let mut counts = Counts::default();
        counts.add(self.job.state.view());
        let kinds = vec![(self.job.kind.clone(), counts)];
        Ok(vec![QueueRow { queue: Queue::new(self.job.queue.clone()), kinds }])
    }

    fn queue_count(&mut self) -> Found<usize> {
        Ok(1)
    }

    fn heads(&mut self, of: &[(QueueName, Kind)], _: usize) -> Found<Vec<Vec<Job>>> {
        let is_ready = self.job.state.view() == View::Queued;
        let mine = |(queue, kind): &(QueueName, Kind)| {
            is_ready && *queue == self.job.queue && *kind == self.job.kind
        };
        Ok(of.iter().map(|of| if mine(of) { vec![self.job.clone()] } else { vec![] }).collect())
    }

    fn ready(&mut self, _: &QueueName, _: &Kind, _: Rank, _: usize) -> Found<Vec<Job>> {
        Ok(Vec::new())
    }

    fn due(&mut self, _: Wall, _: usize) -> Found<Vec<Job>> {
        Ok(Vec::new())
    }

    fn expired(&mut self, _: Wall, _: Option<LeaseCursor>, _: usize) -> Found<Vec<Job>> {
        Ok(Vec::new())
    }

    fn finished(&mut self, _: View, _: Wall, _: usize) -> Found<Vec<Job>> {
        Ok(Vec::new())
    }

    fn dead(
        &mut self,
        _: Option<&QueueName>,
        _: Option<&Kind>,
        _: Option<Cursor>,
        _: usize,
    ) -> Found<(Vec<DeadJob>, Option<Cursor>)> {
        Ok((Vec::new(), None))
    }

    fn payloads(&mut self, ids: &[JobId], _: usize) -> Found<Vec<Payload>> {
        assert!(ids.iter().all(|id| *id == self.job.id), "asked for what is not stored: {ids:?}");
        Ok(vec![self.payload.clone(); ids.len()])
    }

    fn orphan_keys(&mut self, _: Wall, _: usize) -> Found<Vec<IdempotencyKey>> {
        Ok(Vec::new())
    }

    fn next_due(&mut self) -> Found<Option<Wall>> {
        Ok(None)
    }

    fn next_expiry(&mut self) -> Found<Option<Wall>> {
        Ok(None)
    }

    fn has_silent(&mut self, _: Wall) -> Found<bool> {
        Ok(false)
    }

    fn stop_marks(&mut self, ids: &[WorkerId]) -> Found<Vec<Option<bool>>> {
        Ok(vec![None; ids.len()])
    }

    fn next_id(&mut self) -> Found<JobId> {
        Ok(self.next_id)
    }

    fn write(&mut self, changes: Changes) -> Found<()> {
        self.written = Some(changes);
        Ok(())
    }
}
