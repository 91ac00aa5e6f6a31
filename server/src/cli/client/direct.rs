//! The store, opened by this process: no socket, no token, no guard, no workers. A call goes to the
//! handler that the table of routes names for it. The store is only read until the first call that
//! writes: then a queue is started on it.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use tokio::sync::{RwLock, watch};
use windlass_runtime_tokio::Queue;

use super::{Failure, Store};
use crate::app::{App, Closing, Stage};
use crate::http::connection::Conn;
use crate::http::find::Routes;
use crate::http::router;
use crate::settings::Given;
use crate::store::{self, CopyError, Opened, Purpose, Started, StoreUrl};

/// How long the end may take. Nothing runs here, so it waits for the last commit only.
const END: Duration = Duration::from_secs(5);

/// A store that may be there but cannot be looked at.
fn unreadable(url: &StoreUrl, error: &io::Error) -> Failure {
    let detail = format!("the store {url} cannot be read: {error}");
    match error.kind() {
        io::ErrorKind::PermissionDenied => Failure::not_allowed(format!(
            "{detail}; run this as the owner of the file, or ask its server with --server URL"
        )),
        _ => Failure::failed(format!("{detail}; --store names another")),
    }
}

/// Refuses a file that is missing or cannot be read.
fn check_file(url: &StoreUrl, path: &Path, store: Store) -> Result<(), Failure> {
    let there = path.try_exists().map_err(|error| unreadable(url, &error))?;
    if store == Store::Exists && !there {
        return Err(Failure::not_found(format!(
            "there is no store {url}; `windlass serve` or `windlass enqueue` makes it, --store \
             names another"
        )));
    }
    if there {
        // Opened for reading only: SQLite says of a file without permission that it cannot be
        // opened, and not why.
        File::open(path).map_err(|error| unreadable(url, &error))?;
    }
    Ok(())
}

/// A store on which this process works.
#[derive(Debug)]
pub(crate) struct Direct {
    url: StoreUrl,
    routes: Arc<Routes>,
    open: RwLock<Open>,
}

/// The store as it is open now.
#[derive(Debug)]
struct Open {
    app: Arc<App>,
    conn: Arc<Conn>,
    stage: watch::Sender<Stage>,
    /// `None` as long as the store is only read.
    queue: Option<Queue>,
}

impl Open {
    fn to_read(url: &StoreUrl) -> Result<Self, Failure> {
        let opened = store::open_reader(url, given()?).map_err(|error| Failure::from(&error))?;
        Ok(Self::new(url, opened, None))
    }

    fn to_write(url: &StoreUrl) -> Result<Self, Failure> {
        let started = store::start(url, Purpose::Direct, given()?);
        let Started { queue, opened } = started.map_err(|error| Failure::from(&error))?;
        Ok(Self::new(url, opened, Some(queue)))
    }

    fn new(url: &StoreUrl, opened: Opened, queue: Option<Queue>) -> Self {
        let (stage, closing) = Closing::new();
        let app = App::new(opened, queue.clone(), url.clone(), closing);
        let app = Arc::new(App { trusted: true, ..app });
        let conn = Conn::new(app.limits);
        Self { app, conn, stage, queue }
    }
}

fn given() -> Result<Given, Failure> {
    Given::from_environment(&[]).map_err(Failure::usage)
}

impl Direct {
    /// Opens a store that exists for reading; one that is to be made, for writing.
    pub(crate) fn open(url: &StoreUrl, store: Store) -> Result<Self, Failure> {
        if let Some(path) = url.file() {
            check_file(url, path, store)?;
        }
        let open = match store {
            Store::Exists => Open::to_read(url)?,
            Store::Made => Open::to_write(url)?,
        };
        Ok(Self { url: url.clone(), routes: Routes::new(), open: RwLock::new(open) })
    }

    pub(crate) async fn call(
        &self,
        method: &Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), Failure> {
        if *method != Method::GET {
            self.write().await?;
        }
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let found = self.routes.find(method, path);
        let open = self.open.read().await;
        let (app, conn) = (Arc::clone(&open.app), Arc::clone(&open.conn));
        let answer = router::answer_here(app, conn, found, query, body).await;
        let response = answer.unwrap_or_else(crate::api::problem::Problem::into_response);
        Ok((response.status(), response.into_body().into_bytes()))
    }

    /// Makes sure that the store can be written. No read is under way meanwhile.
    async fn write(&self) -> Result<(), Failure> {
        let mut open = self.open.write().await;
        if open.queue.is_none() {
            // First: a redb file is open once, and closing a file drops the locks of SQLite.
            open.app.reads.close();
            *open = Open::to_write(&self.url)?;
        }
        Ok(())
    }

    /// Copies the store to a file that does not exist yet.
    pub(crate) async fn backup(&self, to: &Path) -> Result<(), Failure> {
        let maintenance = self.open.read().await.app.maintenance.clone();
        let to = to.to_path_buf();
        let copied = tokio::task::spawn_blocking(move || maintenance.backup(&to)).await;
        let copied = copied.unwrap_or_else(|error| Err(CopyError::Failed(error.to_string())));
        copied.map_err(|why| Failure::failed(format!("no copy could be made: {why}")))
    }

    /// Stores what is under way and closes the store.
    pub(crate) async fn end(&self) {
        let open = self.open.read().await;
        open.stage.send_replace(Stage::Draining);
        match &open.queue {
            Some(queue) => drop(queue.shutdown(END).await),
            None => open.app.reads.close(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_without_permission_is_not_a_missing_store() {
        let url: StoreUrl = "sqlite:a.db".parse().unwrap();
        let denied = unreadable(&url, &io::ErrorKind::PermissionDenied.into());
        assert!(denied.detail().contains("permission denied"), "{}", denied.detail());
        assert_eq!(denied.kind(), "not-allowed");
        let other = unreadable(&url, &io::ErrorKind::NotADirectory.into());
        assert_eq!(other.kind(), "failed");
    }
}
