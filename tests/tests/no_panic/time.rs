//! Arithmetic of instants and lengths, to the ends of the number line.

use proptest::prelude::*;
use windlass_core::{Millis, Mono, Wall};

use super::arbitrary::{config, delay, millis, wall};

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn an_instant_plus_a_length_is_never_earlier(at in wall(), length in millis()) {
        let exact = i128::from(at.get()) + i128::from(length.get());
        let most = i128::from(i64::MAX);
        prop_assert_eq!(i128::from(at.plus(length).get()), exact.min(most));
        prop_assert!(at.minus(length) <= at);
        let exact = i128::from(at.get()) - i128::from(length.get());
        prop_assert_eq!(i128::from(at.minus(length).get()), exact.max(i128::from(i64::MIN)));
    }

    #[test]
    fn the_time_between_two_instants_is_exact_and_never_negative(a in wall(), b in wall()) {
        let exact = i128::from(a.get()) - i128::from(b.get());
        prop_assert_eq!(i128::from(a.since(b).get()), exact.max(0));
        prop_assert_eq!(i128::from(a.distance(b).get()), exact.abs());
        prop_assert_eq!(a.distance(b), b.distance(a));
    }

    #[test]
    fn lengths_saturate(a in millis(), b in millis(), of in any::<u64>()) {
        prop_assert!(a.plus(b) >= a.max(b));
        prop_assert!(a.part(of) <= a);
        prop_assert_eq!(a.part(0), a);
        for make in [Millis::seconds, Millis::minutes, Millis::hours, Millis::days] {
            prop_assert!(make(a.get()) >= a);
        }
    }

    #[test]
    fn monotonic_instants_saturate(at in any::<u64>(), length in millis()) {
        let later = Mono::new(at).plus(length);
        prop_assert!(later >= Mono::new(at));
        prop_assert!(later.since(Mono::new(at)) <= length);
        prop_assert_eq!(Mono::new(at).since(later), Millis::ZERO);
    }

    #[test]
    fn a_delay_leads_forward(delay in delay(), now in wall()) {
        prop_assert_eq!(delay.from(now), now.plus(delay.millis()));
        prop_assert!(delay.from(now) >= now);
        prop_assert!(delay.from(now) <= Wall::MAX);
    }
}
