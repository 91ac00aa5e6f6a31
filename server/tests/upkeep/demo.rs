//! `serve --demo`.

use crate::common::{Place, Running};

#[test]
fn a_demo_shows_duplicates_refusals_retries_and_figures_and_leaves_nothing_behind() {
    let place = Place::new("sqlite");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(["serve", "--demo", "--listen", "127.0.0.1:0"]).current_dir(place.path(""));
    command.env_remove("WINDLASS_STORE");
    command.stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let server = Running::of(command.spawn().unwrap());
    let store = server.line();
    let folder = store.split("sqlite:").nth(1).unwrap().trim_end_matches("/windlass.db").to_owned();
    assert!(std::path::Path::new(&folder).exists(), "{store}");
    for wanted in ["duplicate:", "refused:", "retry:", " done;"] {
        while !server.line().contains(wanted) {}
    }
    let status = place.ask(&server, &["status", "--json"]).good().json();
    assert!(status["counts"]["done"].as_u64().unwrap() > 0, "{status}");
    let (ended, said) = server.stop();
    assert!(ended.success(), "{said}");
    assert!(!std::path::Path::new(&folder).exists(), "its folder is gone");
    assert!(!place.path("windlass-data").exists(), "the usual store was not touched");
}
