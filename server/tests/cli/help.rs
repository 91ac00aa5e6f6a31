//! What the program says about itself, and what shells are told.

use crate::common::Place;
use crate::world::{ran, windlass};

fn said(args: &[&str]) -> String {
    let mut command = windlass(&Place::new("sqlite"));
    command.args(args).current_dir(env!("CARGO_MANIFEST_DIR"));
    let ran = ran(command, "");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{args:?}");
    ran.out
}

#[test]
fn the_help_shows_every_command_in_its_group() {
    insta::assert_snapshot!(said(&["-h"]));
}

#[test]
fn the_help_of_a_command_has_examples() {
    for args in [&["enqueue", "--help"][..], &["wait", "-h"], &["queue", "set", "--help"]] {
        assert!(said(args).contains("Examples:\n  windlass "), "{args:?}");
    }
}

#[test]
fn every_shell_has_completions_that_know_commands_and_states() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let text = said(&["completions", shell]);
        for word in ["enqueue", "dlq", "--error-contains"] {
            assert!(text.contains(word.trim_start_matches("--")), "{shell}: {word}");
        }
    }
    assert!(said(&["completions", "bash"]).contains("queued scheduled processing"));
}

#[test]
fn the_version_is_that_of_the_package() {
    assert_eq!(said(&["version"]), format!("windlass {}\n", env!("CARGO_PKG_VERSION")));
}
