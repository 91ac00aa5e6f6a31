//! The mark of a store that takes no batches, because its jobs are being moved or were moved to
//! another store, or because it is the unfinished copy of another one.
//!
//! The mark is a setting in the store, so every process that has the store open finds it. A store
//! asks [`Batch::check_seal`] before it applies a batch; only a batch that writes the mark passes.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;

use super::{Admin, Batch, Cause, CommitError, CopyPlace};
use crate::{SettingKey, SettingValue};

/// The name of the setting.
pub const SEAL: &str = "store.seal";

/// The number that the two stores of one copy share, so that a copy that was interrupted is gone on
/// with between the same two stores only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyId(pub u64);

/// Why a store takes no batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seal {
    /// Its rows are being copied to another store.
    Moving {
        /// The same number as in the mark of the other store.
        copy: CopyId,
        /// The other store, as text without a password.
        to: String,
    },
    /// They were copied, and the other store is in use instead.
    Moved {
        /// The same number as in the mark of the other store.
        copy: CopyId,
        /// The store in use now, as text without a password.
        to: String,
    },
    /// It is being filled from another store.
    Filling {
        /// The same number as in the mark of the other store.
        copy: CopyId,
        /// The source, as text without a password.
        from: String,
        /// The last row that was copied.
        place: CopyPlace,
    },
    /// A text that this version cannot read.
    Unknown(String),
}

impl Seal {
    /// The mark among the settings of a store.
    pub fn of(settings: &[(SettingKey, SettingValue)]) -> Option<Self> {
        let mark = settings.iter().find(|(key, _)| is_seal(key));
        mark.map(|(_, value)| Self::parse(value.as_str()))
    }

    /// Reads the text that [`command`](Self::command) writes.
    pub fn parse(text: &str) -> Self {
        let parsed = || {
            let (what, rest) = text.split_once(' ')?;
            let (copy, rest) = rest.split_once(' ')?;
            let copy = CopyId(u64::from_str_radix(copy, 16).ok()?);
            Some(match what {
                "moving" => Self::Moving { copy, to: rest.into() },
                "moved" => Self::Moved { copy, to: rest.into() },
                "filling" => {
                    let (place, from) = rest.split_once(' ')?;
                    Self::Filling { copy, from: from.into(), place: CopyPlace::parse(place)? }
                }
                _ => return None,
            })
        };
        parsed().unwrap_or_else(|| Self::Unknown(text.into()))
    }

    /// The command that puts a mark in place, or takes it off.
    pub fn command(seal: Option<&Self>) -> Admin {
        let key = SettingKey::new(SEAL).expect("the name is valid");
        let value = |seal: &Self| {
            let text = seal.text();
            // The name of a store is the only part that can be long or empty.
            SettingValue::new(&text).or_else(|_| SettingValue::new(&seal.with_name("?").text()))
        };
        let value = seal.map(|seal| value(seal).expect("without the name it is short"));
        Admin::set_setting(key, value)
    }

    fn text(&self) -> String {
        match self {
            Self::Moving { copy, to } => format!("moving {:016x} {to}", copy.0),
            Self::Moved { copy, to } => format!("moved {:016x} {to}", copy.0),
            Self::Filling { copy, from, place } => {
                format!("filling {:016x} {place} {from}", copy.0)
            }
            Self::Unknown(text) => text.clone(),
        }
    }

    fn with_name(&self, name: &str) -> Self {
        match self.clone() {
            Self::Moving { copy, .. } => Self::Moving { copy, to: name.into() },
            Self::Moved { copy, .. } => Self::Moved { copy, to: name.into() },
            Self::Filling { copy, place, .. } => Self::Filling { copy, from: name.into(), place },
            Self::Unknown(_) => Self::Unknown(name.into()),
        }
    }
}

/// What it means, and what to do.
impl fmt::Display for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let again = "run the same `windlass copy` again to finish it";
        let undo = "`windlass copy --undo --from STORE` lets this store be used again";
        match self {
            Self::Moving { to, .. } => {
                write!(f, "the store is being copied to {to}: {again}, or give the copy up: {undo}")
            }
            Self::Moved { to, .. } => write!(
                f,
                "the store was moved to {to}: use that one; to give that one up instead, {undo}"
            ),
            Self::Filling { from, .. } => {
                write!(f, "the store is an unfinished copy of {from}: {again}")
            }
            Self::Unknown(text) => {
                write!(f, "the store is marked by another version of Windlass: {text}")
            }
        }
    }
}

/// Whether this is the setting that holds the mark.
pub fn is_seal(key: &SettingKey) -> bool {
    key.as_str() == SEAL
}

impl Batch {
    /// Whether it writes or removes the mark.
    pub fn sets_seal(&self) -> bool {
        self.admin
            .iter()
            .any(|command| matches!(command, Admin::SetSetting { key, .. } if is_seal(key)))
    }

    /// Refuses it if the store has a mark that it does not write.
    pub fn check_seal(&self, seal: Option<&Seal>) -> Result<(), CommitError> {
        match seal {
            Some(seal) if !self.sets_seal() => {
                Err(CommitError::NotCommitted(Cause::new(&seal.to_string())))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::CopyPlace;
    use crate::{BatchId, JobId, Policy, ProcessId};

    fn seals() -> [Seal; 3] {
        let (copy, name) = (CopyId(0xfeed), String::from("sqlite:a path/jobs.db"));
        let place = CopyPlace::Jobs(JobId::new(7));
        [
            Seal::Moving { copy, to: name.clone() },
            Seal::Moved { copy, to: name.clone() },
            Seal::Filling { copy, from: name, place },
        ]
    }

    #[test]
    fn a_mark_is_read_back_as_it_was_written() {
        for seal in seals() {
            let Admin::SetSetting { key, value: Some(value), .. } = Seal::command(Some(&seal))
            else {
                panic!("it puts a setting in place");
            };
            assert_eq!(Seal::of(&[(key, value)]), Some(seal));
        }
        assert_eq!(Seal::of(&[]), None);
        for text in ["", "moved", "moved x y", "filling 1 nowhere x", "sold 1 x"] {
            assert_eq!(Seal::parse(text), Seal::Unknown(text.into()));
        }
    }

    #[test]
    fn the_name_of_a_store_is_left_out_where_it_is_too_long_for_a_setting() {
        let seal = Seal::Moved { copy: CopyId(1), to: "x".repeat(5_000) };
        let Admin::SetSetting { value: Some(value), .. } = Seal::command(Some(&seal)) else {
            panic!("it puts a setting in place");
        };
        assert_eq!(Seal::parse(value.as_str()), Seal::Moved { copy: CopyId(1), to: "?".into() });
    }

    #[test]
    fn a_store_with_a_mark_takes_only_batches_that_write_the_mark() {
        let mut batch = Batch::new(BatchId { process: ProcessId(1), seq: 1 }, Policy::default());
        for seal in seals() {
            assert!(batch.check_seal(None).is_ok());
            assert!(batch.check_seal(Some(&seal)).is_err());
        }
        batch.admin.push(Seal::command(None));
        for seal in seals() {
            assert!(batch.check_seal(Some(&seal)).is_ok());
        }
    }
}
