//! Quantiles of the histograms that a store keeps.

use windlass_core::{Millis, Times};

/// The quantile of a histogram in milliseconds; `None` if it is empty. Values are taken to be
/// spread evenly within a bucket.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a figure for people, between two bounds"
)]
pub(crate) fn quantile(times: &Times, thousandths: u64) -> Option<u64> {
    let count = times.count();
    if count == 0 {
        return None;
    }
    let target = count.saturating_mul(thousandths.min(1_000)).div_ceil(1_000).max(1);
    let mut seen = 0;
    for (at, in_bucket) in times.buckets().iter().enumerate() {
        if *in_bucket > 0 && seen + in_bucket >= target {
            let below = at.checked_sub(1).and_then(Times::bound).map_or(0, Millis::get);
            let bound = Times::bound(at).map_or(below.saturating_mul(2), Millis::get);
            let part = (target - seen) as f64 / *in_bucket as f64;
            return Some(below + (part * (bound - below) as f64) as u64);
        }
        seen += in_bucket;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_lies_in_the_bucket_of_its_length() {
        let mut times = Times::default();
        assert_eq!(quantile(&times, 500), None);
        (0..100).for_each(|_| times.record(Millis::new(100)));
        times.record(Millis::new(5_000));
        for (thousandths, from, to) in [(500, 64, 128), (950, 64, 128), (1_000, 4_096, 8_192)] {
            let found = quantile(&times, thousandths).unwrap();
            assert!((from..=to).contains(&found), "{thousandths}: {found}");
        }
        assert!(quantile(&times, 100).unwrap() < quantile(&times, 900).unwrap());
    }

    #[test]
    fn a_length_beyond_every_bound_has_a_quantile_too() {
        let mut times = Times::default();
        times.record(Millis::new(u64::MAX));
        assert!(quantile(&times, 950).unwrap() >= 1 << 24);
    }
}
