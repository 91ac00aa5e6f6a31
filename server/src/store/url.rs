//! Which store: `sqlite:PATH`, `redb:PATH` or `postgres://...`. No text of it holds a password.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use windlass_store_postgres::StoreUrl as PgUrl;

/// A store by its type and place.
#[derive(Debug, Clone)]
pub(crate) enum StoreUrl {
    Sqlite(PathBuf),
    Redb(PathBuf),
    Postgres(Box<PgUrl>),
}

/// The accepted forms, for messages.
const FORMS: &str = "give sqlite:PATH, redb:PATH or postgres://USER@HOST/DATABASE, like \
                     sqlite:windlass-data/windlass.db";

impl FromStr for StoreUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("sqlite", path)) if !path.is_empty() => Ok(Self::Sqlite(path.into())),
            Some(("redb", path)) if !path.is_empty() => Ok(Self::Redb(path.into())),
            Some(("postgres" | "postgresql", _)) => {
                let url = PgUrl::parse(text).map_err(|error| error.to_string())?;
                Ok(Self::Postgres(Box::new(url)))
            }
            _ => Err(FORMS.into()),
        }
    }
}

impl StoreUrl {
    /// The file of a store in a file.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::Sqlite(path) | Self::Redb(path) => Some(path),
            Self::Postgres(_) => None,
        }
    }

    /// Which kind of store it is.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "sqlite",
            Self::Redb(_) => "redb",
            Self::Postgres(_) => "postgres",
        }
    }

    /// Where it is: a path, or a URL without its password.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Sqlite(path) | Self::Redb(path) => path.display().to_string(),
            Self::Postgres(url) => url.to_string(),
        }
    }

    /// A store of the same kind in another file.
    pub(crate) fn with_file(&self, path: &Path) -> Self {
        match self {
            Self::Sqlite(_) => Self::Sqlite(path.into()),
            Self::Redb(_) => Self::Redb(path.into()),
            Self::Postgres(_) => self.clone(),
        }
    }

    /// Whether several processes may have it open at the same time.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Self::Sqlite(_) | Self::Postgres(_))
    }
}

impl std::fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Redb(path) => write!(f, "redb:{}", path.display()),
            Self::Postgres(url) => url.fmt(f),
        }
    }
}

/// Reads a store from the command line. Unlike clap's own, its errors leave a password out.
#[derive(Debug, Clone)]
pub(crate) struct StoreParser;

impl TypedValueParser for StoreParser {
    type Value = StoreUrl;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<StoreUrl, clap::Error> {
        let text = value.to_string_lossy();
        text.parse().map_err(|why| {
            let shown = without_secret(&text);
            let flag = arg.map_or("--store <STORE>".into(), ToString::to_string);
            let why = format!("invalid value '{shown}' for '{flag}': {why}\n");
            clap::Error::raw(ErrorKind::ValueValidation, why).with_cmd(command)
        })
    }
}

/// A text that may be a URL, without what may be a password.
fn without_secret(text: &str) -> String {
    let (scheme, rest) = text.split_once(':').unwrap_or(("", text));
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://...@{}", host.split('?').next().unwrap_or_default()),
        None => text.split('?').next().unwrap_or_default().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_named_by_its_kind_and_its_place() {
        let store: StoreUrl = "redb:/x/y".parse().unwrap();
        assert!(matches!(&store, StoreUrl::Redb(path) if path == Path::new("/x/y")));
        assert_eq!(store.to_string(), "redb:/x/y");
        let store: StoreUrl = "postgresql://me:s3cret@db/jobs".parse().unwrap();
        assert_eq!(store.to_string(), "postgres://me@db:5432/jobs");
        for text in ["", "sqlite", "sqlite:", "mysql:x", "/x/y", "postgres:x"] {
            assert!(StoreUrl::from_str(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_store_that_is_refused_is_shown_without_its_password() {
        for text in [
            "postgres://me:s3cret@db:x/jobs",
            "postgres://me:s3cret@word@db/jobs?a=b",
            "postgres://db/jobs?password=s3cret&sslmode=x",
            "mysql://me:s3cret@db/jobs",
        ] {
            let error = StoreParser.parse_ref(&clap::Command::new("x"), None, OsStr::new(text));
            let error = error.unwrap_err().to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
