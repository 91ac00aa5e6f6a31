//! Tokens and what they allow. Only digests are kept; they are compared in constant time.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use http::HeaderMap;
use http::header::AUTHORIZATION;
use ring::digest::{SHA256, digest};
use subtle::ConstantTimeEq;
use thiserror::Error;

use crate::api::problem::{self, Problem};

/// The routes that a token may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// Every GET but `/doctor`, `/backup` and `/jobs/{id}/lease`.
    Read,
    /// `POST /jobs` and `POST /jobs/batch`.
    Enqueue,
    /// Polls, reports and heartbeats.
    Work,
    /// Includes all other scopes.
    Admin,
}

impl Scope {
    pub(crate) const ALL: [Self; 4] = [Self::Read, Self::Enqueue, Self::Work, Self::Admin];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Enqueue => "enqueue",
            Self::Work => "work",
            Self::Admin => "admin",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == text)
    }
}

/// A file of tokens, or a token, that cannot be used. The secret is never part of the message.
#[derive(Debug, Error)]
pub(crate) enum TokenError {
    #[error("the token file {file} cannot be read: {source}")]
    Unreadable { file: String, source: std::io::Error },
    #[error("the token file {0}")]
    Open(SharedFile),
    #[error("line {line} of the token file: {problem}; write NAME SCOPE[,SCOPE...] SECRET")]
    Line { line: usize, problem: &'static str },
    #[error("the token file {file} holds no token; add a line: NAME SCOPE[,SCOPE...] SECRET")]
    Empty { file: String },
    #[error("WINDLASS_TOKEN is shorter than {SHORTEST} characters; use a longer secret")]
    Weak,
}

/// The shortest secret that is taken.
const SHORTEST: usize = 16;

/// A client by its token, or the local user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The token's name; `None` where no tokens are configured.
    name: Option<Arc<str>>,
    scopes: Vec<Scope>,
}

impl Caller {
    /// A caller on this machine, where no tokens are configured.
    pub(crate) fn anonymous() -> Self {
        Self { name: None, scopes: vec![Scope::Admin] }
    }

    /// The name of its token, for the log.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// What its token allows, as it is written in the file.
    pub(crate) fn scopes(&self) -> impl Iterator<Item = Scope> {
        self.scopes.iter().copied()
    }

    pub(crate) fn may(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope) || self.scopes.contains(&Scope::Admin)
    }

    /// Refuses what the token does not allow.
    pub(crate) fn allow(&self, scope: Scope) -> Result<(), Problem> {
        if self.may(scope) {
            return Ok(());
        }
        let has: Vec<&str> = self.scopes.iter().map(|scope| scope.as_str()).collect();
        let detail = format!(
            "this needs the scope `{}`, the token has `{}`; use another token",
            scope.as_str(),
            has.join(",")
        );
        Err(Problem::new(problem::FORBIDDEN, detail))
    }
}

#[derive(Clone)]
struct Token {
    name: Arc<str>,
    digest: [u8; 32],
    scopes: Vec<Scope>,
}

/// The tokens that are taken; if there are none, every caller may do everything. They can be
/// replaced while requests are served.
#[derive(Default)]
pub(crate) struct Tokens(RwLock<Vec<Token>>);

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Their number only: secrets are not logged.
        self.tokens().len().fmt(f)
    }
}

impl Tokens {
    /// Those of a file, and the one of the environment.
    pub(crate) fn load(file: Option<&Path>, admin: Option<&str>) -> Result<Self, TokenError> {
        let mut tokens = Vec::new();
        if let Some(path) = file {
            let file = path.display().to_string();
            let unreadable = |source| TokenError::Unreadable { file: file.clone(), source };
            let text = std::fs::read_to_string(path).map_err(unreadable)?;
            private(path).map_err(TokenError::Open)?;
            tokens = parse(&text)?;
            if tokens.is_empty() {
                return Err(TokenError::Empty { file });
            }
        }
        if let Some(secret) = admin {
            if secret.len() < SHORTEST {
                return Err(TokenError::Weak);
            }
            let (name, digest) = ("WINDLASS_TOKEN".into(), sha256(secret));
            tokens.push(Token { name, digest, scopes: vec![Scope::Admin] });
        }
        Ok(Self(RwLock::new(tokens)))
    }

    fn tokens(&self) -> RwLockReadGuard<'_, Vec<Token>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes these from now on, and no others.
    pub(crate) fn replace(&self, with: Self) {
        let tokens = with.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = tokens;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tokens().is_empty()
    }

    /// The client of this request; a problem if its token is missing or wrong.
    pub(crate) fn caller(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        if self.is_empty() {
            return Ok(Caller::anonymous());
        }
        let refused = |detail| Problem::new(problem::UNAUTHORIZED, detail);
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return Err(refused("send one header `Authorization: Bearer TOKEN`"));
        };
        let secret = value.to_str().ok().and_then(|text| text.split_once(' '));
        let Some((scheme, secret)) = secret else {
            return Err(refused("send the token as `Authorization: Bearer TOKEN`"));
        };
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(refused("send the token as `Authorization: Bearer TOKEN`"));
        }
        self.find(&sha256(secret.trim())).ok_or_else(|| refused("the token is unknown"))
    }

    /// Looks at every token, so that the time it takes tells nothing about which one fits.
    fn find(&self, given: &[u8; 32]) -> Option<Caller> {
        let mut found = None;
        for token in self.tokens().iter() {
            if bool::from(token.digest.ct_eq(given)) {
                let (name, scopes) = (Some(Arc::clone(&token.name)), token.scopes.clone());
                found = Some(Caller { name, scopes });
            }
        }
        found
    }
}

fn parse(text: &str) -> Result<Vec<Token>, TokenError> {
    let mut tokens = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fault = |problem| TokenError::Line { line: index + 1, problem };
        let mut words = line.split_whitespace();
        let (Some(name), Some(scopes), Some(secret), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(fault("does not hold three words"));
        };
        let scopes: Option<Vec<Scope>> = scopes.split(',').map(Scope::parse).collect();
        let scopes =
            scopes.ok_or_else(|| fault("has a scope other than read, enqueue, work, admin"))?;
        let digest = match secret.strip_prefix("sha256:") {
            Some(hex) => {
                unhex(hex).ok_or_else(|| fault("has a digest that is not 64 hex digits"))?
            }
            None if secret.len() < SHORTEST => return Err(fault("has a secret that is too short")),
            None => sha256(secret),
        };
        tokens.push(Token { name: name.into(), digest, scopes });
    }
    Ok(tokens)
}

fn sha256(text: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    bytes
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

/// A file with secrets that every user of the machine can read.
#[derive(Debug, Error)]
#[error("{file} can be read by others; make it private: chmod o-rwx {file}")]
pub(crate) struct SharedFile {
    file: String,
}

/// Refuses a file that every user of the machine can read. Its group may: that is how secrets are
/// given to services.
#[cfg(unix)]
pub(crate) fn private(path: &Path) -> Result<(), SharedFile> {
    use std::os::unix::fs::PermissionsExt;
    let metadata = std::fs::metadata(path);
    if metadata.is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0) {
        return Err(SharedFile { file: path.display().to_string() });
    }
    Ok(())
}

#[cfg(not(unix))]
pub(crate) fn private(_: &Path) -> Result<(), SharedFile> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(secret: &str) -> String {
        let digits = |byte: &u8| [byte >> 4, byte & 15].map(|n| char::from_digit(n.into(), 16));
        sha256(secret).iter().flat_map(digits).flatten().collect()
    }

    fn with(token: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        headers
    }

    #[test]
    fn a_token_is_known_by_its_secret_or_by_its_digest() {
        let hex = hex("another-long-secret");
        let text =
            format!("# who\n\nci read,enqueue a-long-enough-secret\nops admin sha256:{hex}\n");
        let tokens = Tokens(RwLock::new(parse(&text).unwrap()));
        let ci = tokens.caller(&with("a-long-enough-secret")).unwrap();
        assert!(ci.allow(Scope::Enqueue).is_ok());
        assert_eq!(ci.name(), Some("ci"));
        assert_eq!(ci.allow(Scope::Work).unwrap_err().kind(), problem::FORBIDDEN);
        let ops = tokens.caller(&with("another-long-secret")).unwrap();
        assert!(Scope::ALL.iter().all(|scope| ops.allow(*scope).is_ok()));
    }

    #[test]
    fn an_unknown_token_a_digest_and_no_token_are_refused() {
        let tokens = Tokens(RwLock::new(parse("ci read a-long-enough-secret").unwrap()));
        let hex = hex("a-long-enough-secret");
        for headers in [with("wrong"), with(""), with(&format!("sha256:{hex}")), HeaderMap::new()] {
            assert_eq!(tokens.caller(&headers).unwrap_err().kind(), problem::UNAUTHORIZED);
        }
        let mut twice = with("a-long-enough-secret");
        twice.append(AUTHORIZATION, "Bearer wrong".parse().unwrap());
        assert!(tokens.caller(&twice).is_err());
    }

    #[test]
    fn a_line_that_cannot_be_used_is_named_without_its_secret() {
        for text in [
            "ci read",
            "ci read,write a-long-enough-secret",
            "ci read short-secret",
            "ci read sha256:short-secret",
            "ci read a-long short-secret",
        ] {
            let error = parse(text).map(|_| ()).unwrap_err().to_string();
            assert!(error.starts_with("line 1 of the token file: "), "{error}");
            assert!(!error.contains("secret-") && !error.contains("short-secret"), "{error}");
        }
    }
}
