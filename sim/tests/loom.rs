//! Models of the places where threads and tasks of the runtime meet: loom tries every order in
//! which two or three of them can act. Each model states what must hold in all of them.
//!
//! They stand here because `build.rs` sets `cfg(windlass_loom)` for this package alone; set for the
//! runtime, it would take everything below it apart too.

#![allow(missing_docs, reason = "a test")]

#[allow(dead_code, unused_imports, reason = "each piece is taken whole, the models use a part")]
#[path = "../../runtime-tokio/src/sync/mod.rs"]
mod sync;

use std::future::poll_fn;
use std::time::Duration;

use loom::future::block_on;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use sync::{Mailbox, NotAdmitted, Outbox, Reply, Slots, Weight};

const ONE: Weight = Weight { items: 1, bytes: 0 };

fn room(items: usize) -> Weight {
    Weight { items, bytes: usize::MAX }
}

/// Runs a model with few enough switches to end, and enough to find what one switch hides.
fn model(run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(run);
}

/// Drains until `until` pieces have come, sleeping in between like the writer.
fn drain(mailbox: &Mailbox<u32>, until: usize) -> Vec<u32> {
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while all.len() < until {
        mailbox.drain(&mut batch, Weight::default());
        all.append(&mut batch);
        if all.len() < until {
            mailbox.sleep(None);
        }
    }
    all
}

#[test]
fn loom_mail_that_is_pushed_wakes_the_writer_and_keeps_its_order() {
    model(|| {
        let mailbox = Arc::new(Mailbox::new(room(9)));
        let other = Arc::clone(&mailbox);
        let pusher = thread::spawn(move || {
            other.admit(1, ONE, None).unwrap();
            other.report(2).unwrap();
        });
        assert_eq!(drain(&mailbox, 2), [1, 2]);
        pusher.join().unwrap();
    });
}

#[test]
fn loom_a_writer_that_waits_for_more_mail_is_woken_by_the_last_piece() {
    model(|| {
        let mailbox = Arc::new(Mailbox::new(room(9)));
        mailbox.admit(1, ONE, None).unwrap();
        let other = Arc::clone(&mailbox);
        let pusher = thread::spawn(move || {
            other.admit(2, ONE, None).unwrap();
            other.report(3).unwrap();
        });
        // loom knows no time: the wait ends because enough has come, or never.
        mailbox.sleep_until(3, Duration::from_micros(1));
        assert_eq!(drain(&mailbox, 3), [1, 2, 3]);
        pusher.join().unwrap();
    });
}

#[test]
fn loom_a_writer_that_waits_for_more_mail_is_woken_when_the_gate_closes() {
    model(|| {
        let mailbox = Arc::new(Mailbox::new(room(9)));
        let other = Arc::clone(&mailbox);
        let closer = thread::spawn(move || other.close_gate(1));
        mailbox.sleep_until(9, Duration::from_micros(1));
        assert_eq!(drain(&mailbox, 1), [1]);
        closer.join().unwrap();
    });
}

#[test]
fn loom_a_poke_is_never_slept_through() {
    model(|| {
        let mailbox: Arc<Mailbox<u32>> = Arc::new(Mailbox::new(room(9)));
        let other = Arc::clone(&mailbox);
        let poker = thread::spawn(move || other.wake_writer());
        // Whether the wake_writer comes before or during the sleep, the sleep ends.
        mailbox.sleep(None);
        poker.join().unwrap();
    });
}

#[test]
fn loom_a_caller_that_waits_for_room_gets_it() {
    model(|| {
        let mailbox = Arc::new(Mailbox::new(room(1)));
        mailbox.admit(1, ONE, None).unwrap();
        let other = Arc::clone(&mailbox);
        let caller = thread::spawn(move || {
            block_on(poll_fn(|cx| match other.admit(2, ONE, Some(cx.waker())) {
                Ok(()) => std::task::Poll::Ready(()),
                Err(NotAdmitted::Full(_)) => std::task::Poll::Pending,
                Err(NotAdmitted::Closed(_)) => unreachable!("it is never closed"),
            }));
        });
        assert_eq!(drain(&mailbox, 2), [1, 2]);
        caller.join().unwrap();
    });
}

#[test]
fn loom_what_the_gate_admits_stands_before_the_last_word_and_nothing_enters_behind_it() {
    const LAST: u32 = 99;
    model(|| {
        let mailbox = Arc::new(Mailbox::new(room(9)));
        let callers: Vec<_> = [1, 2]
            .into_iter()
            .map(|mail| {
                let mailbox = Arc::clone(&mailbox);
                thread::spawn(move || mailbox.admit(mail, ONE, None).is_ok())
            })
            .collect();
        mailbox.close_gate(LAST);
        let admitted = callers.into_iter().map(|caller| caller.join().unwrap());
        let admitted = admitted.filter(|admitted| *admitted).count();
        let mut mail = Vec::new();
        mailbox.drain(&mut mail, Weight::default());
        let last = mail.iter().position(|mail| *mail == LAST).unwrap();
        assert_eq!(last, admitted, "nothing that was admitted stands behind the last word");
        assert_eq!(mail.len(), admitted + 1, "nothing that was admitted is lost");
    });
}

#[test]
fn loom_mail_is_read_or_returned_by_the_close_or_refused_and_never_lost() {
    model(|| {
        let mailbox = Arc::new(Mailbox::new(room(9)));
        let other = Arc::clone(&mailbox);
        let pusher = thread::spawn(move || {
            let admitted = other.admit(1, ONE, None).is_ok();
            let reported = other.report(2).is_ok();
            usize::from(admitted) + usize::from(reported)
        });
        let mut read = Vec::new();
        mailbox.drain(&mut read, Weight::default());
        read.append(&mut mailbox.close());
        let taken = pusher.join().unwrap();
        assert_eq!(read.len(), taken);
    });
}

#[test]
fn loom_every_batch_reaches_the_delivery_task() {
    model(|| {
        let outbox = Arc::new(Outbox::new());
        let other = Arc::clone(&outbox);
        let writer = thread::spawn(move || {
            assert!(other.send(&mut vec![1]));
            assert!(other.send(&mut vec![2]));
            other.finish();
        });
        let (mut all, mut batch) = (Vec::new(), Vec::new());
        while block_on(poll_fn(|cx| outbox.poll_take(cx, &mut batch))) {
            all.append(&mut batch);
        }
        assert_eq!(all, [1, 2]);
        writer.join().unwrap();
    });
}

#[test]
fn loom_a_batch_is_taken_or_left_to_the_one_that_leaves_or_stays_with_the_sender() {
    model(|| {
        let outbox = Arc::new(Outbox::new());
        let other = Arc::clone(&outbox);
        let writer = thread::spawn(move || {
            let mut batch = vec![1];
            other.send(&mut batch);
            batch.len()
        });
        let left = outbox.leave().len();
        let kept = writer.join().unwrap();
        assert_eq!(left + kept, 1);
    });
}

#[test]
fn loom_a_run_that_is_put_in_line_wakes_a_worker() {
    model(|| {
        let slots = Arc::new(Slots::new(1));
        let other = Arc::clone(&slots);
        let worker = thread::spawn(move || block_on(poll_fn(|cx| other.poll_next(0, cx))));
        assert!(slots.put(&mut vec![7]));
        assert_eq!(worker.join().unwrap(), Some(7));
    });
}

#[test]
fn loom_a_run_is_taken_by_one_worker_or_stays_with_the_one_that_came_too_late() {
    model(|| {
        let slots = Arc::new(Slots::new(2));
        let ran = Arc::new(AtomicUsize::new(0));
        let workers: Vec<_> = (0..2)
            .map(|worker| {
                let (slots, ran) = (Arc::clone(&slots), Arc::clone(&ran));
                thread::spawn(move || {
                    while block_on(poll_fn(|cx| slots.poll_next(worker, cx))).is_some() {
                        ran.fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        let mut late = vec![7];
        slots.put(&mut late);
        slots.close();
        // Both workers leave: had a wake-up been lost, this would never end.
        for worker in workers {
            worker.join().unwrap();
        }
        assert_eq!(ran.load(Ordering::SeqCst) + late.len(), 1);
    });
}

#[test]
fn loom_runs_put_in_line_while_the_line_is_abandoned_are_run_or_returned() {
    model(|| {
        let slots = Arc::new(Slots::new(1));
        let (line, at_work) = (Arc::clone(&slots), Arc::clone(&slots));
        let delivery = thread::spawn(move || {
            let mut runs = vec![1, 2];
            line.put(&mut runs);
            runs.len()
        });
        let worker = thread::spawn(move || {
            let mut ran = 0;
            while block_on(poll_fn(|cx| at_work.poll_next(0, cx))).is_some() {
                ran += 1;
            }
            ran
        });
        let returned = slots.abandon().len();
        let refused = delivery.join().unwrap();
        assert_eq!(returned + refused + worker.join().unwrap(), 2);
    });
}

#[test]
fn loom_a_worker_too_many_leaves_and_a_run_in_line_is_run_all_the_same() {
    model(|| {
        let slots = Arc::new(Slots::new(2));
        let workers: Vec<_> = (0..2)
            .map(|worker| {
                let slots = Arc::clone(&slots);
                thread::spawn(move || {
                    let mut ran = 0;
                    while block_on(poll_fn(|cx| slots.poll_next(worker, cx))).is_some() {
                        ran += 1;
                    }
                    ran
                })
            })
            .collect();
        assert!(slots.put(&mut vec![7]));
        assert!(slots.resize(1).is_empty());
        slots.close();
        let ran: i32 = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
        assert_eq!(ran, 1);
    });
}

#[test]
fn loom_a_worker_that_leaves_is_replaced_or_stays_when_there_are_to_be_more_again() {
    model(|| {
        let slots = Arc::new(Slots::new(1));
        let work = |slots: Arc<Slots<u32>>| {
            thread::spawn(move || block_on(poll_fn(|cx| slots.poll_next(0, cx))))
        };
        let first = work(Arc::clone(&slots));
        assert!(slots.resize(0).is_empty());
        let more = slots.resize(1);
        assert!(slots.put(&mut vec![7]));
        // It has left, and another one comes; or it has not, and stays.
        let second = more.iter().map(|_| work(Arc::clone(&slots))).collect::<Vec<_>>();
        let ran = first.join().unwrap();
        let ran = second.into_iter().filter_map(|worker| worker.join().unwrap()).chain(ran);
        assert_eq!(ran.collect::<Vec<_>>(), [7]);
    });
}

#[test]
fn loom_an_answer_reaches_the_caller_who_waits() {
    model(|| {
        let reply = Arc::new(Reply::new());
        let other = Arc::clone(&reply);
        let answerer = thread::spawn(move || other.fill(5).unwrap());
        assert_eq!(block_on(poll_fn(|cx| reply.poll(cx))), 5);
        answerer.join().unwrap();
    });
}

#[test]
fn loom_an_answer_to_a_caller_who_leaves_comes_back_to_exactly_one() {
    model(|| {
        let reply = Arc::new(Reply::new());
        let other = Arc::clone(&reply);
        let answerer = thread::spawn(move || other.fill(5).is_err());
        let found = reply.leave().is_some();
        let came_back = answerer.join().unwrap();
        assert!(found != came_back, "found: {found}, came back: {came_back}");
    });
}

#[test]
fn loom_of_two_answers_one_is_taken_and_one_comes_back() {
    model(|| {
        let reply = Arc::new(Reply::new());
        let other = Arc::clone(&reply);
        // The writer answers while the watchdog gives up on it.
        let watchdog = thread::spawn(move || other.fill(1).is_ok());
        let writer = reply.fill(2).is_ok();
        assert!(writer != watchdog.join().unwrap());
        block_on(poll_fn(|cx| reply.poll(cx)));
    });
}
