//! What the jobs of the demo do: they take a while, and some fail with the errors of their trade.

use std::time::Duration;

use serde_json::Value;
use windlass_core::store::Store;
use windlass_runtime_tokio::{Builder, Context, JobError};

use super::random;

pub(crate) fn register<S>(builder: Builder<S>) -> Builder<S>
where
    S: Store + Send + 'static,
    S::Reader: Send + 'static,
{
    builder
        .handler("email", |job: Value, _: Context| async move {
            takes(30, 200).await;
            if number(&job, "order").is_multiple_of(20) && random(4) > 0 {
                let to = text(&job, "to");
                return Err(JobError::retry(format!(
                    "mx{}.example.net: 451 4.7.1 mailbox {to} is busy, try again in {} s",
                    random(3) + 1,
                    30 + random(60)
                )));
            }
            Ok(())
        })
        .handler("thumbnail", |job: Value, _: Context| async move {
            takes(100, 600).await;
            if number(&job, "upload").is_multiple_of(40) && random(4) > 0 {
                let object = text(&job, "object");
                return Err(JobError::retry(format!(
                    "GET https://cdn.example.net{object}: answered 404 after {} ms",
                    80 + random(900)
                )));
            }
            Ok(())
        })
        .handler("report", |job: Value, _: Context| async move {
            takes(1_000, 3_000).await;
            Ok::<_, JobError>(serde_json::json!({ "pages": 4 + number(&job, "account") % 60 }))
        })
        .handler("import", |job: Value, _: Context| async move {
            takes(400, 900).await;
            Ok::<_, JobError>(serde_json::json!({ "rows": number(&job, "rows") }))
        })
        .handler("sync", |_: Value, _: Context| async move {
            takes(10, 100).await;
            Ok::<_, JobError>(())
        })
        .handler("push", |job: Value, _: Context| async move {
            takes(50, 300).await;
            if random(3) == 0 {
                let url = text(&job, "url");
                return Err(JobError::retry(format!(
                    "POST {url}: no answer from 10.0.4.{}:443 within 30 s (request {:08x})",
                    16 + random(4),
                    random(u32::MAX)
                )));
            }
            Ok(())
        })
        .handler("invoice", |job: Value, _: Context| async move {
            takes(10, 50).await;
            // Decimal commas are in invoices of the old template.
            if text(&job, "amount").contains(',') {
                let (id, amount) = (text(&job, "invoice"), text(&job, "amount"));
                return Err(JobError::permanent(format!(
                    "invoice {id}: amount \"{amount}\" is not a number"
                )));
            }
            Ok(())
        })
}

async fn takes(at_least_ms: u32, at_most_ms: u32) {
    let millis = at_least_ms + random(at_most_ms - at_least_ms);
    tokio::time::sleep(Duration::from_millis(millis.into())).await;
}

fn text<'a>(job: &'a Value, name: &str) -> &'a str {
    job[name].as_str().unwrap_or_default()
}

fn number(job: &Value, name: &str) -> u64 {
    job[name].as_u64().unwrap_or_default()
}
