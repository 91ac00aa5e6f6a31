//! What the jobs of the demo do: they take a while, and some fail.

use std::time::Duration;

use windlass_core::store::Store;
use windlass_runtime_tokio::{Builder, Context, JobError};

use super::random;

/// The kinds of the demo, the frequent ones more often.
pub(crate) const KINDS: [&str; 8] =
    ["email", "email", "email", "thumbnail", "thumbnail", "report", "flaky", "poison"];

pub(crate) fn register<S>(builder: Builder<S>) -> Builder<S>
where
    S: Store + Send + 'static,
    S::Reader: Send + 'static,
{
    builder
        .handler("email", |number: u32, _: Context| async move {
            takes(30, 200).await;
            fails(number, 20, "the mail server does not answer")
        })
        .handler("thumbnail", |number: u32, _: Context| async move {
            takes(100, 600).await;
            fails(number, 50, "the picture is being uploaded still")
        })
        .handler("report", |number: u32, _: Context| async move {
            takes(1_000, 3_000).await;
            Ok::<_, JobError>(serde_json::json!({ "pages": number }))
        })
        .handler("flaky", |_: u32, _: Context| async move {
            takes(50, 300).await;
            fails(random(3), 2, "the printer is on fire")
        })
        .handler("poison", |number: u32, _: Context| async move {
            takes(10, 50).await;
            if number.is_multiple_of(4) {
                return Err(JobError::permanent("no amount of retrying will read this payload"));
            }
            Ok(())
        })
}

async fn takes(at_least_ms: u32, at_most_ms: u32) {
    let millis = at_least_ms + random(at_most_ms - at_least_ms);
    tokio::time::sleep(Duration::from_millis(millis.into())).await;
}

/// Fails for one number in so many, the first attempts only by chance.
fn fails(number: u32, one_in: u32, why: &str) -> Result<(), JobError> {
    if number.is_multiple_of(one_in) && random(4) > 0 {
        return Err(JobError::retry(why));
    }
    Ok(())
}
