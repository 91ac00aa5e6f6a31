//! How long the writer waits after a commit for those it has just answered.
//!
//! Whoever was answered may ask again at once: a producer in a loop, a handler that is done within
//! microseconds. If the writer went on without them, they would have to wait for the commit after
//! the next; everybody would end up in one of two halves that take turns, each paying for a sync of
//! its own. Waiting brings the halves together. It pays if they come back sooner than a sync takes,
//! which is tried out: where it does not pay, the writer goes on at once, and tries again later.

use std::time::Duration;

/// What was learnt about those who come back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupCommit {
    /// Of sixteen that were answered, so many come back in time.
    share: usize,
    /// How much mail was there before anybody was answered.
    there: usize,
    /// How many were answered, or given something to do, after the last commit.
    answered: usize,
    /// What a commit costs, whatever it holds: mostly its sync.
    sync: Duration,
    /// How many commits to go on at once.
    pause: u32,
    /// How long the next pause is; it doubles with each wait in a row that did not pay.
    next_pause: u32,
    /// How many waits for this share have paid since it was last changed.
    paid: u32,
    /// Whether the latest wait was a short one.
    short: bool,
}

/// What to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait {
    /// So much mail in all.
    pub(crate) mail: usize,
    /// No longer than this.
    pub(crate) at_most: Duration,
    /// Whether it is not worth going to sleep: being woken would take as long as the wait.
    pub(crate) awake: bool,
}

/// All, in sixteenths.
const ALL: usize = 16;

/// After so many waits in a row that paid, more are expected to come back.
const SURE: u32 = 16;

/// What a command takes, roughly, beside the sync. On a machine that is faster, or slower, large
/// batches wait a little less than would pay, or more. Better too little than too much: what is
/// taken for work is not waited for, and those who were answered fall into two halves.
const COMMAND: Duration = Duration::from_micros(1);

/// More than this share a sync well enough as they are.
const MANY: usize = 512;

/// The longest wait, whatever a sync costs: a disk that stood still once is not waited for.
const LONGEST: Duration = Duration::from_millis(5);

/// So few are waited for without going to sleep, if they came back soon the last time.
const FEW: usize = 4;

/// What coming back soon is: little more than it takes to be woken.
const SOON: Duration = Duration::from_micros(100);

/// The most commits between two trials.
const LONGEST_PAUSE: u32 = 64;

impl Default for GroupCommit {
    fn default() -> Self {
        let sync = Duration::ZERO;
        let (there, answered, pause, next_pause, paid) = (0, 0, 0, 1, 0);
        Self { share: ALL, there, answered, sync, pause, next_pause, paid, short: false }
    }
}

impl GroupCommit {
    /// A commit of so many commands took this long.
    pub(crate) fn committed(&mut self, commands: usize, took: Duration) {
        let work = COMMAND.saturating_mul(u32::try_from(commands).unwrap_or(u32::MAX));
        self.sync = (self.sync * 7 + took.saturating_sub(work).min(LONGEST)) / 8;
    }

    /// A commit is about to be answered; so much mail is there.
    pub(crate) fn answers(&mut self, there: usize) {
        (self.there, self.answered) = (there, 0);
    }

    /// One more was answered, or given something to do.
    pub(crate) fn answered(&mut self) {
        self.answered += 1;
    }

    /// What to wait for before the next commit.
    pub(crate) fn wait(&mut self) -> Option<Wait> {
        if self.answered == 0 || self.answered > MANY {
            return None;
        }
        if self.pause > 0 {
            self.pause -= 1;
            return None;
        }
        let back = (self.answered * self.share).div_ceil(ALL);
        let awake = self.short && self.answered <= FEW;
        Some(Wait { mail: self.there + back, at_most: self.saved_by(self.share, ALL), awake })
    }

    /// The wait took this long, and so much mail is there now.
    pub(crate) fn came(&mut self, mail: usize, took: Duration) {
        self.short = took <= SOON;
        let back = mail.saturating_sub(self.there);
        let share = (back * ALL / self.answered.max(1)).clamp(1, ALL);
        if back > 0 && self.saved_by(back, self.answered) >= took {
            self.next_pause = 1;
            self.paid += 1;
            if share < self.share {
                self.expect(share);
            } else if self.paid >= SURE {
                self.expect(self.share + 1);
            }
        } else if back > 0 && share < self.share {
            // Those who did come back may be worth waiting for without the others.
            self.expect(share);
        } else {
            self.pause = self.next_pause;
            self.next_pause = (2 * self.next_pause).min(LONGEST_PAUSE);
            self.expect(ALL);
        }
    }

    fn expect(&mut self, share: usize) {
        (self.share, self.paid) = (share.min(ALL), 0);
    }

    /// What those who come back save, of so many in all: their part of a commit.
    fn saved_by(&self, back: usize, all: usize) -> Duration {
        let [back, all] = [back.min(all), all.max(1)].map(|many| u32::try_from(many).unwrap_or(1));
        self.sync * back / all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: Duration = Duration::from_micros(400);

    /// A runtime that has seen many commits of this cost.
    fn settled() -> GroupCommit {
        GroupCommit { sync: SYNC, ..GroupCommit::default() }
    }

    fn after_a_commit(gather: &mut GroupCommit, answered: usize) -> Option<Wait> {
        gather.answers(0);
        (0..answered).for_each(|_| gather.answered());
        gather.wait()
    }

    #[test]
    fn after_an_answer_it_waits_for_whom_it_answered_for_as_long_as_a_sync() {
        let mut gather = settled();
        assert_eq!(
            after_a_commit(&mut gather, 64),
            Some(Wait { mail: 64, at_most: SYNC, awake: false })
        );
    }

    #[test]
    fn without_an_answer_it_does_not_wait() {
        assert_eq!(after_a_commit(&mut settled(), 0), None);
    }

    #[test]
    fn mail_that_was_there_before_the_answers_does_not_count() {
        let mut gather = settled();
        gather.answers(10);
        (0..64).for_each(|_| gather.answered());
        assert_eq!(gather.wait().map(|wait| wait.mail), Some(74));
        gather.came(58, SYNC / 4);
        assert_eq!(after_a_commit(&mut gather, 64).map(|wait| wait.mail), Some(48), "48 came");
    }

    #[test]
    fn for_very_many_it_does_not_wait() {
        assert!(after_a_commit(&mut settled(), MANY).is_some());
        assert_eq!(after_a_commit(&mut settled(), MANY + 1), None);
    }

    #[test]
    fn it_learns_how_many_come_back_and_that_more_do_once_it_is_sure() {
        let mut gather = settled();
        after_a_commit(&mut gather, 64);
        gather.came(48, SYNC);
        let wait = Wait { mail: 48, at_most: SYNC * 12 / 16, awake: false };
        for _ in 0..SURE {
            assert_eq!(after_a_commit(&mut gather, 64), Some(wait));
            gather.came(48, SYNC / 2);
        }
        assert_eq!(after_a_commit(&mut gather, 64).map(|wait| wait.mail), Some(52));
    }

    #[test]
    fn those_who_come_back_are_waited_for_though_others_never_do() {
        let mut gather = settled();
        let mut waits = Vec::new();
        for _ in 0..100 {
            let Some(wait) = after_a_commit(&mut gather, 64) else { continue };
            waits.push(wait.mail);
            // Half of them come back at once, the others do something that takes long.
            gather.came(32, if wait.mail <= 32 { SYNC / 8 } else { wait.at_most });
        }
        assert_eq!(waits.len(), 100, "it never leaves off");
        assert!(waits.iter().filter(|mail| **mail == 32).count() > 90, "{waits:?}");
    }

    #[test]
    fn where_too_few_come_back_it_goes_on_at_once_and_tries_ever_more_rarely() {
        let mut gather = settled();
        for pause in [1, 2, 4, 8, 16, 32, 64, 64] {
            assert_eq!(after_a_commit(&mut gather, 64).map(|wait| wait.mail), Some(64));
            gather.came(0, SYNC);
            for _ in 0..pause {
                assert_eq!(after_a_commit(&mut gather, 64), None);
            }
        }
        after_a_commit(&mut gather, 64);
        gather.came(64, SYNC / 2);
        after_a_commit(&mut gather, 64);
        gather.came(0, SYNC);
        assert_eq!(after_a_commit(&mut gather, 64), None);
        assert!(after_a_commit(&mut gather, 64).is_some());
    }

    #[test]
    fn those_who_trickle_in_are_soon_not_waited_for() {
        let mut gather = settled();
        let trials = (0..100).take_while(|_| {
            let Some(wait) = after_a_commit(&mut gather, 64) else { return false };
            // A quarter of those that a sync would save come in its time.
            let came = wait.mail / 4;
            gather.came(came, wait.at_most);
            true
        });
        assert!(trials.count() <= 5);
    }

    #[test]
    fn few_who_do_not_come_back_are_tried_again_later() {
        let mut gather = settled();
        let waits = (0..1_000).filter(|_| {
            let waits = after_a_commit(&mut gather, 1).is_some();
            if waits {
                gather.came(0, Duration::ZERO);
            }
            waits
        });
        assert!((10..50).contains(&waits.count()));
    }

    #[test]
    fn it_stays_awake_for_few_who_came_back_soon() {
        let mut gather = settled();
        let awake = |gather: &mut GroupCommit, answered| {
            after_a_commit(gather, answered).is_some_and(|wait| wait.awake)
        };
        assert!(!awake(&mut gather, FEW), "it has never seen them come back");
        gather.came(FEW, SOON);
        assert!(awake(&mut gather, FEW));
        assert!(!awake(&mut gather, FEW + 1));
        gather.came(FEW + 1, 2 * SOON);
        assert!(!awake(&mut gather, FEW));
    }

    #[test]
    fn a_commit_that_takes_long_because_it_is_large_does_not_make_it_wait_longer() {
        let mut gather = settled();
        gather.committed(1_000, SYNC + 1_000 * COMMAND);
        let wait = Wait { mail: 1, at_most: SYNC, awake: false };
        assert_eq!(after_a_commit(&mut gather, 1), Some(wait));
    }

    #[test]
    fn what_a_sync_costs_is_learnt_anew_when_the_disk_becomes_slower() {
        let mut gather = settled();
        (0..100).for_each(|_| gather.committed(10, 10 * SYNC + 10 * COMMAND));
        let wait = after_a_commit(&mut gather, 1).unwrap();
        assert!(wait.at_most > 9 * SYNC, "{wait:?}");
        let before = wait.at_most;
        gather.committed(10, Duration::from_secs(59));
        let wait = after_a_commit(&mut gather, 1).unwrap();
        assert!(wait.at_most < before + LONGEST / 8, "a disk that stood still is not waited for");
    }
}
