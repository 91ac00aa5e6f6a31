//! Queues: counters, settings, pause and resume.

use windlass_core::store::{Reader, StoreError};
use windlass_core::{QueueName, QueueRow, View, Wall};

use crate::app::{App, now};
use crate::problem::{self, Problem};
use crate::router::{self, Answer, Call};
use crate::wire::{self, Queue, QueueList, Settings};

/// `GET /queues` and `GET /queues/stats`
pub(crate) async fn list(call: Call) -> Answer {
    call.query(&[])?;
    let rows = rows(&call.app).await?;
    let now = now();
    let queues = rows.iter().map(|(row, oldest)| Queue::of(row, *oldest, now)).collect();
    router::ok(&QueueList { queues })
}

/// Every queue, with the instant since when its longest-waiting job has been due.
pub(crate) async fn rows(app: &App) -> Result<Vec<(QueueRow, Option<Wall>)>, Problem> {
    let read = |reader: &mut dyn Reader| {
        let rows = reader.queues()?;
        rows.into_iter().map(|row| aged(reader, row)).collect()
    };
    Ok(app.queue.read(read).await?)
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
    let queue = call.app.queue.set_queue(call.param(), settings.check()?).await?;
    one(&call.app, queue.name).await
}

/// `POST /queues/{queue}/pause`
pub(crate) async fn pause(call: Call) -> Answer {
    let queue = call.app.queue.pause(call.param()).await?;
    one(&call.app, queue.name).await
}

/// `POST /queues/{queue}/resume`
pub(crate) async fn resume(call: Call) -> Answer {
    let queue = call.app.queue.resume(call.param()).await?;
    one(&call.app, queue.name).await
}

async fn one(app: &App, name: QueueName) -> Answer {
    let wanted = name.clone();
    let read = move |reader: &mut dyn Reader| {
        let row = reader.queue(&wanted)?;
        row.map(|row| aged(reader, row)).transpose()
    };
    let (row, oldest) = app.queue.read(read).await?.ok_or_else(|| {
        let detail =
            format!("there is no queue {name}; it is made by its first job or its settings");
        Problem::new(problem::NOT_FOUND, detail)
    })?;
    router::ok(&Queue::of(&row, oldest, now()))
}
