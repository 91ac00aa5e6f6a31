//! Remote workers: claims, verdicts, heartbeats.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::task::JoinSet;
use windlass_core::machine::Run;
use windlass_core::store::{self, JobRefused, Reader, Settle};
use windlass_core::{self as core, JobId, LeaseToken, Rejected, StaleReason};
use windlass_runtime_tokio::Queue;

use crate::api::problem::{self, Problem};
use crate::api::wire::{
    self, Claims, Complete, Fail, Heartbeat, LeaseExtended, LeasedJob, Notes, Poll, Release,
    Report, ReportResult, Reported, Reports, ReportsAnswer, Settled, Snooze,
};
use crate::http::limits::REPORTS;
use crate::http::router::{self, Answer, Call};

/// `POST /jobs/poll`. If the client leaves, hyper drops this future, and with it the poll: what was
/// claimed for it is given back.
pub(crate) async fn poll(mut call: Call) -> Answer {
    let poll = wire::json::<Poll>(&call.body)?.check(&call.peer.to_string())?;
    call.release_body();
    // A shutdown answers it too, with no jobs.
    let mut runs = call.app.queue()?.poll(poll).await?;
    // From here on the connection answers for the claims, also if the client leaves meanwhile.
    call.conn.claimed(runs.iter().map(|run| run.job.token()).collect());
    let before = earlier(&call, &runs).await;
    let bytes: Vec<u64> = runs.iter().map(|run| answer_bytes(run, &before)).collect();
    let reserved = call.app.answer_room.reserve_some(&bytes);
    let fitting = reserved.as_ref().map_or(0, |(count, _)| *count);
    return_claims(&call, runs.split_off(fitting)).await;
    let (_, room) = reserved?;
    let leased = |run: Run| {
        let notes = before.get(&run.job.id);
        LeasedJob::of(run, notes)
    };
    let answer = router::ok(&Claims { jobs: runs.into_iter().map(leased).collect() })?;
    Ok(answer.map(|body| body.holding(room)))
}

/// Bytes of a job in an answer, beside its payload and notes; the longest names fit.
const JOB_BYTES: u64 = 1024;

/// About how many bytes of the answer this claim takes.
fn answer_bytes(run: &Run, before: &BTreeMap<JobId, Notes>) -> u64 {
    let notes = before.get(&run.job.id).map_or(0, Notes::bytes);
    JOB_BYTES + u64::from(run.job.payload_bytes) + notes
}

/// Releases claims that have no room in the answer, also if the client leaves meanwhile.
async fn return_claims(call: &Call, runs: Vec<Run>) {
    if runs.is_empty() {
        return;
    }
    let tokens: Vec<LeaseToken> = runs.iter().map(|run| run.job.token()).collect();
    drop(runs);
    call.conn.withdrawn(&tokens);
    let app = Arc::clone(&call.app);
    let returned = tokio::spawn(async move { crate::http::give_back(&app, tokens).await });
    // It only fails if the server ends; then the leases expire.
    let _ = returned.await;
}

/// Jobs that one read brings, for their notes: their payloads come with them.
const NOTES_AT_ONCE: usize = 16;

/// What earlier attempts have left of the jobs that were claimed before. If it cannot be read, the
/// claims go out without it.
async fn earlier(call: &Call, runs: &[Run]) -> BTreeMap<JobId, Notes> {
    let again = runs.iter().filter(|run| run.job.epoch.get() > 1);
    let ids: Vec<JobId> = again.map(|run| run.job.id).collect();
    let mut notes = BTreeMap::new();
    for ids in ids.chunks(NOTES_AT_ONCE).map(<[JobId]>::to_vec) {
        let read = move |reader: &mut dyn Reader| reader.jobs(&ids);
        let found = call.app.reads.read(read).await.unwrap_or_default();
        notes.extend(found.into_iter().flatten().map(|job| (job.job.id, Notes::of(job))));
    }
    notes
}

/// `POST /jobs/{id}/complete`
pub(crate) async fn complete(call: Call) -> Answer {
    let settle = wire::json::<Complete<'_>>(&call.body)?.check(call.job_id()?)?;
    settled(&call, settle).await
}

/// `POST /jobs/{id}/fail`
pub(crate) async fn fail(call: Call) -> Answer {
    let settle = wire::json::<Fail>(&call.body)?.check(call.job_id()?)?;
    settled(&call, settle).await
}

/// `POST /jobs/{id}/release`
pub(crate) async fn release(call: Call) -> Answer {
    let settle = wire::json::<Release>(&call.body)?.check(call.job_id()?)?;
    settled(&call, settle).await
}

/// `POST /jobs/{id}/snooze`
pub(crate) async fn snooze(call: Call) -> Answer {
    let settle = wire::json::<Snooze>(&call.body)?.check(call.job_id()?)?;
    settled(&call, settle).await
}

async fn settled(call: &Call, settle: Settle) -> Answer {
    let state = call.app.queue()?.settle(settle).await?;
    router::ok(&Settled { state: state.as_str() })
}

/// `POST /jobs/{id}/heartbeat`
pub(crate) async fn heartbeat(call: Call) -> Answer {
    let beat = wire::json::<Heartbeat<'_>>(&call.body)?.check(call.job_id()?)?;
    let token = beat.token;
    let beaten = call.app.queue()?.heartbeat(beat).await?;
    router::ok(&LeaseExtended::of(token, beaten.until))
}

/// `GET /jobs/{id}/lease`: the job as its holder may read it. Who knows the token of a lease that
/// runs may also end the job by it.
pub(crate) async fn held(call: Call) -> Answer {
    let query = call.query(&["token"])?;
    let id = call.job_id()?;
    let token = wire::token(query.get("token").unwrap_or_default(), id)?;
    let found = call.app.lookup.job(id).await?.ok_or_else(|| Problem::no_job(id))?;
    let job = &found.job;
    if job.lease().is_none() || job.token() != token {
        let reason = StaleReason::of(job, token.epoch);
        let stale = Rejected::Stale { reason, state: job.state.name(), epoch: job.epoch };
        return Err(JobRefused::Rejected(stale).into());
    }
    router::ok(&wire::Job::of(found))
}

/// `POST /jobs/reports`
pub(crate) async fn reports(call: Call) -> Answer {
    let reports: Reports<'_> = wire::json_with_list(&call.body, "reports")?;
    let count = reports.reports.len();
    if count == 0 || count > REPORTS {
        let detail = format!("must hold 1 to {REPORTS} reports, not {count}; split it");
        return Err(Problem::field("/reports", detail));
    }
    let parse = |raw: &&RawValue| wire::json::<Report<'_>>(raw.get().as_bytes())?.check();
    let mut results: Vec<Option<ReportResult>> = Vec::with_capacity(count);
    let (mut verdicts, mut beats) = (Vec::new(), Vec::new());
    for (at, report) in reports.reports.iter().map(parse).enumerate() {
        results.push(None);
        match report {
            Ok(Reported::Verdict(settle)) => verdicts.push((at, settle)),
            Ok(Reported::Heartbeat(beat)) => beats.push((at, beat)),
            Err(problem) => results[at] = Some(ReportResult::refused(&problem)),
        }
    }
    let beats = extended(call.app.queue()?, beats);
    for (at, result) in recorded(&call, verdicts).await?.into_iter().chain(beats.await) {
        results[at] = Some(result);
    }
    let missing = Problem::new(problem::OUTCOME_UNKNOWN, "no answer came for this report");
    let results = results.into_iter();
    let results = results.map(|result| result.unwrap_or_else(|| ReportResult::refused(&missing)));
    router::ok(&ReportsAnswer { results: results.collect() })
}

type Answered = Vec<(usize, ReportResult)>;

/// Records verdicts in one commit; each with its place among the reports.
async fn recorded(call: &Call, verdicts: Vec<(usize, Settle)>) -> Result<Answered, Problem> {
    if verdicts.is_empty() {
        return Ok(Vec::new());
    }
    let (places, verdicts): (Vec<usize>, Vec<Settle>) = verdicts.into_iter().unzip();
    let answers = call.app.queue()?.settle_many(verdicts).await?;
    let result = |answer| match answer {
        Ok(state) => ReportResult::Recorded { state: core::StateName::as_str(state) },
        Err(error) => ReportResult::refused(&Problem::from(error)),
    };
    Ok(places.into_iter().zip(answers.into_iter().map(result)).collect())
}

/// Extends leases; those that come together share a commit.
async fn extended(queue: &Queue, beats: Vec<(usize, store::Heartbeat)>) -> Answered {
    let mut running = JoinSet::new();
    for (at, beat) in beats {
        let queue = queue.clone();
        running.spawn(async move {
            let token = beat.token;
            let result = match queue.heartbeat(beat).await {
                Ok(beaten) => ReportResult::Extended(LeaseExtended::of(token, beaten.until)),
                Err(error) => ReportResult::refused(&Problem::from(error)),
            };
            (at, result)
        });
    }
    running.join_all().await
}
