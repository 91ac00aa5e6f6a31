//! Which certificates of a server are accepted: those of known issuers, and one that `--ca` names
//! itself, as `openssl req -x509` makes them.

use std::io;
use std::sync::Arc;

use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::client::{
    VerifierBuilderError, WebPkiServerVerifier, verify_server_name,
};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

/// The rules of rustls, with one exception: a certificate of an authority is accepted as that of
/// the server if `--ca` names this very certificate. rustls refuses it in that place, other
/// programs do not. Its time and its names are checked like any other's.
#[derive(Debug)]
pub(crate) struct Verifier {
    usual: Arc<WebPkiServerVerifier>,
    /// The certificates of `--ca`.
    named: Vec<CertificateDer<'static>>,
}

impl Verifier {
    pub(crate) fn new(
        roots: RootCertStore,
        named: Vec<CertificateDer<'static>>,
    ) -> Result<Arc<Self>, VerifierBuilderError> {
        let provider = Arc::new(default_provider());
        let usual =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        Ok(Arc::new(Self { usual, named }))
    }
}

/// Whether the only complaint is that an authority's certificate is used by a server. The checks
/// of its time come before it, those of its name after.
fn is_authority(error: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(other)) = error else { return false };
    other.to_string().contains("CaUsedAsEndEntity")
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let usual = &self.usual;
        match usual.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(error) if is_authority(&error) && self.named.contains(end_entity) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}

/// What to change so that the connection succeeds.
pub(crate) fn what_to_change(error: &io::Error, host: &str) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    let Some(Error::InvalidCertificate(why)) = inner else {
        return "check that the server speaks TLS on this port".into();
    };
    match why {
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            let kind = if host.parse::<std::net::IpAddr>().is_ok() { "IP" } else { "DNS" };
            format!(
                "the certificate must name {host} in subjectAltName (a common name is not enough): \
                 make it with `openssl req -x509 ... -addext subjectAltName={kind}:{host}`"
            )
        }
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "it is the certificate of an authority: name that very file with --ca FILE, or make it \
             with `-addext basicConstraints=critical,CA:FALSE`"
                .into()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "renew the certificate, and check the clocks of both machines".into()
        }
        _ => "check the address, or name the certificate of its issuer with --ca FILE".into(),
    }
}
