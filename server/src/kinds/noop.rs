//! The kind `windlass.noop`: its jobs are done at once, whatever their payload. It costs what the
//! queue itself costs, and is there to measure it, and to see that workers work.

use serde::de::IgnoredAny;
use windlass_core::store::Store;
use windlass_runtime_tokio::{Builder, Context};

/// The name of the kind.
pub(crate) const NOOP: &str = "windlass.noop";

pub(crate) fn register<S>(builder: Builder<S>) -> Builder<S>
where
    S: Store + Send + 'static,
    S::Reader: Send + 'static,
{
    builder.handler(NOOP, |_: IgnoredAny, _: Context| async {})
}
