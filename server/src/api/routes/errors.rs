//! The routes of error groups.

use http::Method;

use super::{PAGING, Route};
use crate::api::handlers::errors;
use crate::api::{problem, wire};
use crate::http::auth::Scope;

const ORDERED: [(&str, &str); 5] = [
    ("queue", "Only groups with dead letters in this queue."),
    PAGING[1],
    ("by", "`jobs` (most first; if absent), `last` (latest failure) or `new` (latest to appear)."),
    PAGING[2],
    PAGING[3],
];

pub(super) fn errors() -> Vec<Route> {
    let get = |path, id, run| Route::new(Method::GET, path, Scope::Read, id, run);
    vec![
        get("/errors", "listErrors", run!(errors::list))
            .says(
                "Dead letters by the reason of their failure: error lines of a kind that differ \
                 only in numbers, names and the like are one group.",
            )
            .query(&ORDERED)
            .answers::<wire::ErrorList>(200, "A page of groups that have dead letters.")
            .refuses(&[problem::INVALID]),
        get("/errors/{id}", "getError", run!(errors::get))
            .says("An error group, and what its newest dead letters share.")
            .answers::<wire::ErrorDetail>(200, "The group.")
            .refuses(&[problem::NOT_FOUND]),
    ]
}
