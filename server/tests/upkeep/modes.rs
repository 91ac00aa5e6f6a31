//! Files and directories that Windlass creates are for their owner only, whatever the umask.

use std::process::Command;

use crate::common::{Place, mode};

/// Runs the binary under a shell that gives all users all rights.
fn open_to_all(place: &Place, args: &[&str]) {
    let binary = place.command(args);
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 000; exec \"$0\" \"$@\""]).arg(binary.get_program());
    shell.args(binary.get_args()).current_dir(place.path(""));
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{args:?} {output:?}");
}

#[test]
fn a_fresh_store_its_log_and_its_backup_are_for_their_owner_alone_under_umask_000() {
    for store in ["sqlite", "redb"] {
        let place = Place::new(store);
        open_to_all(&place, &["enqueue", "x"]);
        open_to_all(&place, &["backup", "copy.db"]);
        assert_eq!(mode(&place.path("copy.db")), 0o600);
        if store == "sqlite" {
            open_to_all(&place, &["worker", "start", "--detach"]);
            assert!(place.path("data/workers.log").exists());
        }
        assert_eq!(mode(&place.path("data")), 0o700);
        for entry in std::fs::read_dir(place.path("data")).unwrap() {
            let path = entry.unwrap().path();
            let wanted = if path.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(mode(&path), wanted, "{}", path.display());
        }
        if store == "sqlite" {
            place.run(&["worker", "stop", "--all"]).good();
        }
    }
}
