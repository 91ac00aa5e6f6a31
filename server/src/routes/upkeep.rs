//! The routes of upkeep: settings.

use http::Method;

use super::{BUSY, BodyKind, Route};
use crate::auth::Scope;
use crate::handlers::settings;
use crate::{problem, wire};

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
