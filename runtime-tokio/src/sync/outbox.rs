//! The queue from the writer thread to the delivery task: whole batches, one wake-up each.
//!
//! Waking a task from outside of the tokio runtime is expensive, so the writer wakes one task per
//! batch, and that task wakes the others from inside.

use std::mem;
use std::task::{Context, Poll, Waker};

use super::{Mutex, lock};

#[derive(Debug)]
pub(crate) struct Outbox<T> {
    inner: Mutex<Inner<T>>,
}

#[derive(Debug)]
struct Inner<T> {
    batch: Vec<T>,
    waker: Option<Waker>,
    /// The sender will send nothing more.
    finished: bool,
    receiver_gone: bool,
}

impl<T> Outbox<T> {
    pub(crate) fn new() -> Self {
        let inner = Inner { batch: Vec::new(), waker: None, finished: false, receiver_gone: false };
        Self { inner: Mutex::new(inner) }
    }

    /// Moves everything out of `batch`. Returns false, with `batch` unchanged, if the receiver is
    /// gone.
    pub(crate) fn send(&self, batch: &mut Vec<T>) -> bool {
        let mut inner = lock(&self.inner);
        if inner.receiver_gone {
            return false;
        }
        if inner.batch.is_empty() {
            mem::swap(&mut inner.batch, batch);
        } else {
            inner.batch.append(batch);
        }
        let waker = inner.waker.take();
        drop(inner);
        waker.into_iter().for_each(Waker::wake);
        true
    }

    /// Marks the end: nothing more is sent.
    pub(crate) fn finish(&self) {
        let mut inner = lock(&self.inner);
        inner.finished = true;
        let waker = inner.waker.take();
        drop(inner);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Swaps the waiting batch into `into`, which must be empty. Ready with false once the sender
    /// has finished and everything was taken.
    pub(crate) fn poll_take(&self, cx: &mut Context<'_>, into: &mut Vec<T>) -> Poll<bool> {
        let mut inner = lock(&self.inner);
        if !inner.batch.is_empty() {
            mem::swap(&mut inner.batch, into);
            return Poll::Ready(true);
        }
        if inner.finished {
            return Poll::Ready(false);
        }
        match &mut inner.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Marks the receiver as gone; returns what it did not take.
    pub(crate) fn leave(&self) -> Vec<T> {
        let mut inner = lock(&self.inner);
        inner.receiver_gone = true;
        inner.waker = None;
        mem::take(&mut inner.batch)
    }
}
