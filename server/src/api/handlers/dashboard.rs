//! Handlers of the dashboard: its files, and the scopes of the caller.

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};

use crate::api::problem::{self, Problem};
use crate::api::wire::Me;
use crate::http::auth::{Caller, Scope};
use crate::http::body::Body;
use crate::http::router::{self, Answer, Call};
use crate::http::ui;

/// `GET /`
pub(crate) async fn index(call: Call) -> Answer {
    Ok(ui::index(&call.headers))
}

/// `GET /ui/{build}/{file}`
pub(crate) async fn file(call: Call) -> Answer {
    call.query(&[])?;
    let found = ui::file(call.param(), call.second_param(), &call.headers);
    found.ok_or_else(|| {
        let detail = "this build of the dashboard has no such file; load GET / again";
        Problem::new(problem::NOT_FOUND, detail)
    })
}

/// `GET /me`
pub(crate) async fn me(call: Call) -> Answer {
    call.query(&[])?;
    let caller = call.caller.clone().unwrap_or_else(Caller::anonymous);
    router::ok(&Me {
        name: caller.name().map(Into::into),
        scopes: caller.scopes().map(Scope::as_str).collect(),
        open: call.app.tokens.is_empty(),
        label: call.app.label.clone(),
    })
}

/// `GET /snapshot`
pub(crate) async fn snapshot(call: Call) -> Answer {
    call.query(&[])?;
    let bytes = call.app.feed.full(&call.app).await?;
    let mut response = Response::new(Body::full(bytes));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}
