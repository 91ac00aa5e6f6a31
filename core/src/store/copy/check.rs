//! The comparison at the end of a copy: every row of both stores, by a checksum for each section,
//! and the counters of the queues.

use alloc::format;
use alloc::string::String;
use core::fmt::{Debug, Write};

use super::{CopyDone, CopyError, CopyPlace, CopyRows, Side, reached};
use crate::Fingerprint;
use crate::store::{Reader, Store};

/// How far the comparison has come.
pub(super) struct Check {
    place: CopyPlace,
    /// Of the source, then of the target.
    sums: [Sum; 2],
    /// Whether the source's part of the section is read.
    second: bool,
    all: Sum,
    jobs: u64,
    done: CopyDone,
}

/// A checksum of rows, by their text. Their order makes no difference: stores may keep keys in
/// orders of their own.
#[derive(Default)]
struct Sum {
    total: u128,
    rows: u64,
    text: String,
}

impl Default for Check {
    fn default() -> Self {
        Self {
            place: CopyPlace::START,
            sums: Default::default(),
            second: false,
            all: Sum::default(),
            jobs: 0,
            done: CopyDone::default(),
        }
    }
}

impl Check {
    /// Number of jobs that were read, of both stores.
    pub(super) fn jobs(&self) -> u64 {
        self.jobs
    }

    /// Reads a page of one of the stores. Returns what was copied once all is compared.
    pub(super) fn step<A: Store, B: Store>(
        &mut self,
        source: &mut Side<A>,
        target: &mut Side<B>,
    ) -> Result<Option<CopyDone>, CopyError> {
        let over = if self.second { self.read(target)? } else { self.read(source)? };
        if !over {
            return Ok(None);
        }
        let start = self.place.section_start();
        if !self.second {
            (self.second, self.place) = (true, start);
            return Ok(None);
        }
        self.compare(&start)?;
        if start == CopyPlace::Settings {
            self.done.checksum = self.all.shown();
            return Ok(Some(self.done.clone()));
        }
        (self.second, self.place, self.sums) = (false, start.next_section(), Default::default());
        Ok(None)
    }

    /// Adds a page of a store; says whether it was the last of its section.
    fn read<S: Store>(&mut self, side: &mut Side<S>) -> Result<bool, CopyError> {
        let sum = &mut self.sums[usize::from(self.second)];
        match &self.place {
            CopyPlace::Queues(_) => {
                for mut row in side.read(Reader::queues)? {
                    row.kinds.retain(|(_, counts)| !counts.is_empty());
                    sum.add(&row);
                }
                return Ok(true);
            }
            CopyPlace::Settings => {
                side.settings()?.iter().for_each(|setting| sum.add(setting));
                return Ok(true);
            }
            _ => {}
        }
        let rows = side.page(&self.place, usize::MAX)?;
        self.jobs += rows.jobs.len() as u64;
        let CopyRows { queues: _, tats: _, figures, jobs, groups, attempts, keys, next_id: _ } =
            &rows;
        for row in figures {
            sum.add(row);
        }
        for row in jobs {
            sum.add(row);
        }
        for row in groups {
            sum.add(row);
        }
        for row in attempts {
            sum.add(row);
        }
        for row in keys {
            sum.add(row);
        }
        match reached(&self.place, &rows) {
            Some(next) => self.place = next,
            None => return Ok(true),
        }
        Ok(false)
    }

    fn compare(&mut self, section: &CopyPlace) -> Result<(), CopyError> {
        let [source, target] = &self.sums;
        let section = section.section();
        let (source_sum, target_sum) = (source.shown(), target.shown());
        let (source_rows, target_rows) = (source.rows, target.rows);
        if (source_rows, &source_sum) != (target_rows, &target_sum) {
            return Err(CopyError::Differs {
                section,
                source_rows,
                source_sum,
                target_rows,
                target_sum,
            });
        }
        self.done.rows.push((section, source_rows));
        self.all.add(&(section, source_sum));
        Ok(())
    }
}

impl Sum {
    fn add(&mut self, row: &impl Debug) {
        self.rows += 1;
        self.text.clear();
        // Writing to a text cannot fail.
        let _ = write!(self.text, "{row:?}");
        let Fingerprint(row) = Fingerprint::of(self.text.as_bytes());
        self.total = self.total.wrapping_add(row);
    }

    fn shown(&self) -> String {
        format!("{:032x}", self.total)
    }
}
