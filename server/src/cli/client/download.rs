//! Answers that are long, or that take long: they are taken piece by piece, and only silence ends
//! the wait.

use std::io::Write;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body::Body as _;
use tokio::time::timeout;

use super::Failure;
use super::http::Http;
use crate::cli::commands::backup::create;

/// For the answer to begin: the server reads its whole store first.
const BEGIN: Duration = Duration::from_hours(1);
/// Between two pieces of it.
const PIECE: Duration = Duration::from_mins(1);

impl Http {
    /// Asks for something and hands over its pieces. An answer that breaks off is a failure.
    pub(super) async fn download(
        &self,
        path: &str,
        mut take: impl AsyncFnMut(Bytes) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut sender = self.connect().await.map_err(|trouble| trouble.failure)?;
        let request = self.request(&Method::GET, path, &Bytes::new())?;
        let broke = |why: &dyn std::fmt::Display| self.lost(false, why).failure;
        let response = timeout(BEGIN, sender.send_request(request)).await;
        let response = response.map_err(|_| broke(&"no answer came"))?;
        let response = response.map_err(|error| broke(&error))?;
        let status = response.status();
        let mut body = pin!(response.into_body());
        let mut refusal = Vec::new();
        loop {
            let frame = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx));
            let frame =
                timeout(PIECE, frame).await.map_err(|_| broke(&"the connection stalled"))?;
            let Some(frame) = frame else { break };
            let Ok(piece) = frame.map_err(|error| broke(&error))?.into_data() else { continue };
            if status.is_success() {
                take(piece).await?;
            } else {
                refusal.extend_from_slice(&piece);
            }
        }
        if status.is_success() { Ok(()) } else { Err(Failure::problem(status, refusal.into())) }
    }

    /// Copies the server's store to a file that does not exist yet, and syncs it.
    pub(super) async fn backup(&self, to: &Path) -> Result<(), Failure> {
        let failed = |error: std::io::Error| {
            Failure::failed(format!("{} cannot be written: {error}", to.display()))
        };
        let mut file = create(to).map_err(failed)?;
        self.download("/backup", async |piece| file.write_all(&piece).map_err(failed)).await?;
        file.sync_all().map_err(failed)
    }
}
