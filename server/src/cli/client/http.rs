//! A server, over one connection that is kept. It is opened with the first call, and reopened
//! when the server has closed it.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::Failure;
use super::verifier::{Verifier, what_to_change};
use crate::http::body::Body;

/// Maximum time to connect, including TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time for a response: longer than the longest wait that a request may ask for.
const RESPONSE_TIMEOUT: Duration = Duration::from_mins(1);

/// A server to ask.
#[derive(Debug)]
pub(crate) struct Http {
    url: String,
    host: String,
    port: u16,
    /// Prefix of every path.
    prefix: String,
    authority: HeaderValue,
    token: Option<HeaderValue>,
    tls: Option<Tls>,
    connection: Mutex<Option<SendRequest<Body>>>,
}

struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Http {
    pub(crate) fn new(
        url: &str,
        token: Option<String>,
        ca: Option<&Path>,
    ) -> Result<Self, Failure> {
        let wrong = |why: &str| {
            Failure::usage(format!("--server {url:?} {why}; write it like http://127.0.0.1:8080"))
        };
        let uri: Uri = url.parse().map_err(|_| wrong("is not an address"))?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong("must begin with http:// or https://")),
        };
        let authority = uri.authority().ok_or_else(|| wrong("names no host"))?;
        if authority.as_str().contains('@') || uri.query().is_some() {
            // Not shown again: it may hold a secret.
            return Err(Failure::usage(
                "--server must be a host and a port, like http://127.0.0.1:8080; the token goes \
                 into WINDLASS_TOKEN",
            ));
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let token = token.map(|token| HeaderValue::try_from(format!("Bearer {token}")));
        let token = token.transpose().map_err(|_| {
            Failure::usage("WINDLASS_TOKEN must hold visible ASCII characters only")
        })?;
        let tls = if secure { Some(Tls::new(&host, ca)?) } else { None };
        Ok(Self {
            url: url.into(),
            port: authority.port_u16().unwrap_or(if secure { 443 } else { 80 }),
            host,
            prefix: uri.path().trim_end_matches('/').into(),
            authority: HeaderValue::try_from(authority.as_str())
                .map_err(|_| wrong("is not an address"))?,
            token: token.map(|mut token| {
                token.set_sensitive(true);
                token
            }),
            tls,
            connection: Mutex::new(None),
        })
    }

    pub(crate) async fn call(
        &self,
        method: &Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let mut connection = self.connection.lock().await;
        let reused = connection.is_some();
        let asked = self.ask(&mut connection, method, path, body.clone()).await;
        match asked {
            Ok(answer) => Ok(answer),
            // A kept connection may have been closed meanwhile. What only reads is asked again;
            // what writes only if it was not sent.
            Err(Trouble { sent, .. }) if reused && (!sent || *method == Method::GET) => {
                *connection = None;
                let asked = self.ask(&mut connection, method, path, body).await;
                asked.map_err(|trouble| trouble.failure)
            }
            Err(trouble) => {
                *connection = None;
                Err(trouble.failure)
            }
        }
    }

    async fn ask(
        &self,
        connection: &mut Option<SendRequest<Body>>,
        method: &Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), Trouble> {
        if connection.as_ref().is_none_or(SendRequest::is_closed) {
            *connection = Some(self.connect().await?);
        }
        let Some(sender) = connection else { return Err(self.lost(false, "it is closed")) };
        sender.ready().await.map_err(|error| self.lost(false, error))?;
        let request = self
            .request(method, path, &body)
            .map_err(|failure| Trouble { failure, sent: false })?;
        let exchange = async {
            let sent = sender.try_send_request(request).await;
            let response = sent.map_err(|mut error| {
                let unsent = error.take_message().is_some();
                self.lost(!unsent, error.into_error())
            })?;
            let status = response.status();
            let body = collect(response.into_body()).await;
            Ok((status, body.map_err(|error| self.lost(true, error))?))
        };
        let seconds = RESPONSE_TIMEOUT.as_secs();
        let late = || self.lost(true, format!("no answer came within {seconds} seconds"));
        timeout(RESPONSE_TIMEOUT, exchange).await.map_err(|_| late())?
    }

    pub(super) fn request(
        &self,
        method: &Method,
        path: &str,
        body: &Bytes,
    ) -> Result<Request<Body>, Failure> {
        let wrong = |error: &dyn std::fmt::Display| {
            Failure::usage(format!("cannot request {path:?}: {error}"))
        };
        let uri: Uri = format!("{}{path}", self.prefix).parse().map_err(|error| wrong(&error))?;
        let mut request = Request::new(Body::full(body.clone()));
        *request.method_mut() = method.clone();
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(HOST, self.authority.clone());
        if !body.is_empty() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(token) = &self.token {
            headers.insert(AUTHORIZATION, token.clone());
        }
        Ok(request)
    }

    pub(super) async fn connect(&self) -> Result<SendRequest<Body>, Trouble> {
        let connecting = async {
            let stream = TcpStream::connect((self.host.as_str(), self.port)).await;
            let stream = stream.map_err(|error| self.unreachable(&error))?;
            let _ = stream.set_nodelay(true);
            match &self.tls {
                None => self.shake_hands(stream).await,
                Some(tls) => {
                    let name = tls.name.clone();
                    let stream = tls.connector.connect(name, stream).await;
                    self.shake_hands(stream.map_err(|error| self.insecure(&error))?).await
                }
            }
        };
        let connected = timeout(CONNECT_TIMEOUT, connecting).await;
        let connected = connected.unwrap_or_else(|_| {
            Err(self
                .unreachable(&format!("no answer within {} seconds", CONNECT_TIMEOUT.as_secs())))
        });
        connected.map_err(|failure| Trouble { failure, sent: false })
    }

    async fn shake_hands<T>(&self, stream: T) -> Result<SendRequest<Body>, Failure>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let hands = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = hands.map_err(|error| self.unreachable(&error))?;
        // Its end is seen by the next request.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }

    fn unreachable(&self, why: &dyn std::fmt::Display) -> Failure {
        Failure::unreachable(format!(
            "{} cannot be reached: {why}; check that the server runs (`windlass serve`) and that \
             --server names its address",
            self.url
        ))
    }

    fn insecure(&self, why: &std::io::Error) -> Failure {
        let to_do = what_to_change(why, &self.host);
        Failure::unreachable(format!("no secure connection to {}: {why}; {to_do}", self.url))
    }

    pub(super) fn lost(&self, sent: bool, why: impl std::fmt::Display) -> Trouble {
        let doubt = if sent { "; it is not known whether the request was carried out" } else { "" };
        let detail = format!("the connection to {} broke: {why}{doubt}", self.url);
        Trouble { failure: Failure::unreachable(detail), sent }
    }
}

/// A call that got no answer, and whether the server may have seen it.
pub(super) struct Trouble {
    pub(super) failure: Failure,
    sent: bool,
}

impl Tls {
    fn new(host: &str, ca: Option<&Path>) -> Result<Self, Failure> {
        let (mut roots, mut named) = (RootCertStore::empty(), Vec::new());
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if let Some(file) = ca {
            let unusable = |why: &dyn std::fmt::Display| {
                Failure::usage(format!("--ca {} cannot be read: {why}", file.display()))
            };
            let chain = CertificateDer::pem_file_iter(file).map_err(|error| unusable(&error))?;
            for certificate in chain {
                let certificate = certificate.map_err(|error| unusable(&error))?;
                roots.add(certificate.clone()).map_err(|error| unusable(&error))?;
                named.push(certificate);
            }
        }
        if roots.is_empty() {
            let detail = "the system has no trusted certificates; name one with --ca FILE";
            return Err(Failure::usage(detail));
        }
        let failed = |why: &dyn std::fmt::Display| Failure::failed(format!("no TLS: {why}"));
        let verifier = Verifier::new(roots, named).map_err(|error| failed(&error))?;
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(&error))?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(&error))?;
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }
}

async fn collect(body: Incoming) -> Result<Bytes, hyper::Error> {
    let mut body = pin!(body);
    let mut bytes = BytesMut::new();
    while let Some(frame) = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        if let Ok(data) = frame?.into_data() {
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes.freeze())
}
