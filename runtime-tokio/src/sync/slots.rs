//! The hand-off from the delivery task to the workers: a line of runs, and the workers that wait.
//!
//! A worker leaves only when the line is empty, and either closed or meant for fewer workers; what
//! was put in line is taken by exactly one worker, or comes back to whoever put it there too late.

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
    line: VecDeque<T>,
    /// By worker: how to wake it, if it waits.
    wakers: Vec<Option<Waker>>,
    /// The workers that wait; the last to come is woken first, while its caches are warm.
    idle: Vec<usize>,
    /// By worker: whether it is there.
    present: Vec<bool>,
    /// How many workers there should be; those with a greater number leave when they have time.
    wanted: usize,
    closed: bool,
}

impl<T> Slots<T> {
    /// For this many workers.
    pub(crate) fn new(workers: usize) -> Self {
        let inner = Inner {
            line: VecDeque::new(),
            wakers: (0..workers).map(|_| None).collect(),
            idle: Vec::new(),
            present: vec![true; workers],
            wanted: workers,
            closed: false,
        };
        Self { inner: Mutex::new(inner) }
    }

    /// From now on for this many workers: returns the numbers of those that are to come. Those too
    /// many leave, each once it has nothing to run.
    pub(crate) fn resize(&self, workers: usize) -> Vec<usize> {
        let mut inner = lock(&self.inner);
        if inner.closed {
            return Vec::new();
        }
        inner.wanted = workers;
        let known = inner.present.len().max(workers);
        inner.present.resize(known, false);
        inner.wakers.resize_with(known, || None);
        let come: Vec<usize> = (0..workers).filter(|worker| !inner.present[*worker]).collect();
        for worker in &come {
            inner.present[*worker] = true;
        }
        let leaving: Vec<usize> = inner.idle.extract_if(.., |idle| *idle >= workers).collect();
        let wakers: Vec<Waker> =
            leaving.into_iter().filter_map(|worker| inner.wakers[worker].take()).collect();
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
        come
    }

    /// Puts runs in line and wakes as many workers. They come back if the line is closed.
    pub(crate) fn put(&self, runs: &mut Vec<T>) -> bool {
        let mut inner = lock(&self.inner);
        if inner.closed {
            return false;
        }
        let count = runs.len();
        inner.line.extend(runs.drain(..));
        let from = inner.idle.len().saturating_sub(count);
        let woken: Vec<usize> = inner.idle.split_off(from);
        let wakers: Vec<Waker> =
            woken.into_iter().filter_map(|worker| inner.wakers[worker].take()).collect();
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
        true
    }

    /// The next run for this worker; none once the line is empty, and closed or meant for fewer.
    pub(crate) fn poll_next(&self, worker: usize, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut inner = lock(&self.inner);
        let waited = inner.wakers[worker].is_some();
        if let Some(run) = inner.line.pop_front() {
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

    /// Closes the line; workers finish what stands in it, then leave.
    pub(crate) fn close(&self) {
        Self::shut(lock(&self.inner));
    }

    /// Closes the line and takes out what stands in it: the workers are gone.
    pub(crate) fn abandon(&self) -> VecDeque<T> {
        let mut inner = lock(&self.inner);
        let line = mem::take(&mut inner.line);
        Self::shut(inner);
        line
    }

    fn shut(mut inner: MutexGuard<'_, Inner<T>>) {
        inner.closed = true;
        inner.idle.clear();
        let wakers: Vec<Waker> = inner.wakers.iter_mut().filter_map(mem::take).collect();
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
    }
}
