//! Callers that wait for a job to finish, and streams of changes.
//!
//! Neither polls. Both are fed with the changes of each commit. When changes are not known one by
//! one, because another process wrote, waiting callers read their job again and streams report
//! that they lagged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use windlass_core::store::Change;
use windlass_core::{JobId, Queue, StateName};

use crate::sync::{Mutex, Reply, lock};

/// Callers that wait for a job to finish, by job.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    inner: Mutex<Inner>,
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Inner {
    by_job: BTreeMap<JobId, Vec<Arc<Reply<()>>>>,
    closed: bool,
}

impl Watchers {
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Watches a job; `None` once closed.
    pub(crate) fn watch(&self, id: JobId) -> Option<Watch<'_>> {
        let mut inner = lock(&self.inner);
        if inner.closed {
            return None;
        }
        let reply = Arc::new(Reply::new());
        inner.by_job.entry(id).or_default().push(Arc::clone(&reply));
        self.count.fetch_add(1, Ordering::AcqRel);
        drop(inner);
        Some(Watch { watchers: self, id, reply })
    }

    /// Wakes callers whose job has finished or was deleted.
    pub(crate) fn changed(&self, changes: &[Change]) {
        if !self.any() {
            return;
        }
        let over = |change: &&Change| change.to.is_none_or(StateName::is_finished);
        let inner = lock(&self.inner);
        for change in changes.iter().filter(over) {
            wake(inner.by_job.get(&change.id).into_iter().flatten());
        }
    }

    /// Wakes all callers, to read their job again.
    pub(crate) fn news(&self) {
        wake(lock(&self.inner).by_job.values().flatten());
    }

    /// Wakes all callers, and accepts no more.
    pub(crate) fn close(&self) {
        lock(&self.inner).closed = true;
        self.news();
    }
}

fn wake<'a>(replies: impl Iterator<Item = &'a Arc<Reply<()>>>) {
    for reply in replies {
        // Fails for a caller that was woken before.
        let _ = reply.fill(());
    }
}

/// One caller that waits for one job, until it is dropped.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    watchers: &'a Watchers,
    id: JobId,
    reply: Arc<Reply<()>>,
}

impl Watch<'_> {
    /// Waits until the job may have finished.
    pub(crate) async fn woken(&self) {
        std::future::poll_fn(|cx| self.reply.poll(cx)).await;
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let mut inner = lock(&self.watchers.inner);
        if let Some(replies) = inner.by_job.get_mut(&self.id) {
            replies.retain(|reply| !Arc::ptr_eq(reply, &self.reply));
            if replies.is_empty() {
                inner.by_job.remove(&self.id);
            }
        }
        self.watchers.count.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A committed change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A job was enqueued, changed its state or its owner, or was deleted.
    Job(Change),
    /// The settings of a queue changed.
    Queue(Queue),
    /// Events were dropped: this number, because the stream was not read fast enough; or zero, if
    /// the number is unknown because another process wrote. Read again what you depend on.
    Lagged(u64),
}

/// The sending side of all event streams.
#[derive(Debug)]
pub(crate) struct Events {
    sender: Mutex<Option<broadcast::Sender<Event>>>,
    buffer: usize,
    count: Arc<AtomicUsize>,
}

impl Events {
    pub(crate) fn new(buffer: usize) -> Self {
        let sender = broadcast::Sender::new(buffer.max(1));
        Self { sender: Mutex::new(Some(sender)), buffer, count: Arc::default() }
    }

    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    pub(crate) fn subscribe(&self) -> EventStream {
        let receiver = match &*lock(&self.sender) {
            Some(sender) => sender.subscribe(),
            // After the end, a stream that has ended.
            None => broadcast::channel(self.buffer.max(1)).1,
        };
        self.count.fetch_add(1, Ordering::AcqRel);
        EventStream { receiver, count: Arc::clone(&self.count) }
    }

    pub(crate) fn changed(&self, jobs: Vec<Change>, queues: Vec<Queue>) {
        if !self.any() {
            return;
        }
        let sender = lock(&self.sender).clone();
        let Some(sender) = sender else { return };
        for event in jobs.into_iter().map(Event::Job).chain(queues.into_iter().map(Event::Queue)) {
            // Fails if the last stream was dropped meanwhile.
            let _ = sender.send(event);
        }
    }

    pub(crate) fn news(&self) {
        if let Some(sender) = lock(&self.sender).clone().filter(|_| self.any()) {
            let _ = sender.send(Event::Lagged(0));
        }
    }

    pub(crate) fn close(&self) {
        *lock(&self.sender) = None;
    }
}

/// A stream of changes from the moment it was created. It buffers a bounded number of events and
/// yields [`Event::Lagged`] where it dropped some.
#[derive(Debug)]
pub struct EventStream {
    receiver: broadcast::Receiver<Event>,
    count: Arc<AtomicUsize>,
}

impl EventStream {
    /// The next event; `None` once the runtime has ended and all events were read.
    pub async fn next(&mut self) -> Option<Event> {
        match self.receiver.recv().await {
            Ok(event) => Some(event),
            Err(RecvError::Lagged(count)) => Some(Event::Lagged(count)),
            Err(RecvError::Closed) => None,
        }
    }

    /// Waits for the next event, and appends it and the buffered ones to `events`, up to `limit`.
    /// Returns their number; zero once the runtime has ended and all events were read.
    pub async fn next_many(&mut self, events: &mut Vec<Event>, limit: usize) -> usize {
        let before = events.len();
        events.extend(self.next().await);
        while (1..limit).contains(&(events.len() - before)) {
            match self.receiver.try_recv() {
                Ok(event) => events.push(event),
                Err(TryRecvError::Lagged(count)) => events.push(Event::Lagged(count)),
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        events.len() - before
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
    }
}
