//! The mailbox of the writer thread: many push, one drains everything at once.
//!
//! Requests are admitted while there is room; reports are always taken, since what may report is
//! bounded elsewhere. The admission gate is a flag under the same lock: closing it and putting the
//! last word behind everything admitted are one step, so nothing admitted is lost and nothing
//! enters afterwards.

use std::mem;
use std::task::Waker;
use std::time::Duration;

use super::{Condvar, Mutex, lock};

/// How much room a piece of mail takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Weight {
    /// Jobs or commands.
    pub(crate) items: usize,
    /// Bytes of payloads.
    pub(crate) bytes: usize,
}

/// Why mail was not taken; it comes back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoEntry<T> {
    /// There is no room now.
    Full(T),
    /// The gate is closed.
    Closed(T),
}

/// Whether the gate is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Admission {
    /// Requests and reports are taken.
    Open,
    /// Reports only.
    ReportsOnly,
    /// Nothing is taken any more.
    Closed,
}

#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    inner: Mutex<Inner<T>>,
    mail_came: Condvar,
    room: Weight,
}

#[derive(Debug)]
struct Inner<T> {
    mail: Vec<T>,
    used: Weight,
    admission: Admission,
    /// Whether the writer sleeps, and how much mail wakes it.
    asleep: Option<usize>,
    /// Somebody wants the writer to look at the clock.
    poked: bool,
    /// Those who wait for room. All are woken by a drain, which makes all the room there is.
    waiting: Vec<Waker>,
}

impl<T> Mailbox<T> {
    /// A mailbox with this much room for requests.
    pub(crate) fn new(room: Weight) -> Self {
        let inner = Inner {
            mail: Vec::new(),
            used: Weight::default(),
            admission: Admission::Open,
            asleep: None,
            poked: false,
            waiting: Vec::new(),
        };
        Self { inner: Mutex::new(inner), mail_came: Condvar::new(), room }
    }

    /// Admits a request if there is room. One that is larger than the whole room is admitted when
    /// nothing else waits. If there is none, `waker` is kept and called when there may be.
    pub(crate) fn admit(
        &self,
        mail: T,
        weight: Weight,
        waker: Option<&Waker>,
    ) -> Result<(), NoEntry<T>> {
        let mut inner = lock(&self.inner);
        if inner.admission != Admission::Open {
            return Err(NoEntry::Closed(mail));
        }
        let items = inner.used.items + weight.items;
        let bytes = inner.used.bytes.saturating_add(weight.bytes);
        let alone = inner.used.items == 0;
        if !alone && (items > self.room.items || bytes > self.room.bytes) {
            if let Some(waker) = waker {
                inner.wait(waker);
            }
            return Err(NoEntry::Full(mail));
        }
        inner.used = Weight { items, bytes };
        inner.mail.push(mail);
        self.ring(&mut inner);
        Ok(())
    }

    /// Takes a report, whether there is room or not. It comes back once the mailbox is closed.
    pub(crate) fn report(&self, mail: T) -> Result<(), T> {
        let mut inner = lock(&self.inner);
        if inner.admission == Admission::Closed {
            return Err(mail);
        }
        inner.mail.push(mail);
        self.ring(&mut inner);
        Ok(())
    }

    /// Closes the gate and puts `last` behind everything that was admitted. Says whether the gate
    /// was open; `last` goes in as a report either way, unless the mailbox is closed.
    pub(crate) fn close_gate(&self, last: T) -> bool {
        let mut inner = lock(&self.inner);
        let was_open = inner.admission == Admission::Open;
        if inner.admission == Admission::Closed {
            return false;
        }
        inner.admission = Admission::ReportsOnly;
        inner.mail.push(last);
        self.ring(&mut inner);
        let waiting = mem::take(&mut inner.waiting);
        drop(inner);
        waiting.into_iter().for_each(Waker::wake);
        was_open
    }

    /// Closes the gate and says `last`, unless the gate was closed before: then somebody else has
    /// said how it ends.
    pub(crate) fn abandon(&self, last: T) {
        if self.admission() == Admission::Open {
            self.close_gate(last);
        }
    }

    /// Closes the mailbox for good and returns what nobody will read.
    pub(crate) fn close(&self) -> Vec<T> {
        let mut inner = lock(&self.inner);
        inner.admission = Admission::Closed;
        inner.used = Weight::default();
        let (mail, waiting) = (mem::take(&mut inner.mail), mem::take(&mut inner.waiting));
        drop(inner);
        waiting.into_iter().for_each(Waker::wake);
        mail
    }

    /// How much room there is for requests when nothing waits.
    pub(crate) fn room(&self) -> Weight {
        self.room
    }

    /// How much of the room is taken.
    pub(crate) fn used(&self) -> Weight {
        lock(&self.inner).used
    }

    /// Whether the gate is open.
    pub(crate) fn admission(&self) -> Admission {
        lock(&self.inner).admission
    }

    /// Moves all mail, in the order it came, to the end of `into`. `held` is the room that earlier
    /// mail still takes.
    pub(crate) fn drain(&self, into: &mut Vec<T>, held: Weight) {
        let mut inner = lock(&self.inner);
        inner.poked = false;
        inner.used = held;
        // The two buffers change places, so that neither is allocated anew.
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

    /// Takes out the requests, which are what `is_request` says; reports stay in their order.
    pub(crate) fn take_requests(&self, is_request: impl FnMut(&mut T) -> bool) -> Vec<T> {
        let mut inner = lock(&self.inner);
        inner.used = Weight::default();
        let requests = inner.mail.extract_if(.., is_request).collect();
        let waiting = mem::take(&mut inner.waiting);
        drop(inner);
        waiting.into_iter().for_each(Waker::wake);
        requests
    }

    /// Sleeps until there is mail, somebody pokes, or the time is over; not at all if there is
    /// mail or a poke already. Waking for nothing is possible and harmless.
    pub(crate) fn sleep(&self, at_most: Option<Duration>) {
        let mut inner = lock(&self.inner);
        if !inner.mail.is_empty() || inner.poked {
            return;
        }
        inner.asleep = Some(1);
        let mut inner = match at_most {
            None => self.mail_came.wait(inner).unwrap_or_else(std::sync::PoisonError::into_inner),
            Some(time) => {
                let woken = self.mail_came.wait_timeout(inner, time);
                woken.unwrap_or_else(std::sync::PoisonError::into_inner).0
            }
        };
        inner.asleep = None;
    }

    /// How much mail there is.
    pub(crate) fn len(&self) -> usize {
        lock(&self.inner).mail.len()
    }

    /// Sleeps until there is so much mail, somebody pokes or closes the gate, or the time is over.
    /// Says how much there is.
    pub(crate) fn sleep_until(&self, enough: usize, at_most: Duration) -> usize {
        let mut inner = lock(&self.inner);
        let open = inner.admission == Admission::Open;
        if open && !inner.poked && inner.mail.len() < enough {
            inner.asleep = Some(enough);
            let woken = self.mail_came.wait_timeout(inner, at_most);
            inner = woken.unwrap_or_else(std::sync::PoisonError::into_inner).0;
            inner.asleep = None;
        }
        inner.mail.len()
    }

    /// Looks for a moment, without sleeping, whether there is so much mail.
    pub(crate) fn look_out(&self, enough: usize) {
        for _ in 0..LOOKS {
            if self.len() >= enough {
                return;
            }
            (0..BETWEEN_LOOKS).for_each(|_| std::hint::spin_loop());
        }
    }

    /// Makes the writer look at the clock.
    pub(crate) fn poke(&self) {
        let mut inner = lock(&self.inner);
        inner.poked = true;
        self.ring(&mut inner);
    }

    fn ring(&self, inner: &mut Inner<T>) {
        let now = inner.poked || inner.admission != Admission::Open;
        if inner.asleep.take_if(|enough| now || inner.mail.len() >= *enough).is_some() {
            self.mail_came.notify_one();
        }
    }
}

/// How often to look before it is quicker to sleep, and how many turns of an idle loop to leave the
/// lock to others in between. A turn takes 10 to 70 ns, by processor: some 20 to 150 us in all.
const LOOKS: usize = 50;
const BETWEEN_LOOKS: usize = 40;

impl<T> Inner<T> {
    fn wait(&mut self, waker: &Waker) {
        // A caller that asks twice in a row is noted once.
        if self.waiting.last().is_none_or(|last| !last.will_wake(waker)) {
            self.waiting.push(waker.clone());
        }
    }
}
