//! Handlers that return errors of other crates: `anyhow::Error` and `eyre::Report`, with context.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod common;

use common::within;
use windlass_core::store::Store;
use windlass_runtime_tokio::testing::{Outcome, TestQueue};
use windlass_runtime_tokio::{Builder, Context, JobError, NewJob, Runtime, seconds};
use windlass_store_memory::MemoryStore;

/// What all of them do, each with the errors of its own crate.
fn amount(text: &str) -> Result<u32, std::num::ParseIntError> {
    text.parse()
}

mod of_anyhow {
    use anyhow::{Context as _, Result};

    use super::{Context, JobError, amount};

    fn read() -> Result<u32> {
        amount("x").context("cannot read the amount")
    }

    fn charge() -> Result<()> {
        Err(JobError::permanent("the card was stolen"))?;
        Ok(())
    }

    pub(super) async fn plain((): (), _: Context) -> Result<()> {
        read().with_context(|| "cannot charge")?;
        Ok(())
    }

    pub(super) async fn marked((): (), _: Context) -> Result<()> {
        charge().context("in the shop").context("cannot charge")
    }

    pub(super) async fn inside((): (), _: Context) -> Result<(), JobError> {
        read().map(drop).map_err(JobError::permanent)
    }
}

mod of_eyre {
    use eyre::{Result, WrapErr as _};

    use super::{Context, JobError, amount};

    fn read() -> Result<u32> {
        amount("x").wrap_err("cannot read the amount")
    }

    fn charge() -> Result<()> {
        Err(JobError::permanent("the card was stolen"))?;
        Ok(())
    }

    pub(super) async fn plain((): (), _: Context) -> Result<()> {
        read().wrap_err_with(|| "cannot charge")?;
        Ok(())
    }

    pub(super) async fn marked((): (), _: Context) -> Result<()> {
        charge().wrap_err("in the shop").wrap_err("cannot charge")
    }

    pub(super) async fn inside((): (), _: Context) -> Result<(), JobError> {
        read().map(drop).map_err(JobError::permanent)
    }
}

/// Runs one job of each of the three kinds; what became of their first attempts.
async fn outcomes<S>(builder: Builder<S>) -> Vec<Outcome>
where
    S: Store + Send + 'static,
    S::Reader: Send + 'static,
{
    let queue = TestQueue::start(builder.workers(1)).unwrap();
    for kind in ["plain", "marked", "inside"] {
        queue.enqueue(NewJob::of(kind, &()).unwrap().max_retries(0)).await.unwrap();
    }
    queue.advance(seconds(1)).await;
    queue.ran().into_iter().map(|ran| ran.outcome).collect()
}

#[tokio::test]
async fn errors_of_anyhow_and_eyre_show_their_chain_and_keep_what_a_job_error_inside_asks_for() {
    within(async {
        let invalid = "cannot read the amount: invalid digit found in string";
        let wanted = [
            Outcome::Failed(format!("cannot charge: {invalid}")),
            Outcome::FailedForGood("cannot charge: in the shop: the card was stolen".into()),
            Outcome::FailedForGood(invalid.into()),
        ];
        let builder = || Runtime::builder(MemoryStore::new());
        let anyhow = builder()
            .handler("plain", of_anyhow::plain)
            .handler("marked", of_anyhow::marked)
            .handler("inside", of_anyhow::inside);
        assert_eq!(outcomes(anyhow).await, wanted);
        let eyre = builder()
            .handler("plain", of_eyre::plain)
            .handler("marked", of_eyre::marked)
            .handler("inside", of_eyre::inside);
        assert_eq!(outcomes(eyre).await, wanted);
    })
    .await;
}
