//! Those who watch: callers that wait for a job's verdict, and streams of changes.
//!
//! Neither polls. Both are fed by what commits have changed; when that is not known job by job,
//! because another process wrote, waiting callers look again and streams say that they lagged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use windlass_core::store::Change;
use windlass_core::{JobId, Queue, StateName};

use crate::sync::{Mutex, Reply, lock};

/// Callers that wait for a verdict, by job.
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

    /// Watches a job; `None` if nothing will change any more.
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

    /// Wakes those whose job has got a verdict, or is gone.
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

    /// Wakes everybody: something has changed.
    pub(crate) fn news(&self) {
        wake(lock(&self.inner).by_job.values().flatten());
    }

    /// Wakes everybody: nothing will change any more.
    pub(crate) fn close(&self) {
        lock(&self.inner).closed = true;
        self.news();
    }
}

fn wake<'a>(replies: impl Iterator<Item = &'a Arc<Reply<()>>>) {
    for reply in replies {
        // One that is woken already looks anyway.
        let _ = reply.fill(());
    }
}

/// One caller that waits for one job; it is forgotten when dropped.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    watchers: &'a Watchers,
    id: JobId,
    reply: Arc<Reply<()>>,
}

impl Watch<'_> {
    /// Ends when the job may have got a verdict.
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

/// Something that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A job came, changed its state or its holder, or went.
    Job(Change),
    /// The settings of a queue changed.
    Queue(Queue),
    /// Changes were left out: at least so many, because this stream was not read fast enough, or
    /// an unknown number (zero), because another process wrote. Look at what you care about.
    Lagged(u64),
}

/// The sending side of the streams.
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
            // After the end there is a stream that has ended.
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
            // Nobody listens any more: that is no error.
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

/// A stream of changes, from the moment it was made. It keeps a bounded number of them for a
/// reader that is slow, and says so when it had to leave some out.
#[derive(Debug)]
pub struct EventStream {
    receiver: broadcast::Receiver<Event>,
    count: Arc<AtomicUsize>,
}

impl EventStream {
    /// The next event; none once the runtime has ended and all were read.
    pub async fn next(&mut self) -> Option<Event> {
        match self.receiver.recv().await {
            Ok(event) => Some(event),
            Err(RecvError::Lagged(count)) => Some(Event::Lagged(count)),
            Err(RecvError::Closed) => None,
        }
    }

    /// Waits for the next event, and adds it and those that are there already to `events`, up to
    /// `limit`. Says how many; none once the runtime has ended and all were read.
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
