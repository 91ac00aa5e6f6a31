//! A set of figures as bytes. Numbers of variable length; what is zero takes no space but a bit.
//!
//! The first byte is the version of the form. Reading is total: bytes that this code cannot have
//! written are refused.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use thiserror::Error;

use super::set::QueueFigures;
use super::{COUNTERS, FigureSet, Figures, Gauge, Gauges, Times};
use crate::limits::FIGURE_QUEUES;
use crate::{QueueName, Wall};

/// The form that is written.
const VERSION: u8 = 2;
/// The form that was written before there were gauges.
const WITHOUT_GAUGES: u8 = 1;

/// Bytes that are no figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BadFigures {
    /// The bytes end within a figure.
    #[error("figures are cut short")]
    Short,
    /// They go on behind their end.
    #[error("figures are longer than they should be")]
    Long,
    /// A number is too large, or a part that is not there is named.
    #[error("figures hold a number that is too large")]
    Large,
    /// A name is none.
    #[error("figures contain an invalid or misordered queue name")]
    Name,
    /// A newer version of Windlass wrote them.
    #[error("figures are of version {0}, newer than this program")]
    Version(u8),
}

impl FigureSet {
    /// The bytes that a store keeps.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::from([VERSION]);
        put_figures(&mut out, &self.other);
        put(&mut out, self.queues.len() as u64);
        for (name, queue) in &self.queues {
            put_name(&mut out, name);
            put_instant(&mut out, queue.latest);
            put_figures(&mut out, &queue.figures);
        }
        put_gauges(&mut out, &self.gauges);
        out
    }

    /// The figures that were written as these bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadFigures> {
        let mut bytes = Bytes(bytes);
        let version = bytes.byte()?;
        if version != VERSION && version != WITHOUT_GAUGES {
            return Err(BadFigures::Version(version));
        }
        let mut set = Self { other: figures(&mut bytes)?, ..Self::default() };
        set.queues = bytes.by_queue(|bytes| {
            Ok(QueueFigures { latest: bytes.instant()?, figures: figures(bytes)? })
        })?;
        if version != WITHOUT_GAUGES {
            set.gauges = gauges(&mut bytes)?;
        }
        if bytes.0.is_empty() { Ok(set) } else { Err(BadFigures::Long) }
    }
}

fn put_name(out: &mut Vec<u8>, name: &QueueName) {
    let name = name.as_str().as_bytes();
    put(out, name.len() as u64);
    out.extend_from_slice(name);
}

fn put_instant(out: &mut Vec<u8>, at: Wall) {
    put(out, at.get().max(0).unsigned_abs());
}

fn put_gauges(out: &mut Vec<u8>, gauges: &Gauges) {
    put(out, u64::from(gauges.all.is_some()));
    gauges.all.iter().for_each(|gauge| put_gauge(out, gauge));
    put(out, gauges.queues.len() as u64);
    for (name, gauge) in &gauges.queues {
        put_name(out, name);
        put_gauge(out, gauge);
    }
}

fn put_gauge(out: &mut Vec<u8>, gauge: &Gauge) {
    put_instant(out, gauge.at);
    put_some(out, &[gauge.queued, gauge.processing, gauge.oldest_ms]);
}

fn gauges(bytes: &mut Bytes<'_>) -> Result<Gauges, BadFigures> {
    let all = match bytes.number()? {
        0 => None,
        1 => Some(gauge(bytes)?),
        _ => return Err(BadFigures::Large),
    };
    Ok(Gauges { all, queues: bytes.by_queue(gauge)? })
}

fn gauge(bytes: &mut Bytes<'_>) -> Result<Gauge, BadFigures> {
    let at = bytes.instant()?;
    let [queued, processing, oldest_ms] = bytes.some()?;
    Ok(Gauge { at, queued, processing, oldest_ms })
}

fn put_figures(out: &mut Vec<u8>, figures: &Figures) {
    put_some(out, &figures.counters());
    for times in [&figures.wait, &figures.run] {
        put_some(out, &times.buckets);
        put(out, times.sum_ms);
    }
}

fn figures(bytes: &mut Bytes<'_>) -> Result<Figures, BadFigures> {
    let mut figures = Figures::default();
    let counters: [u64; COUNTERS] = bytes.some()?;
    for (to, from) in figures.counters_mut().into_iter().zip(counters) {
        *to = from;
    }
    figures.wait = times(bytes)?;
    figures.run = times(bytes)?;
    Ok(figures)
}

fn times(bytes: &mut Bytes<'_>) -> Result<Times, BadFigures> {
    Ok(Times { buckets: bytes.some()?, sum_ms: bytes.number()? })
}

/// Writes which numbers are not zero, as bits, and then those.
fn put_some(out: &mut Vec<u8>, numbers: &[u64]) {
    let bits = numbers.iter().rev().fold(0, |bits, number| bits << 1 | u64::from(*number > 0));
    put(out, bits);
    numbers.iter().filter(|number| **number > 0).for_each(|number| put(out, *number));
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// What is left to read.
struct Bytes<'b>(&'b [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> Result<u8, BadFigures> {
        let (first, rest) = self.0.split_first().ok_or(BadFigures::Short)?;
        self.0 = rest;
        Ok(*first)
    }

    fn number(&mut self) -> Result<u64, BadFigures> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            let shifted = part << shift;
            if shifted >> shift != part {
                return Err(BadFigures::Large);
            }
            number |= shifted;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(BadFigures::Large)
    }

    fn some<const N: usize>(&mut self) -> Result<[u64; N], BadFigures> {
        let bits = self.number()?;
        if bits >> N > 0 {
            return Err(BadFigures::Large);
        }
        let mut numbers = [0; N];
        for (at, number) in numbers.iter_mut().enumerate() {
            if bits >> at & 1 == 1 {
                *number = self.number()?;
            }
        }
        Ok(numbers)
    }

    fn instant(&mut self) -> Result<Wall, BadFigures> {
        i64::try_from(self.number()?).map(Wall::new).map_err(|_| BadFigures::Large)
    }

    /// One value for each queue, by name.
    fn by_queue<T>(
        &mut self,
        read: impl Fn(&mut Self) -> Result<T, BadFigures>,
    ) -> Result<BTreeMap<QueueName, T>, BadFigures> {
        let mut queues = BTreeMap::new();
        let count = self.number()?;
        if count > FIGURE_QUEUES as u64 {
            return Err(BadFigures::Large);
        }
        for _ in 0..count {
            let name = self.name()?;
            if queues.last_key_value().is_some_and(|(last, _)| *last >= name) {
                return Err(BadFigures::Name);
            }
            queues.insert(name, read(self)?);
        }
        Ok(queues)
    }

    fn name(&mut self) -> Result<QueueName, BadFigures> {
        let length = usize::try_from(self.number()?).map_err(|_| BadFigures::Large)?;
        let (name, rest) = self.0.split_at_checked(length).ok_or(BadFigures::Short)?;
        self.0 = rest;
        let name = core::str::from_utf8(name).map_err(|_| BadFigures::Name)?;
        QueueName::new(name).map_err(|_| BadFigures::Name)
    }
}
