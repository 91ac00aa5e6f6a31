//! The routes of bulk actions.

use http::Method;

use super::{BUSY, BodyKind, Route};
use crate::api::handlers::bulk;
use crate::api::{problem, wire};
use crate::http::auth::Scope;

pub(super) fn bulk() -> Vec<Route> {
    let some = r#"{"action":"retry","filter":{"state":"failed","queue":"default"},"expect":214,
        "pace":{"per_s":50},"canary":{"count":20,"max_failed":1}}"#;
    let act = |path, id, run| {
        Route::new(Method::POST, path, Scope::Admin, id, run)
            .answers::<wire::BulkAnswer>(200, "The bulk action as it is now.")
            .refuses(&[problem::NOT_FOUND, problem::BULK_STATE])
            .refuses(&BUSY)
    };
    vec![
        Route::new(Method::POST, "/bulk", Scope::Admin, "startBulk", run!(bulk::start))
            .says(
                "Retry, cancel or delete all jobs that match a filter, or listed ids. Any process \
                 on the store carries it out. `dry_run` only counts.",
            )
            .reads::<wire::NewBulk>(BodyKind::Json, some)
            .answers::<wire::DryRun>(200, "Of a dry run: the number of matching jobs.")
            .answers::<wire::BulkAnswer>(202, "Started; `Location` names it.")
            .refuses(&[problem::COUNT_CHANGED, problem::LIMIT_REACHED])
            .refuses(&BUSY),
        Route::new(Method::GET, "/bulk", Scope::Read, "listBulk", run!(bulk::list))
            .says("List bulk actions: all that have not ended, and the latest 50 that have.")
            .answers::<wire::BulkList>(200, "The bulk actions, newest first."),
        Route::new(Method::GET, "/bulk/{bulk}", Scope::Read, "getBulk", run!(bulk::get))
            .says("One bulk action, with its progress.")
            .answers::<wire::BulkAnswer>(200, "The bulk action.")
            .refuses(&[problem::NOT_FOUND]),
        act("/bulk/{bulk}/continue", "continueBulk", run!(bulk::resume))
            .says("Continue a held bulk action."),
        act("/bulk/{bulk}/stop", "stopBulk", run!(bulk::stop))
            .says("Stop a bulk action; finished work is kept."),
    ]
}
