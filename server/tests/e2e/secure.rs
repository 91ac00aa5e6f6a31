//! TLS. The certificate and the key beside this file are for tests alone, and worth nothing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::common::{PATIENCE, Place};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/tls");

#[test]
fn requests_are_served_over_tls_and_plain_ones_are_not() {
    let place = Place::new("sqlite");
    let (cert, key) = (format!("{FOLDER}/cert.pem"), format!("{FOLDER}/key.pem"));
    let server = place.start(&["--tls-cert", &cert, "--tls-key", &key]);
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
