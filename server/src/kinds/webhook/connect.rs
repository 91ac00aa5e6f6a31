//! Connections to receivers: resolve, check, connect to what was checked, TLS.
//!
//! Each new connection resolves the name again, and connects to the address that was checked, never
//! to the name: a name that resolves to another address a moment later gains nothing.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::address::Reach;

/// A connection that could not be made, with its cause.
#[derive(Debug, Error)]
pub(super) enum ConnectError {
    /// Without the address, so that clients that enqueue webhooks cannot explore this network.
    #[error(
        "the address leads to this machine or a private network, which webhooks may not reach; \
         allow it with --webhook-allow"
    )]
    OutOfReach,
    #[error("the host's name cannot be resolved: {0}")]
    Name(io::Error),
    #[error("no connection: {0}")]
    Socket(io::Error),
    #[error("no connection in time")]
    TimedOut,
    #[error("TLS failed: {0}")]
    Tls(io::Error),
}

type Resolving = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Resolves a host to its addresses.
pub(super) type Resolver = Arc<dyn Fn(String, u16) -> Resolving + Send + Sync>;

/// The resolver of the system. It also accepts old forms of addresses: 2130706433, 0x7f.1,
/// 017700000001.
pub(super) fn system_resolver() -> Resolver {
    Arc::new(|host, port| {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    })
}

/// Maximum number of addresses of one host that are tried.
const TRIES: usize = 4;

/// Resolves, checks and connects to receivers.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) reach: Arc<Reach>,
    pub(super) connect_timeout: Duration,
    pub(super) resolver: Resolver,
}

impl Connector {
    async fn connect(self, uri: Uri) -> Result<TokioIo<Stream>, ConnectError> {
        let secure = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let host = uri.host().unwrap_or_default();
        // An address of IPv6 is written in brackets.
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let resolved = (self.resolver)(host.clone(), port).await.map_err(ConnectError::Name)?;
        let within: Vec<SocketAddr> =
            resolved.into_iter().filter(|address| self.reach.includes(address.ip())).collect();
        let mut failed = ConnectError::OutOfReach;
        for address in within.into_iter().take(TRIES) {
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    // Without TCP_NODELAY a small request is only slower.
                    let _ = stream.set_nodelay(true);
                    return Ok(TokioIo::new(if secure {
                        Box::new(encrypted(stream, host).await.map_err(ConnectError::Tls)?)
                    } else {
                        Box::new(stream)
                    }));
                }
                Err(error) => failed = ConnectError::Socket(error),
            }
        }
        Err(failed)
    }
}

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            let limit = connector.connect_timeout;
            timeout(limit, connector.connect(uri)).await.unwrap_or(Err(ConnectError::TimedOut))
        })
    }
}

/// A connection, with or without TLS.
pub(super) type Stream = Box<dyn Io>;

/// A stream that can be read and written.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

async fn encrypted(stream: TcpStream, host: String) -> io::Result<impl Io> {
    let name = ServerName::try_from(host).map_err(io::Error::other)?;
    TlsConnector::from(tls()?).connect(name, stream).await
}

/// The certificates that this system trusts, read when they are first needed.
fn tls() -> io::Result<Arc<ClientConfig>> {
    static TRUSTED: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = TRUSTED.get() {
        return Ok(Arc::clone(config));
    }
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err(io::Error::other("this system trusts no certificate; install ca-certificates"));
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::clone(TRUSTED.get_or_init(|| Arc::new(config))))
}
