//! `DELETE /queues/{queue}`: an empty queue, or with `force` its jobs first, page by page. Whether
//! a queue may go is decided by core.

use tokio::task::JoinSet;
use windlass_core::store::{Admin, AdminRefused, Filter, Reader};
use windlass_core::{Counted, Counts, QueueName};
use windlass_runtime_tokio::CommandError;

use crate::api::problem::Problem;
use crate::api::wire::QueueDeleted;
use crate::app::App;
use crate::http::router::{self, Answer, Call};

/// Jobs that are deleted by one commit.
const PAGE: usize = 500;
/// Pages of one request: its time is bounded, whatever the queue holds.
const PAGES: usize = 20;

/// `DELETE /queues/{queue}`
pub(crate) async fn delete(call: Call) -> Answer {
    let query = call.query(&["force"])?;
    let force = match query.get("force") {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(Problem::field("/force", "must be true or false")),
    };
    let name = QueueName::new(call.param())?;
    let mut jobs = Counts::default();
    for page in 0..PAGES {
        let deleted = call.app.queue()?.command(Admin::DeleteQueue(name.clone())).await;
        match deleted {
            Ok(_) => return router::ok(&QueueDeleted::new(&name, true, &jobs)),
            Err(CommandError::Refused(AdminRefused::QueueHasJobs { .. })) if force => {}
            // Another request has deleted it meanwhile.
            Err(CommandError::Refused(AdminRefused::NoQueue(_))) if page > 0 => {
                return router::ok(&QueueDeleted::new(&name, true, &jobs));
            }
            Err(error) => return Err(error.into()),
        }
        clear(&call.app, &name, &mut jobs).await?;
    }
    router::ok(&QueueDeleted::new(&name, false, &jobs))
}

/// Deletes a page of the jobs of a queue, and counts them by where they were.
async fn clear(app: &App, name: &QueueName, deleted: &mut Counts) -> Result<(), Problem> {
    let filter = Filter { queue: Some(name.clone()), ..Filter::default() };
    let list = move |reader: &mut dyn Reader| reader.list(&filter, None, PAGE);
    let page = app.reads.read(list).await?.jobs;
    let unfinished = page.iter().filter(|job| !job.state.name().is_finished());
    all(app, unfinished.map(|job| (job.into(), Admin::Cancel(job.id)))).await?;
    let gone = page.iter().map(|job| (job.into(), Admin::Delete(job.id)));
    all(app, gone).await?.into_iter().for_each(|job| deleted.add(job));
    Ok(())
}

/// Runs commands, which share a commit, and returns how the jobs of those that were done were
/// counted. A job that is gone, or that another has changed, is left to the next page.
async fn all(
    app: &App,
    commands: impl Iterator<Item = (Counted, Admin)>,
) -> Result<Vec<Counted>, Problem> {
    let mut running = JoinSet::new();
    for (job, command) in commands {
        let queue = app.queue()?.clone();
        running.spawn(async move { queue.command(command).await.map(|_| job) });
    }
    let mut done = Vec::new();
    for result in running.join_all().await {
        match result {
            Ok(job) => done.push(job),
            Err(CommandError::Refused(AdminRefused::Job(_))) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}
