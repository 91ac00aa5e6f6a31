//! Names and retry policies by number, cached once they were looked up.
//!
//! Numbers never change and are never used again, so what is cached stays true, with two
//! exceptions. Numbers given out by a transaction that was rolled back: then the cache is
//! cleared. Queues that were deleted, and perhaps made again: readers look their numbers up in
//! each snapshot.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Bound;

use redb::{ReadableTable, WriteTransaction};
use windlass_core::{Job, Kind, QueueName, RetryPolicy};
use windlass_store_file::Lookup;

use crate::bytes::{Bytes, put, utf8};
use crate::error::TxError;
use crate::rows::{Numbers, bad};
use crate::tables::{Access, Found, META, NAMES, NUMBERS};

/// What was looked up so far.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) queues: Known<QueueName>,
    pub(crate) kinds: Known<Kind>,
    pub(crate) retries: Known<RetryPolicy>,
    /// The names of the latest job with their numbers: most batches are of one queue and kind.
    latest: Option<(QueueName, Kind, RetryPolicy, Numbers)>,
}

impl Names {
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Drops the numbers of queues from the cache: some may have been deleted since.
    pub(crate) fn clear_queue_numbers(&mut self) {
        self.queues.numbers.clear();
        self.queues.shared = Lookup::default();
    }

    /// Deletes the name of a queue; returns its number if it had one, which is not used again.
    pub(crate) fn drop_queue(
        &mut self,
        txn: &WriteTransaction,
        name: &QueueName,
    ) -> Found<Option<u32>> {
        self.latest = None;
        self.queues.remove(txn, name)
    }

    /// The names with a job's numbers.
    pub(crate) fn of(
        &mut self,
        access: impl Access,
        numbers: Numbers,
    ) -> Found<(QueueName, Kind, RetryPolicy)> {
        if let Some((queue, kind, retry, _)) =
            self.latest.as_ref().filter(|(.., latest)| *latest == numbers)
        {
            return Ok((queue.clone(), kind.clone(), *retry));
        }
        let queue = self.queues.name(access, numbers.queue)?;
        let kind = self.kinds.name(access, numbers.kind)?;
        let retry = self.retries.name(access, numbers.retry)?;
        self.latest = Some((queue.clone(), kind.clone(), retry, numbers));
        Ok((queue, kind, retry))
    }

    /// The numbers of a job's names; they are written if they are new.
    pub(crate) fn ensure(&mut self, txn: &WriteTransaction, job: &Job) -> Found<Numbers> {
        if let Some((queue, kind, retry, numbers)) = &self.latest
            && queue.same(&job.queue)
            && kind.same(&job.kind)
            && *retry == job.retry
        {
            return Ok(*numbers);
        }
        // Most jobs have the policy of the one before.
        let retry = self.latest.as_ref().filter(|(_, _, retry, _)| *retry == job.retry);
        let retry = retry.map(|(.., numbers)| numbers.retry);
        let numbers = Numbers {
            queue: self.queues.ensure(txn, &job.queue)?,
            kind: self.kinds.ensure(txn, &job.kind)?,
            retry: retry.map_or_else(|| self.retries.ensure(txn, &job.retry), Ok)?,
        };
        self.latest = Some((job.queue.clone(), job.kind.clone(), job.retry, numbers));
        Ok(numbers)
    }
}

/// Something that is written once and referred to by number.
pub(crate) trait Name: Clone {
    /// What sets its numbers apart from those of other things.
    const TAG: u8;

    fn bytes(&self) -> Cow<'_, [u8]>;

    /// The address of its text, if it has one.
    fn address(&self) -> Option<u64>;

    fn of(bytes: &[u8]) -> Found<Self>;
}

impl Name for QueueName {
    const TAG: u8 = 0;

    fn bytes(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.as_str().as_bytes())
    }

    fn address(&self) -> Option<u64> {
        Some(self.address())
    }

    fn of(bytes: &[u8]) -> Found<Self> {
        Self::new(utf8(bytes)?).map_err(bad)
    }
}

impl Name for Kind {
    const TAG: u8 = 1;

    fn bytes(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.as_str().as_bytes())
    }

    fn address(&self) -> Option<u64> {
        Some(self.address())
    }

    fn of(bytes: &[u8]) -> Found<Self> {
        Self::new(utf8(bytes)?).map_err(bad)
    }
}

impl Name for RetryPolicy {
    const TAG: u8 = 2;

    fn bytes(&self) -> Cow<'_, [u8]> {
        let mut out = Vec::new();
        for number in self.to_stored() {
            put(&mut out, number);
        }
        Cow::Owned(out)
    }

    fn address(&self) -> Option<u64> {
        None
    }

    fn of(bytes: &[u8]) -> Found<Self> {
        let mut bytes = Bytes(bytes);
        let mut stored = [0; 5];
        for number in &mut stored {
            *number = bytes.number()?;
        }
        bytes.end()?;
        Self::from_stored(stored).ok_or_else(|| bad(format!("{stored:?} is no retry policy")))
    }
}

/// The names of one kind that were looked up so far.
#[derive(Debug)]
pub(crate) struct Known<T> {
    names: Lookup<T>,
    numbers: BTreeMap<Box<[u8]>, u32>,
    /// Numbers by the address of the text, which most jobs share with what was looked up before.
    /// The names are kept, so no other text gets their addresses.
    shared: Lookup<(T, u32)>,
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self { names: Lookup::default(), numbers: BTreeMap::new(), shared: Lookup::default() }
    }
}

impl<T: Name> Known<T> {
    /// The name with this number, which exists.
    pub(crate) fn name(&mut self, access: impl Access, number: u32) -> Found<T> {
        if let Some(name) = self.names.get(number.into()) {
            return Ok(name.clone());
        }
        let stored = access.open(NAMES)?;
        let Some(bytes) = stored.get(&name_key::<T>(number))? else {
            return Err(TxError::BadRow(format!("number {number} is the number of no name")));
        };
        let name = T::of(bytes.value())?;
        self.names.insert(number.into(), name.clone());
        Ok(name)
    }

    /// The number of a name, if it has one.
    pub(crate) fn number(&mut self, access: impl Access, name: &T) -> Found<Option<u32>> {
        let shared = name.address().and_then(|address| self.shared.get(address));
        if let Some((_, number)) = shared {
            return Ok(Some(*number));
        }
        let bytes = name.bytes();
        if let Some(number) = self.numbers.get(&*bytes) {
            return Ok(Some(*number));
        }
        let stored = access.open(NUMBERS)?;
        let number = stored.get(tagged::<T>(&bytes).as_slice())?.map(|number| number.value());
        if let Some(number) = number {
            self.cache(name, &bytes, number);
        }
        Ok(number)
    }

    /// Names with their numbers, by name: the first ones behind `after`.
    pub(crate) fn page(
        access: impl Access,
        after: Option<&T>,
        limit: usize,
    ) -> Found<Vec<(T, u32)>> {
        let from = after.map_or(tagged::<T>(&[]), |after| tagged::<T>(&after.bytes()));
        let to = [T::TAG + 1];
        let bounds = (Bound::Excluded(from.as_slice()), Bound::Excluded(to.as_slice()));
        let stored = access.open(NUMBERS)?;
        let mut found = Vec::new();
        for row in stored.range::<&[u8]>(bounds)?.take(limit) {
            let (name, number) = row?;
            found.push((T::of(&name.value()[1..])?, number.value()));
        }
        Ok(found)
    }

    /// The number of a name; it is written if it is new.
    pub(crate) fn ensure(&mut self, txn: &WriteTransaction, name: &T) -> Found<u32> {
        if let Some(number) = self.number(txn, name)? {
            return Ok(number);
        }
        let bytes = name.bytes();
        let mut names = txn.open(NAMES)?;
        let (first, last) = (name_key::<T>(0), name_key::<T>(u32::MAX));
        let last = names.range::<&[u8; 5]>(&first..=&last)?.next_back().transpose()?;
        let last = last.map(|(key, _)| {
            let [_, a, b, c, d] = *key.value();
            u32::from_be_bytes([a, b, c, d])
        });
        let dropped = txn.open(META)?.get(last_dropped::<T>().as_slice())?.map(|row| row.value());
        let dropped = dropped.and_then(|number| u32::try_from(number).ok());
        let last = last.into_iter().chain(dropped).max().unwrap_or(0);
        let number = last.checked_add(1).ok_or_else(|| bad("there are too many names"))?;
        names.insert(&name_key::<T>(number), &*bytes)?;
        txn.open(NUMBERS)?.insert(tagged::<T>(&bytes).as_slice(), number)?;
        self.names.insert(number.into(), name.clone());
        self.cache(name, &bytes, number);
        Ok(number)
    }

    /// Removes a name; returns its number if it had one, which is not given out again.
    fn remove(&mut self, txn: &WriteTransaction, name: &T) -> Found<Option<u32>> {
        let Some(number) = self.number(txn, name)? else { return Ok(None) };
        let bytes = name.bytes();
        let key = last_dropped::<T>();
        let mut meta = txn.open(META)?;
        let before = meta.get(key.as_slice())?.map_or(0, |row| row.value());
        meta.insert(key.as_slice(), before.max(number.into()))?;
        txn.open(NUMBERS)?.remove(tagged::<T>(&bytes).as_slice())?;
        txn.open(NAMES)?.remove(&name_key::<T>(number))?;
        self.names.remove(number.into());
        self.shared = Lookup::default();
        self.numbers.remove(&*bytes);
        Ok(Some(number))
    }

    fn cache(&mut self, name: &T, bytes: &[u8], number: u32) {
        self.numbers.insert(bytes.into(), number);
        if let Some(address) = name.address() {
            self.shared.insert(address, (name.clone(), number));
        }
    }
}

/// The key in [`META`] of the greatest number that was removed.
fn last_dropped<T: Name>() -> Vec<u8> {
    [b"last_dropped".as_slice(), &[T::TAG]].concat()
}

fn name_key<T: Name>(number: u32) -> [u8; 5] {
    let [a, b, c, d] = number.to_be_bytes();
    [T::TAG, a, b, c, d]
}

fn tagged<T: Name>(bytes: &[u8]) -> Vec<u8> {
    [&[T::TAG], bytes].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, prop, prop_assert_eq, proptest};
    use windlass_core::{Millis, Strategy};

    proptest! {
        #[test]
        fn a_retry_policy_comes_back_as_it_went(
            which in 0..3, factor in 1_000_u32..=100_000, initial in 0..1_000_000_u64,
            cap in 0..1_000_000_000_u64, jitter in 0..=1_000_u32,
        ) {
            let strategy = match which {
                0 => Strategy::Fixed,
                1 => Strategy::Linear,
                _ => Strategy::Exponential { factor },
            };
            let policy = RetryPolicy::new(strategy, Millis::new(initial), Millis::new(cap), jitter)
                .expect("it is in bounds");
            prop_assert_eq!(RetryPolicy::of(&policy.bytes()).expect("it is a policy"), policy);
        }

        #[test]
        fn any_bytes_are_a_policy_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
            let _ = RetryPolicy::of(&bytes);
        }
    }

    /// Files hold these bytes, and are searched by them.
    #[test]
    fn the_bytes_of_a_retry_policy_never_change() {
        let bytes = |strategy, initial, cap, jitter| {
            let policy = RetryPolicy::new(strategy, Millis::new(initial), Millis::new(cap), jitter);
            policy.expect("it is in bounds").bytes().into_owned()
        };
        let exponential = Strategy::Exponential { factor: 2_000 };
        let hour = 3_600_000;
        assert_eq!(
            bytes(exponential, 1_000, hour, 250),
            [2, 0xd0, 0x0f, 0xe8, 0x07, 0x80, 0xdd, 0xdb, 0x01, 0xfa, 0x01]
        );
        assert_eq!(bytes(Strategy::Linear, 1, 2, 3), [1, 0, 1, 2, 3]);
        assert_eq!(bytes(Strategy::Fixed, 127, 128, 0), [0, 0, 127, 0x80, 1, 0]);
    }
}
