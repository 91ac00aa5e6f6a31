//! The routes of upkeep: settings, status, checks, backups.

use http::Method;

use super::{BUSY, BodyKind, Route};
use crate::api::handlers::{settings, system, upkeep};
use crate::api::{problem, wire};
use crate::http::auth::Scope;

pub(super) fn settings() -> Vec<Route> {
    let path = "/settings/{name}";
    vec![
        Route::new(Method::GET, "/settings", Scope::Read, "listSettings", run!(settings::list))
            .says("Every setting, its value for this server, and where that comes from.")
            .answers::<wire::SettingList>(200, "The settings."),
        Route::new(Method::GET, path, Scope::Read, "getSetting", run!(settings::get))
            .says("One setting. `ETag` is that of its value in the store.")
            .answers::<wire::Setting>(200, "The setting."),
        Route::new(Method::PUT, path, Scope::Admin, "setSetting", run!(settings::set))
            .says(
                "Keep a setting in the store. Every process on the store applies it within \
                 seconds, unless a flag or variable overrides it. With `If-Match` only if the \
                 value in the store is still the one with that `ETag`.",
            )
            .reads::<wire::NewSetting>(BodyKind::Json, r#"{"value":"5"}"#)
            .answers::<wire::Setting>(200, "The setting and its value in this server.")
            .refuses(&[problem::NOT_FOUND, problem::CHANGED_SINCE])
            .refuses(&BUSY),
        Route::new(Method::DELETE, path, Scope::Admin, "unsetSetting", run!(settings::unset))
            .says("Remove a setting from the store. `If-Match` as for `PUT`.")
            .sends(
                204,
                "",
                "Removed. The default applies, unless a flag or the environment overrides it.",
            )
            .refuses(&[problem::NOT_FOUND, problem::CHANGED_SINCE])
            .refuses(&BUSY),
    ]
}

pub(super) fn upkeep() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/status", Scope::Read, "status", run!(upkeep::status))
            .says("Counts, rates, workers, size and health. Reads no rows of jobs.")
            .answers::<wire::Status>(200, "The status."),
        Route::new(
            Method::POST,
            "/workers/{worker}/stop",
            Scope::Admin,
            "stopWorker",
            run!(system::stop_worker),
        )
        .says(
            "Stop a worker process on any machine: it claims no more jobs, and exits when its \
             running jobs end.",
        )
        .answers::<wire::Worker>(202, "The worker was asked to stop.")
        .sends(204, "", "The worker had ended already.")
        .refuses(&[problem::NOT_FOUND, problem::NOT_A_PROCESS])
        .refuses(&BUSY),
        Route::new(Method::GET, "/doctor", Scope::Admin, "doctor", run!(upkeep::doctor))
            .says(
                "Check the store: counters, keys and indexes are recomputed from the rows and \
                 compared. Reads the whole store and changes nothing. On PostgreSQL it also \
                 reports server settings and dead rows. One check or backup runs at a time.",
            )
            .answers::<wire::Checkup>(200, "The findings.")
            .refuses(&[problem::OVERLOADED]),
        Route::new(Method::GET, "/backup", Scope::Admin, "backup", run!(upkeep::backup))
            .says("A copy of the store as of one instant.")
            .sends(200, "application/octet-stream", "The file.")
            .refuses(&[problem::OVERLOADED, problem::STORE_FULL]),
    ]
}
