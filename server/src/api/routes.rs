//! The one table of routes. The router, the OpenAPI document, the scopes and the test of the tokens
//! are all made from it.

use std::sync::LazyLock;

use http::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::api::handlers::queue_deletion::delete;
use crate::api::handlers::{dead, enqueue, jobs, queues, system, work};
use crate::api::problem::{self, Kind};
use crate::api::wire;
use crate::http::BoxFuture;
use crate::http::auth::Scope;
use crate::http::router::{Answer, Call};

/// One method on one path.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) access: Access,
    pub(crate) body: BodyKind,
    pub(crate) run: fn(Call) -> BoxFuture<Answer>,
    pub(crate) doc: Doc,
}

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Any caller, without a token.
    Open,
    /// Any token that is known here.
    AnyToken,
    /// A token that allows this.
    Scope(Scope),
}

/// The body that a route accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyKind {
    /// Nothing; an empty object is accepted.
    Empty,
    /// JSON, or nothing.
    MayBeEmpty,
    /// A JSON object, which must be there.
    Json,
    /// JSON with many jobs or reports: larger.
    Batch,
}

/// What the OpenAPI document says about a route.
#[derive(Debug)]
pub(crate) struct Doc {
    pub(crate) id: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) request: Option<SchemaOf>,
    pub(crate) example: Option<&'static str>,
    pub(crate) query: &'static [(&'static str, &'static str)],
    pub(crate) answers: Vec<Reply>,
    pub(crate) problems: Vec<Kind>,
}

pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// An answer that a route documents, other than problems.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) description: &'static str,
    pub(crate) schema: Option<SchemaOf>,
    pub(crate) content_type: &'static str,
}

impl Route {
    fn new(
        method: Method,
        path: &'static str,
        scope: Scope,
        id: &'static str,
        run: fn(Call) -> BoxFuture<Answer>,
    ) -> Self {
        let (summary, request, example, query) = ("", None, None, &[][..]);
        let (answers, problems) = (Vec::new(), Vec::new());
        let doc = Doc { id, summary, request, example, query, answers, problems };
        Self { method, path, access: Access::Scope(scope), body: BodyKind::Empty, run, doc }
    }

    fn open(mut self) -> Self {
        self.access = Access::Open;
        self
    }

    fn any_token(mut self) -> Self {
        self.access = Access::AnyToken;
        self
    }

    fn says(mut self, summary: &'static str) -> Self {
        self.doc.summary = summary;
        self
    }

    fn reads<T: JsonSchema>(mut self, body: BodyKind, example: &'static str) -> Self {
        self.body = body;
        self.doc.request = Some(SchemaGenerator::subschema_for::<T>);
        self.doc.example = Some(example);
        self
    }

    fn query(mut self, names: &'static [(&'static str, &'static str)]) -> Self {
        self.doc.query = names;
        self
    }

    fn answers<T: JsonSchema>(mut self, status: u16, description: &'static str) -> Self {
        let schema: SchemaOf = SchemaGenerator::subschema_for::<T>;
        let content_type = "application/json";
        self.doc.answers.push(Reply { status, description, schema: Some(schema), content_type });
        self
    }

    fn sends(mut self, status: u16, content_type: &'static str, description: &'static str) -> Self {
        self.doc.answers.push(Reply { status, description, schema: None, content_type });
        self
    }

    fn refuses(mut self, problems: &[Kind]) -> Self {
        self.doc.problems.extend(problems);
        self
    }
}

/// A handler as the table keeps it.
macro_rules! run {
    ($handler:path) => {
        |call| Box::pin($handler(call))
    };
}

mod bulk;
mod dashboard;
mod errors;
mod upkeep;

pub(crate) static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    [
        new_jobs(),
        looking(),
        operating(),
        dead_letters(),
        errors::errors(),
        bulk::bulk(),
        working(),
        queue_routes(),
        upkeep::settings(),
        upkeep::upkeep(),
        server(),
        dashboard::dashboard(),
    ]
    .into_iter()
    .flatten()
    .collect()
});

/// What a route that writes may answer when the store or the server cannot.
const BUSY: [Kind; 5] = [
    problem::SHUTTING_DOWN,
    problem::OVERLOADED,
    problem::STORE_UNAVAILABLE,
    problem::OUTCOME_UNKNOWN,
    problem::STORE_FULL,
];

const WORKERS: [(&str, &str); 2] = [
    ("limit", "Maximum number, 1 to 1000; all if absent."),
    ("cursor", "Cursor: `next` of the previous page."),
];

const PAGING: [(&str, &str); 4] = [
    ("queue", "Only jobs of this queue."),
    ("kind", "Only jobs of this kind."),
    ("limit", "Maximum number, 1 to 1000; 50 if absent."),
    ("cursor", "Cursor: `next` of the previous page."),
];

const WAITING: [(&str, &str); 2] = [
    ("wait_ms", "Maximum time to wait for a verdict; 0 if absent, at most 30 000."),
    ("fields", "`head` leaves payload and result out and says how long they are."),
];

const GROUP: (&str, &str) = ("group", "Only dead letters of this error group.");

const DEAD: [(&str, &str); 5] = [PAGING[0], PAGING[1], GROUP, PAGING[2], PAGING[3]];

const LISTING: [(&str, &str); 18] = [
    ("state", "queued (due), scheduled, processing, done, failed or cancelled."),
    ("queue", "Only jobs of this queue, or of up to 20 queues separated by commas."),
    PAGING[1],
    ("key", "Only jobs with this idempotency key."),
    ("id", "Only the job with this id; with `fields=row`, up to 1000 ids separated by commas."),
    GROUP,
    ("fields", "`row` has the head of each payload in place of payload, result and retry policy."),
    ("worker", "Only jobs that this worker runs."),
    ("from", "Only jobs whose sort time is at or after this; RFC 3339."),
    ("to", "Only jobs whose sort time is before this; RFC 3339."),
    (
        "error_contains",
        "Only jobs whose last error contains this text. This filter and those below read row by \
         row, up to 20 000 rows, 200 ms or 64 MiB; then `reached` says how far they got, and \
         `next` continues.",
    ),
    ("payload_contains", "Only jobs whose payload, as it is stored, contains this text."),
    ("payload_at", "JSON pointer to a value in the payload, like /user/id; with `payload_is`."),
    ("payload_is", "Expected value at `payload_at`: a string, or JSON as it was written."),
    ("attempts_min", "Only jobs with at least this number of attempts."),
    ("priority_min", "Only jobs of this priority or higher."),
    PAGING[2],
    PAGING[3],
];

fn new_jobs() -> Vec<Route> {
    let one = r#"{"kind":"email","payload":{"to":"ada@example.org"},"max_retries":5}"#;
    let many = r#"{"jobs":[{"kind":"email","payload":{"n":1}},{"kind":"email","delay_ms":60000}]}"#;
    vec![
        Route::new(Method::POST, "/jobs", Scope::Enqueue, "enqueue", run!(enqueue::one))
            .says(
                "Enqueue a job. Answered once it is stored. With an idempotency key (field, or \
                 header `Idempotency-Key`) it can be repeated.",
            )
            .reads::<wire::NewJob<'_>>(BodyKind::Json, one)
            .answers::<wire::Enqueued>(202, "Stored; `Location` names it.")
            .answers::<wire::Enqueued>(200, "The same request had stored it before.")
            .refuses(&[
                problem::IDEMPOTENCY_CONFLICT,
                problem::LIMIT_REACHED,
                problem::KIND_NOT_ALLOWED,
                problem::QUEUE_FULL,
            ])
            .refuses(&BUSY),
        Route::new(
            Method::POST,
            "/jobs/batch",
            Scope::Enqueue,
            "enqueueBatch",
            run!(enqueue::batch),
        )
        .says(
            "Enqueue up to 10 000 jobs in one commit. Each has its own answer, in order; one \
                 invalid job does not affect the others.",
        )
        .reads::<wire::Batch<'_>>(BodyKind::Batch, many)
        .answers::<wire::BatchAnswer>(202, "One result per job.")
        .refuses(&BUSY),
    ]
}

fn looking() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/jobs", Scope::Read, "listJobs", run!(jobs::list))
            .says(
                "List jobs, newest first: waiting ones by when they are due, running ones by when \
                 their lease ends, finished ones by when they finished, all together by id.",
            )
            .query(&LISTING)
            .answers::<wire::JobList>(
                200,
                "A page of jobs. It may hold fewer than `limit`; use `next`.",
            )
            .refuses(&[problem::INVALID]),
        Route::new(Method::GET, "/jobs/{id}", Scope::Read, "getJob", run!(jobs::get))
            .says(
                "One job, with payload, result and last error. With `wait_ms` the answer comes \
                 when the job is finished, or after that time.",
            )
            .query(&WAITING)
            .answers::<wire::Job>(200, "The job.")
            .refuses(&[problem::NOT_FOUND, problem::INVALID, problem::SHUTTING_DOWN]),
        Route::new(
            Method::GET,
            "/jobs/{id}/attempts",
            Scope::Read,
            "jobAttempts",
            run!(jobs::attempts),
        )
        .says("The attempts of a job that did not complete, oldest first; the newest 32 are kept.")
        .answers::<wire::Attempts>(200, "The attempts.")
        .refuses(&[problem::NOT_FOUND]),
        Route::new(
            Method::GET,
            "/jobs/{id}/explain",
            Scope::Read,
            "explainJob",
            run!(jobs::explained),
        )
        .says("Why a job is in its state, and when that can next change.")
        .answers::<wire::Explained>(200, "Every reason that holds.")
        .refuses(&[problem::NOT_FOUND]),
    ]
}

fn operating() -> Vec<Route> {
    vec![
        Route::new(
            Method::POST,
            "/jobs/{id}/cancel",
            Scope::Admin,
            "cancelJob",
            run!(jobs::cancel),
        )
        .says("Cancel a queued or running job. The next heartbeat of a remote worker is refused.")
        .answers::<wire::JobAnswer>(200, "The job, cancelled.")
        .refuses(&[problem::NOT_FOUND, problem::ILLEGAL_TRANSITION])
        .refuses(&BUSY),
        Route::new(Method::POST, "/jobs/{id}/retry", Scope::Admin, "retryJob", run!(jobs::retry))
            .says("Run a failed or cancelled job again, with all its attempts.")
            .answers::<wire::JobAnswer>(200, "The job, queued again.")
            .refuses(&[problem::NOT_FOUND, problem::ILLEGAL_TRANSITION])
            .refuses(&BUSY),
        Route::new(Method::DELETE, "/jobs/{id}", Scope::Admin, "deleteJob", run!(jobs::delete))
            .says("Delete a finished job.")
            .sends(204, "", "Deleted.")
            .refuses(&[problem::NOT_FOUND, problem::ILLEGAL_TRANSITION])
            .refuses(&BUSY),
    ]
}

fn dead_letters() -> Vec<Route> {
    let some = r#"{"kind":"email","error_contains":"connection refused","limit":100}"#;
    vec![
        Route::new(Method::GET, "/dlq", Scope::Read, "listDeadLetters", run!(dead::list))
            .says("The dead-letter queue, newest failure first.")
            .query(&DEAD)
            .answers::<wire::JobList>(200, "A page of failed jobs.")
            .refuses(&[problem::INVALID]),
        Route::new(
            Method::POST,
            "/dlq/{id}/retry",
            Scope::Admin,
            "retryDeadLetter",
            run!(dead::retry),
        )
        .says("Run a dead letter again.")
        .answers::<wire::JobAnswer>(200, "The job, queued again.")
        .refuses(&[problem::NOT_FOUND, problem::ILLEGAL_TRANSITION])
        .refuses(&BUSY),
        Route::new(
            Method::POST,
            "/dlq/retry",
            Scope::Admin,
            "retryDeadLetters",
            run!(dead::retry_many),
        )
        .says("Run dead letters again, newest failure first; all if the body is empty.")
        .reads::<wire::Replay>(BodyKind::MayBeEmpty, some)
        .answers::<wire::ReplayPage>(200, "The number; `more` if others may match.")
        .refuses(&BUSY),
        Route::new(Method::POST, "/dlq/purge", Scope::Admin, "purgeDeadLetters", run!(dead::purge))
            .says("Delete dead letters, newest failure first; all if the object is empty.")
            .reads::<wire::Replay>(BodyKind::Json, some)
            .answers::<wire::PurgePage>(200, "The number; `more` if others may match.")
            .refuses(&BUSY),
        Route::new(
            Method::DELETE,
            "/dlq/{id}",
            Scope::Admin,
            "discardDeadLetter",
            run!(dead::discard),
        )
        .says("Delete a dead letter.")
        .sends(204, "", "Deleted.")
        .refuses(&[problem::NOT_FOUND, problem::ILLEGAL_TRANSITION])
        .refuses(&BUSY),
    ]
}

fn working() -> Vec<Route> {
    let poll = r#"{"worker":"mailer-1","queues":["default"],"kinds":["email"],"max":10}"#;
    let reports = r#"{"reports":[{"token":"1.1","verdict":"complete","result":{"sent":true}}]}"#;
    let mut routes = vec![
        Route::new(Method::POST, "/jobs/poll", Scope::Work, "poll", run!(work::poll))
            .says(
                "Claim jobs for a remote worker, waiting up to 30 s. Jobs claimed for a client \
                 that disconnects are released.",
            )
            .reads::<wire::Poll>(BodyKind::Json, poll)
            .answers::<wire::Claims>(200, "The jobs, with their leases; none if nothing came.")
            .refuses(&BUSY),
        Route::new(Method::POST, "/jobs/reports", Scope::Work, "report", run!(work::reports))
            .says(
                "Report verdicts on up to 10 000 jobs in one commit: complete, fail, release, \
                 snooze; and heartbeats. Each has its own answer, in order: a state, a lease or a \
                 problem. Verdicts go before heartbeats.",
            )
            .reads::<wire::Reports<'_>>(BodyKind::Batch, reports)
            .answers::<wire::ReportsAnswer>(200, "One result per report.")
            .refuses(&BUSY),
        Route::new(Method::GET, "/jobs/{id}/lease", Scope::Work, "heldJob", run!(work::held))
            .says(
                "The job behind a lease, for its holder: the scope `work` reads the jobs it holds \
                 and no others. A token that does not hold the job any more is refused.",
            )
            .query(&[("token", "The token of the lease, as the poll gave it.")])
            .answers::<wire::Job>(200, "The job.")
            .refuses(&[problem::NOT_FOUND, problem::LEASE_LOST, problem::INVALID]),
        Route::new(
            Method::POST,
            "/jobs/{id}/heartbeat",
            Scope::Work,
            "heartbeat",
            run!(work::heartbeat),
        )
        .says("Extend the lease of a running job.")
        .reads::<wire::Heartbeat<'_>>(BodyKind::Json, r#"{"token":"1.1","progress":{"done":3}}"#)
        .answers::<wire::LeaseExtended>(200, "The extended lease.")
        .refuses(&[problem::NOT_FOUND, problem::LEASE_LOST])
        .refuses(&BUSY),
    ];
    routes.extend(verdicts());
    routes
}

fn verdicts() -> [Route; 4] {
    let new = |path, id, run| {
        Route::new(Method::POST, path, Scope::Work, id, run)
            .answers::<wire::Settled>(
                200,
                "Recorded; the same again for a repetition, as long as the job was not claimed \
                 since.",
            )
            .refuses(&[problem::NOT_FOUND, problem::LEASE_LOST])
            .refuses(&BUSY)
    };
    [
        new("/jobs/{id}/complete", "complete", run!(work::complete))
            .says("Complete a job.")
            .reads::<wire::Complete<'_>>(BodyKind::Json, r#"{"token":"1.1","result":{"ok":true}}"#),
        new("/jobs/{id}/fail", "fail", run!(work::fail))
            .says("Fail an attempt: the job is retried, or becomes a dead letter.")
            .reads::<wire::Fail>(BodyKind::Json, r#"{"token":"1.1","error":"no route to host"}"#),
        new("/jobs/{id}/release", "release", run!(work::release))
            .says("Release a job: it is queued again, and the attempt is not charged.")
            .reads::<wire::Release>(BodyKind::Json, r#"{"token":"1.1"}"#),
        new("/jobs/{id}/snooze", "snooze", run!(work::snooze))
            .says("Snooze a job: it is queued again after a delay, and the attempt is not charged.")
            .reads::<wire::Snooze>(BodyKind::Json, r#"{"token":"1.1","delay_ms":60000}"#),
    ]
}

fn queue_routes() -> Vec<Route> {
    let get = |path, id| {
        Route::new(Method::GET, path, Scope::Read, id, run!(queues::list))
            .says("Every queue with its counters and settings.")
            .answers::<wire::QueueList>(200, "The queues.")
    };
    let act = |path, id, run| {
        Route::new(Method::POST, path, Scope::Admin, id, run)
            .answers::<wire::QueueDetail>(200, "The queue as it is now.")
            .refuses(&[problem::INVALID, problem::LIMIT_REACHED])
            .refuses(&BUSY)
    };
    vec![
        get("/queues", "listQueues"),
        get("/queues/stats", "queueStats"),
        Route::new(Method::GET, "/queues/{queue}", Scope::Read, "getQueue", run!(queues::get))
            .says("One queue, with the jobs of each kind. `ETag` is that of its settings.")
            .answers::<wire::QueueDetail>(200, "The queue.")
            .refuses(&[problem::NOT_FOUND, problem::INVALID]),
        Route::new(Method::PUT, "/queues/{queue}", Scope::Admin, "setQueue", run!(queues::set))
            .says(
                "Replace all settings of a queue; `null` or absent means the default. With \
                 `If-Match` only if they are still those with that `ETag`.",
            )
            .reads::<wire::Settings>(BodyKind::Json, r#"{"max_queued":100000,"concurrency":8}"#)
            .answers::<wire::QueueDetail>(200, "The queue as it is now.")
            .refuses(&[problem::LIMIT_REACHED, problem::CHANGED_SINCE])
            .refuses(&BUSY),
        Route::new(Method::DELETE, "/queues/{queue}", Scope::Admin, "deleteQueue", run!(delete))
            .says(
                "Delete a queue with its settings. One with jobs is refused, unless `force=true`: \
                 then its jobs are deleted first, running ones are cancelled; up to 10 000 jobs \
                 each time it is asked.",
            )
            .query(&[("force", "`true` deletes the jobs of the queue as well.")])
            .answers::<wire::QueueDeleted>(200, "What was deleted, and whether the queue is gone.")
            .refuses(&[problem::NOT_FOUND, problem::QUEUE_NOT_EMPTY, problem::INVALID])
            .refuses(&BUSY),
        act("/queues/{queue}/pause", "pauseQueue", run!(queues::pause))
            .says("Pause a queue: none of its jobs are started."),
        act("/queues/{queue}/resume", "resumeQueue", run!(queues::resume)).says("Resume a queue."),
    ]
}

fn server() -> Vec<Route> {
    let get = |path, id, run| Route::new(Method::GET, path, Scope::Read, id, run);
    vec![
        get("/workers", "listWorkers", run!(system::workers))
            .says("Every known worker, by id, with what it runs.")
            .query(&WORKERS)
            .answers::<wire::WorkerList>(200, "The workers."),
        get("/events", "events", run!(system::events))
            .says(
                "Server-sent events of job and queue changes made by this server. `changed` names \
                 queues in which other processes changed something, at most twice a second. \
                 `Last-Event-ID` replays what was missed; `reset` says that events were missed: \
                 read again what you show. With `feed=snapshot`: `GET /snapshot` each second, \
                 first in full, then the queues that changed.",
            )
            .query(&[("feed", "`jobs`, or `snapshot`; `jobs` if absent.")])
            .sends(
                200,
                "text/event-stream",
                "Events named job, queue, changed and reset, or snapshot.",
            )
            .refuses(&[problem::INVALID]),
        get("/metrics", "metrics", run!(system::metrics)).says("Metrics for Prometheus.").sends(
            200,
            "text/plain",
            "Text format 0.0.4; OpenMetrics 1.0.0 if `Accept` names it and does not prefer text.",
        ),
        get("/livez", "livez", run!(system::livez))
            .open()
            .says("Whether the server's loop is alive. Without a token that may read: the status.")
            .answers::<wire::Alive>(200, "Alive.")
            .refuses(&[problem::NOT_READY]),
        get("/readyz", "readyz", run!(system::readyz))
            .open()
            .says(
                "Whether the server takes requests and stores jobs. Without a token that may read: \
                 the status.",
            )
            .answers::<wire::Ready>(200, "Ready.")
            .refuses(&[problem::NOT_READY]),
        get("/openapi.json", "openapi", run!(system::openapi)).says("This document.").sends(
            200,
            "application/json",
            "OpenAPI 3.1.",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_health_and_the_page_are_open() {
        let open = ROUTES.iter().filter(|route| route.access == Access::Open);
        let open: Vec<&str> = open.map(|route| route.path).collect();
        assert_eq!(open, ["/livez", "/readyz", "/", "/ui/{build}/{file}"]);
    }

    /// What copies the whole store is for admins; a worker reads the jobs it holds.
    const OTHER_GETS: [(&str, Scope); 3] =
        [("/doctor", Scope::Admin), ("/backup", Scope::Admin), ("/jobs/{id}/lease", Scope::Work)];

    #[test]
    fn a_get_needs_read_but_for_these_and_nothing_else_does() {
        for route in ROUTES.iter() {
            let Access::Scope(scope) = route.access else { continue };
            let other = OTHER_GETS.iter().find(|(path, _)| *path == route.path);
            let reads = route.method == Method::GET && other.is_none();
            assert_eq!(scope == Scope::Read, reads, "{} {}", route.method, route.path);
            let wanted = other.filter(|_| route.method == Method::GET).map(|(_, scope)| *scope);
            assert!(wanted.is_none_or(|wanted| wanted == scope), "{}", route.path);
        }
    }
}
