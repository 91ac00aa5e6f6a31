//! The routes of the dashboard.

use http::Method;

use super::Route;
use crate::api::handlers::{dashboard, history, jobs};
use crate::api::{problem, wire};
use crate::http::auth::Scope;

const RANGE: [(&str, &str); 3] = [
    (
        "range",
        "`10m`, `1h`, `24h` or `7d`, in steps of 2 s, 10 s, 5 min and 30 min; `1h` if absent.",
    ),
    ("queue", "Only figures of this queue."),
    ("split", "`queue` adds what was done in each queue, in 60 steps."),
];

pub(super) fn dashboard() -> Vec<Route> {
    let get = |path, id, run| Route::new(Method::GET, path, Scope::Read, id, run);
    let document = |path, id, run| {
        get(path, id, run)
            .sends(200, "application/json", "The text as it was stored.")
            .refuses(&[problem::NOT_FOUND])
    };
    vec![
        document("/jobs/{id}/payload", "jobPayload", run!(jobs::payload))
            .says("The payload of a job, byte for byte."),
        document("/jobs/{id}/result", "jobResult", run!(jobs::result))
            .says("The result of a job that is done, byte for byte."),
        get("/me", "me", run!(dashboard::me))
            .any_token()
            .says("The token of this request, and its scopes.")
            .answers::<wire::Me>(200, "The name and the scopes of the token."),
        get("/snapshot", "snapshot", run!(dashboard::snapshot))
            .says("The state of everything at one instant, no older than a second.")
            .answers::<wire::Snapshot>(
                200,
                "The snapshot; at most 200 queues, queues with problems first.",
            ),
        get("/history", "history", run!(history::history))
            .says("Counts and latencies over time, in up to 360 steps.")
            .query(&RANGE)
            .answers::<wire::History>(200, "A value for each step; `null` where it is not known.")
            .refuses(&[problem::INVALID]),
        get("/", "dashboard", run!(dashboard::index))
            .open()
            .says("The dashboard. It holds no data.")
            .sends(200, "text/html", "The page."),
        get("/ui/{build}/{file}", "dashboardFile", run!(dashboard::file))
            .open()
            .says("A file of the dashboard. Its address changes with its content.")
            .sends(200, "text/javascript", "The file; also a stylesheet or a picture.")
            .refuses(&[problem::NOT_FOUND]),
    ]
}
