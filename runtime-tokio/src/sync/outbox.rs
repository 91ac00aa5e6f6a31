//! What the writer thread hands to the delivery task: whole batches, one wake-up each.
//!
//! Waking a task from outside its runtime is dear, so the writer wakes one task per batch and that
//! task, inside the runtime, wakes the others.

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
    /// The sender has said its last word.
    finished: bool,
    /// The receiver is gone.
    deaf: bool,
}

impl<T> Outbox<T> {
    pub(crate) fn new() -> Self {
        let inner = Inner { batch: Vec::new(), waker: None, finished: false, deaf: false };
        Self { inner: Mutex::new(inner) }
    }

    /// Hands over everything in `batch`, which is left empty. Says whether anybody is there to
    /// take it; if not, `batch` is left as it is.
    pub(crate) fn send(&self, batch: &mut Vec<T>) -> bool {
        let mut inner = lock(&self.inner);
        if inner.deaf {
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

    /// The sender has said its last word.
    pub(crate) fn finish(&self) {
        let mut inner = lock(&self.inner);
        inner.finished = true;
        let waker = inner.waker.take();
        drop(inner);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Swaps what there is into `into`, which is empty. Ready with false once the sender has
    /// finished and everything was taken.
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

    /// The receiver leaves; returns what it did not take.
    pub(crate) fn leave(&self) -> Vec<T> {
        let mut inner = lock(&self.inner);
        inner.deaf = true;
        inner.waker = None;
        mem::take(&mut inner.batch)
    }
}
