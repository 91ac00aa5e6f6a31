//! TLS with rustls, by the parameters of libpq: `sslmode`, `sslrootcert`, `sslcert`, `sslkey`.
//! Files are read at each connection, so that renewed ones are used without a restart.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_postgres::config::{Host, SslMode as Wire};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::client::{WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, ring::default_provider, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

/// How a connection is encrypted, and what of the server's certificate is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum SslMode {
    /// No TLS.
    Disable,
    /// TLS if the server has it; the certificate is not checked.
    #[default]
    Prefer,
    /// TLS; the certificate is not checked unless `sslrootcert` is given.
    Require,
    /// TLS; the certificate must be issued by a trusted authority.
    VerifyCa,
    /// TLS; the certificate must also name the host.
    VerifyFull,
}

impl SslMode {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        Ok(match text {
            "disable" => Self::Disable,
            "prefer" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            "allow" => {
                return Err("sslmode=allow is not supported: it would try without encryption \
                            first; use prefer or require"
                    .into());
            }
            _ => {
                return Err(
                    "sslmode is one of disable, prefer, require, verify-ca, verify-full".into()
                );
            }
        })
    }

    /// The mode of a URL that names none: what leaves this machine is encrypted and verified.
    pub(crate) fn usual(hosts: &[Host]) -> Self {
        let is_here = |host: &Host| match host {
            Host::Tcp(name) => {
                let name = name.trim_start_matches('[').trim_end_matches(']');
                name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
            }
            #[cfg(unix)]
            Host::Unix(_) => true,
        };
        if hosts.iter().all(is_here) { Self::Prefer } else { Self::VerifyFull }
    }

    /// What is said to the server.
    pub(crate) fn wire(self) -> Wire {
        match self {
            Self::Disable => Wire::Disable,
            Self::Prefer => Wire::Prefer,
            Self::Require | Self::VerifyCa | Self::VerifyFull => Wire::Require,
        }
    }
}

/// The TLS parameters of a URL.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tls {
    pub(crate) mode: SslMode,
    /// `sslrootcert`: the trusted authorities, in PEM; those of the system if not given.
    pub(crate) root: Option<PathBuf>,
    /// `sslcert`: the certificate of this client, in PEM.
    pub(crate) cert: Option<PathBuf>,
    /// `sslkey`: its private key, in PEM.
    pub(crate) key: Option<PathBuf>,
}

/// The value of `sslrootcert` that names the authorities of the system.
const SYSTEM: &str = "system";

impl Tls {
    /// Refuses parameters that contradict each other.
    pub(crate) fn check(&self) -> Result<(), String> {
        let files = self.root.is_some() || self.cert.is_some() || self.key.is_some();
        if self.mode == SslMode::Disable && files {
            return Err("sslrootcert, sslcert and sslkey have no use with sslmode=disable".into());
        }
        if self.cert.is_some() != self.key.is_some() {
            return Err("sslcert and sslkey are given together or not at all".into());
        }
        Ok(())
    }

    /// Reads the files, and makes what connects.
    pub(crate) fn connector(&self) -> Result<MakeRustlsConnect, String> {
        let provider = Arc::new(default_provider());
        let verifier = self.verifier(&provider)?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let config = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                let chain = certificates("sslcert", cert)?;
                let unusable = |why: String| format!("sslkey {}: {why}", key.display());
                let secret = PrivateKeyDer::from_pem_file(key)
                    .map_err(|error| unusable(error.to_string()))?;
                let made = config.with_client_auth_cert(chain, secret);
                made.map_err(|error| unusable(format!("it does not fit sslcert: {error}")))?
            }
            _ => config.with_no_client_auth(),
        };
        Ok(MakeRustlsConnect::new(config))
    }

    fn verifier(&self, provider: &Arc<CryptoProvider>) -> Result<Verifier, String> {
        // As libpq does: an authority that is named is checked.
        let checks = match self.mode {
            SslMode::Disable => Checks::Nothing,
            SslMode::Prefer | SslMode::Require if self.root.is_none() => Checks::Nothing,
            SslMode::Prefer | SslMode::Require | SslMode::VerifyCa => Checks::Issuer,
            SslMode::VerifyFull => Checks::IssuerAndName,
        };
        let mut verifier =
            Verifier { checks, usual: None, named: Vec::new(), provider: Arc::clone(provider) };
        if checks == Checks::Nothing {
            return Ok(verifier);
        }
        let mut roots = RootCertStore::empty();
        if let Some(file) = self.root.as_deref().filter(|root| *root != Path::new(SYSTEM)) {
            verifier.named = certificates("sslrootcert", file)?;
            roots.add_parsable_certificates(verifier.named.iter().cloned());
        } else {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        if roots.is_empty() {
            return Err("there is no certificate of an authority to trust; name a file with \
                        sslrootcert"
                .into());
        }
        let built = WebPkiServerVerifier::builder_with_provider(
            Arc::new(roots),
            Arc::clone(&verifier.provider),
        );
        verifier.usual = Some(built.build().map_err(|error| error.to_string())?);
        Ok(verifier)
    }
}

fn certificates(parameter: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let shown = file.display();
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|error| format!("{parameter} {shown} cannot be read: {error}"))?;
    if read.is_empty() {
        return Err(format!("{parameter} {shown} holds no certificate in PEM"));
    }
    Ok(read)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Checks {
    Nothing,
    Issuer,
    IssuerAndName,
}

/// The rules of rustls, as far as the mode asks for them. The certificate of an authority is also
/// accepted as that of the server if `sslrootcert` names it itself, as libpq accepts it.
#[derive(Debug)]
struct Verifier {
    checks: Checks,
    usual: Option<Arc<WebPkiServerVerifier>>,
    /// The certificates of `sslrootcert`.
    named: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
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
        let Some(usual) = &self.usual else { return Ok(ServerCertVerified::assertion()) };
        let found =
            usual.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match found {
            Err(error) if is_name(&error) && self.checks == Checks::Issuer => {
                Ok(ServerCertVerified::assertion())
            }
            Err(error) if is_authority(&error) && self.named.contains(end_entity) => {
                if self.checks == Checks::IssuerAndName {
                    verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                }
                Ok(ServerCertVerified::assertion())
            }
            found => found,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Whether the certificate is good, but of another host. The name is checked last.
fn is_name(error: &Error) -> bool {
    use CertificateError::{NotValidForName, NotValidForNameContext};
    let Error::InvalidCertificate(why) = error else { return false };
    matches!(why, NotValidForName | NotValidForNameContext { .. })
}

/// Whether the only complaint is that an authority's certificate is used by a server. The checks
/// of its time come before it, those of its name after.
fn is_authority(error: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(other)) = error else { return false };
    other.to_string().contains("CaUsedAsEndEntity")
}

/// What to do about a connection that TLS has failed, if it has.
pub(crate) fn advice(error: &tokio_postgres::Error) -> Option<&'static str> {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let inner = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        let tls = inner.and_then(|inner| inner.downcast_ref::<Error>());
        if let Some(tls) = tls.or_else(|| cause.downcast_ref::<Error>()) {
            return Some(what_to_change(tls));
        }
        if cause.to_string().contains("does not support TLS") {
            return Some(
                "; turn on ssl in postgresql.conf, or give sslmode=disable if the network can be \
                 trusted",
            );
        }
        source = cause.source();
    }
    None
}

fn what_to_change(error: &Error) -> &'static str {
    match error {
        Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => "; renew the certificate of the server, and check the clocks of both machines",
        _ if is_name(error) => {
            "; connect by a name in the certificate's subjectAltName, or give sslmode=verify-ca"
        }
        Error::InvalidCertificate(_) => {
            "; name the certificate of the server's authority with sslrootcert=FILE"
        }
        _ => "; check sslmode, sslcert and sslkey, and what pg_hba.conf asks of clients",
    }
}
