//! The mailbox of the writer thread: many push, one drains everything at once.
//!
//! Requests are admitted while there is room. Reports are always taken: their number is bounded by
//! the leases of this process. Closing the admission gate and appending the last message happen
//! under one lock, so nothing admitted is lost and nothing is admitted afterwards.

use std::mem;
use std::task::Waker;
use std::time::Duration;

use super::{Condvar, Mutex, lock};

/// The size of a message, or of the mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Weight {
    /// Jobs or commands.
    pub(crate) items: usize,
    /// Bytes of payloads.
    pub(crate) bytes: usize,
}

/// Why a request was not admitted, with the request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotAdmitted<T> {
    /// There is no room now.
    Full(T),
    /// Admission has ended.
    Closed(T),
}

/// What the mailbox takes. It only ever moves down this list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Admission {
    /// Requests and reports are taken.
    Open,
    /// Requests are refused; reports of running jobs are taken.
    ReportsOnly,
    /// Nothing is taken any more.
    Closed,
}

#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    inner: Mutex<Inner<T>>,
    mail_arrived: Condvar,
    room: Weight,
}

#[derive(Debug)]
struct Inner<T> {
    mail: Vec<T>,
    used: Weight,
    admission: Admission,
    /// The number of messages that wakes the writer; `None` if it does not sleep.
    asleep: Option<usize>,
    /// The writer has to read the clock, even without mail.
    woken: bool,
    /// Callers that wait for room. A drain wakes all of them.
    waiting: Vec<Waker>,
}

impl<T> Mailbox<T> {
    pub(crate) fn new(room: Weight) -> Self {
        let inner = Inner {
            mail: Vec::new(),
            used: Weight::default(),
            admission: Admission::Open,
            asleep: None,
            woken: false,
            waiting: Vec::new(),
        };
        Self { inner: Mutex::new(inner), mail_arrived: Condvar::new(), room }
    }

    /// Admits a request if there is room. A request larger than the mailbox is admitted when the
    /// mailbox is empty. Without room, `waker` is stored and called when there may be some.
    pub(crate) fn admit(
        &self,
        mail: T,
        weight: Weight,
        waker: Option<&Waker>,
    ) -> Result<(), NotAdmitted<T>> {
        let mut inner = lock(&self.inner);
        if inner.admission != Admission::Open {
            return Err(NotAdmitted::Closed(mail));
        }
        let items = inner.used.items + weight.items;
        let bytes = inner.used.bytes.saturating_add(weight.bytes);
        let alone = inner.used.items == 0;
        if !alone && (items > self.room.items || bytes > self.room.bytes) {
            if let Some(waker) = waker {
                inner.wait(waker);
            }
            return Err(NotAdmitted::Full(mail));
        }
        inner.used = Weight { items, bytes };
        inner.mail.push(mail);
        self.wake_if_due(&mut inner);
        Ok(())
    }

    /// Takes a report, whether there is room or not. Returns it once the mailbox is closed.
    pub(crate) fn report(&self, mail: T) -> Result<(), T> {
        let mut inner = lock(&self.inner);
        if inner.admission == Admission::Closed {
            return Err(mail);
        }
        inner.mail.push(mail);
        self.wake_if_due(&mut inner);
        Ok(())
    }

    /// Ends admission and appends `last`. Returns whether admission was open; `last` is appended
    /// either way, unless the mailbox is closed.
    pub(crate) fn close_gate(&self, last: T) -> bool {
        let mut inner = lock(&self.inner);
        let was_open = inner.admission == Admission::Open;
        if inner.admission == Admission::Closed {
            return false;
        }
        inner.admission = Admission::ReportsOnly;
        inner.mail.push(last);
        self.wake_if_due(&mut inner);
        let waiting = mem::take(&mut inner.waiting);
        drop(inner);
        waiting.into_iter().for_each(Waker::wake);
        was_open
    }

    /// Ends admission and appends `last`, unless admission has ended before.
    pub(crate) fn abandon(&self, last: T) {
        if self.admission() == Admission::Open {
            self.close_gate(last);
        }
    }

    /// Closes the mailbox and returns the unread mail.
    pub(crate) fn close(&self) -> Vec<T> {
        let mut inner = lock(&self.inner);
        inner.admission = Admission::Closed;
        inner.used = Weight::default();
        let (mail, waiting) = (mem::take(&mut inner.mail), mem::take(&mut inner.waiting));
        drop(inner);
        waiting.into_iter().for_each(Waker::wake);
        mail
    }

    /// The capacity for requests.
    pub(crate) fn room(&self) -> Weight {
        self.room
    }

    /// The part of the capacity in use, including what `drain` was given as `held`.
    pub(crate) fn used(&self) -> Weight {
        lock(&self.inner).used
    }

    pub(crate) fn admission(&self) -> Admission {
        lock(&self.inner).admission
    }

    /// Moves all mail, in order, to the end of `into`. `held` is the size of earlier requests that
    /// the machine still holds: it stays in use.
    pub(crate) fn drain(&self, into: &mut Vec<T>, held: Weight) {
        let mut inner = lock(&self.inner);
        inner.woken = false;
        inner.used = held;
        // Swap the two buffers, so that both keep their allocation.
        if into.is_empty() {
            mem::swap(into, &mut inner.mail);
        } else {
            into.append(&mut inner.mail);
        }
        if inner.waiting.is_empty() {
            return;
        }
        let waiting = mem::take(&mut inner.waiting);
        drop(inner);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Takes the messages that `is_request` selects; the others stay in their order.
    pub(crate) fn take_requests(&self, is_request: impl FnMut(&mut T) -> bool) -> Vec<T> {
        let mut inner = lock(&self.inner);
        inner.used = Weight::default();
        let requests = inner.mail.extract_if(.., is_request).collect();
        let waiting = mem::take(&mut inner.waiting);
        drop(inner);
        waiting.into_iter().for_each(Waker::wake);
        requests
    }

    /// Sleeps until there is mail, `wake_writer` is called, or the time is over; not at all if one
    /// of them has happened. May return early.
    pub(crate) fn sleep(&self, at_most: Option<Duration>) {
        let mut inner = lock(&self.inner);
        if !inner.mail.is_empty() || inner.woken {
            return;
        }
        inner.asleep = Some(1);
        let mut inner = match at_most {
            None => {
                self.mail_arrived.wait(inner).unwrap_or_else(std::sync::PoisonError::into_inner)
            }
            Some(time) => {
                let woken = self.mail_arrived.wait_timeout(inner, time);
                woken.unwrap_or_else(std::sync::PoisonError::into_inner).0
            }
        };
        inner.asleep = None;
    }

    /// Number of waiting messages.
    pub(crate) fn len(&self) -> usize {
        lock(&self.inner).mail.len()
    }

    /// Sleeps until there are `enough` messages, `wake_writer` is called, admission ends, or the
    /// time is over. Returns the number of messages.
    pub(crate) fn sleep_until(&self, enough: usize, at_most: Duration) -> usize {
        let mut inner = lock(&self.inner);
        let open = inner.admission == Admission::Open;
        if open && !inner.woken && inner.mail.len() < enough {
            inner.asleep = Some(enough);
            let woken = self.mail_arrived.wait_timeout(inner, at_most);
            inner = woken.unwrap_or_else(std::sync::PoisonError::into_inner).0;
            inner.asleep = None;
        }
        inner.mail.len()
    }

    /// Waits up to some 100 us for `enough` messages without sleeping.
    pub(crate) fn spin_until(&self, enough: usize) {
        for _ in 0..CHECKS {
            if self.len() >= enough {
                return;
            }
            (0..SPINS_PER_CHECK).for_each(|_| std::hint::spin_loop());
        }
    }

    /// Wakes the writer to read the clock.
    pub(crate) fn wake_writer(&self) {
        let mut inner = lock(&self.inner);
        inner.woken = true;
        self.wake_if_due(&mut inner);
    }

    fn wake_if_due(&self, inner: &mut Inner<T>) {
        let now = inner.woken || inner.admission != Admission::Open;
        if inner.asleep.take_if(|enough| now || inner.mail.len() >= *enough).is_some() {
            self.mail_arrived.notify_one();
        }
    }
}

/// Checks of `spin_until`, and spins between two of them, which leave the lock to others. A spin
/// takes 10 to 70 ns depending on the processor: 20 to 150 us in all, about what a sleep costs.
const CHECKS: usize = 50;
const SPINS_PER_CHECK: usize = 40;

impl<T> Inner<T> {
    fn wait(&mut self, waker: &Waker) {
        // A caller that is polled twice in a row is stored once.
        if self.waiting.last().is_none_or(|last| !last.will_wake(waker)) {
            self.waiting.push(waker.clone());
        }
    }
}
