//! Figures: what a process adds is there once, in any span, whichever process folds it and when.

use windlass_core::limits::FIGURE_PAGE;
use windlass_core::store::{
    Admin, Batch, FigureKey, FigureRange, FigureRow, Heartbeat, Purge, Reader, Retention, Settle,
    SlotFigures,
};
use windlass_core::{FigureSet, Figures, Millis, NewJob, ProcessId, Span, Times, Verdict, Wall};

use crate::fixture::*;

pub(super) const SLOT: Millis = Millis::seconds(10);

fn done(done: u64) -> Figures {
    Figures { done, ..Figures::default() }
}

/// What was done in the queue of the cases within the slot of an instant.
pub(super) fn slot(at: Wall, count: u64) -> SlotFigures {
    let mut figures = FigureSet::default();
    figures.count(&queue("main"), &done(count));
    SlotFigures { slot: Span::Live.slot(at), figures }
}

pub(super) fn add<S: Subject>(world: &mut World<S>, process: u64, at: Wall, count: u64) {
    world.act_as(process);
    let out = world.commit(|batch| batch.figures.push(slot(at, count)));
    assert!(out.wrote, "figures are written, though nothing else is");
}

pub(super) fn fold<S: Subject>(world: &mut World<S>) -> bool {
    world.purge(Retention::default(), 10).more
}

/// The keys of all rows, and how many jobs were done by each.
pub(super) fn rows<S: Subject>(world: &mut World<S>) -> Vec<(Span, Wall, u64, u64)> {
    let row = |row: &FigureRow| {
        let FigureKey { span, slot, process: ProcessId(process) } = row.key;
        let set = FigureSet::from_bytes(&row.data).expect("figures can be read");
        (span, slot, process, set.sum().done)
    };
    world.dump().figures.iter().map(row).collect()
}

#[track_caller]
pub(super) fn assert_total<S: Subject>(world: &mut World<S>, expected: u64) {
    let total = FigureSet::totals(&mut world.reader()).expect("a healthy store can be read");
    assert_eq!(total.sum().done, expected);
}

/// An instant at which a slot of every span starts.
pub(super) fn start<S: Subject>(world: &mut World<S>) -> Wall {
    let start = Span::HalfHour.slot(world.now()).plus(Millis::minutes(30));
    world.set_clock(start);
    start
}

pub fn figures_that_are_added_to_a_slot_are_summed_and_survive_a_crash<S: Subject>() {
    let mut world = World::<S>::new();
    let at = start(&mut world);
    add(&mut world, 1, at, 2);
    add(&mut world, 1, at.plus(Millis::new(9_999)), 3);
    add(&mut world, 1, at.plus(SLOT), 7);
    world.reopen();
    let live = [(Span::Live, at, 1, 5), (Span::Live, at.plus(SLOT), 1, 7)];
    assert_eq!(rows(&mut world), live);
    assert_total(&mut world, 12);
}

pub fn each_process_has_rows_of_its_own_and_all_are_summed<S: Subject>() {
    let mut world = World::<S>::new();
    let at = start(&mut world);
    add(&mut world, 7, at, 2);
    add(&mut world, u64::MAX, at, 3);
    assert_eq!(rows(&mut world), [(Span::Live, at, 7, 2), (Span::Live, at, u64::MAX, 3)]);
    assert_total(&mut world, 5);
}

pub fn old_figures_are_folded_into_longer_spans_and_the_total_stays<S: Subject>() {
    let mut world = World::<S>::new();
    let at = start(&mut world);
    add(&mut world, 1, at, 1);
    add(&mut world, 2, at, 2);
    add(&mut world, 1, at.plus(SLOT), 4);
    add(&mut world, 1, at.plus(Millis::minutes(6)), 8);
    let total = (Span::Total, Wall::new(0), 0, 15);
    world.set_clock(at.plus(Millis::minutes(7)));
    fold(&mut world);
    let six = at.plus(Millis::minutes(6));
    let ten = |at, count| (Span::TenSeconds, at, 0, count);
    assert_eq!(rows(&mut world), [ten(at, 3), ten(at.plus(SLOT), 4), ten(six, 8), total]);
    world.set_clock(at.plus(Millis::minutes(90)));
    fold(&mut world);
    let five = |at, count| (Span::FiveMinutes, at, 0, count);
    let second = at.plus(Millis::minutes(5));
    assert_eq!(rows(&mut world), [five(at, 7), five(second, 8), total]);
    world.set_clock(at.plus(Millis::hours(30)));
    fold(&mut world);
    assert_eq!(rows(&mut world), [(Span::HalfHour, at, 0, 15), total]);
    world.set_clock(at.plus(Millis::days(31)));
    fold(&mut world);
    assert_eq!(rows(&mut world), [total]);
    assert_total(&mut world, 15);
}

pub fn figures_of_a_slot_that_is_not_long_over_are_not_folded<S: Subject>() {
    let mut world = World::<S>::new();
    let at = start(&mut world);
    add(&mut world, 1, at, 1);
    world.set_clock(at.plus(Millis::new(29_999)));
    fold(&mut world);
    assert_eq!(rows(&mut world), [(Span::Live, at, 1, 1)]);
    world.set_clock(at.plus(Millis::seconds(30)));
    fold(&mut world);
    assert_eq!(rows(&mut world)[0], (Span::TenSeconds, at, 0, 1));
}

pub fn figures_that_come_late_are_folded_like_the_others<S: Subject>() {
    let mut world = World::<S>::new();
    let at = start(&mut world);
    add(&mut world, 1, at, 1);
    world.set_clock(at.plus(Millis::minutes(1)));
    fold(&mut world);
    add(&mut world, 1, at, 2);
    assert_total(&mut world, 3);
    // Added and folded by one batch.
    let purge = Purge { retention: Retention::default(), limit: 10 };
    world.commit(|batch| {
        batch.figures.push(slot(at, 4));
        batch.purge = Some(purge);
    });
    assert_eq!(rows(&mut world), [(Span::TenSeconds, at, 0, 7), (Span::Total, Wall::new(0), 0, 7)]);
    assert_total(&mut world, 7);
}

pub fn figures_are_folded_page_by_page<S: Subject>() {
    let mut world = World::<S>::alone();
    let at = start(&mut world);
    let slots = FIGURE_PAGE as u64 + 5;
    let nth = |n| slot(at.plus(SLOT.times(n)), 1);
    world.commit(|batch| batch.figures.extend((0..slots).map(nth)));
    world.set_clock(at.plus(Millis::hours(1)));
    assert!(fold(&mut world), "a full page says that there may be more");
    let live = |rows: &[(Span, Wall, u64, u64)]| {
        rows.iter().filter(|(span, ..)| *span == Span::Live).count()
    };
    assert_eq!(live(&rows(&mut world)), 5);
    assert_total(&mut world, slots);
    assert!(!fold(&mut world));
    assert_eq!(live(&rows(&mut world)), 0);
    assert_total(&mut world, slots);
}

pub fn a_range_of_figures_begins_with_its_start_and_ends_before_its_end<S: Subject>() {
    let mut world = World::<S>::new();
    let at = start(&mut world);
    for n in 0..4 {
        add(&mut world, 1, at.plus(SLOT.times(n)), 1 << n);
    }
    let mut read = |span, from, to| -> Vec<Wall> {
        let rows = world.reader().figures(&[FigureRange { span, from, to }]);
        rows.expect("a healthy store can be read").iter().map(|row| row.key.slot).collect()
    };
    let (second, third) = (at.plus(SLOT), at.plus(SLOT.times(2)));
    assert_eq!(read(Span::Live, second, at.plus(SLOT.times(3))), [second, third]);
    assert_eq!(read(Span::Live, second, second), []);
    assert_eq!(read(Span::Live, third, second), []);
    assert_eq!(read(Span::TenSeconds, Wall::new(i64::MIN), Wall::MAX), []);
}

pub fn past_figures_are_reported_in_steps_whatever_span_they_are_kept_in<S: Subject>() {
    let mut world = World::<S>::new();
    let at = start(&mut world);
    add(&mut world, 1, at, 1);
    add(&mut world, 1, at.plus(Millis::minutes(5)), 2);
    world.set_clock(at.plus(Millis::minutes(80)));
    fold(&mut world);
    fold(&mut world);
    let now = world.now();
    add(&mut world, 2, now, 4);
    let step = Millis::minutes(5);
    let end = now.plus(Millis::new(1));
    let history = FigureSet::history(&mut world.reader(), at, end, step);
    let history = history.expect("a healthy store can be read");
    let done: Vec<u64> = history.iter().map(|set| set.sum().done).collect();
    assert_eq!((done.len(), &done[..2], done[16]), (17, &[1, 2][..], 4));
    assert_eq!(done.iter().sum::<u64>(), 7);
    let minute = FigureSet::last_minute(&mut world.reader(), now.plus(Millis::seconds(65)));
    let (set, length) = minute.expect("a healthy store can be read");
    assert_eq!((set.sum().done, length), (4, Millis::seconds(65)));
    let minute = FigureSet::last_minute(&mut world.reader(), now.plus(Millis::seconds(70)));
    assert_eq!(minute.expect("a healthy store can be read").0.sum().done, 0);
}

/// What a batch says it did to the jobs of the case's queue.
fn did<S: Subject>(world: &mut World<S>, fill: impl FnOnce(&mut Batch)) -> Figures {
    let mut sum = Figures::default();
    for (name, figures) in world.commit(fill).figures {
        assert_eq!(name, queue("main"), "no other queue is touched");
        sum.add(&figures);
    }
    sum
}

pub fn a_batch_tells_what_it_did_to_jobs<S: Subject>() {
    let mut world = World::<S>::new();
    let figures = did(&mut world, |batch| batch.enqueues.push(work_keyed("k")));
    assert_eq!(figures, Figures { enqueued: 1, ..Figures::default() });
    let figures = did(&mut world, |batch| batch.enqueues.push(work_keyed("k")));
    assert_eq!(figures, Figures { deduplicated: 1, ..Figures::default() });
    world.advance(Millis::new(3));
    let mut expected = Figures { started: 1, ..Figures::default() };
    expected.wait.record(Millis::new(3));
    let claim = |batch: &mut Batch| batch.claims.push(claim_for(main_work(), "w1", 1));
    assert_eq!(did(&mut world, claim), expected);
    let mut ran = Times::default();
    ran.record(Millis::new(5));
    let verdicts = [
        (snooze(Millis::hours(1)), Figures { snoozed: 1, ..Figures::default() }),
        (fail("x"), Figures { retried: 1, run: ran.clone(), ..Figures::default() }),
        (fail_for_good("x"), Figures { failed: 1, run: ran.clone(), ..Figures::default() }),
        (complete(), Figures { done: 1, run: ran, ..Figures::default() }),
        (Verdict::Release, Figures { released: 1, ..Figures::default() }),
    ];
    for (verdict, expected) in verdicts {
        let token = world.running(work()).job.token();
        world.advance(Millis::new(5));
        let settle = Settle { token, verdict };
        assert_eq!(did(&mut world, |batch| batch.settles.push(settle.clone())), expected);
        let again = did(&mut world, |batch| batch.settles.push(settle));
        assert!(again.is_empty(), "a repeated report counts once");
    }
}

pub fn a_lease_that_expires_is_counted_and_its_time_is_not<S: Subject>() {
    let mut world = World::<S>::alone();
    let new = NewJob { max_retries: Some(retries(1)), ..work() };
    let first = world.running(new);
    world.advance(first.job.visibility_timeout.millis());
    let reap = |batch: &mut Batch| batch.reap = Some(reap_up_to(9));
    let expected = Figures { retried: 1, expired: 1, ..Figures::default() };
    assert_eq!(did(&mut world, reap), expected);
    world.claim_one("w2");
    world.advance(first.job.visibility_timeout.millis());
    let expected = Figures { failed: 1, expired: 1, ..Figures::default() };
    assert_eq!(did(&mut world, reap), expected);
}

pub fn heartbeats_replays_and_removals_are_not_counted<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    let heartbeat = Heartbeat { token, extend: None, progress: None };
    assert!(did(&mut world, |batch| batch.heartbeats.push(heartbeat)).is_empty());
    let cancelled = Figures { cancelled: 1, ..Figures::default() };
    let cancel = |batch: &mut Batch| batch.admin.push(Admin::Cancel(token.job));
    assert_eq!(did(&mut world, cancel), cancelled);
    assert!(did(&mut world, cancel).is_empty(), "it was cancelled already");
    assert!(did(&mut world, |batch| batch.admin.push(Admin::Replay(token.job))).is_empty());
    assert_eq!(did(&mut world, cancel), cancelled);
    assert!(did(&mut world, |batch| batch.admin.push(Admin::Delete(token.job))).is_empty());
}
