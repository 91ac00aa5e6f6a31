//! The one table of routes. The router, the OpenAPI document, the scopes and the test of the tokens
//! are all made from it.

use std::sync::LazyLock;

use http::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::auth::Scope;
use crate::handlers::{dead, enqueue, jobs, queues, system, work};
use crate::http::BoxFuture;
use crate::problem::{self, Kind};
use crate::router::{Answer, Call};
use crate::wire;

/// One method on one path.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    /// What a token must allow; nothing if the route is open to everybody.
    pub(crate) scope: Option<Scope>,
    pub(crate) body: BodyKind,
    pub(crate) run: fn(Call) -> BoxFuture<Answer>,
    pub(crate) doc: Doc,
}

/// What a route reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyKind {
    /// Nothing; an empty object is accepted.
    Empty,
    /// JSON, or nothing.
    MayBeEmpty,
    /// JSON.
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

/// A good answer.
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
        Self { method, path, scope: Some(scope), body: BodyKind::Empty, run, doc }
    }

    fn open(mut self) -> Self {
        self.scope = None;
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

mod upkeep;

/// All routes.
pub(crate) static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    [
        new_jobs(),
        looking(),
        operating(),
        dead_letters(),
        working(),
        queue_routes(),
        upkeep::settings(),
        upkeep::upkeep(),
        server(),
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

const PAGING: [(&str, &str); 4] = [
    ("queue", "Those of this queue."),
    ("kind", "Those of this kind."),
    ("limit", "At most so many, 1 to 1000; 50 if absent."),
    ("cursor", "`next` of the page before."),
];

const WAITING: [(&str, &str); 1] =
    [("wait_ms", "How long to wait for a verdict; 0 if absent, and never more than 30 000.")];

const LISTING: [(&str, &str); 5] = [
    ("state", "queued (due), scheduled, processing, done, failed or cancelled."),
    PAGING[0],
    PAGING[1],
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
            "Enqueue up to 10 000 jobs in one commit. Each has its own answer, in order; a bad \
                 one does not spoil the others.",
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
            .answers::<wire::JobList>(200, "A page; it may be short and still have a next.")
            .refuses(&[problem::INVALID]),
        Route::new(Method::GET, "/jobs/{id}", Scope::Read, "getJob", run!(jobs::get))
            .says(
                "One job, with payload, result and last error. With `wait_ms` it is answered once \
                 the job is finished, or when that time is over.",
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
        .says("Why a job is where it is, and when something can next change.")
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
        .says("Do not run a job, or stop it. Its worker learns it with its next heartbeat.")
        .answers::<wire::JobAnswer>(200, "It is cancelled.")
        .refuses(&[problem::NOT_FOUND, problem::ILLEGAL_TRANSITION])
        .refuses(&BUSY),
        Route::new(Method::POST, "/jobs/{id}/retry", Scope::Admin, "retryJob", run!(jobs::retry))
            .says("Run a failed or cancelled job again, with all its attempts.")
            .answers::<wire::JobAnswer>(200, "It waits again.")
            .refuses(&[problem::NOT_FOUND, problem::ILLEGAL_TRANSITION])
            .refuses(&BUSY),
        Route::new(Method::DELETE, "/jobs/{id}", Scope::Admin, "deleteJob", run!(jobs::delete))
            .says("Forget a finished job.")
            .sends(204, "", "It is gone.")
            .refuses(&[problem::NOT_FOUND, problem::ILLEGAL_TRANSITION])
            .refuses(&BUSY),
    ]
}

fn dead_letters() -> Vec<Route> {
    let some = r#"{"kind":"email","error_contains":"connection refused","limit":100}"#;
    vec![
        Route::new(Method::GET, "/dlq", Scope::Read, "listDeadLetters", run!(dead::list))
            .says("The dead-letter queue, newest failure first.")
            .query(&PAGING)
            .answers::<wire::JobList>(200, "A page of failed jobs.")
            .refuses(&[problem::INVALID]),
        Route::new(
            Method::POST,
            "/dlq/{id}/retry",
            Scope::Admin,
            "retryDeadLetter",
            run!(dead::retry),
        )
        .says("Run one dead letter again.")
        .answers::<wire::JobAnswer>(200, "It waits again.")
        .refuses(&[problem::NOT_FOUND, problem::ILLEGAL_TRANSITION])
        .refuses(&BUSY),
        Route::new(
            Method::POST,
            "/dlq/retry",
            Scope::Admin,
            "retryDeadLetters",
            run!(dead::retry_many),
        )
        .says("Run dead letters again, newest failure first; all of them if the body is empty.")
        .reads::<wire::Replay>(BodyKind::MayBeEmpty, some)
        .answers::<wire::ReplayPage>(200, "How many; `more` if others may fit.")
        .refuses(&BUSY),
        Route::new(Method::POST, "/dlq/purge", Scope::Admin, "purgeDeadLetters", run!(dead::purge))
            .says("Forget dead letters, newest failure first; all of them if the object is empty.")
            .reads::<wire::Replay>(BodyKind::Json, some)
            .answers::<wire::PurgePage>(200, "How many; `more` if others may fit.")
            .refuses(&BUSY),
        Route::new(
            Method::DELETE,
            "/dlq/{id}",
            Scope::Admin,
            "discardDeadLetter",
            run!(dead::discard),
        )
        .says("Forget one dead letter.")
        .sends(204, "", "It is gone.")
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
                "A remote worker claims jobs, and waits up to 30 s for some. If it goes away, what \
                 was claimed for it is given back.",
            )
            .reads::<wire::Poll>(BodyKind::Json, poll)
            .answers::<wire::Claims>(200, "The jobs, with their leases; none if nothing came.")
            .refuses(&BUSY),
        Route::new(Method::POST, "/jobs/reports", Scope::Work, "report", run!(work::reports))
            .says(
                "Verdicts on up to 10 000 jobs in one commit: complete, fail, release, snooze. \
                 Each has its own answer, in order.",
            )
            .reads::<wire::Reports<'_>>(BodyKind::Batch, reports)
            .answers::<wire::ReportsAnswer>(200, "One result per report.")
            .refuses(&BUSY),
        Route::new(
            Method::POST,
            "/jobs/{id}/heartbeat",
            Scope::Work,
            "heartbeat",
            run!(work::heartbeat),
        )
        .says("The worker is still at it: its lease is extended.")
        .reads::<wire::Heartbeat<'_>>(BodyKind::Json, r#"{"token":"1.1","progress":{"done":3}}"#)
        .answers::<wire::LeaseExtended>(200, "The lease as it is now.")
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
            .says("The job ran well.")
            .reads::<wire::Complete<'_>>(BodyKind::Json, r#"{"token":"1.1","result":{"ok":true}}"#),
        new("/jobs/{id}/fail", "fail", run!(work::fail))
            .says("The job failed: it is retried, or goes to the dead-letter queue.")
            .reads::<wire::Fail>(BodyKind::Json, r#"{"token":"1.1","error":"no route to host"}"#),
        new("/jobs/{id}/release", "release", run!(work::release))
            .says("The worker gives the job back; the attempt is not charged.")
            .reads::<wire::Release>(BodyKind::Json, r#"{"token":"1.1"}"#),
        new("/jobs/{id}/snooze", "snooze", run!(work::snooze))
            .says("The worker puts the job off; the attempt is not charged.")
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
            .answers::<wire::Queue>(200, "The queue as it is now.")
            .refuses(&[problem::INVALID, problem::LIMIT_REACHED])
            .refuses(&BUSY)
    };
    vec![
        get("/queues", "listQueues"),
        get("/queues/stats", "queueStats"),
        Route::new(Method::GET, "/queues/{queue}", Scope::Read, "getQueue", run!(queues::get))
            .says("One queue.")
            .answers::<wire::Queue>(200, "The queue.")
            .refuses(&[problem::NOT_FOUND, problem::INVALID]),
        Route::new(Method::PUT, "/queues/{queue}", Scope::Admin, "setQueue", run!(queues::set))
            .says("Replace all settings of a queue; `null` or absent means the default.")
            .reads::<wire::Settings>(BodyKind::Json, r#"{"max_queued":100000,"concurrency":8}"#)
            .answers::<wire::Queue>(200, "The queue as it is now.")
            .refuses(&[problem::LIMIT_REACHED])
            .refuses(&BUSY),
        act("/queues/{queue}/pause", "pauseQueue", run!(queues::pause))
            .says("Start nothing of this queue until it is resumed."),
        act("/queues/{queue}/resume", "resumeQueue", run!(queues::resume))
            .says("Start jobs of this queue again."),
    ]
}

fn server() -> Vec<Route> {
    let get = |path, id, run| Route::new(Method::GET, path, Scope::Read, id, run);
    vec![
        get("/workers", "listWorkers", run!(system::workers))
            .says("Every known worker, with what it runs.")
            .answers::<wire::WorkerList>(200, "The workers."),
        get("/events", "events", run!(system::events))
            .says(
                "Server-sent events of job and queue changes. `Last-Event-ID` replays what was \
                 missed; `reset` says that the window is lost: look anew.",
            )
            .sends(200, "text/event-stream", "Events named job, queue and reset.")
            .refuses(&[problem::INVALID]),
        get("/metrics", "metrics", run!(system::metrics)).says("Figures for Prometheus.").sends(
            200,
            "application/openmetrics-text",
            "OpenMetrics text.",
        ),
        get("/livez", "livez", run!(system::livez))
            .open()
            .says("Whether the server's loop is alive.")
            .answers::<wire::Alive>(200, "It is.")
            .refuses(&[problem::NOT_READY]),
        get("/readyz", "readyz", run!(system::readyz))
            .says("Whether the server takes work and stores it.")
            .answers::<wire::Ready>(200, "It does.")
            .refuses(&[problem::NOT_READY]),
        get("/openapi.json", "openapi", run!(system::openapi)).says("This document.").sends(
            200,
            "application/json",
            "OpenAPI 3.1.",
        ),
        get("/", "dashboard", run!(system::dashboard)).says("A page for people.").sends(
            200,
            "text/html",
            "The page.",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_livez_is_open() {
        let open = ROUTES.iter().filter(|route| route.scope.is_none());
        assert_eq!(open.map(|route| route.path).collect::<Vec<_>>(), ["/livez"]);
    }

    #[test]
    fn a_get_needs_read_and_nothing_else_does() {
        for route in ROUTES.iter().filter(|route| route.scope.is_some()) {
            let reads = route.scope == Some(Scope::Read);
            let whole_store = ["/doctor", "/backup"].contains(&route.path);
            let gets = route.method == Method::GET && !whole_store;
            assert_eq!(reads, gets, "{} {}", route.method, route.path);
        }
    }
}
