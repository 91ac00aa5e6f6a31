//! The OpenAPI document is correct: its examples are accepted, and answers fit its schemas.

use std::path::Path;

use serde_json::Value;

use crate::common::{Server, operations};

#[test]
fn every_documented_example_is_answered_as_documented() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    let document: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let (_place, server) = Server::new("sqlite");
    let mut examples = 0;
    for (method, template, _, example) in operations() {
        if template == "/events" {
            continue;
        }
        let id = server.enqueue(r#"{"kind":"email","max_retries":0}"#);
        let token = format!("{id}.1");
        if example.as_ref().is_some_and(|example| example.to_string().contains("1.1")) {
            let claimed = server.claim("w", 1_000);
            assert!(claimed.iter().any(|job| job["lease"]["token"] == token.as_str()));
        }
        let path = template
            .replace("{id}", &id.to_string())
            .replace("{queue}", "default")
            .replace("{bulk}", "1")
            .replace("{worker}", "w-1")
            .replace("{name}", "max_retries")
            .replace("{build}", "0")
            .replace("{file}", "app.js");
        let body = example.map(|example| example.to_string().replace("1.1", &token));
        let reply = server.send(&method, &path, body.as_deref());
        let operation = &document["paths"][&template][method.to_lowercase()];
        let documented = &operation["responses"][reply.status.to_string()];
        assert!(documented.is_object(), "{method} {path}: {} {}", reply.status, reply.text());
        if body.is_some() {
            assert!(reply.status < 300, "{method} {path}: {}", reply.text());
            examples += 1;
        }
        let sent = reply.header("content-type").unwrap_or_default().split(';').next().unwrap();
        let content = documented["content"].as_object();
        assert!(
            content.is_none_or(|content| content.contains_key(sent)),
            "{method} {path} sent {sent}"
        );
    }
    assert!(examples >= 11, "{examples}");
}
