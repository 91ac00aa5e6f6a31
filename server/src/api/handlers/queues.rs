//! Queues: counters, settings, pause and resume.

use http::HeaderValue;
use http::header::{ETAG, IF_MATCH};
use ring::digest::{SHA256, digest};
use windlass_core::store::{Reader, StoreError};
use windlass_core::{FigureSet, Millis, QueueName, QueueRow, QueueSettings, View, Wall};

use crate::api::history::What;
use crate::api::problem::{self, Problem};
use crate::api::wire::{self, Queue, QueueDetail, QueueList, Rates, Settings};
use crate::app::{App, now};
use crate::http::auth::Caller;
use crate::http::router::{self, Answer, Call};
use crate::http::ui::hex;

/// `GET /queues` and `GET /queues/stats`
pub(crate) async fn list(call: Call) -> Answer {
    call.query(&[])?;
    let now = now();
    let read =
        move |reader: &mut dyn Reader| Ok((all(reader)?, FigureSet::last_minute(reader, now)?));
    let (rows, lately) = call.app.reads.read(read).await?;
    let queues = rows.iter().map(|(row, oldest)| shown(row, *oldest, &lately, now));
    router::ok(&QueueList { queues: queues.collect() })
}

/// Every queue, with the instant since when its longest-waiting job has been due.
pub(crate) async fn rows(app: &App) -> Result<Vec<(QueueRow, Option<Wall>)>, Problem> {
    Ok(app.reads.read(all).await?)
}

pub(crate) fn all(reader: &mut dyn Reader) -> Result<Vec<(QueueRow, Option<Wall>)>, StoreError> {
    let rows = reader.queues()?;
    rows.into_iter().map(|row| aged(reader, row)).collect()
}

/// A queue with what happened in it lately.
fn shown(row: &QueueRow, oldest: Option<Wall>, lately: &(FigureSet, Millis), now: Wall) -> Queue {
    let (figures, window) = lately;
    let figures = figures.queue(&row.queue.name).cloned().unwrap_or_default();
    Queue::of(row, oldest, Rates::of(&figures, *window), now)
}

fn aged(reader: &mut dyn Reader, row: QueueRow) -> Result<(QueueRow, Option<Wall>), StoreError> {
    let waits = row.total().get(View::Queued) > 0;
    let oldest = if waits { reader.oldest_ready(&row.queue.name)? } else { None };
    Ok((row, oldest))
}

/// `GET /queues/{queue}`
pub(crate) async fn get(call: Call) -> Answer {
    call.query(&[])?;
    let name = QueueName::new(call.param())?;
    one(&call.app, name).await
}

/// `PUT /queues/{queue}`
pub(crate) async fn set(call: Call) -> Answer {
    let settings: Settings = wire::json(&call.body)?;
    let (name, settings) = (QueueName::new(call.param())?, settings.check()?);
    // Held from the check to the answer of the write, so that two edits of this server cannot both
    // pass the check.
    let _turn = call.app.queue_edits.lock().await;
    if let Some(wanted) = call.headers.get(IF_MATCH) {
        unchanged(&call.app, &name, wanted).await?;
    }
    let queue = call.app.queue()?.set_queue(name.as_str(), settings).await?;
    call.app.history.mark(What::Settings, queue.name.as_str(), now());
    one(&call.app, queue.name).await
}

/// Refuses unless the settings of a queue are those with this tag.
async fn unchanged(app: &App, name: &QueueName, wanted: &HeaderValue) -> Result<(), Problem> {
    let wanted_name = name.clone();
    let row = app.reads.read(move |reader| reader.queue(&wanted_name)).await?;
    let settings = row.map_or_else(QueueSettings::default, |row| row.queue.settings);
    let tag = tag(&settings);
    let named = wanted.to_str().unwrap_or_default();
    if named == "*" || named.split(',').any(|one| one.trim() == tag) {
        return Ok(());
    }
    let detail = format!(
        "the settings of queue {name} were changed since they were read; read them again with \
         GET /queues/{name}, and send its ETag"
    );
    Err(Problem::new(problem::CHANGED_SINCE, detail))
}

/// The tag of settings: the same for the same settings, in every process.
fn tag(settings: &QueueSettings) -> String {
    let digest = digest(&SHA256, format!("{settings:?}").as_bytes());
    format!("\"{}\"", hex(&digest.as_ref()[..8]))
}

/// `POST /queues/{queue}/pause`
pub(crate) async fn pause(call: Call) -> Answer {
    let queue = call.app.queue()?.pause(call.param()).await?;
    let by = call.caller.as_ref().and_then(Caller::name);
    call.app.history.paused(queue.name.as_str(), now(), by);
    one(&call.app, queue.name).await
}

/// `POST /queues/{queue}/resume`
pub(crate) async fn resume(call: Call) -> Answer {
    let queue = call.app.queue()?.resume(call.param()).await?;
    call.app.history.mark(What::Resumed, queue.name.as_str(), now());
    one(&call.app, queue.name).await
}

async fn one(app: &App, name: QueueName) -> Answer {
    let (wanted, now) = (name.clone(), now());
    let read = move |reader: &mut dyn Reader| {
        let Some(row) = reader.queue(&wanted)? else { return Ok(None) };
        Ok(Some((aged(reader, row)?, FigureSet::last_minute(reader, now)?)))
    };
    let ((row, oldest), lately) = app.reads.read(read).await?.ok_or_else(|| {
        let detail =
            format!("there is no queue {name}; it is made by its first job or its settings");
        Problem::new(problem::NOT_FOUND, detail)
    })?;
    let detail = QueueDetail::new(shown(&row, oldest, &lately, now), &row);
    let mut response = router::ok(&detail)?;
    if let Ok(tag) = HeaderValue::from_str(&tag(&row.queue.settings)) {
        response.headers_mut().insert(ETAG, tag);
    }
    Ok(response)
}
