//! One answer for one caller, which may leave first.
//!
//! An answer is either taken by the caller or returned as undeliverable, exactly one of the two:
//! jobs claimed for a caller that left must be given back.

use std::mem;
use std::task::{Context, Poll, Waker};

use super::{Mutex, lock};

#[derive(Debug)]
pub(crate) struct Reply<T> {
    state: Mutex<State<T>>,
}

#[derive(Debug)]
enum State<T> {
    Waiting(Option<Waker>),
    Ready(T),
    /// The answer was taken, or the caller left.
    Over,
}

impl<T> Reply<T> {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(State::Waiting(None)) }
    }

    /// Answers. Returns the answer if the caller left or was answered before.
    pub(crate) fn fill(&self, answer: T) -> Result<(), T> {
        let mut state = lock(&self.state);
        let State::Waiting(waker) = &mut *state else { return Err(answer) };
        let waker = waker.take();
        *state = State::Ready(answer);
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// Takes the answer once it is there. Pending for ever after it was taken.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<T> {
        let mut state = lock(&self.state);
        match &mut *state {
            State::Waiting(Some(waker)) => waker.clone_from(cx.waker()),
            State::Waiting(none) => *none = Some(cx.waker().clone()),
            State::Over => {}
            State::Ready(_) => {
                if let State::Ready(answer) = mem::replace(&mut *state, State::Over) {
                    return Poll::Ready(answer);
                }
            }
        }
        Poll::Pending
    }

    /// Marks the caller as gone. Returns an answer that was not taken.
    pub(crate) fn leave(&self) -> Option<T> {
        match mem::replace(&mut *lock(&self.state), State::Over) {
            State::Ready(answer) => Some(answer),
            State::Waiting(_) | State::Over => None,
        }
    }
}
