//! The order in which a copy takes rows: section by section, each by its key.

use alloc::string::ToString;
use core::fmt;

use crate::store::FigureKey;
use crate::{GroupId, IdempotencyKey, JobId, LeaseToken, ProcessId, QueueName, Span, Wall};

/// How far a copy has come: everything up to this place is copied. `None` is the start of a
/// section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyPlace {
    /// Queues with their settings, by name.
    Queues(Option<QueueName>),
    /// Rows of figures, by key.
    Figures(Option<FigureKey>),
    /// Jobs with their documents, by id.
    Jobs(Option<JobId>),
    /// Error groups, by id. Their dead letters are copied before them, and not counted again.
    Groups(Option<GroupId>),
    /// Attempts, by job and epoch.
    Attempts(Option<LeaseToken>),
    /// Idempotency keys, by key.
    Keys(Option<IdempotencyKey>),
    /// Settings, and the id that the next new job gets: all at once.
    Settings,
    /// The copy is complete.
    Whole,
}

impl CopyPlace {
    /// The place before the first row of the first section.
    pub const START: Self = Self::Queues(None);

    /// The start of the next section.
    pub(crate) fn next_section(&self) -> Self {
        match self {
            Self::Queues(_) => Self::Figures(None),
            Self::Figures(_) => Self::Jobs(None),
            Self::Jobs(_) => Self::Groups(None),
            Self::Groups(_) => Self::Attempts(None),
            Self::Attempts(_) => Self::Keys(None),
            Self::Keys(_) => Self::Settings,
            Self::Settings | Self::Whole => Self::Whole,
        }
    }

    /// The start of its section.
    pub(crate) fn section_start(&self) -> Self {
        match self {
            Self::Queues(_) => Self::Queues(None),
            Self::Figures(_) => Self::Figures(None),
            Self::Jobs(_) => Self::Jobs(None),
            Self::Groups(_) => Self::Groups(None),
            Self::Attempts(_) => Self::Attempts(None),
            Self::Keys(_) => Self::Keys(None),
            Self::Settings => Self::Settings,
            Self::Whole => Self::Whole,
        }
    }

    /// The name of the section, as it is shown.
    pub fn section(&self) -> &'static str {
        match self {
            Self::Queues(_) => "queues",
            Self::Figures(_) => "figures",
            Self::Jobs(_) => "jobs",
            Self::Groups(_) => "groups",
            Self::Attempts(_) => "attempts",
            Self::Keys(_) => "keys",
            Self::Settings => "settings",
            Self::Whole => "whole",
        }
    }

    /// Most rows of a page. Those of attempts and figures may be large.
    pub(crate) fn page_rows(&self) -> usize {
        match self {
            Self::Jobs(_) => 2_000,
            Self::Keys(_) => 4_000,
            Self::Queues(_) | Self::Groups(_) => 500,
            Self::Attempts(_) => 250,
            Self::Figures(_) => 50,
            Self::Settings | Self::Whole => 0,
        }
    }

    /// Reads the text that `Display` writes.
    pub fn parse(text: &str) -> Option<Self> {
        let (section, key) = match text.split_once('=') {
            Some((section, key)) => (section, Some(key)),
            None => (text, None),
        };
        Some(match section {
            "queues" => Self::Queues(parsed(key, |key| QueueName::new(key).ok())?),
            "figures" => Self::Figures(parsed(key, figure_key)?),
            "jobs" => Self::Jobs(parsed(key, |key| key.parse().ok())?),
            "groups" => Self::Groups(parsed(key, |key| key.parse().ok())?),
            "attempts" => Self::Attempts(parsed(key, |key| key.parse().ok())?),
            "keys" => Self::Keys(parsed(key, |key| IdempotencyKey::new(key).ok())?),
            "settings" => Self::Settings,
            "whole" => Self::Whole,
            _ => return None,
        })
    }
}

/// A key that may be absent; `None` for one that cannot be read.
#[expect(clippy::option_option, reason = "the outer one says that the text is broken")]
fn parsed<T>(key: Option<&str>, parse: impl FnOnce(&str) -> Option<T>) -> Option<Option<T>> {
    key.map_or(Some(None), |key| parse(key).map(Some))
}

fn figure_key(text: &str) -> Option<FigureKey> {
    let mut parts = text.splitn(3, '/');
    let span = Span::from_code(parts.next()?.parse().ok()?)?;
    let slot = Wall::new(parts.next()?.parse().ok()?);
    Some(FigureKey { span, slot, process: ProcessId(parts.next()?.parse().ok()?) })
}

/// A text without spaces.
impl fmt::Display for CopyPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = match self {
            Self::Queues(name) => name.as_ref().map(ToString::to_string),
            Self::Figures(key) => key.map(|FigureKey { span, slot, process }| {
                alloc::format!("{}/{}/{}", span.code(), slot.get(), process.0)
            }),
            Self::Jobs(id) => id.map(|id| id.to_string()),
            Self::Groups(id) => id.map(|id| id.to_string()),
            Self::Attempts(token) => token.map(|token| token.to_string()),
            Self::Keys(key) => key.as_ref().map(ToString::to_string),
            Self::Settings | Self::Whole => None,
        };
        f.write_str(self.section())?;
        key.map_or(Ok(()), |key| write!(f, "={key}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Epoch;

    #[test]
    fn a_place_is_read_back_as_it_was_written() {
        let id = JobId::new(42).unwrap();
        let figures =
            FigureKey { span: Span::HalfHour, slot: Wall::new(-5), process: ProcessId(u64::MAX) };
        let mut place = CopyPlace::START;
        for _ in 0..9 {
            assert_eq!(CopyPlace::parse(&place.to_string()), Some(place.clone()));
            place = place.next_section();
        }
        assert_eq!(place, CopyPlace::Whole);
        for place in [
            CopyPlace::Queues(Some(QueueName::new("a.b:c").unwrap())),
            CopyPlace::Figures(Some(figures)),
            CopyPlace::Jobs(Some(id)),
            CopyPlace::Groups(Some(GroupId([7; 16]))),
            CopyPlace::Attempts(Some(LeaseToken { job: id, epoch: Epoch::new(3) })),
            CopyPlace::Keys(Some(IdempotencyKey::new("a=b/c;d").unwrap())),
        ] {
            let text = place.to_string();
            assert!(!text.contains(' '), "{text}");
            assert_eq!(CopyPlace::parse(&text), Some(place));
        }
        for bad in ["", "jobs=", "jobs=0", "figures=1/2", "keys=", "else", "attempts=7"] {
            assert_eq!(CopyPlace::parse(bad), None, "{bad:?}");
        }
    }
}
