//! The kind `windlass.noop`: its jobs are done at once, whatever their payload. It measures the
//! cost of the queue itself, and tests that workers run.

use serde::de::IgnoredAny;
use windlass_core::store::Store;
use windlass_runtime_tokio::{Builder, Context};

pub(crate) const NOOP: &str = "windlass.noop";

pub(crate) fn register<S>(builder: Builder<S>) -> Builder<S>
where
    S: Store + Send + 'static,
    S::Reader: Send + 'static,
{
    builder.handler(NOOP, |_: IgnoredAny, _: Context| async {})
}
