//! The store, opened by this process: no socket, no token, no guard, no workers. A call goes to the
//! handler that the table of routes names for it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use tokio::sync::watch;

use super::{Failure, Store};
use crate::app::{App, Closing, Stage};
use crate::cli::StoreUrl;
use crate::connection::Conn;
use crate::find::Routes;
use crate::router;
use crate::settings::Given;
use crate::store::{self, OpenError, Purpose};

/// How long the end may take. Nothing runs here, so it waits for the last commit only.
const END: Duration = Duration::from_secs(5);

/// An open store.
#[derive(Debug)]
pub(crate) struct Direct {
    app: Arc<App>,
    routes: Arc<Routes>,
    conn: Arc<Conn>,
    stage: watch::Sender<Stage>,
}

impl Direct {
    pub(crate) fn open(url: &StoreUrl, store: Store) -> Result<Self, Failure> {
        if store == Store::Exists && !url.path().exists() {
            return Err(Failure::not_found(format!(
                "there is no store {url}; `windlass serve` or `windlass enqueue` makes it, \
                 --store names another"
            )));
        }
        let given = Given::from_environment(&[]).map_err(Failure::usage)?;
        let started = store::start(url, Purpose::Direct, given).map_err(|error| match error {
            OpenError::InUse { .. } => Failure::unreachable(format!(
                "{error}; if it is a server, ask it: --server URL, like --server \
                 http://127.0.0.1:8080"
            )),
            other => Failure::failed(other.to_string()),
        })?;
        let (stage, closing) = Closing::new();
        let app = App { trusted: true, ..App::new(started, url.path().clone(), closing) };
        let conn = Conn::new(app.limits);
        Ok(Self { app: Arc::new(app), routes: Routes::new(), conn, stage })
    }

    pub(crate) async fn call(
        &self,
        method: &Method,
        path: &str,
        body: Bytes,
    ) -> (StatusCode, Bytes) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let found = self.routes.find(method, path);
        let (app, conn) = (Arc::clone(&self.app), Arc::clone(&self.conn));
        let answer = router::answer_here(app, conn, found, query, body).await;
        let response = answer.unwrap_or_else(crate::problem::Problem::into_response);
        (response.status(), response.into_body().into_bytes())
    }

    /// Copies the store to a file that does not exist yet.
    pub(crate) async fn backup(&self, to: &Path) -> Result<(), Failure> {
        let (keeper, to) = (self.app.keeper.clone(), to.to_path_buf());
        let copied = tokio::task::spawn_blocking(move || keeper.backup(&to)).await;
        let copied = copied.unwrap_or_else(|error| Err(error.to_string()));
        copied.map_err(|why| Failure::failed(format!("no copy could be made: {why}")))
    }

    /// Stores what is under way and closes the store.
    pub(crate) async fn end(&self) {
        self.stage.send_replace(Stage::Draining);
        self.app.queue.shutdown(END).await;
    }
}
