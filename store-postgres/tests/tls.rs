//! Connections over TLS: each `sslmode` accepts what it is to accept and nothing else.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;
use windlass_store_postgres::{OpenError, PgStore};
use windlass_tests::postgres_server::{PASSWORD, PostgresServer, USER};

/// Who may connect how: over TCP only with TLS, and `certified` only with a certificate.
const HBA: &[u8] = b"local all all trust\n\
    hostssl all certified 127.0.0.1/32 cert\n\
    hostssl all all 127.0.0.1/32 scram-sha-256\n";

/// A server with a certificate for `localhost`, and the files that clients need.
struct Secure {
    server: PostgresServer,
    files: TempDir,
}

impl Secure {
    fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Secure>> = OnceLock::new();
        SHARED.get_or_init(Self::start).as_ref()
    }

    fn start() -> Option<Self> {
        let files = tempfile::tempdir().expect("there is a temporary directory");
        let at = files.path();
        authority(at, "ca");
        authority(at, "other");
        signed(at, "server", "localhost");
        signed(at, "client", "certified");
        let read = |name: &str| std::fs::read(at.join(name)).expect("openssl has made it");
        let settings = [
            "ssl = on",
            "ssl_cert_file = '{dir}/server.pem'",
            "ssl_key_file = '{dir}/server.key'",
            "ssl_ca_file = '{dir}/ca.pem'",
            "hba_file = '{dir}/hba'",
        ];
        let given = [
            ("server.pem", &*read("server.pem")),
            ("server.key", &*read("server.key")),
            ("ca.pem", &*read("ca.pem")),
            ("hba", HBA),
        ];
        let server = PostgresServer::start_with(&settings, &given)?;
        server.run("CREATE ROLE certified LOGIN SUPERUSER");
        Some(Self { server, files })
    }

    fn file(&self, name: &str) -> String {
        self.files.path().join(name).display().to_string().replace('/', "%2F")
    }

    /// A URL of this host with these parameters.
    fn url(&self, host: &str, parameters: &str) -> String {
        let (port, schema) = (self.server.port(), self.server.new_schema());
        format!("postgres://{USER}:{PASSWORD}@{host}:{port}/postgres?schema={schema}&{parameters}")
    }

    #[track_caller]
    fn opens(&self, host: &str, parameters: &str) {
        let store = PgStore::connect(&self.url(host, parameters));
        let store = store.unwrap_or_else(|error| panic!("{host} with {parameters}: {error}"));
        let sql = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                   WHERE client_addr IS NOT NULL";
        assert_eq!(self.server.run(sql), "t", "the connection is not encrypted");
        drop(store);
    }

    #[track_caller]
    fn refuses(&self, host: &str, parameters: &str, parts: &[&str]) -> OpenError {
        refuses(&self.url(host, parameters), parts)
    }
}

#[track_caller]
fn refuses(url: &str, parts: &[&str]) -> OpenError {
    let error = PgStore::connect(url).expect_err("it must be refused");
    let text = error.to_string();
    assert!(!text.contains(PASSWORD), "a secret: {text}");
    for part in parts {
        assert!(text.contains(part), "{text:?} does not tell {part:?}");
    }
    error
}

fn openssl(at: &Path, args: &[&str]) {
    let ran = Command::new("openssl").args(args).current_dir(at).output();
    let ran = ran.expect("openssl can be run");
    assert!(ran.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ran.stderr));
}

/// A certificate that signs itself, `NAME.pem`, and its key.
fn authority(at: &Path, name: &str) {
    let (key, pem) = (format!("{name}.key"), format!("{name}.pem"));
    let made = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    let subject = format!("/CN={name}");
    let rest = ["-keyout", &key, "-out", &pem, "-days", "2", "-subj", &subject];
    openssl(at, &[&made[..], &rest, &["-addext", "subjectAltName=DNS:localhost"]].concat());
}

/// A certificate of the authority `ca` for this name.
fn signed(at: &Path, name: &str, subject: &str) {
    let file = |end: &str| format!("{name}.{end}");
    let text = format!("subjectAltName=DNS:{subject}\nbasicConstraints=CA:FALSE\n");
    std::fs::write(at.join(file("ext")), text).expect("a file can be written");
    let (key, asked, pem, extra) = (file("key"), file("csr"), file("pem"), file("ext"));
    let subject = format!("/CN={subject}");
    let made = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    let rest = ["-keyout", &key, "-out", &asked, "-subj", &subject];
    openssl(at, &[&made[..], &rest].concat());
    let sign = ["x509", "-req", "-in", &asked, "-CA", "ca.pem", "-CAkey", "ca.key"];
    let rest = ["-CAcreateserial", "-days", "2", "-out", &pem, "-extfile", &extra];
    openssl(at, &[&sign[..], &rest].concat());
}

#[test]
fn verify_full_wants_a_trusted_issuer_and_the_name_of_the_host() {
    let Some(secure) = Secure::shared() else { return };
    let (ca, other) = (secure.file("ca.pem"), secure.file("other.pem"));
    secure.opens("localhost", &format!("sslmode=verify-full&sslrootcert={ca}"));
    let address = format!("sslmode=verify-full&sslrootcert={ca}");
    secure.refuses("127.0.0.1", &address, &["subjectAltName", "sslmode=verify-ca"]);
    let untrusted = format!("sslmode=verify-full&sslrootcert={other}");
    secure.refuses("localhost", &untrusted, &["UnknownIssuer", "sslrootcert=FILE"]);
    secure.refuses("localhost", "sslmode=verify-full", &["UnknownIssuer", "sslrootcert=FILE"]);
}

#[test]
fn verify_ca_wants_a_trusted_issuer_and_any_name() {
    let Some(secure) = Secure::shared() else { return };
    let (ca, other) = (secure.file("ca.pem"), secure.file("other.pem"));
    secure.opens("127.0.0.1", &format!("sslmode=verify-ca&sslrootcert={ca}"));
    let untrusted = format!("sslmode=verify-ca&sslrootcert={other}");
    secure.refuses("127.0.0.1", &untrusted, &["UnknownIssuer"]);
}

#[test]
fn require_encrypts_and_checks_an_issuer_only_if_one_is_named() {
    let Some(secure) = Secure::shared() else { return };
    let (ca, other) = (secure.file("ca.pem"), secure.file("other.pem"));
    secure.opens("127.0.0.1", "sslmode=require");
    secure.opens("127.0.0.1", &format!("sslmode=require&sslrootcert={ca}"));
    let untrusted = format!("sslmode=require&sslrootcert={other}");
    secure.refuses("127.0.0.1", &untrusted, &["UnknownIssuer"]);
}

#[test]
fn prefer_encrypts_where_the_server_can_and_works_where_it_cannot() {
    let Some(secure) = Secure::shared() else { return };
    secure.opens("127.0.0.1", "sslmode=prefer");
    let Some(plain) = PostgresServer::shared() else { return };
    let url = plain.tcp_url(plain.port(), &plain.new_schema());
    PgStore::connect(&url).expect("it opens without encryption");
    let wanted = format!("{url}&sslmode=require");
    let error = refuses(&wanted, &["does not support TLS", "turn on ssl", "sslmode=disable"]);
    assert!(error.is_unreachable());
}

#[test]
fn a_server_that_demands_tls_refuses_a_client_that_disables_it() {
    let Some(secure) = Secure::shared() else { return };
    let error = secure.refuses("127.0.0.1", "sslmode=disable", &["no encryption", "sslmode"]);
    assert!(error.is_denied());
}

#[test]
fn the_password_is_bound_to_the_channel() {
    let Some(secure) = Secure::shared() else { return };
    secure.opens("127.0.0.1", "sslmode=require&channel_binding=require");
}

#[test]
fn a_client_may_show_a_certificate_instead_of_a_password() {
    let Some(secure) = Secure::shared() else { return };
    let files = format!(
        "sslmode=require&sslcert={}&sslkey={}",
        secure.file("client.pem"),
        secure.file("client.key")
    );
    let without_password = |parameters: &str| {
        let url = secure.url("127.0.0.1", parameters);
        url.replace(&format!("{USER}:{PASSWORD}@"), "certified@")
    };
    PgStore::connect(&without_password(&files)).expect("the certificate is accepted");
    refuses(&without_password("sslmode=require"), &["certificate"]);
}

#[test]
fn an_authority_that_is_named_itself_may_be_the_server() {
    let at = tempfile::tempdir().expect("there is a temporary directory");
    authority(at.path(), "own");
    let read = |name: &str| std::fs::read(at.path().join(name)).expect("openssl has made it");
    let settings =
        ["ssl = on", "ssl_cert_file = '{dir}/own.pem'", "ssl_key_file = '{dir}/own.key'"];
    let files = [("own.pem", &*read("own.pem")), ("own.key", &*read("own.key"))];
    let Some(server) = PostgresServer::start_with(&settings, &files) else { return };
    let root = at.path().join("own.pem").display().to_string();
    let port = server.port();
    let url = format!(
        "postgres://{USER}:{PASSWORD}@localhost:{port}/postgres?sslmode=verify-full\
         &sslrootcert={root}"
    );
    PgStore::connect(&url).expect("its certificate is accepted");
    refuses(&url.replace("localhost", "127.0.0.1"), &["subjectAltName"]);
}

#[test]
fn a_file_that_cannot_be_used_is_named() {
    let Some(secure) = Secure::shared() else { return };
    let missing: PathBuf = secure.files.path().join("nowhere.pem");
    let shown = missing.display().to_string();
    let root = format!("sslmode=verify-ca&sslrootcert={}", secure.file("nowhere.pem"));
    secure.refuses("localhost", &root, &["sslrootcert", &shown]);
    let (key, pem) = (secure.file("server.key"), secure.file("client.pem"));
    let mixed = format!("sslmode=require&sslcert={pem}&sslkey={key}");
    secure.refuses("localhost", &mixed, &["sslkey", "does not fit sslcert"]);
    let empty = format!("sslmode=verify-ca&sslrootcert={key}");
    secure.refuses("localhost", &empty, &["holds no certificate"]);
}
