//! Figures as bytes: what was written comes back, anything else is refused.

use proptest::collection::vec;
use proptest::prelude::*;
use windlass_core::{FigureSet, Figures, Millis, QueueName};

use super::arbitrary::config;

fn figures() -> impl Strategy<Value = Figures> {
    let number = || prop_oneof![Just(0_u64), 0..200_u64, any::<u64>()];
    let counters = (number(), number(), number(), number(), number());
    let more = (number(), number(), number(), number(), number());
    (counters, more, vec(any::<u64>(), 0..4), vec(0..5_000_u64, 0..4)).prop_map(
        |(counters, more, wait, run)| {
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

fn set() -> impl Strategy<Value = FigureSet> {
    vec(("[a-z]{1,9}", figures()), 0..6).prop_map(|queues| {
        let mut set = FigureSet::default();
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
