//! How long the writer waits after a commit for the next requests of the callers it just answered.
//!
//! An answered caller often sends its next request at once: a producer in a loop, a handler that
//! takes microseconds. If the writer committed without them, callers would split into two groups
//! that alternate, each paying for an fsync of its own. A short wait brings the groups together. It
//! pays if the callers return sooner than an fsync takes. This is measured: where the wait does not
//! pay, the writer skips it for a growing number of commits, then tries again.

use std::time::Duration;

/// The estimates by which the writer waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupCommit {
    /// Expected share of answered callers that return in time, in sixteenths.
    share: usize,
    /// Messages in the mailbox before the answers of the last commit were sent.
    mail_before: usize,
    /// Callers answered and runs started after the last commit.
    answered: usize,
    /// Estimated fixed cost of a commit, mostly its fsync.
    sync: Duration,
    /// Number of commits for which the wait is skipped.
    pause: u32,
    /// Length of the next pause; doubles with each consecutive wait that did not pay.
    next_pause: u32,
    /// Number of waits that paid since `share` was changed.
    paid: u32,
    /// Whether the last wait took at most [`SHORT_WAIT`].
    last_was_short: bool,
}

/// A wait for mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait {
    /// Total number of messages that ends the wait.
    pub(crate) mail: usize,
    pub(crate) at_most: Duration,
    /// Spin before sleeping: a wake-up would take as long as the wait.
    pub(crate) awake: bool,
}

/// The unit of `share`: all callers return.
const FULL_SHARE: usize = 16;

/// After this many consecutive waits that paid, `share` is raised by one.
const WAITS_BEFORE_RAISE: u32 = 16;

/// Estimated cost of one command in a commit, without the fsync. A value too large makes large
/// batches wait too little and callers split into two groups; a value too small makes them wait
/// slightly longer than pays.
const COMMAND_COST: Duration = Duration::from_micros(1);

/// With more answered callers than this the writer does not wait: each batch is large enough.
const MAX_AWAITED: usize = 512;

/// Upper bound of a wait, whatever an fsync costs, so that one stalled fsync does not delay others.
const MAX_WAIT: Duration = Duration::from_millis(5);

/// The writer spins for at most this many callers.
const MAX_SPUN_FOR: usize = 4;

/// A wait up to this length is short: little more than a wake-up takes.
const SHORT_WAIT: Duration = Duration::from_micros(100);

/// Maximum number of commits between two waits that are tried out.
const MAX_PAUSE: u32 = 64;

impl Default for GroupCommit {
    fn default() -> Self {
        let sync = Duration::ZERO;
        let (mail_before, answered, pause, next_pause, paid) = (0, 0, 0, 1, 0);
        Self {
            share: FULL_SHARE,
            mail_before,
            answered,
            sync,
            pause,
            next_pause,
            paid,
            last_was_short: false,
        }
    }
}

impl GroupCommit {
    /// Updates the estimate of the fsync cost from one commit.
    pub(crate) fn committed(&mut self, commands: usize, took: Duration) {
        let work = COMMAND_COST.saturating_mul(u32::try_from(commands).unwrap_or(u32::MAX));
        self.sync = (self.sync * 7 + took.saturating_sub(work).min(MAX_WAIT)) / 8;
    }

    /// The answers of a commit are about to be sent, with this many messages in the mailbox.
    pub(crate) fn begin_answers(&mut self, mail_before: usize) {
        (self.mail_before, self.answered) = (mail_before, 0);
    }

    /// Counts one answered caller or started run.
    pub(crate) fn answered(&mut self) {
        self.answered += 1;
    }

    /// The wait before the next commit; `None` to commit at once.
    pub(crate) fn wait(&mut self) -> Option<Wait> {
        if self.answered == 0 || self.answered > MAX_AWAITED {
            return None;
        }
        if self.pause > 0 {
            self.pause -= 1;
            return None;
        }
        let back = (self.answered * self.share).div_ceil(FULL_SHARE);
        let awake = self.last_was_short && self.answered <= MAX_SPUN_FOR;
        Some(Wait {
            mail: self.mail_before + back,
            at_most: self.saved_by(self.share, FULL_SHARE),
            awake,
        })
    }

    /// Learns from a wait: how long it took, and the number of messages after it.
    pub(crate) fn record_wait(&mut self, mail: usize, took: Duration) {
        self.last_was_short = took <= SHORT_WAIT;
        let back = mail.saturating_sub(self.mail_before);
        let share = (back * FULL_SHARE / self.answered.max(1)).clamp(1, FULL_SHARE);
        if back > 0 && self.saved_by(back, self.answered) >= took {
            self.next_pause = 1;
            self.paid += 1;
            if share < self.share {
                self.expect(share);
            } else if self.paid >= WAITS_BEFORE_RAISE {
                self.expect(self.share + 1);
            }
        } else if back > 0 && share < self.share {
            // The callers that did return may be worth waiting for without the others.
            self.expect(share);
        } else {
            self.pause = self.next_pause;
            self.next_pause = (2 * self.next_pause).min(MAX_PAUSE);
            self.expect(FULL_SHARE);
        }
    }

    fn expect(&mut self, share: usize) {
        (self.share, self.paid) = (share.min(FULL_SHARE), 0);
    }

    /// The time that `back` of `all` callers save by sharing the commit: their part of an fsync.
    fn saved_by(&self, back: usize, all: usize) -> Duration {
        let [back, all] = [back.min(all), all.max(1)].map(|many| u32::try_from(many).unwrap_or(1));
        self.sync * back / all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: Duration = Duration::from_micros(400);

    /// The state after many commits with this fsync cost.
    fn settled() -> GroupCommit {
        GroupCommit { sync: SYNC, ..GroupCommit::default() }
    }

    fn after_a_commit(group: &mut GroupCommit, answered: usize) -> Option<Wait> {
        group.begin_answers(0);
        (0..answered).for_each(|_| group.answered());
        group.wait()
    }

    #[test]
    fn it_waits_for_the_callers_it_answered_at_most_as_long_as_an_fsync() {
        let mut group = settled();
        assert_eq!(
            after_a_commit(&mut group, 64),
            Some(Wait { mail: 64, at_most: SYNC, awake: false })
        );
    }

    #[test]
    fn without_an_answer_it_does_not_wait() {
        assert_eq!(after_a_commit(&mut settled(), 0), None);
    }

    #[test]
    fn mail_that_was_there_before_the_answers_does_not_count() {
        let mut group = settled();
        group.begin_answers(10);
        (0..64).for_each(|_| group.answered());
        assert_eq!(group.wait().map(|wait| wait.mail), Some(74));
        group.record_wait(58, SYNC / 4);
        assert_eq!(after_a_commit(&mut group, 64).map(|wait| wait.mail), Some(48), "48 returned");
    }

    #[test]
    fn it_does_not_wait_for_more_than_the_limit() {
        assert!(after_a_commit(&mut settled(), MAX_AWAITED).is_some());
        assert_eq!(after_a_commit(&mut settled(), MAX_AWAITED + 1), None);
    }

    #[test]
    fn it_learns_the_share_that_returns_and_raises_it_after_waits_that_paid() {
        let mut group = settled();
        after_a_commit(&mut group, 64);
        group.record_wait(48, SYNC);
        let wait = Wait { mail: 48, at_most: SYNC * 12 / 16, awake: false };
        for _ in 0..WAITS_BEFORE_RAISE {
            assert_eq!(after_a_commit(&mut group, 64), Some(wait));
            group.record_wait(48, SYNC / 2);
        }
        assert_eq!(after_a_commit(&mut group, 64).map(|wait| wait.mail), Some(52));
    }

    #[test]
    fn callers_that_return_are_waited_for_even_if_others_never_do() {
        let mut group = settled();
        let mut waits = Vec::new();
        for _ in 0..100 {
            let Some(wait) = after_a_commit(&mut group, 64) else { continue };
            waits.push(wait.mail);
            // Half of them return at once, the others take long.
            group.record_wait(32, if wait.mail <= 32 { SYNC / 8 } else { wait.at_most });
        }
        assert_eq!(waits.len(), 100, "it waits after every commit");
        assert!(waits.iter().filter(|mail| **mail == 32).count() > 90, "{waits:?}");
    }

    #[test]
    fn if_too_few_return_it_skips_waits_in_growing_pauses() {
        let mut group = settled();
        for pause in [1, 2, 4, 8, 16, 32, 64, 64] {
            assert_eq!(after_a_commit(&mut group, 64).map(|wait| wait.mail), Some(64));
            group.record_wait(0, SYNC);
            for _ in 0..pause {
                assert_eq!(after_a_commit(&mut group, 64), None);
            }
        }
        after_a_commit(&mut group, 64);
        group.record_wait(64, SYNC / 2);
        after_a_commit(&mut group, 64);
        group.record_wait(0, SYNC);
        assert_eq!(after_a_commit(&mut group, 64), None);
        assert!(after_a_commit(&mut group, 64).is_some());
    }

    #[test]
    fn callers_that_return_slowly_are_soon_not_waited_for() {
        let mut group = settled();
        let trials = (0..100).take_while(|_| {
            let Some(wait) = after_a_commit(&mut group, 64) else { return false };
            // A quarter of the callers returns within an fsync.
            let returned = wait.mail / 4;
            group.record_wait(returned, wait.at_most);
            true
        });
        assert!(trials.count() <= 5);
    }

    #[test]
    fn callers_that_do_not_return_are_tried_again_later() {
        let mut group = settled();
        let waits = (0..1_000).filter(|_| {
            let waits = after_a_commit(&mut group, 1).is_some();
            if waits {
                group.record_wait(0, Duration::ZERO);
            }
            waits
        });
        assert!((10..50).contains(&waits.count()));
    }

    #[test]
    fn it_spins_for_few_callers_that_returned_quickly() {
        let mut group = settled();
        let awake = |group: &mut GroupCommit, answered| {
            after_a_commit(group, answered).is_some_and(|wait| wait.awake)
        };
        assert!(!awake(&mut group, MAX_SPUN_FOR), "no wait was measured yet");
        group.record_wait(MAX_SPUN_FOR, SHORT_WAIT);
        assert!(awake(&mut group, MAX_SPUN_FOR));
        assert!(!awake(&mut group, MAX_SPUN_FOR + 1));
        group.record_wait(MAX_SPUN_FOR + 1, 2 * SHORT_WAIT);
        assert!(!awake(&mut group, MAX_SPUN_FOR));
    }

    #[test]
    fn a_large_commit_does_not_raise_the_estimate_of_an_fsync() {
        let mut group = settled();
        group.committed(1_000, SYNC + 1_000 * COMMAND_COST);
        let wait = Wait { mail: 1, at_most: SYNC, awake: false };
        assert_eq!(after_a_commit(&mut group, 1), Some(wait));
    }

    #[test]
    fn the_estimate_follows_a_disk_that_becomes_slower_but_not_one_stall() {
        let mut group = settled();
        (0..100).for_each(|_| group.committed(10, 10 * SYNC + 10 * COMMAND_COST));
        let wait = after_a_commit(&mut group, 1).unwrap();
        assert!(wait.at_most > 9 * SYNC, "{wait:?}");
        let before = wait.at_most;
        group.committed(10, Duration::from_secs(59));
        let wait = after_a_commit(&mut group, 1).unwrap();
        assert!(wait.at_most < before + MAX_WAIT / 8, "one stall is capped");
    }
}
