//! Ids: integers that a store or a process gives out.

use core::fmt;
use core::num::NonZeroU64;
use core::str::FromStr;

use thiserror::Error;

/// Why a text is not an id or a lease token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ParseIdError {
    /// Not a job id.
    #[error("a job id is a whole number from 1 to {}, like 42", i64::MAX)]
    JobId,
    /// Not a lease token.
    #[error("a lease token is a job id and an epoch, like 42.3; send it back as it was given")]
    LeaseToken,
    /// Not the id of an error group.
    #[error("the id of an error group is 32 hexadecimal digits; the list of errors shows it")]
    Group,
    /// Not the id of a bulk action.
    #[error("the id of a bulk action is a whole number from 1, like 7")]
    BulkId,
}

/// The id of a job: given by the store, increasing, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(NonZeroU64);

impl JobId {
    /// The first id a store gives out.
    pub const FIRST: Self = Self(NonZeroU64::MIN);
    /// The greatest id.
    pub const LAST: Self = match NonZeroU64::new(i64::MAX.unsigned_abs()) {
        Some(last) => Self(last),
        None => Self::FIRST,
    };

    /// From 1 to `i64::MAX`; `None` for other numbers.
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(n) if number <= i64::MAX.unsigned_abs() => Some(Self(n)),
            _ => None,
        }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// The id `places` further on; saturates at [`LAST`](Self::LAST).
    #[must_use]
    pub const fn plus(self, places: u64) -> Self {
        let number = self.get().saturating_add(places);
        match Self::new(number) {
            Some(id) => id,
            None => Self::LAST,
        }
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for JobId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        digits(text).and_then(Self::new).ok_or(ParseIdError::JobId)
    }
}

/// Number of claims of a job, ever. It increases with each claim and never decreases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(u64);

impl Epoch {
    /// The epoch of a job never claimed.
    pub const NEVER: Self = Self(0);

    /// The epoch with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The epoch of the next claim.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The fencing token of a run: the job and the epoch of the claim. Written `42.3`.
///
/// ```
/// use windlass_core::LeaseToken;
/// let token: LeaseToken = "42.3".parse()?;
/// assert_eq!(token.to_string(), "42.3");
/// assert!("42".parse::<LeaseToken>().is_err());
/// # Ok::<(), windlass_core::ParseIdError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseToken {
    /// The job that is leased.
    pub job: JobId,
    /// The epoch of the claim that leased it.
    pub epoch: Epoch,
}

impl fmt::Display for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.job, self.epoch)
    }
}

impl FromStr for LeaseToken {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let (job, epoch) = text.split_once('.').ok_or(ParseIdError::LeaseToken)?;
        let job = job.parse().map_err(|_| ParseIdError::LeaseToken)?;
        let epoch = Epoch(digits(epoch).ok_or(ParseIdError::LeaseToken)?);
        Ok(Self { job, epoch })
    }
}

/// One start of one process. A restarted process has another id, so that it does not take batches
/// of its previous run for its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u64);

/// The id of a batch. It is written with the batch, as the commit marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId {
    /// The process that commits the batch.
    pub process: ProcessId,
    /// From 1, increasing within the process.
    pub seq: u64,
}

/// The id of a request, given by the driver of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// The id of a bulk action: given by the store, increasing, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BulkId(pub u32);

impl fmt::Display for BulkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for BulkId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let id = digits(text).and_then(|number| u32::try_from(number).ok());
        id.filter(|id| *id > 0).map(Self).ok_or(ParseIdError::BulkId)
    }
}

/// Plain decimal digits only: no sign, no leading zero, no white space.
fn digits(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let canonical = text == "0" || !text.starts_with('0');
    if plain && canonical { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_token_survives_its_text_and_nothing_else_parses() {
        let token = LeaseToken { job: JobId::FIRST, epoch: Epoch::new(7) };
        assert_eq!(token.to_string().parse(), Ok(token));
        let bad =
            ["", ".", "1", "1.", ".1", "0.1", "-1.1", "1.+1", "1.1.1", "01.1", " 1.1", "1.01"];
        for bad in bad {
            assert_eq!(bad.parse::<LeaseToken>(), Err(ParseIdError::LeaseToken), "{bad:?}");
        }
        assert_eq!("9223372036854775808".parse::<JobId>(), Err(ParseIdError::JobId));
    }

    #[test]
    fn ids_stop_at_the_last_one_instead_of_wrapping() {
        assert_eq!(JobId::LAST.plus(1), JobId::LAST);
        assert_eq!(JobId::LAST.get(), i64::MAX.unsigned_abs());
    }
}
