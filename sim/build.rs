//! The models in `tests/loom.rs` take the runtime's `sync` module as it is, with loom below it.

fn main() {
    println!("cargo::rustc-cfg=windlass_loom");
    println!("cargo::rerun-if-changed=build.rs");
}
