//! Help, version and shell completions.

use std::fmt::Write as _;

use crate::common::Place;
use crate::world::{ran, windlass};

fn said(args: &[&str]) -> String {
    let mut command = windlass(&Place::new("sqlite"));
    // The help shows the values of these.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WINDLASS_")) {
        command.env_remove(name);
    }
    command.args(args).current_dir(env!("CARGO_MANIFEST_DIR"));
    let ran = ran(command, "");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{args:?}");
    ran.out
}

#[test]
fn the_help_shows_every_command_in_its_group() {
    insta::assert_snapshot!(said(&["-h"]));
}

/// The help of every command and its subcommands, a snapshot for each command.
#[test]
fn the_help_of_every_command_is_as_it_was_reviewed() {
    let all = commands(&said(&["--help"]));
    assert!(all.len() > 20, "found only {all:?}");
    for name in all {
        let mut helps = String::new();
        append_help(&[&name], &mut helps);
        insta::assert_snapshot!(format!("help_of_{name}"), helps);
    }
}

/// Appends the help of a command, and that of each command below it.
fn append_help(path: &[&str], helps: &mut String) {
    let help = said(&[path, &["--help"]].concat());
    let _ = write!(helps, "$ windlass {} --help\n{help}\n", path.join(" "));
    let below = help.split_once("\nCommands:\n").map(|(_, list)| commands(list));
    for name in below.unwrap_or_default() {
        append_help(&[path, &[&*name]].concat(), helps);
    }
}

/// The names at the beginning of the indented lines of a list of commands, but `help` itself.
fn commands(list: &str) -> Vec<String> {
    let until = list.split("\nOptions:").next().unwrap_or(list);
    let lines = until.lines().filter_map(|line| line.strip_prefix("  "));
    let names = lines.filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    let names = names.filter_map(|line| line.split("  ").next());
    names.filter(|name| !name.contains(' ') && *name != "help").map(String::from).collect()
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
