//! The dead-letter queue: jobs that were given up.

use windlass_core::{JobId, StateName, View};

use super::jobs;
use crate::api::problem::{self, Problem};
use crate::api::wire::{self, PurgePage, Replay, ReplayPage};
use crate::app::App;
use crate::http::router::{self, Answer, Call};

/// `GET /dlq`
pub(crate) async fn list(call: Call) -> Answer {
    let query = call.query(&["queue", "kind", "group", "limit", "cursor"])?;
    jobs::page(&call.app, jobs::filter(&query, Some(View::Failed))?, &query).await
}

/// `POST /dlq/{id}/retry`
pub(crate) async fn retry(call: Call) -> Answer {
    let id = dead(&call.app, call.job_id()?).await?;
    let job = call.app.queue()?.replay(id).await?;
    jobs::changed(&call.app, job).await
}

/// `POST /dlq/retry`
pub(crate) async fn retry_many(call: Call) -> Answer {
    let replay: Replay =
        if call.body.is_empty() { Replay::default() } else { wire::json(&call.body)? };
    let (filter, limit) = replay.check()?;
    let after = replay.cursor.as_deref().map(jobs::cursor).transpose()?;
    let (replayed, next) = call.app.queue()?.replay_dead(filter, after, limit).await?;
    router::ok(&ReplayPage { replayed, more: next.is_some(), next: next.map(jobs::written) })
}

/// `POST /dlq/purge`
pub(crate) async fn purge(call: Call) -> Answer {
    let which: Replay = wire::json(&call.body)?;
    let (filter, limit) = which.check()?;
    let after = which.cursor.as_deref().map(jobs::cursor).transpose()?;
    let (purged, next) = call.app.queue()?.discard_dead(filter, after, limit).await?;
    router::ok(&PurgePage { purged, more: next.is_some(), next: next.map(jobs::written) })
}

/// `DELETE /dlq/{id}`
pub(crate) async fn discard(call: Call) -> Answer {
    let id = dead(&call.app, call.job_id()?).await?;
    call.app.queue()?.delete(id).await?;
    Ok(router::no_content())
}

/// The job, if it is in the dead-letter queue.
async fn dead(app: &App, id: JobId) -> Result<JobId, Problem> {
    let found = app.lookup.job(id).await?.ok_or_else(|| Problem::no_job(id))?;
    match found.job.state.name() {
        StateName::Failed => Ok(id),
        state => {
            let detail = format!("job {id} is {state}, not in the dead-letter queue");
            Err(Problem::new(problem::ILLEGAL_TRANSITION, detail))
        }
    }
}
