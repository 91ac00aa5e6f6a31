//! Figures that are added and folded by two commits at the same time: each is counted once.

use windlass_core::store::{Batch, Purge, Retention};
use windlass_core::{Millis, Span, Wall};

use super::figures::{SLOT, add, assert_total, fold, rows, slot, start};
use crate::concurrent::{ConcurrentSubject, commit_both, in_both_orders};
use crate::fixture::*;

pub fn figures_that_are_added_while_they_are_folded_are_counted_once<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        let at = start(&mut world);
        add(&mut world, 2, at, 1);
        add(&mut world, 3, at, 2);
        world.set_clock(at.plus(Millis::minutes(1)));
        let purge = Purge { retention: Retention::default(), limit: 10 };
        // The first is process 2.
        let add = |batch: &mut Batch| batch.figures.push(slot(at, 4));
        commit_both(&mut world, order, add, |batch| batch.purge = Some(purge));
        assert_total(&mut world, 7);
        fold(&mut world);
        assert_total(&mut world, 7);
        assert_eq!(rows(&mut world)[0], (Span::TenSeconds, at, 0, 7));
    });
}

pub fn figures_that_two_handles_fold_are_counted_once<S: ConcurrentSubject>() {
    in_both_orders(|order| {
        let mut world = World::<S>::new();
        let at = start(&mut world);
        for process in 2..6 {
            add(&mut world, process, at, 1);
            add(&mut world, process, at.plus(SLOT), 1);
        }
        world.set_clock(at.plus(Millis::minutes(1)));
        let purge = Purge { retention: Retention::default(), limit: 10 };
        let purge = |batch: &mut Batch| batch.purge = Some(purge);
        commit_both(&mut world, order, purge, purge);
        assert_total(&mut world, 8);
        fold(&mut world);
        let ten = |at| (Span::TenSeconds, at, 0, 4);
        let total = (Span::Total, Wall::new(0), 0, 8);
        assert_eq!(rows(&mut world), [ten(at), ten(at.plus(SLOT)), total]);
    });
}
