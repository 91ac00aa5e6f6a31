//! Values of the command line that are written in a way of their own: stores and lengths of time.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Which store, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreUrl {
    Sqlite(PathBuf),
    Redb(PathBuf),
}

impl FromStr for StoreUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("sqlite", path)) if !path.is_empty() => Ok(Self::Sqlite(path.into())),
            Some(("redb", path)) if !path.is_empty() => Ok(Self::Redb(path.into())),
            _ => Err("give sqlite:PATH or redb:PATH, like sqlite:windlass-data/windlass.db".into()),
        }
    }
}

impl StoreUrl {
    pub(crate) fn path(&self) -> &PathBuf {
        match self {
            Self::Sqlite(path) | Self::Redb(path) => path,
        }
    }
}

impl std::fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Redb(path) => write!(f, "redb:{}", path.display()),
        }
    }
}

/// A length of time: numbers with ms, s, m, h or d, like 500ms, 30s or 1h30m.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a length of time; write it like 500ms, 30s or 1h30m");
    let mut total = Duration::ZERO;
    let mut rest = text;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = rest[..end].parse().map_err(|_| wrong())?;
        rest = &rest[end..];
        let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit_ms: u64 = match &rest[..end] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(wrong()),
        };
        let millis = number.checked_mul(unit_ms).ok_or_else(wrong)?;
        total = total.checked_add(Duration::from_millis(millis)).ok_or_else(wrong)?;
        rest = &rest[end..];
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_is_read_with_its_units() {
        assert_eq!(duration("1h30m"), Ok(Duration::from_mins(90)));
        assert_eq!(duration("1500ms"), Ok(Duration::from_millis(1_500)));
        for text in
            ["", "30", "s", "3x", "-1s", "1.5s", "99999999999999999999s", "18446744073709551615d"]
        {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_store_is_named_by_its_kind_and_its_path() {
        let store: StoreUrl = "redb:/x/y".parse().unwrap();
        assert_eq!(store, StoreUrl::Redb("/x/y".into()));
        assert_eq!(store.to_string(), "redb:/x/y");
        for text in ["", "sqlite", "sqlite:", "mysql:x", "/x/y"] {
            assert!(StoreUrl::from_str(text).is_err(), "{text}");
        }
    }
}
