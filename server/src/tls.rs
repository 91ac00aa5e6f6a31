//! TLS, when a certificate and a key are given.

use std::path::Path;
use std::sync::Arc;

use thiserror::Error;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Why TLS cannot be offered.
#[derive(Debug, Error)]
pub(crate) enum TlsError {
    #[error("the certificate {file} cannot be read: {why}; give a PEM file with the whole chain")]
    Certificate { file: String, why: String },
    #[error("the key {file} cannot be read: {why}; give a PEM file with one private key")]
    Key { file: String, why: String },
    #[error("the certificate and the key cannot be used: {0}")]
    Pair(String),
}

/// What accepts TLS connections with this certificate and key.
pub(crate) fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor, TlsError> {
    let unusable = |why: String| {
        let file = certificate.display().to_string();
        TlsError::Certificate { file, why }
    };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unusable(error.to_string()))?;
    if chain.is_empty() {
        return Err(unusable("it holds no certificate".into()));
    }
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| {
        let (file, why) = (key.display().to_string(), error.to_string());
        TlsError::Key { file, why }
    })?;
    let pair = |error: tokio_rustls::rustls::Error| TlsError::Pair(error.to_string());
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(pair)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(pair)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
