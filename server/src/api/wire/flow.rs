//! When jobs of a queue may start: rates, limits of kinds, aging.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass_core::limits::KIND_LIMITS;
use windlass_core::{
    Aging, Flow, Kind, KindConcurrency, KindLimits, OutOfRange, RateBurst, RateLimit, RatePeriod,
};

use super::parse::Faults;

/// How many jobs may start per period.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Rate")]
pub(crate) struct Rate {
    /// Number of starts per period.
    #[schemars(range(min = 1, max = 1_000_000))]
    limit: i64,
    /// The period.
    #[schemars(range(min = 1, max = 86_400_000))]
    per_ms: i64,
    /// Number of starts at once after a pause; one second's worth if absent.
    #[schemars(range(min = 1, max = 1_000_000))]
    burst: Option<i64>,
}

/// Limits of one kind in the queue.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "KindLimits")]
pub(crate) struct Limits {
    /// Maximum number of running jobs of the kind; 0 pauses it.
    #[schemars(range(min = 0, max = 1_000_000))]
    concurrency: Option<i64>,
    /// Maximum number of starts per period.
    rate: Option<Rate>,
}

/// Limits by kind.
pub(crate) type Kinds = BTreeMap<String, Limits>;

impl Rate {
    pub(crate) fn of(rate: &windlass_core::Rate) -> Self {
        Self {
            limit: rate.limit.get().into(),
            per_ms: i64::try_from(rate.per.get()).unwrap_or(i64::MAX),
            burst: rate.burst.map(|burst| burst.get().into()),
        }
    }

    fn check(&self, faults: &mut Faults, at: &str) -> Option<windlass_core::Rate> {
        let bounds = (RateLimit::MIN.get(), RateLimit::MAX.get());
        let limit = number(faults, &format!("{at}/limit"), self.limit, bounds, RateLimit::new);
        let bounds = (RatePeriod::MIN.get(), RatePeriod::MAX.get());
        let per = number(faults, &format!("{at}/per_ms"), self.per_ms, bounds, RatePeriod::new);
        let bounds = (RateBurst::MIN.get(), RateBurst::MAX.get());
        let burst = self
            .burst
            .map(|burst| number(faults, &format!("{at}/burst"), burst, bounds, RateBurst::new));
        let (limit, per) = limit.zip(per)?;
        Some(windlass_core::Rate { limit, per, burst: burst.flatten() })
    }
}

/// The limits of kinds as they are shown; `None` if there are none.
pub(crate) fn kinds(flow: &Flow) -> Option<Kinds> {
    let limits = |limits: &KindLimits| Limits {
        concurrency: limits.concurrency.map(|most| most.get().into()),
        rate: limits.rate.as_ref().map(Rate::of),
    };
    let kinds: Kinds =
        flow.kinds.iter().map(|(kind, of)| (kind.as_str().to_owned(), limits(of))).collect();
    (!kinds.is_empty()).then_some(kinds)
}

/// Checks what a client sets.
pub(crate) fn check(
    faults: &mut Faults,
    aging_ms: Option<i64>,
    rate: Option<&Rate>,
    kinds: Option<&Kinds>,
) -> Flow {
    let bounds = (Aging::MIN.get(), Aging::MAX.get());
    let aging = aging_ms.and_then(|aging| number(faults, "/aging_ms", aging, bounds, Aging::new));
    let rate = rate.and_then(|rate| rate.check(faults, "/rate"));
    let mut checked = Vec::new();
    for (name, limits) in kinds.into_iter().flatten() {
        let at = format!("/kinds/{}", super::parse::escape(name));
        let Some(kind) = faults.check(&at, Kind::new(name)) else { continue };
        let bounds = (KindConcurrency::MIN.get(), KindConcurrency::MAX.get());
        let concurrency = limits.concurrency.and_then(|most| {
            number(faults, &format!("{at}/concurrency"), most, bounds, KindConcurrency::new)
        });
        let rate = limits.rate.as_ref().and_then(|rate| rate.check(faults, &format!("{at}/rate")));
        let limits = KindLimits { concurrency, rate };
        if !limits.is_empty() {
            checked.push((kind, limits));
        }
    }
    checked.sort_by(|(a, _), (b, _)| a.cmp(b));
    if checked.len() > KIND_LIMITS {
        let given = checked.len();
        faults.add("/kinds", format!("has {given} kinds; at most {KIND_LIMITS} can have limits"));
    }
    Flow { aging, rate, kinds: checked }
}

/// A number with bounds, as core checks them.
fn number<N: TryFrom<i64>, T>(
    faults: &mut Faults,
    pointer: &str,
    given: i64,
    (min, max): (impl Into<i128>, impl Into<i128>),
    new: impl FnOnce(N) -> Result<T, OutOfRange>,
) -> Option<T> {
    let (min, max) = (min.into(), max.into());
    let number = N::try_from(given);
    let checked = number
        .map_err(|_| OutOfRange { field: "the number", given: given.into(), min, max })
        .and_then(new);
    // The pointer says which one: many have the same name.
    let checked = checked.map_err(|OutOfRange { given, min, max, .. }| {
        format!("must be between {min} and {max}, not {given}")
    });
    faults.check(pointer, checked)
}
