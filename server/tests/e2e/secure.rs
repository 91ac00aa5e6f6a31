//! TLS. The certificate and the key beside this file are for tests only.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::common::{PATIENCE, Place, Server};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/tls");

fn secured(place: &Place, cert: &str, key: &str) -> Server {
    let [cert, key] = place.certificate(cert, key);
    place.start(&["--tls-cert", &cert, "--tls-key", &key])
}

/// Runs `windlass --server https://... status` with this --ca.
fn status(address: &str, ca: &str) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(["--server", address, "--ca", &format!("{FOLDER}/{ca}"), "status"]);
    let output = command.env_remove("WINDLASS_TOKEN").output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_certificate_of_openssl_req_x509_serves_and_is_its_own_ca() {
    let place = Place::new("sqlite");
    let server = secured(&place, "self.pem", "self-key.pem");
    for host in ["localhost", "127.0.0.1"] {
        let address = format!("https://{host}:{}", server.address.port());
        let (code, said) = status(&address, "self.pem");
        assert_eq!(code, Some(0), "{said}");
        let (code, said) = status(&address, "ca.pem");
        assert_eq!(code, Some(6), "only the very certificate is trusted");
        assert!(said.contains("--ca FILE"), "{said}");
    }
}

#[test]
fn a_certificate_without_the_servers_name_is_refused_with_what_to_change() {
    let place = Place::new("sqlite");
    let server = secured(&place, "nameless.pem", "nameless-key.pem");
    let address = format!("https://localhost:{}", server.address.port());
    let (code, said) = status(&address, "nameless.pem");
    assert_eq!(code, Some(6));
    assert!(said.contains("-addext subjectAltName=DNS:localhost"), "{said}");
}

#[test]
fn a_hangup_reloads_the_certificate_and_a_bad_one_leaves_the_old_in_place() {
    let place = Place::new("sqlite");
    let mut server = secured(&place, "self.pem", "self-key.pem");
    let address = format!("https://localhost:{}", server.address.port());
    place.certificate("cert.pem", "self-key.pem");
    server.signal("-HUP");
    server.wait_for_log("the certificate was not reloaded");
    assert_eq!(status(&address, "self.pem").0, Some(0));
    place.certificate("cert.pem", "key.pem");
    server.signal("-HUP");
    server.wait_for_log("the certificate was reloaded");
    assert_eq!(status(&address, "self.pem").0, Some(6));
    assert_eq!(status(&address, "ca.pem").0, Some(0));
}

#[test]
fn a_key_that_others_can_read_is_refused_with_what_to_do() {
    let place = Place::new("sqlite");
    let [cert, key] = place.certificate("cert.pem", "key.pem");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (code, said) = place.refused(&["--tls-cert", &cert, "--tls-key", &key]);
    assert_eq!(code, Some(1));
    assert!(said.contains(&format!("chmod o-rwx {key}")), "{said}");
}

#[test]
fn requests_are_served_over_tls_and_plain_ones_are_not() {
    let place = Place::new("sqlite");
    let server = secured(&place, "cert.pem", "key.pem");
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_file(format!("{FOLDER}/ca.pem")).unwrap();
    roots.add(ca).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(server.address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stream = StreamOwned::new(connection, socket);
    let body = r#"{"kind":"secret"}"#;
    let request = format!(
        "POST /jobs HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
    let mut plain = server.connect();
    plain.ask("GET", "/livez", &[], None);
    assert!(plain.reply().is_none());
}

#[test]
fn a_key_of_another_certificate_is_refused_at_the_start() {
    let place = Place::new("sqlite");
    let cert = format!("{FOLDER}/cert.pem");
    let (code, said) = place.refused(&["--tls-cert", &cert, "--tls-key", &cert]);
    assert_eq!(code, Some(1));
    assert!(said.contains("private key"), "{said}");
}
