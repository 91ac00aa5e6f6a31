//! The queue of runs between the delivery task and the workers.
//!
//! A worker ends only when the queue is empty, and closed or meant for fewer workers. A run that
//! was put is taken by exactly one worker; a run that is put after the close stays with the caller.

use std::collections::VecDeque;
use std::mem;
use std::task::{Context, Poll, Waker};

use super::{Mutex, MutexGuard, lock};

#[derive(Debug)]
pub(crate) struct Slots<T> {
    inner: Mutex<Inner<T>>,
}

#[derive(Debug)]
struct Inner<T> {
    runs_waiting: VecDeque<T>,
    /// By worker; `None` if it does not wait.
    wakers: Vec<Option<Waker>>,
    /// The workers that wait. The last one is woken first, while its caches are warm.
    idle: Vec<usize>,
    /// By worker: whether its task runs.
    present: Vec<bool>,
    /// The configured number of workers. Workers with this index or above end once idle.
    wanted: usize,
    closed: bool,
}

impl<T> Slots<T> {
    pub(crate) fn new(workers: usize) -> Self {
        let inner = Inner {
            runs_waiting: VecDeque::new(),
            wakers: (0..workers).map(|_| None).collect(),
            idle: Vec::new(),
            present: vec![true; workers],
            wanted: workers,
            closed: false,
        };
        Self { inner: Mutex::new(inner) }
    }

    /// Changes the number of workers. Returns the indices of workers to start; surplus workers end
    /// once they have nothing to run.
    pub(crate) fn resize(&self, workers: usize) -> Vec<usize> {
        let mut inner = lock(&self.inner);
        if inner.closed {
            return Vec::new();
        }
        inner.wanted = workers;
        let known = inner.present.len().max(workers);
        inner.present.resize(known, false);
        inner.wakers.resize_with(known, || None);
        let missing: Vec<usize> = (0..workers).filter(|worker| !inner.present[*worker]).collect();
        for worker in &missing {
            inner.present[*worker] = true;
        }
        let leaving: Vec<usize> = inner.idle.extract_if(.., |idle| *idle >= workers).collect();
        let wakers: Vec<Waker> =
            leaving.into_iter().filter_map(|worker| inner.wakers[worker].take()).collect();
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
        missing
    }

    /// Queues runs and wakes as many workers. Returns false, with `runs` unchanged, once closed.
    pub(crate) fn put(&self, runs: &mut Vec<T>) -> bool {
        let mut inner = lock(&self.inner);
        if inner.closed {
            return false;
        }
        let count = runs.len();
        inner.runs_waiting.extend(runs.drain(..));
        let from = inner.idle.len().saturating_sub(count);
        let woken: Vec<usize> = inner.idle.split_off(from);
        let wakers: Vec<Waker> =
            woken.into_iter().filter_map(|worker| inner.wakers[worker].take()).collect();
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
        true
    }

    /// The next run for this worker; `None` if the worker has to end.
    pub(crate) fn poll_next(&self, worker: usize, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut inner = lock(&self.inner);
        let waited = inner.wakers[worker].is_some();
        if let Some(run) = inner.runs_waiting.pop_front() {
            if waited {
                inner.wakers[worker] = None;
                inner.idle.retain(|idle| *idle != worker);
            }
            return Poll::Ready(Some(run));
        }
        if inner.closed || worker >= inner.wanted {
            inner.wakers[worker] = None;
            inner.idle.retain(|idle| *idle != worker);
            inner.present[worker] = false;
            return Poll::Ready(None);
        }
        if !waited {
            inner.idle.push(worker);
        }
        inner.wakers[worker] = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Closes the queue. Workers run what is in it, then end.
    pub(crate) fn close(&self) {
        Self::shut(lock(&self.inner));
    }

    /// Closes the queue and takes what is in it, when the workers are gone.
    pub(crate) fn abandon(&self) -> VecDeque<T> {
        let mut inner = lock(&self.inner);
        let runs_waiting = mem::take(&mut inner.runs_waiting);
        Self::shut(inner);
        runs_waiting
    }

    fn shut(mut inner: MutexGuard<'_, Inner<T>>) {
        inner.closed = true;
        inner.idle.clear();
        let wakers: Vec<Waker> = inner.wakers.iter_mut().filter_map(mem::take).collect();
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
    }
}
