//! Demand: the queues and kinds that a worker runs, and its text form in a store.

use alloc::vec::Vec;
use core::fmt;

use thiserror::Error;

use crate::limits::DEMAND_NAMES;
use crate::{Kind, NameError, QueueName};

/// A set of queues.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Queues {
    /// Every queue there is.
    All,
    /// These, ordered and each once.
    Only(Vec<QueueName>),
}

impl Queues {
    /// Sorts the names and removes duplicates.
    pub fn only(mut names: Vec<QueueName>) -> Self {
        names.sort();
        names.dedup();
        Self::Only(names)
    }

    /// Whether the set contains this queue.
    pub fn includes(&self, name: &QueueName) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.binary_search(name).is_ok(),
        }
    }
}

/// A set of kinds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kinds {
    /// Every kind there is.
    All,
    /// These, ordered and each once.
    Only(Vec<Kind>),
    /// Every kind but these, ordered and each once.
    Except(Vec<Kind>),
}

impl Kinds {
    /// Sorts the kinds and removes duplicates.
    pub fn only(mut kinds: Vec<Kind>) -> Self {
        kinds.sort();
        kinds.dedup();
        Self::Only(kinds)
    }

    /// All kinds but these; sorts them and removes duplicates.
    pub fn except(mut kinds: Vec<Kind>) -> Self {
        kinds.sort();
        kinds.dedup();
        Self::Except(kinds)
    }

    /// Whether the set contains this kind.
    pub fn includes(&self, kind: &Kind) -> bool {
        match self {
            Self::All => true,
            Self::Only(kinds) => kinds.binary_search(kind).is_ok(),
            Self::Except(kinds) => kinds.binary_search(kind).is_err(),
        }
    }
}

/// The jobs that a worker pool or a polling remote worker runs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Demand {
    /// A job matches if its queue is in this set,
    pub queues: Queues,
    /// and its kind in this one.
    pub kinds: Kinds,
}

impl Demand {
    /// All jobs.
    pub const ALL: Self = Self { queues: Queues::All, kinds: Kinds::All };

    /// Whether a job of this queue and kind matches.
    pub fn wants(&self, queue: &QueueName, kind: &Kind) -> bool {
        self.queues.includes(queue) && self.kinds.includes(kind)
    }

    /// The demand as it is stored: a list of more than [`DEMAND_NAMES`] names becomes "all".
    #[must_use]
    pub fn kept(&self) -> Self {
        let queues = match &self.queues {
            Queues::Only(names) if names.len() > DEMAND_NAMES => Queues::All,
            queues => queues.clone(),
        };
        let kinds = match &self.kinds {
            Kinds::Only(kinds) | Kinds::Except(kinds) if kinds.len() > DEMAND_NAMES => Kinds::All,
            kinds => kinds.clone(),
        };
        Self { queues, kinds }
    }

    /// Parses the text form that `Display` writes.
    ///
    /// ```
    /// use windlass_core::{Demand, Kind, Kinds, QueueName, Queues};
    /// let queues = Queues::only(vec![QueueName::new("b").unwrap(), QueueName::new("a").unwrap()]);
    /// let demand = Demand { queues, kinds: Kinds::except(vec![Kind::new("slow").unwrap()]) };
    /// assert_eq!(demand.to_string(), "a,b/!slow");
    /// assert_eq!(Demand::parse("a,b/!slow"), Ok(demand));
    /// assert_eq!(Demand::parse("*/*"), Ok(Demand::ALL));
    /// ```
    pub fn parse(text: &str) -> Result<Self, DemandError> {
        let (queues, kinds) = text.split_once('/').ok_or(DemandError::NoKinds)?;
        let queues = match queues {
            "*" => Queues::All,
            names => Queues::only(list(names, QueueName::new)?),
        };
        let kinds = match (kinds, kinds.strip_prefix('!')) {
            ("*", _) => Kinds::All,
            (_, Some(kinds)) => Kinds::except(list(kinds, Kind::new)?),
            (kinds, None) => Kinds::only(list(kinds, Kind::new)?),
        };
        Ok(Self { queues, kinds })
    }
}

/// The stored form: queues, `/`, kinds. `*` means all, `!` before a list all but these. Names
/// contain none of these characters.
impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.queues {
            Queues::All => f.write_str("*")?,
            Queues::Only(names) => write_list(f, names)?,
        }
        f.write_str("/")?;
        match &self.kinds {
            Kinds::All => f.write_str("*"),
            Kinds::Only(kinds) => write_list(f, kinds),
            Kinds::Except(kinds) => {
                f.write_str("!")?;
                write_list(f, kinds)
            }
        }
    }
}

/// Why a text is not a demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DemandError {
    /// There is no `/`.
    #[error("no kinds follow the queues")]
    NoKinds,
    /// A name is not valid.
    #[error(transparent)]
    Name(#[from] NameError),
}

fn write_list(f: &mut fmt::Formatter<'_>, names: &[impl fmt::Display]) -> fmt::Result {
    for (at, name) in names.iter().enumerate() {
        if at > 0 {
            f.write_str(",")?;
        }
        name.fmt(f)?;
    }
    Ok(())
}

fn list<T>(text: &str, name: impl Fn(&str) -> Result<T, NameError>) -> Result<Vec<T>, DemandError> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    text.split(',').map(|one| name(one).map_err(DemandError::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString;

    fn kinds(count: usize) -> Vec<Kind> {
        (0..count).map(|at| Kind::new(&format!("k{at}")).expect("it is a name")).collect()
    }

    fn queues(count: usize) -> Vec<QueueName> {
        (0..count).map(|at| QueueName::new(&format!("q{at}")).expect("it is a name")).collect()
    }

    #[test]
    fn every_form_of_a_demand_comes_back_as_it_was_written() {
        for some in [0, 1, 3] {
            for queues in [Queues::All, Queues::only(queues(some))] {
                let all = [Kinds::All, Kinds::only(kinds(some)), Kinds::except(kinds(some))];
                for kinds in all {
                    let demand = Demand { queues: queues.clone(), kinds };
                    assert_eq!(Demand::parse(&demand.to_string()), Ok(demand));
                }
            }
        }
    }

    #[test]
    fn a_text_that_is_not_a_demand_is_refused() {
        for text in ["", "a", "a,/b", "a/b,", "a/!*", "**/a", "a b/c", "a/b/c"] {
            assert!(Demand::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_list_that_is_too_long_to_store_becomes_all() {
        let of = |count| Demand {
            queues: Queues::only(queues(count)),
            kinds: Kinds::only(kinds(count)),
        };
        assert_eq!(of(DEMAND_NAMES).kept(), of(DEMAND_NAMES));
        assert_eq!(of(DEMAND_NAMES + 1).kept(), Demand::ALL);
        let except = Demand { queues: Queues::All, kinds: Kinds::except(kinds(DEMAND_NAMES + 1)) };
        assert_eq!(except.kept(), Demand::ALL);
    }
}
