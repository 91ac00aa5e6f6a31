//! The OpenAPI document, made from the table of routes and from the types on the wire.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::LazyLock;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::api::problem::{self, Document, Kind};
use crate::api::routes::{Access, BodyKind, ROUTES, Reply, Route};
use crate::http::auth::Scope;
use crate::settings::TABLE;

/// The document as text.
pub(crate) fn text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let mut text = serde_json::to_string_pretty(&document()).unwrap_or_default();
        text.push('\n');
        text
    });
    &TEXT
}

fn document() -> Value {
    let settings = || {
        SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        })
    };
    let mut requests = settings().for_deserialize().into_generator();
    let mut answers = settings().for_serialize().into_generator();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for route in ROUTES.iter() {
        let operation = operation(route, &mut requests, &mut answers);
        let method = route.method.as_str().to_lowercase();
        paths.entry(route.path).or_default().insert(method, operation);
    }
    let problem = answers.subschema_for::<Document>();
    let mut schemas = requests.take_definitions(true);
    schemas.extend(answers.take_definitions(true));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Windlass",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "A durable background job queue.",
            "description": description(),
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": {
                "Problem": {
                    "description": "A problem (RFC 9457).",
                    "content": { "application/problem+json": { "schema": problem } },
                },
            },
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn description() -> String {
    let mut text = String::from(
        "Unknown fields on writes are refused by name. Times are RFC 3339 in UTC with \
         milliseconds, durations are integers ending in `_ms`. Every answer carries \
         `x-request-id`. Problems, by `type` without `urn:windlass:error:`:\n\n",
    );
    for kind in problem::ALL {
        let _ = writeln!(text, "* `{}` ({}): {}.", kind.name, kind.status, kind.title);
    }
    text
}

fn operation(
    route: &Route,
    requests: &mut SchemaGenerator,
    answers: &mut SchemaGenerator,
) -> Value {
    let doc = &route.doc;
    let mut operation = json!({
        "operationId": doc.id,
        "summary": doc.summary,
        "parameters": parameters(route),
        "responses": responses(route, answers),
    });
    let scope = match route.access {
        Access::Open => None,
        Access::AnyToken => Some("any"),
        Access::Scope(scope) => Some(scope.as_str()),
    };
    operation["security"] = scope.map_or(json!([]), |_| json!([{ "token": [] }, {}]));
    if let Some(scope) = scope {
        operation["x-scope"] = json!(scope);
    }
    if let Some(schema) = doc.request {
        let example: Value =
            doc.example.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        operation["requestBody"] = json!({
            "required": route.body != BodyKind::MayBeEmpty,
            "content": { "application/json": { "schema": schema(requests), "example": example } },
        });
    }
    operation
}

fn parameters(route: &Route) -> Vec<Value> {
    let mut parameters = Vec::new();
    if route.path.contains("{id}") {
        let schema = json!({ "type": "integer", "minimum": 1, "maximum": i64::MAX });
        parameters.push(json!({ "name": "id", "in": "path", "required": true, "schema": schema }));
    }
    if route.path.contains("{bulk}") {
        let schema = json!({ "type": "integer", "minimum": 1, "maximum": u32::MAX });
        parameters
            .push(json!({ "name": "bulk", "in": "path", "required": true, "schema": schema }));
    }
    if route.path.contains("{queue}") {
        let schema = json!({ "type": "string", "pattern": crate::api::wire::NAME });
        let parameter =
            json!({ "name": "queue", "in": "path", "required": true, "schema": schema });
        parameters.push(parameter);
    }
    if route.path.contains("{worker}") {
        let schema = json!({ "type": "string", "pattern": crate::api::wire::NAME });
        let parameter =
            json!({ "name": "worker", "in": "path", "required": true, "schema": schema });
        parameters.push(parameter);
    }
    if route.path.contains("{name}") {
        let names: Vec<&str> = TABLE.iter().map(|setting| setting.name).collect();
        let schema = json!({ "type": "string", "enum": names });
        let parameter = json!({ "name": "name", "in": "path", "required": true, "schema": schema });
        parameters.push(parameter);
    }
    for (part, pattern) in [("build", "^[0-9a-f]{12}$"), ("file", r"^[a-z_]+\.[a-z]+$")] {
        if route.path.contains(&format!("{{{part}}}")) {
            let schema = json!({ "type": "string", "pattern": pattern });
            let parameter =
                json!({ "name": part, "in": "path", "required": true, "schema": schema });
            parameters.push(parameter);
        }
    }
    for (name, description) in route.doc.query {
        let schema = match *name {
            "limit" if description.contains("all if absent") => {
                json!({ "type": "integer", "minimum": 1, "maximum": 1000 })
            }
            "limit" => json!({ "type": "integer", "minimum": 1, "maximum": 1000, "default": 50 }),
            "wait_ms" => json!({ "type": "integer", "minimum": 0, "default": 0 }),
            _ => json!({ "type": "string" }),
        };
        let description = *description;
        parameters.push(
            json!({ "name": name, "in": "query", "description": description, "schema": schema }),
        );
    }
    for (operation, name, description) in [
        ("enqueue", "Idempotency-Key", "The client's own name for this request."),
        ("events", "Last-Event-ID", "The last event that was seen."),
        ("setQueue", "If-Match", "The `ETag` of the settings that are to be replaced."),
        ("setSetting", "If-Match", "The `ETag` of the setting that is to be replaced."),
        ("unsetSetting", "If-Match", "The `ETag` of the setting that is to be removed."),
    ] {
        if route.doc.id == operation {
            let schema = json!({ "type": "string" });
            parameters.push(json!({
                "name": name, "in": "header", "description": description, "schema": schema,
            }));
        }
    }
    parameters
}

fn responses(route: &Route, answers: &mut SchemaGenerator) -> Map<String, Value> {
    let mut responses = Map::new();
    for Reply { status, description, schema, content_type } in &route.doc.answers {
        let mut response = json!({ "description": description });
        match schema {
            Some(schema) => {
                response["content"] = json!({ *content_type: { "schema": schema(answers) } });
            }
            None if content_type.is_empty() => {}
            None => response["content"] = json!({ *content_type: {} }),
        }
        responses.insert(status.to_string(), response);
    }
    let mut by_status: BTreeMap<u16, Vec<Kind>> = BTreeMap::new();
    for kind in problems(route) {
        let kinds = by_status.entry(kind.status).or_default();
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    for (status, kinds) in by_status {
        let names: Vec<String> = kinds.iter().map(|kind| format!("`{}`", kind.name)).collect();
        let schema = json!({ "$ref": "#/components/schemas/Problem" });
        let mut response = json!({
            "description": names.join(", "),
            "content": { "application/problem+json": { "schema": schema } },
        });
        if status == 503 {
            let schema = json!({ "type": "integer" });
            response["headers"] = json!({ "Retry-After": { "schema": schema } });
        }
        responses.insert(status.to_string(), response);
    }
    responses
}

/// What a route may refuse: what it says itself, and what every route of its kind may.
fn problems(route: &Route) -> Vec<Kind> {
    let mut kinds = vec![
        problem::BAD_REQUEST,
        problem::CROSS_SITE,
        problem::URI_TOO_LONG,
        problem::HEAD_TOO_LARGE,
        problem::UNSUPPORTED_MEDIA_TYPE,
        problem::TOO_LARGE,
        problem::BODY_TIMEOUT,
        problem::MISDIRECTED,
        problem::INVALID,
        problem::BAD_JSON,
        problem::INTERNAL,
        problem::STORE_UNAVAILABLE,
        problem::SHUTTING_DOWN,
        problem::OVERLOADED,
    ];
    if route.access != Access::Open {
        kinds.extend([problem::UNAUTHORIZED, problem::FORBIDDEN]);
    }
    if route.access == Access::Scope(Scope::Read) && route.path.contains('{') {
        kinds.push(problem::NOT_FOUND);
    }
    kinds.extend(&route.doc.problems);
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    const SNAPSHOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");

    #[test]
    fn the_document_is_the_one_that_is_checked_in() {
        if std::env::var_os("WINDLASS_UPDATE").is_some() {
            std::fs::write(SNAPSHOT, text()).unwrap();
        }
        let kept = std::fs::read_to_string(SNAPSHOT).unwrap_or_default();
        assert!(
            kept == text(),
            "server/openapi.json is not what the routes say; look at the difference after: \
             WINDLASS_UPDATE=1 cargo test -p windlass-server --bins openapi"
        );
    }

    #[test]
    fn every_example_is_json_and_every_reference_leads_somewhere() {
        let document = document();
        let text = document.to_string();
        for part in text.split("\"$ref\":\"#").skip(1) {
            let pointer = part.split('"').next().unwrap();
            assert!(document.pointer(pointer).is_some(), "{pointer}");
        }
        for route in ROUTES.iter() {
            let example = route.doc.example.map(serde_json::from_str::<Value>);
            assert!(example.is_none_or(|example| example.is_ok()), "{}", route.path);
            assert!(!route.doc.summary.is_empty(), "{}", route.path);
            assert!(!route.doc.answers.is_empty(), "{}", route.path);
        }
    }
}
