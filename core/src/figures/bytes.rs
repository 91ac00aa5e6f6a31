//! A set of figures as bytes. Numbers of variable length; what is zero takes no space but a bit.
//!
//! The first byte is the version of the form. Reading is total: bytes that this code cannot have
//! written are refused.

use alloc::vec::Vec;

use thiserror::Error;

use super::set::QueueFigures;
use super::{COUNTERS, FigureSet, Figures, Times};
use crate::limits::FIGURE_QUEUES;
use crate::{QueueName, Wall};

/// The form that is written.
const VERSION: u8 = 1;

/// Bytes that are no figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BadFigures {
    /// They end too early.
    #[error("figures are cut short")]
    Short,
    /// They go on behind their end.
    #[error("figures are longer than they should be")]
    Long,
    /// A number is too large, or a part that is not there is named.
    #[error("figures hold a number that is too large")]
    Large,
    /// A name is none.
    #[error("figures hold the name of no queue, or names out of order")]
    Name,
    /// They have another form.
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
            let name = name.as_str().as_bytes();
            put(&mut out, name.len() as u64);
            out.extend_from_slice(name);
            put(&mut out, queue.latest.get().max(0).unsigned_abs());
            put_figures(&mut out, &queue.figures);
        }
        out
    }

    /// The figures that were written as these bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadFigures> {
        let mut bytes = Bytes(bytes);
        match bytes.byte()? {
            VERSION => {}
            other => return Err(BadFigures::Version(other)),
        }
        let mut set = Self { other: figures(&mut bytes)?, ..Self::default() };
        let queues = bytes.number()?;
        if queues > FIGURE_QUEUES as u64 {
            return Err(BadFigures::Large);
        }
        for _ in 0..queues {
            let name = bytes.name()?;
            if set.queues.last_key_value().is_some_and(|(last, _)| *last >= name) {
                return Err(BadFigures::Name);
            }
            let latest = i64::try_from(bytes.number()?).map_err(|_| BadFigures::Large)?;
            let queue = QueueFigures { latest: Wall::new(latest), figures: figures(&mut bytes)? };
            set.queues.insert(name, queue);
        }
        if bytes.0.is_empty() { Ok(set) } else { Err(BadFigures::Long) }
    }
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

    fn name(&mut self) -> Result<QueueName, BadFigures> {
        let length = usize::try_from(self.number()?).map_err(|_| BadFigures::Large)?;
        let (name, rest) = self.0.split_at_checked(length).ok_or(BadFigures::Short)?;
        self.0 = rest;
        let name = core::str::from_utf8(name).map_err(|_| BadFigures::Name)?;
        QueueName::new(name).map_err(|_| BadFigures::Name)
    }
}
