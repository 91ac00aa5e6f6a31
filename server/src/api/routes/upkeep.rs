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
            .says("One setting.")
            .answers::<wire::Setting>(200, "The setting."),
        Route::new(Method::PUT, path, Scope::Admin, "setSetting", run!(settings::set))
            .says(
                "Keep a setting in the store. Every process on it lives by it within seconds, \
                 unless it was given another value by flag or environment.",
            )
            .reads::<wire::NewSetting>(BodyKind::Json, r#"{"value":"5"}"#)
            .answers::<wire::Setting>(200, "The setting as it holds here now.")
            .refuses(&[problem::NOT_FOUND])
            .refuses(&BUSY),
        Route::new(Method::DELETE, path, Scope::Admin, "unsetSetting", run!(settings::unset))
            .says("Forget what the store keeps of a setting.")
            .sends(204, "", "The default holds, unless a flag or the environment says otherwise.")
            .refuses(&[problem::NOT_FOUND])
            .refuses(&BUSY),
    ]
}

pub(super) fn upkeep() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/status", Scope::Read, "status", run!(upkeep::status))
            .says("Counts, rates, workers, size and health on one screen. No job is looked at.")
            .answers::<wire::Status>(200, "How it is."),
        Route::new(
            Method::POST,
            "/workers/{worker}/stop",
            Scope::Admin,
            "stopWorker",
            run!(system::stop_worker),
        )
        .says(
            "Ask a worker process to stop, on whatever machine it runs: it starts nothing more, \
             and is gone when what it runs is over.",
        )
        .answers::<wire::Worker>(202, "It was asked.")
        .sends(204, "", "It was gone already.")
        .refuses(&[problem::NOT_FOUND, problem::NOT_A_PROCESS])
        .refuses(&BUSY),
        Route::new(Method::GET, "/doctor", Scope::Admin, "doctor", run!(upkeep::doctor))
            .says(
                "Whether the store agrees with itself: counters, keys and indexes are made anew \
                 from the rows and compared. It reads the whole store, and changes nothing. One \
                 check or backup runs at a time.",
            )
            .answers::<wire::Checkup>(200, "What was found.")
            .refuses(&[problem::OVERLOADED]),
        Route::new(Method::GET, "/backup", Scope::Admin, "backup", run!(upkeep::backup))
            .says("A copy of the store as it is at one instant, ready to be opened.")
            .sends(200, "application/octet-stream", "The file.")
            .refuses(&[problem::OVERLOADED, problem::STORE_FULL]),
    ]
}
