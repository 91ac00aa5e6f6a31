//! The jobs of the demo: payloads as applications send them.

use serde_json::{Value, json};

use super::random;

/// The kinds of single jobs, the frequent ones more often.
const KINDS: [&str; 8] =
    ["email", "email", "email", "thumbnail", "thumbnail", "report", "push", "invoice"];
const NAMES: [&str; 6] = ["ada", "grace", "edsger", "barbara", "tony", "leslie"];
const TEMPLATES: [&str; 3] = ["receipt", "shipped", "password-reset"];
const SHOPS: [&str; 3] = ["north", "harbour", "online"];
/// Copies one schema: its arguments are the host and the schema.
const BACKUP: &str = r#"echo "$2: 118 tables, 9 sequences"; sleep 0.2"#;
/// The same against a host that does not answer.
const FAILED_BACKUP: &str = r#"echo "$2: waiting for lock (1 of 3)"; sleep 0.2
echo 'pg_dump: last built-in OID is 16383' >&2
echo 'pg_dump: reading extensions' >&2
echo 'pg_dump: identifying extension members' >&2
echo "pg_dump: error: connection to server at \"$1\", port 5432 failed: timeout expired" >&2
exit 3"#;

/// A job of a kind that is chosen at random, with its queue.
pub(super) fn any() -> (&'static str, &'static str, Value) {
    match one_of(&KINDS) {
        "email" => ("email", "mail", email(random(100_000))),
        "thumbnail" => ("thumbnail", "pictures", thumbnail(random(10_000))),
        "report" => ("report", "reports", report(random(10_000))),
        "push" => ("push", "webhooks", push(random(100_000))),
        kind => (kind, "billing", invoice(random(100_000))),
    }
}

pub(super) fn email(order: u32) -> Value {
    let (name, template) = (one_of(&NAMES), one_of(&TEMPLATES));
    json!({ "to": format!("{name}@example.org"), "template": template, "order": order })
}

fn thumbnail(upload: u32) -> Value {
    let object = format!("/uploads/2026/11/IMG_{upload:04}.jpg");
    json!({ "upload": upload, "object": object, "sizes": [96, 320, 1280], "format": "webp" })
}

fn report(account: u32) -> Value {
    json!({ "account": account, "from": "2026-10-01", "to": "2026-10-31", "format": "pdf" })
}

pub(super) fn import(number: u32) -> Value {
    json!({ "file": format!("orders-{number:04}.csv"), "rows": 400 + number, "shop": "north" })
}

pub(super) fn sync(number: u32) -> Value {
    json!({ "shop": one_of(&SHOPS), "sku": format!("W-{:05}", 4_000 + number) })
}

pub(super) fn postcard(number: u32) -> Value {
    json!({ "to": { "name": one_of(&NAMES), "country": "DK" }, "picture": number })
}

fn push(order: u32) -> Value {
    let event = json!({ "type": "order.paid", "order": order });
    json!({ "url": "https://hooks.acme.example/v1/orders", "event": event, "version": 2 })
}

fn invoice(number: u32) -> Value {
    if number.is_multiple_of(4) { old_invoice(number) } else { json_invoice(number, ".", "v2") }
}

/// An invoice that cannot be read.
pub(super) fn old_invoice(number: u32) -> Value {
    json_invoice(number, ",", "v1")
}

fn json_invoice(number: u32, point: &str, template: &str) -> Value {
    json!({
        "invoice": format!("INV-{number:06}"),
        "amount": format!("{}{point}{:02}", 10 + random(900), random(100)),
        "currency": "EUR",
        "template": template,
        // More digits than a double has.
        "ledger": 9_007_199_254_740_993_001_u64,
    })
}

/// A `command` job that completes, or one that fails with output.
pub(super) fn backup(tenant: u32, fails: bool) -> Value {
    let script = if fails { FAILED_BACKUP } else { BACKUP };
    let host = if fails { "10.0.4.17" } else { "10.0.4.18" };
    json!({ "argv": ["sh", "-c", script, "backup", host, format!("tenant_{tenant:04}")] })
}

fn one_of(choices: &[&'static str]) -> &'static str {
    choices[random(u32::try_from(choices.len()).unwrap_or(1)) as usize]
}
