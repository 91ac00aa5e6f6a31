//! New jobs, alone and in batches.

use http::header::LOCATION;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::value::RawValue;
use windlass_core::limits::JOBS_PER_REQUEST;
use windlass_core::{self as core, Policy, QueueSettings};
use windlass_runtime_tokio::Receipt;

use crate::api::problem::{self, Problem};
use crate::api::wire::{self, Batch, BatchAnswer, BatchResult, Enqueued, NewJob};
use crate::app::{App, now};
use crate::http::router::{self, Answer, Call};

/// The kind that runs things on the server's own machine: not for all who reach it over HTTP.
const GUARDED: &str = "command";

/// `POST /jobs`
pub(crate) async fn one(call: Call) -> Answer {
    let key = idempotency_key(&call.headers)?;
    let app = &call.app;
    let mut job = parse(app, &call.body, key)?;
    job.echo = true;
    let receipt = app.queue()?.try_enqueue(job.clone()).await?;
    let (durability, duplicate) = (app.durability().into(), receipt.duplicate);
    let shown = match &receipt.row {
        Some(row) if !duplicate => wire::Job::bare(row, job.payload),
        _ => known(app, &receipt, &job).await?,
    };
    let status = if duplicate { StatusCode::OK } else { StatusCode::ACCEPTED };
    let mut response = router::json(status, &Enqueued { job: shown, duplicate, durability })?;
    let location = HeaderValue::try_from(format!("/jobs/{}", receipt.id));
    if let Ok(location) = location {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

/// The job of an earlier request, with the payload as that one wrote it. It is stored whatever
/// happens here, so this must not look like a refusal: a job that is gone already, or cannot be
/// read now, is shown as it was committed, or else as it was sent.
async fn known(app: &App, receipt: &Receipt, sent: &core::NewJob) -> Result<wire::Job, Problem> {
    if let Ok(Some(detail)) = app.lookup.job(receipt.id).await {
        return Ok(wire::Job::of(detail));
    }
    if let Some(row) = &receipt.row {
        return Ok(wire::Job::bare(row, sent.payload.clone()));
    }
    let terms = sent.terms(&QueueSettings::default(), &Policy::default());
    Ok(wire::Job::bare(&sent.admit(receipt.id, terms, now())?, sent.payload.clone()))
}

/// `POST /jobs/batch`
pub(crate) async fn batch(call: Call) -> Answer {
    if call.headers.contains_key(IDEMPOTENCY_KEY) {
        let detail = "a batch has no idempotency key of its own; give each job its \
                      `idempotency_key`";
        return Err(Problem::new(problem::INVALID, detail));
    }
    let batch: Batch<'_> = wire::json_with_list(&call.body, "jobs")?;
    let count = batch.jobs.len();
    if count == 0 || count > JOBS_PER_REQUEST {
        let detail = format!("must hold 1 to {JOBS_PER_REQUEST} jobs, not {count}; split it");
        return Err(Problem::field("/jobs", detail));
    }
    let mut good = Vec::with_capacity(count);
    let mut sort = |raw: &&RawValue| {
        good.push(parse(&call.app, raw.get().as_bytes(), None)?);
        Ok(())
    };
    let parsed: Vec<Result<(), Problem>> = batch.jobs.iter().map(&mut sort).collect();
    let mut stored = Vec::new().into_iter();
    if !good.is_empty() {
        stored = call.app.queue()?.try_enqueue_many(good).await?.into_iter();
    }
    let mut answer = |parsed: Result<(), Problem>| {
        parsed?;
        let missing = || Problem::new(problem::OUTCOME_UNKNOWN, "no answer came for this job");
        let receipt = stored.next().ok_or_else(missing)??;
        Ok(BatchResult::Stored { id: receipt.id.get(), duplicate: receipt.duplicate })
    };
    let refused = |problem: Problem| BatchResult::Refused { error: problem.document() };
    let results = parsed.into_iter().map(|one| answer(one).unwrap_or_else(refused)).collect();
    router::json(StatusCode::ACCEPTED, &BatchAnswer { results })
}

fn parse(app: &App, body: &[u8], key: Option<&str>) -> Result<core::NewJob, Problem> {
    let job = wire::json::<NewJob<'_>>(body)?.check(key)?;
    if !app.trusted
        && job.kind.as_str() == GUARDED
        && let Err(why) = app.allowed.check(job.payload.as_str())
    {
        let detail = format!("jobs of the kind `{GUARDED}` run on the server's machine: {why}");
        return Err(Problem::new(problem::KIND_NOT_ALLOWED, detail));
    }
    Ok(job)
}

const IDEMPOTENCY_KEY: &str = "idempotency-key";

fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut keys = headers.get_all(IDEMPOTENCY_KEY).iter();
    match (keys.next().map(HeaderValue::to_str), keys.next()) {
        (None, _) => Ok(None),
        (Some(Ok(key)), None) => Ok(Some(key)),
        _ => {
            let detail = "send one `Idempotency-Key` of visible ASCII characters";
            Err(Problem::new(problem::INVALID, detail))
        }
    }
}
