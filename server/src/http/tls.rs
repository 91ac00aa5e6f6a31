//! TLS, when a certificate and a key are given. They can be replaced while connections are served.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use thiserror::Error;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;

use crate::http::auth::{SharedFile, private};

/// Why TLS cannot be offered.
#[derive(Debug, Error)]
pub(crate) enum TlsError {
    #[error("the certificate {file} cannot be read: {why}; give a PEM file with the whole chain")]
    Certificate { file: String, why: String },
    #[error("the key {file} cannot be read: {why}; give a PEM file with one private key")]
    Key { file: String, why: String },
    #[error("the key {0}")]
    Open(SharedFile),
    #[error("the certificate and the key cannot be used: {0}")]
    Pair(String),
}

/// A certificate with its key, as they were last read.
pub(crate) struct Certificate {
    chain: PathBuf,
    key: PathBuf,
    current: RwLock<Arc<CertifiedKey>>,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").field("chain", &self.chain).finish_non_exhaustive()
    }
}

impl Certificate {
    /// Reads both files; refused if they cannot be used together.
    pub(crate) fn load(chain: &Path, key: &Path) -> Result<Arc<Self>, TlsError> {
        let current = RwLock::new(Arc::new(pair(chain, key)?));
        Ok(Arc::new(Self { chain: chain.into(), key: key.into(), current }))
    }

    /// Reads both files again, for connections that come from now on. If they cannot be used, the
    /// pair read before stays.
    pub(crate) fn reload(&self) -> Result<(), TlsError> {
        let read = Arc::new(pair(&self.chain, &self.key)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(())
    }

    /// What accepts connections with it.
    pub(crate) fn acceptor(self: &Arc<Self>) -> Result<TlsAcceptor, TlsError> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::Pair(error.to_string()))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(self) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn pair(chain: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    let unusable = |why: String| {
        let file = chain.display().to_string();
        TlsError::Certificate { file, why }
    };
    let certificates = CertificateDer::pem_file_iter(chain)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unusable(error.to_string()))?;
    if certificates.is_empty() {
        return Err(unusable("it holds no certificate".into()));
    }
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| {
        let (file, why) = (key.display().to_string(), error.to_string());
        TlsError::Key { file, why }
    })?;
    private(key).map_err(TlsError::Open)?;
    CertifiedKey::from_der(certificates, secret, &default_provider())
        .map_err(|error| TlsError::Pair(error.to_string()))
}
