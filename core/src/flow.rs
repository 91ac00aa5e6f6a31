//! Settings of a queue that say when its jobs may start and in which order: rates, limits of
//! kinds, aging. Stores keep them as one text, which this file writes and reads.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};

use thiserror::Error;

use crate::limits::KIND_LIMITS;
use crate::{Aging, Kind, KindConcurrency, KindLimits, Rate, RateBurst, Tat, Tats};

/// Rates, limits of kinds, and aging. All `None` and empty by default: then jobs start in the order
/// of their priorities, as soon as there are workers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Flow {
    /// One step of priority counts as much as having waited for this long; `None` if a job of a
    /// higher priority always goes first.
    pub aging: Option<Aging>,
    /// Maximum number of starts per period.
    pub rate: Option<Rate>,
    /// Limits of single kinds, by kind; at most [`KIND_LIMITS`].
    pub kinds: Vec<(Kind, KindLimits)>,
}

impl Flow {
    /// No limits, and strict priorities.
    pub const NONE: Self = Self { aging: None, rate: None, kinds: Vec::new() };

    /// Whether it says when jobs may start.
    pub fn limits_starts(&self) -> bool {
        self.rate.is_some() || !self.kinds.is_empty()
    }

    /// The limits of a kind, if it has some.
    pub fn kind(&self, kind: &Kind) -> Option<&KindLimits> {
        let at = self.kinds.binary_search_by(|(known, _)| known.cmp(kind)).ok()?;
        Some(&self.kinds[at].1)
    }

    /// The rate of the queue, or of a kind in it.
    pub fn rate_of(&self, kind: Option<&Kind>) -> Option<&Rate> {
        match kind {
            None => self.rate.as_ref(),
            Some(kind) => self.kind(kind)?.rate.as_ref(),
        }
    }

    /// The same as it is stored: kinds in order, each once (the last counts), those without limits
    /// left out. Refused with more than [`KIND_LIMITS`].
    pub fn kept(&self) -> Result<Self, TooManyKindLimits> {
        let kinds: BTreeMap<Kind, KindLimits> = self.kinds.iter().cloned().collect();
        let kinds: Vec<(Kind, KindLimits)> =
            kinds.into_iter().filter(|(_, limits)| !limits.is_empty()).collect();
        if kinds.len() > KIND_LIMITS {
            return Err(TooManyKindLimits { given: kinds.len() });
        }
        Ok(Self { kinds, ..self.clone() })
    }

    /// The text that a store keeps; `None` for the default.
    pub fn to_text(&self) -> Option<String> {
        let mut text = String::new();
        let written = self.write(&mut text);
        (written.is_ok() && !text.is_empty()).then_some(text)
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        if let Some(aging) = self.aging {
            writeln!(out, "aging {}", aging.get())?;
        }
        if let Some(rate) = &self.rate {
            write!(out, "rate ")?;
            write_rate(out, rate)?;
        }
        for (kind, KindLimits { concurrency, rate }) in &self.kinds {
            if let Some(most) = concurrency {
                writeln!(out, "kind {kind} concurrency {}", most.get())?;
            }
            if let Some(rate) = rate {
                write!(out, "kind {kind} rate ")?;
                write_rate(out, rate)?;
            }
        }
        Ok(())
    }

    /// The settings that were written as this text; `None` is the default.
    ///
    /// ```
    /// use windlass_core::{Flow, Rate};
    /// let flow = Flow { rate: Rate::new(100, 60_000, Some(5)).ok(), ..Flow::default() };
    /// let text = flow.to_text();
    /// assert_eq!(text.as_deref(), Some("rate 100 60000 5\n"));
    /// assert_eq!(Flow::parse(text.as_deref()), Ok(flow));
    /// ```
    pub fn parse(text: Option<&str>) -> Result<Self, BadFlow> {
        let mut flow = Self::default();
        for line in text.unwrap_or("").lines() {
            flow.add(&line.split(' ').collect::<Vec<&str>>()).ok_or(BadFlow)?;
        }
        if flow.kinds.len() > KIND_LIMITS { Err(BadFlow) } else { Ok(flow) }
    }

    fn add(&mut self, words: &[&str]) -> Option<()> {
        match words {
            ["aging", aging] => self.aging = Some(Aging::new(aging.parse().ok()?).ok()?),
            ["rate", rate @ ..] => self.rate = Some(parse_rate(rate)?),
            ["kind", kind, "concurrency", most] => {
                let most = KindConcurrency::new(most.parse().ok()?).ok()?;
                self.limits_of(kind)?.concurrency = Some(most);
            }
            ["kind", kind, "rate", rate @ ..] => {
                self.limits_of(kind)?.rate = Some(parse_rate(rate)?);
            }
            _ => return None,
        }
        Some(())
    }

    /// The limits of the kind that is being read: the last one, or the next.
    fn limits_of(&mut self, kind: &str) -> Option<&mut KindLimits> {
        let kind = Kind::new(kind).ok()?;
        let last = self.kinds.last().map(|(last, _)| last.cmp(&kind));
        match last {
            Some(core::cmp::Ordering::Greater) => return None,
            Some(core::cmp::Ordering::Equal) => {}
            _ => self.kinds.push((kind, KindLimits::default())),
        }
        self.kinds.last_mut().map(|(_, limits)| limits)
    }
}

fn write_rate(out: &mut String, rate: &Rate) -> fmt::Result {
    write!(out, "{} {}", rate.limit.get(), rate.per.get())?;
    rate.burst.map_or(Ok(()), |burst: RateBurst| write!(out, " {}", burst.get()))?;
    writeln!(out)
}

fn parse_rate(words: &[&str]) -> Option<Rate> {
    let (limit, per, burst) = match words {
        [limit, per] => (limit, per, None),
        [limit, per, burst] => (limit, per, Some(burst.parse().ok()?)),
        _ => return None,
    };
    Rate::new(limit.parse().ok()?, per.parse().ok()?, burst).ok()
}

impl Tats {
    /// The text that a store keeps: a line for each rate that was used; `None` if none was.
    pub fn to_text(&self) -> Option<String> {
        let mut text = String::new();
        for (kind, tat) in self.iter() {
            let written = match kind {
                None => writeln!(text, "{}", tat.get()),
                Some(kind) => writeln!(text, "{} {kind}", tat.get()),
            };
            written.ok()?;
        }
        (!text.is_empty()).then_some(text)
    }

    /// The states that were written as this text.
    pub fn parse(text: Option<&str>) -> Result<Self, BadFlow> {
        let mut tats = Self::default();
        for line in text.unwrap_or("").lines() {
            let (tat, kind) =
                line.split_once(' ').map_or((line, None), |(tat, kind)| (tat, Some(kind)));
            let kind = kind.map(Kind::new).transpose().map_err(|_| BadFlow)?;
            tats.put(kind.as_ref(), Tat::new(tat.parse().map_err(|_| BadFlow)?));
        }
        Ok(tats)
    }
}

/// More kinds of a queue than can have limits of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{given} kinds of the queue have limits of their own; at most {KIND_LIMITS} can")]
pub struct TooManyKindLimits {
    /// Number of kinds with limits.
    pub given: usize,
}

/// A text that holds no such settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the limits of a queue cannot be read")]
pub struct BadFlow;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn kind(name: &str) -> Kind {
        Kind::new(name).expect("it is a name")
    }

    fn all() -> Flow {
        let concurrency = KindConcurrency::new(0).ok();
        let rate = Rate::new(7, 1_000, Some(3)).ok();
        Flow {
            aging: Aging::new(60_000).ok(),
            rate: Rate::new(100, 60_000, None).ok(),
            kinds: vec![
                (kind("a"), KindLimits { concurrency, rate: None }),
                (kind("b"), KindLimits { concurrency, rate }),
                (kind("c"), KindLimits { concurrency: None, rate }),
            ],
        }
    }

    #[test]
    fn settings_and_states_come_back_as_they_were_written() {
        assert_eq!((Flow::NONE.to_text(), Flow::parse(None)), (None, Ok(Flow::NONE)));
        assert_eq!(Flow::parse(all().to_text().as_deref()), Ok(all()));
        let mut tats = Tats::default();
        assert_eq!((tats.to_text(), Tats::parse(None)), (None, Ok(Tats::default())));
        tats.put(Some(&kind("b")), Tat::new(-5));
        tats.put(None, Tat::new(i64::MAX));
        tats.put(Some(&kind("a")), Tat::new(1));
        assert_eq!(Tats::parse(tats.to_text().as_deref()), Ok(tats));
    }

    #[test]
    fn a_text_that_says_something_else_is_refused() {
        for text in [
            "x",
            "aging",
            "aging 0",
            "aging x",
            "rate",
            "rate 1",
            "rate 0 1",
            "rate 1 1 1 1",
            "kind",
            "kind a",
            "kind a concurrency",
            "kind a concurrency -1",
            "kind a b 1",
            "kind b concurrency 1\nkind a concurrency 1",
            "kind ? rate 1 1",
        ] {
            assert_eq!(Flow::parse(Some(text)), Err(BadFlow), "{text:?}");
        }
        for text in ["x", "1 ?", " a", "1 a b"] {
            assert_eq!(Tats::parse(Some(text)), Err(BadFlow), "{text:?}");
        }
    }
}
