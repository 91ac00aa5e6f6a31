//! Remote workers: claims, verdicts, heartbeats.

use serde_json::value::RawValue;
use windlass_core::store::Settle;

use crate::limits::REPORTS;
use crate::problem::{self, Problem};
use crate::router::{self, Answer, Call};
use crate::wire::{
    self, Claims, Complete, Fail, Heartbeat, LeaseExtended, LeasedJob, Poll, Release, Report,
    ReportResult, Reports, ReportsAnswer, Settled, Snooze,
};

/// `POST /jobs/poll`. If the client leaves, hyper drops this future, and with it the poll: what was
/// claimed for it is given back.
pub(crate) async fn poll(call: Call) -> Answer {
    let poll = wire::json::<Poll>(&call.body)?.check(&call.peer.to_string())?;
    // A shutdown answers it too, with no jobs.
    let runs = call.app.queue.poll(poll).await?;
    // From here on nothing is awaited: the connection answers for the claims.
    call.conn.claimed(runs.iter().map(|run| run.job.token()).collect());
    router::ok(&Claims { jobs: runs.into_iter().map(LeasedJob::of).collect() })
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
    let state = call.app.queue.settle(settle).await?;
    router::ok(&Settled { state: state.as_str() })
}

/// `POST /jobs/{id}/heartbeat`
pub(crate) async fn heartbeat(call: Call) -> Answer {
    let beat = wire::json::<Heartbeat<'_>>(&call.body)?.check(call.job_id()?)?;
    let token = beat.token;
    let beaten = call.app.queue.heartbeat(beat).await?;
    router::ok(&LeaseExtended::of(token, beaten.until))
}

/// `POST /jobs/reports`
pub(crate) async fn reports(call: Call) -> Answer {
    let reports: Reports<'_> = wire::json(&call.body)?;
    let count = reports.reports.len();
    if count == 0 || count > REPORTS {
        let detail = format!("must hold 1 to {REPORTS} reports, not {count}; split it");
        return Err(Problem::field("/reports", detail));
    }
    let parse = |raw: &&RawValue| wire::json::<Report<'_>>(raw.get().as_bytes())?.check();
    let parsed: Vec<Result<Settle, Problem>> = reports.reports.iter().map(parse).collect();
    let mut good = Vec::with_capacity(count);
    let parsed: Vec<Result<(), Problem>> =
        parsed.into_iter().map(|report| report.map(|settle| good.push(settle))).collect();
    let recorded =
        if good.is_empty() { Vec::new() } else { call.app.queue.settle_many(good).await? };
    let mut recorded = recorded.into_iter();
    let mut answer = |parsed: Result<(), Problem>| {
        parsed?;
        let missing = || Problem::new(problem::OUTCOME_UNKNOWN, "no answer came for this report");
        recorded.next().ok_or_else(missing)?.map_err(Problem::from)
    };
    let results = parsed.into_iter().map(|parsed| ReportResult::from(answer(parsed))).collect();
    router::ok(&ReportsAnswer { results })
}
