//! Benchmarks live in `benches/`; each is measured beside its ceiling, in one run.
