//! Queues: counters, settings, pause and resume.

use http::HeaderValue;
use http::header::{ETAG, IF_MATCH};
use ring::digest::{SHA256, digest};
use windlass_core::store::{AdminRefused, Reader, StoreError};
use windlass_core::{FigureSet, Millis, QueueName, QueueRow, QueueSettings, View, Wall};

use crate::api::problem::{self, Problem};
use crate::api::wire::{self, Queue, QueueDetail, QueueList, Rates, Settings};
use crate::app::{App, now};
use crate::http::auth::Caller;
use crate::http::router::{self, Answer, Call};
use crate::http::ui::hex;

/// `GET /queues` and `GET /queues/stats`
pub(crate) async fn list(call: Call) -> Answer {
    call.query(&[])?;
    let read = |reader: &mut dyn Reader| {
        let now = reader.now(now())?;
        Ok((all(reader)?, FigureSet::last_minute(reader, now)?, now))
    };
    let (rows, lately, now) = call.app.reads.read(read).await?;
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

/// A queue with its recent rates.
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
    let wanted = call.headers.get(IF_MATCH).filter(|wanted| *wanted != "*");
    let queue = match wanted {
        None => call.app.queue()?.set_queue(name.as_str(), settings).await?,
        Some(wanted) => {
            let expected = expected(&call.app, &name, wanted).await?;
            call.app.queue()?.set_queue_from(name.as_str(), expected, settings).await?
        }
    };
    one(&call.app, queue.name).await
}

/// The settings of a queue if one of these tags is theirs. They are compared once more in the
/// commit that replaces them, so that a change by another process in between is seen.
async fn expected(
    app: &App,
    name: &QueueName,
    wanted: &HeaderValue,
) -> Result<QueueSettings, Problem> {
    let name = name.clone();
    let row = app.reads.read(move |reader| reader.queue(&name)).await?;
    let settings = row.map_or_else(QueueSettings::default, |row| row.queue.settings);
    let (tag, tags) = (tag(&settings), wanted.to_str().unwrap_or_default());
    if tags.split(',').any(|one| one.trim() == tag) {
        return Ok(settings);
    }
    Err(AdminRefused::SettingsChanged(Box::new(settings)).into())
}

/// The tag of settings: the same for the same settings, in every process.
fn tag(settings: &QueueSettings) -> String {
    let digest = digest(&SHA256, format!("{settings:?}").as_bytes());
    format!("\"{}\"", hex(&digest.as_ref()[..8]))
}

/// `POST /queues/{queue}/pause`
pub(crate) async fn pause(call: Call) -> Answer {
    let by = call.caller.as_ref().and_then(Caller::name);
    let by = by.or_else(|| call.app.trusted.then_some("command line"));
    let queue = match by {
        None => call.app.queue()?.pause(call.param()).await?,
        Some(by) => call.app.queue()?.pause_by(call.param(), by).await?,
    };
    one(&call.app, queue.name).await
}

/// `POST /queues/{queue}/resume`
pub(crate) async fn resume(call: Call) -> Answer {
    let queue = call.app.queue()?.resume(call.param()).await?;
    one(&call.app, queue.name).await
}

async fn one(app: &App, name: QueueName) -> Answer {
    let wanted = name.clone();
    let read = move |reader: &mut dyn Reader| {
        let Some(row) = reader.queue(&wanted)? else { return Ok(None) };
        let now = reader.now(now())?;
        Ok(Some((aged(reader, row)?, FigureSet::last_minute(reader, now)?, now)))
    };
    let ((row, oldest), lately, now) = app.reads.read(read).await?.ok_or_else(|| {
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
