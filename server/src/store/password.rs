//! Where the password of a PostgreSQL store comes from, if not from its URL; and keeping one in
//! the URL out of the list of processes.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::StoreUrl;
use crate::http::auth::private;
use crate::process::this_binary;

impl StoreUrl {
    /// Adds the password that `--store-password-file`, `PGPASSWORD`, `PGPASSFILE` or `~/.pgpass`
    /// gives; the file that was named wins over the URL, the URL over the others.
    pub(crate) fn with_password_of(
        self,
        file: Option<&Path>,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, String> {
        let Self::Postgres(url) = self else { return Ok(self) };
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let url = if let Some(file) = file {
            let text = secret(file)?;
            url.with_password(text.trim_end_matches(['\r', '\n']))
        } else if url.has_password() {
            *url
        } else if let Some(password) = set("PGPASSWORD") {
            url.with_password(&password.to_string_lossy())
        } else if let Some(file) = set("PGPASSFILE") {
            url.with_passfile(&secret(Path::new(&file))?)
        } else {
            let home = set("HOME").map(|home| PathBuf::from(home).join(".pgpass"));
            match home.filter(|file| file.exists()) {
                Some(file) => url.with_passfile(&secret(&file)?),
                None => *url,
            }
        };
        Ok(Self::Postgres(Box::new(url)))
    }
}

/// The text of a file that holds passwords; one that every user can read is refused.
fn secret(file: &Path) -> Result<String, String> {
    private(file).map_err(|error| format!("the password file {error}"))?;
    std::fs::read_to_string(file)
        .map_err(|error| format!("the password file {} cannot be read: {error}", file.display()))
}

/// The flags that name a store, and the variable of each.
const STORES: [(&str, &str); 3] =
    [("--store", "WINDLASS_STORE"), ("--from", "WINDLASS_COPY_FROM"), ("--to", "WINDLASS_COPY_TO")];

/// Starts this program again in this very process if a password is among its arguments, with the
/// stores in the environment instead: other users of the machine see arguments, and not the
/// environment. Child processes are started with the same arguments.
pub(crate) fn hide_password() {
    let mut given = std::env::args_os();
    let name = given.next().unwrap_or_default();
    let (stores, rest) = without_stores(given);
    if stores.is_empty() {
        return;
    }
    if let Ok(binary) = this_binary() {
        // It returns only if it failed: then the password is seen, and everything else works.
        let _ = Command::new(binary).arg0(name).args(rest).envs(stores).exec();
    }
}

/// The stores among these arguments whose URLs have a password, by their variables, and the other
/// arguments.
fn without_stores(
    mut given: impl Iterator<Item = OsString>,
) -> (Vec<(&'static str, OsString)>, Vec<OsString>) {
    let (mut stores, mut rest) = (Vec::new(), Vec::new());
    while let Some(word) = given.next() {
        if word == "--" {
            rest.push(word);
            rest.extend(given);
            break;
        }
        let (flag, inline) = match word.to_str().and_then(|word| word.split_once('=')) {
            Some((flag, value)) => (flag, Some(OsString::from(value))),
            None => (word.to_str().unwrap_or_default(), None),
        };
        let Some((_, variable)) = STORES.iter().find(|(known, _)| *known == flag) else {
            rest.push(word);
            continue;
        };
        let is_inline = inline.is_some();
        match inline.or_else(|| given.next()) {
            Some(store) if has_password(&store) => stores.push((*variable, store)),
            value => {
                rest.push(word);
                rest.extend(value.filter(|_| !is_inline));
            }
        }
    }
    (stores, rest)
}

fn has_password(store: &OsStr) -> bool {
    let url = store.to_str().and_then(|text| text.parse().ok());
    matches!(url, Some(StoreUrl::Postgres(url)) if url.has_password())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const SECRET: &str = "postgres://me:s3cret@db/jobs";

    #[test]
    fn only_a_store_with_a_password_is_taken_out_of_the_arguments() {
        let split = |words: &[&str]| without_stores(words.iter().map(Into::into));
        let expected = (
            vec![("WINDLASS_STORE", OsString::from(SECRET))],
            vec!["list".into(), "--json".into()],
        );
        assert_eq!(split(&["--store", SECRET, "list", "--json"]), expected);
        assert_eq!(split(&["list", &format!("--store={SECRET}"), "--json"]), expected);
        let same: [&[&str]; 5] = [
            &["--store", "postgres://me@db/jobs", "list"],
            &["--store", "sqlite:a:b@c", "list"],
            &["enqueue", "--", "x", "--store", SECRET],
            &["list", "--store"],
            &["copy", "--from=sqlite:a", "--to", "postgres://me@db/jobs"],
        ];
        for words in same {
            assert_eq!(split(words), (vec![], words.iter().map(Into::into).collect()));
        }
        let (stores, rest) = split(&["copy", "--from", "sqlite:a", "--to", SECRET, "--json"]);
        assert_eq!(stores, [("WINDLASS_COPY_TO", OsString::from(SECRET))]);
        assert_eq!(rest, ["copy", "--from", "sqlite:a", "--json"]);
    }

    #[test]
    fn a_password_comes_from_the_named_file_the_url_the_environment_or_a_password_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str, mode: u32| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let named = file("named", "one\n", 0o600);
        let passfile = file("passfile", "db:*:*:me:two\n", 0o600);
        let open = file("open", "three", 0o644);
        let none = |_: &str| None;
        let has = |url: &str, file: Option<&Path>, variables: &[(&str, &Path)]| {
            let variable = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, path)| path.as_os_str().to_owned())
            };
            let url: StoreUrl = url.parse().unwrap();
            match url.with_password_of(file, variable) {
                Ok(StoreUrl::Postgres(url)) => url.has_password(),
                other => panic!("{other:?}"),
            }
        };
        assert!(!has("postgres://me@db/jobs", None, &[]));
        assert!(has("postgres://me@db/jobs", Some(&named), &[]));
        assert!(has("postgres://me@db/jobs", None, &[("PGPASSFILE", &passfile)]));
        assert!(!has("postgres://you@db/jobs", None, &[("PGPASSFILE", &passfile)]));
        assert!(has("postgres://me@db/jobs", None, &[("PGPASSWORD", Path::new("x"))]));
        assert!(!has("postgres://me@db/jobs", None, &[("PGPASSWORD", Path::new(""))]));
        let url: StoreUrl = SECRET.parse().unwrap();
        let refused = url.with_password_of(Some(&open), none).unwrap_err();
        assert!(refused.contains("open") && !refused.contains("three"), "{refused}");
        let url: StoreUrl = SECRET.parse().unwrap();
        let missing = url.with_password_of(Some(Path::new("/nowhere")), none).unwrap_err();
        assert!(missing.contains("/nowhere"), "{missing}");
    }
}
