//! Figures as bytes: what was written comes back, anything else is refused.

use proptest::collection::vec;
use proptest::prelude::*;
use windlass_core::{FigureSet, Figures, Gauge, Gauges, Millis, QueueName, Wall};

use super::arbitrary::config;

fn figures() -> impl Strategy<Value = Figures> {
    let number = || prop_oneof![Just(0_u64), 0..200_u64, any::<u64>()];
    let counters = (number(), number(), number(), number(), number());
    let more = (number(), number(), number(), number(), number());
    let done = (number(), number(), number(), number());
    (counters, more, done, vec(any::<u64>(), 0..4), vec(0..5_000_u64, 0..4)).prop_map(
        |(counters, more, done, wait, run)| {
            let mut figures = Figures::default();
            (
                figures.enqueued,
                figures.deduplicated,
                figures.started,
                figures.done,
                figures.failed,
            ) = counters;
            (
                figures.cancelled,
                figures.retried,
                figures.released,
                figures.snoozed,
                figures.expired,
            ) = more;
            (figures.paused, figures.resumed, figures.settings, figures.starts) = done;
            for millis in wait {
                figures.wait.record(Millis::new(millis));
            }
            for millis in run {
                figures.run.record(Millis::new(millis));
            }
            figures
        },
    )
}

fn gauge() -> impl Strategy<Value = Gauge> {
    (0..i64::MAX, any::<u64>(), 0..9_u64, any::<u64>()).prop_map(
        |(at, queued, processing, oldest_ms)| Gauge {
            at: Wall::new(at),
            queued,
            processing,
            oldest_ms,
        },
    )
}

fn set() -> impl Strategy<Value = FigureSet> {
    let gauges = (prop::option::of(gauge()), vec(("[a-z]{1,9}", gauge()), 0..4));
    (vec(("[a-z]{1,9}", figures()), 0..6), gauges).prop_map(|(queues, (all, gauges))| {
        let mut set = FigureSet::default();
        let name = |name: String| QueueName::new(&name).expect("it is a name");
        let queues_of = gauges.into_iter().map(|(queue, gauge)| (name(queue), gauge));
        set.gauge(&Gauges { all, queues: queues_of.collect() });
        for (name, figures) in queues {
            set.count(&QueueName::new(&name).expect("it is a name"), &figures);
        }
        set
    })
}

proptest! {
    #![proptest_config(config(500))]

    #[test]
    fn figures_come_back_as_they_went(set in set()) {
        prop_assert_eq!(FigureSet::from_bytes(&set.to_bytes()), Ok(set));
    }

    #[test]
    fn figures_that_were_written_before_there_were_gauges_can_be_read(
        queues in vec(("[a-z]{1,9}", figures()), 0..6),
    ) {
        let mut set = FigureSet::default();
        for (name, figures) in queues {
            set.count(&QueueName::new(&name).expect("it is a name"), &figures);
        }
        let mut bytes = set.to_bytes();
        // Two zeros say that there are no gauges.
        prop_assert_eq!(bytes.split_off(bytes.len() - 2), [0, 0]);
        bytes[0] = 1;
        prop_assert_eq!(FigureSet::from_bytes(&bytes), Ok(set));
    }

    #[test]
    fn figures_that_are_cut_short_or_too_long_are_refused(set in set(), at: prop::sample::Index) {
        let mut bytes = set.to_bytes();
        prop_assert!(FigureSet::from_bytes(&bytes[..at.index(bytes.len())]).is_err());
        bytes.push(0);
        prop_assert!(FigureSet::from_bytes(&bytes).is_err());
    }

    #[test]
    fn any_bytes_are_figures_or_refused(
        bytes in vec(any::<u8>(), 0..64),
        set in set(),
        at: prop::sample::Index,
        byte: u8,
    ) {
        let _ = FigureSet::from_bytes(&bytes);
        let mut changed = set.to_bytes();
        let at = at.index(changed.len());
        changed[at] = byte;
        if let Ok(set) = FigureSet::from_bytes(&changed) {
            prop_assert_eq!(FigureSet::from_bytes(&set.to_bytes()), Ok(set));
        }
    }

    #[test]
    fn the_sum_of_all_queues_does_not_depend_on_the_order(a in set(), b in set()) {
        let (mut left, mut right) = (a.clone(), b.clone());
        left.add(&b);
        right.add(&a);
        prop_assert_eq!(&left, &right);
        let mut sum = a.sum();
        sum.add(&b.sum());
        prop_assert_eq!(left.sum(), sum);
    }
}
