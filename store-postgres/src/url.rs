//! Where a store is: a URL as PostgreSQL's own tools take it, with the password kept out of every
//! text.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Config;

use crate::error::OpenError;
use crate::tls::{SslMode, Tls};

/// The schema if the URL names none.
const SCHEMA: &str = "windlass";
/// The longest name PostgreSQL keeps.
const NAME_BYTES: usize = 63;

/// The parts of a store's URL. `Display` and `Debug` leave the password out.
#[derive(Clone)]
pub struct StoreUrl {
    pub(crate) config: Config,
    pub(crate) schema: String,
    pub(crate) tls: Tls,
    id_block: Option<usize>,
    old_transaction: Option<Duration>,
    shown: String,
}

/// A setting of every connection by which the server is known to have read the startup options.
/// Connection poolers refuse or drop them, and share connections between sessions.
pub(crate) const DIRECT: &str = "windlass.direct";

impl StoreUrl {
    /// Reads `postgres://user:password@host:port/database?schema=windlass`. Parameters other than
    /// `schema`, `id_block` and `old_transaction` are those of libpq.
    pub fn parse(text: &str) -> Result<Self, OpenError> {
        if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
            return Err(OpenError::Url("it does not start with postgres://".into()));
        }
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let own = OwnParameters::read(query)?;
        let query = if own.rest.is_empty() { String::new() } else { format!("?{}", own.rest) };
        let mut config: Config = format!("{base}{query}").parse().map_err(|error| {
            let why = crate::error::chain(&error);
            OpenError::Url(format!("{why}; it is written postgres://user@host:port/database"))
        })?;
        if config.get_application_name().is_none() {
            config.application_name("windlass");
        }
        let keepalive = Duration::from_secs(10);
        config.keepalives(true).keepalives_idle(keepalive).keepalives_interval(keepalive);
        config.keepalives_retries(3);
        let given = config.get_options().map(|given| format!("{given} ")).unwrap_or_default();
        config.options(format!("{given}-c {DIRECT}=on"));
        let OwnParameters { schema, mode, mut tls, id_block, old_transaction, .. } = own;
        tls.mode = mode.unwrap_or_else(|| SslMode::usual(config.get_hosts()));
        tls.check().map_err(OpenError::Url)?;
        config.ssl_mode(tls.mode.wire());
        let shown = shown(&config, &schema);
        Ok(Self { config, schema, tls, id_block, old_transaction, shown })
    }

    /// Whether the URL, or [`with_password`](Self::with_password), gives a password.
    pub fn has_password(&self) -> bool {
        self.config.get_password().is_some()
    }

    /// How many job ids a process is to take from the sequence at once, if the URL says so.
    pub fn id_block(&self) -> Option<usize> {
        self.id_block
    }

    /// From which age on a transaction of others that keeps dead rows is to be reported, if the URL
    /// says so.
    pub fn old_transaction(&self) -> Option<Duration> {
        self.old_transaction
    }

    /// Uses this password, in place of one in the URL.
    #[must_use]
    pub fn with_password(mut self, password: &str) -> Self {
        self.config.password(password);
        self
    }
}

impl StoreUrl {
    /// Uses the password of the first line that fits in the text of a `PGPASSFILE`
    /// (`host:port:database:user:password`, `*` for any), unless the URL has one.
    #[must_use]
    pub fn with_passfile(self, text: &str) -> Self {
        if self.config.get_password().is_some() {
            return self;
        }
        let host = match self.config.get_hosts().first() {
            Some(tokio_postgres::config::Host::Tcp(host)) => host.clone(),
            _ => "localhost".to_owned(),
        };
        let port = self.config.get_ports().first().copied().unwrap_or(5432).to_string();
        let user = self.config.get_user().unwrap_or_default().to_owned();
        let database = self.config.get_dbname().unwrap_or(&user).to_owned();
        let wanted = [host, port, database, user];
        let fits = |line: &&str| {
            let fields = fields(line);
            let same = |(field, wanted): (&String, &String)| field == "*" || field == wanted;
            fields.len() == 5 && fields.iter().zip(&wanted).all(same)
        };
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let password = { lines }.find(fits).and_then(|line| fields(line).pop());
        match password {
            Some(password) => self.with_password(&password),
            None => self,
        }
    }
}

/// The parameters of a URL that are not passed on.
struct OwnParameters {
    schema: String,
    mode: Option<SslMode>,
    tls: Tls,
    id_block: Option<usize>,
    old_transaction: Option<Duration>,
    /// The URL with the other parameters only, for the driver.
    rest: String,
}

impl OwnParameters {
    fn read(query: &str) -> Result<Self, OpenError> {
        let (mut schema, mut mode, mut tls) = (SCHEMA.to_owned(), None, Tls::default());
        let (mut id_block, mut old_transaction, mut rest) = (None, None, Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "schema" => value.clone_into(&mut schema),
                "id_block" => id_block = Some(block(value).map_err(OpenError::Url)?),
                "old_transaction" => {
                    old_transaction = Some(seconds(name, value).map_err(OpenError::Url)?);
                }
                "sslmode" => mode = Some(SslMode::parse(value).map_err(OpenError::Url)?),
                "sslrootcert" => tls.root = Some(path(name, value)?),
                "sslcert" => tls.cert = Some(path(name, value)?),
                "sslkey" => tls.key = Some(path(name, value)?),
                _ => rest.push(pair),
            }
        }
        check_schema(&schema).map_err(|why| OpenError::Url(why.into()))?;
        Ok(Self { schema, mode, tls, id_block, old_transaction, rest: rest.join("&") })
    }
}

fn check_schema(schema: &str) -> Result<(), &'static str> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let starts = schema.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    if !starts || !schema.chars().all(plain) || schema.len() > NAME_BYTES {
        return Err("a schema is named with a-z, 0-9 and _, not with a digit first, and with at \
                    most 63 characters");
    }
    if schema.starts_with("pg_") {
        return Err("schemas of PostgreSQL itself (pg_...) cannot hold a store");
    }
    Ok(())
}

/// The most ids that are taken at once.
const LARGEST_BLOCK: usize = 100_000;

fn block(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=LARGEST_BLOCK).contains(number));
    number.ok_or_else(|| format!("id_block is a number from 1 to {LARGEST_BLOCK}"))
}

/// The most seconds after which something is reported: a day.
const LONGEST_SECONDS: u64 = 86_400;

fn seconds(name: &str, text: &str) -> Result<Duration, String> {
    let number = text.parse().ok().filter(|number| (1..=LONGEST_SECONDS).contains(number));
    let bounds = || format!("{name} is a number of seconds from 1 to {LONGEST_SECONDS}");
    number.map(Duration::from_secs).ok_or_else(bounds)
}

/// A path, in which characters may be written as %XX.
fn path(name: &str, value: &str) -> Result<PathBuf, OpenError> {
    let bad = || OpenError::Url(format!("{name} must be a path, with % written as %25"));
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let byte = match byte {
            b'%' => match (digit(rest.next()), digit(rest.next())) {
                (Some(high), Some(low)) => u8::try_from(high * 16 + low).map_err(|_| bad())?,
                _ => return Err(bad()),
            },
            byte => byte,
        };
        bytes.push(byte);
    }
    let text = String::from_utf8(bytes).map_err(|_| bad())?;
    if text.is_empty() { Err(bad()) } else { Ok(text.into()) }
}

/// The fields of a line of a password file, in which a backslash keeps the next character.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        let last = fields.last_mut().expect("there is always one");
        match c {
            ':' => fields.push(String::new()),
            '\\' => last.extend(chars.next()),
            c => last.push(c),
        }
    }
    fields
}

/// The URL without password and parameters.
fn shown(config: &Config, schema: &str) -> String {
    let user = config.get_user().map(|user| format!("{user}@")).unwrap_or_default();
    let host = match config.get_hosts().first() {
        Some(tokio_postgres::config::Host::Tcp(host)) => host.clone(),
        #[cfg(unix)]
        Some(tokio_postgres::config::Host::Unix(path)) => path.display().to_string(),
        None => String::new(),
    };
    let port = config.get_ports().first().map(|port| format!(":{port}")).unwrap_or_default();
    let database = config.get_dbname().unwrap_or_default();
    let schema = if schema == SCHEMA { String::new() } else { format!("?schema={schema}") };
    format!("postgres://{user}{host}{port}/{database}{schema}")
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_of_a_url_holds_its_password() {
        let url = StoreUrl::parse("postgres://me:s3cret@db.example:6543/jobs?schema=mine");
        let url = url.expect("it is a URL").with_password("0ther");
        for text in [url.to_string(), format!("{url:?}"), format!("{url:#?}")] {
            assert_eq!(text, "postgres://me@db.example:6543/jobs?schema=mine");
        }
    }

    #[test]
    fn a_url_that_cannot_be_used_is_refused_without_its_password() {
        for text in [
            "sqlite:s3cret",
            "postgres://me:s3cret@db:notaport/jobs",
            "postgres://me:s3cret@db/jobs?nosuchoption=1",
            "postgres://me:s3cret@db/jobs?schema=pg_catalog",
            "postgres://me:s3cret@db/jobs?schema=1a",
            "postgres://me:s3cret@db/jobs?schema=a%22b",
            "postgres://me:s3cret@db/jobs?schema=",
            "postgres://me:s3cret@db/jobs?sslmode=maybe",
            "postgres://me:s3cret@db/jobs?sslmode=disable&sslrootcert=ca.pem",
            "postgres://me:s3cret@db/jobs?sslcert=only.pem",
            "postgres://me:s3cret@db/jobs?sslrootcert=%zz",
            "postgres://me:s3cret@db/jobs?id_block=0",
            "postgres://me:s3cret@db/jobs?old_transaction=0",
        ] {
            let error = StoreUrl::parse(text).expect_err(text).to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn a_password_file_gives_the_password_of_the_first_line_that_fits() {
        let file = "# ours\nother:*:*:*:no\ndb:5432:jobs:me:a\\:b\n*:*:*:*:late\n";
        let password = |text: &str| {
            let url = StoreUrl::parse(text).expect("it is a URL").with_passfile(file);
            url.config.get_password().map(|text| String::from_utf8_lossy(text).into_owned())
        };
        assert_eq!(password("postgres://me@db/jobs").as_deref(), Some("a:b"));
        assert_eq!(password("postgres://me@db:1/jobs").as_deref(), Some("late"));
        assert_eq!(password("postgres://me:own@db/jobs").as_deref(), Some("own"));
    }

    #[test]
    fn certificates_are_checked_unless_the_server_is_on_this_machine_or_the_url_says_otherwise() {
        let mode = |text: &str| StoreUrl::parse(text).expect("it is a URL").tls.mode;
        for here in ["127.0.0.1", "127.8.9.1", "localhost", "[::1]", "%2Frun%2Fpostgresql"] {
            assert_eq!(mode(&format!("postgres://me@{here}/jobs")), SslMode::Prefer, "{here}");
        }
        for there in ["db", "10.0.0.1", "localhost,db", "localhost.example"] {
            assert_eq!(
                mode(&format!("postgres://me@{there}/jobs")),
                SslMode::VerifyFull,
                "{there}"
            );
        }
        assert_eq!(mode("postgres://me@db/jobs?sslmode=disable"), SslMode::Disable);
        assert_eq!(mode("postgres://me@localhost/jobs?sslmode=verify-ca"), SslMode::VerifyCa);
    }

    #[test]
    fn paths_of_certificates_may_be_escaped_and_options_are_kept() {
        let url = "postgres://me@db/jobs?sslrootcert=%2Fetc%2Fca%20all.pem&options=-c%20jit%3Doff";
        let url = StoreUrl::parse(url).expect("it is a URL");
        assert_eq!(url.tls.root, Some("/etc/ca all.pem".into()));
        assert_eq!(url.config.get_options(), Some("-c jit=off -c windlass.direct=on"));
    }

    #[test]
    fn the_schema_is_windlass_unless_the_url_names_another() {
        let schema = |text| StoreUrl::parse(text).expect("it is a URL").schema;
        assert_eq!(schema("postgres://me@db/jobs"), "windlass");
        assert_eq!(schema("postgres://me@db/jobs?connect_timeout=3&schema=b_2"), "b_2");
    }
}
