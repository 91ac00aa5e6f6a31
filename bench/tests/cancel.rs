//! The `cancel` scenario with its two real processes; the unit tests of the crate cannot start the
//! program itself.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::process::Command;

#[test]
fn cancels_from_another_process_are_measured_for_each_lease() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_windlass-bench"))
        .args(["cancel", "--leases", "3,4", "--jobs", "8", "--rounds", "1", "--json", "--dir"])
        .arg(folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let leases: Vec<Option<u64>> = lines.iter().map(|line| line["lease_s"].as_u64()).collect();
    assert_eq!(leases, [Some(3), Some(4)], "{text}");
    for line in &lines {
        let [p50, p99, max] = ["p50_ms", "p99_ms", "max_ms"].map(|name| line[name].as_u64());
        assert!(p50.is_some() && p50 <= p99 && p99 <= max, "{line}");
    }
}
