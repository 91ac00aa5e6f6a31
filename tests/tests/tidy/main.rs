//! Tidy: the style of this repository as tests.
//!
//! Each check is a pure function from text to findings, in the modules beside this file, and has a
//! unit test there that feeds it a violation. This file only walks the workspace and reports.

mod figures;
mod lexer;
mod manifest;
mod shape;
mod ui;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

use manifest::Member;

/// What a check has to say about one line of one file.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    line: usize,
    what: String,
}

impl Finding {
    fn new(line: usize, what: impl Into<String>) -> Self {
        Self { line, what: what.into() }
    }
}

/// A text file of the workspace; its path is relative to the root and written with `/`.
struct File {
    path: String,
    text: String,
}

impl File {
    fn ends_in(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|found| found == extension)
    }

    fn is_rust(&self) -> bool {
        self.ends_in("rs")
    }

    fn is_core_source(&self) -> bool {
        self.is_rust() && self.path.starts_with("core/src/")
    }
}

fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("the tests crate stands in a folder of the workspace").to_path_buf()
}

/// Every text file below the root, in a fixed order. Build output, packages of npm and git's own
/// files are left out, and so is what is not UTF-8.
fn files() -> Vec<File> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).expect("a folder of the workspace can be listed");
        for entry in entries {
            let path = entry.expect("a folder of the workspace can be listed").path();
            let name = path.file_name().unwrap_or_default();
            let not_ours = ["target", ".git", "node_modules"].iter().any(|skip| name == *skip);
            let skipped = not_ours || path.join("CACHEDIR.TAG").exists();
            if skipped || path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                let below = path.strip_prefix(&root).expect("the walk stays below the root");
                let path = below.to_string_lossy().replace('\\', "/");
                found.push(File { path, text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path))
        .unwrap_or_else(|error| panic!("{path} must exist and be text: {error}"))
}

/// The manifests of all members, as the root manifest lists them.
fn members() -> Vec<Member> {
    let folders = manifest::members(&read("Cargo.toml"));
    assert!(!folders.is_empty(), "Cargo.toml:1: no `members` found in the root manifest");
    let read_member = |folder: String| {
        let text = read(&format!("{folder}/Cargo.toml"));
        Member { folder, text }
    };
    folders.into_iter().map(read_member).collect()
}

fn located(path: &str, findings: Vec<Finding>) -> Vec<String> {
    findings.into_iter().map(|f| format!("{path}:{}: {}", f.line, f.what)).collect()
}

/// Runs `check` over the files that `select` picks and fails with everything it found.
fn check_files(select: impl Fn(&File) -> bool, check: impl Fn(&File) -> Vec<Finding>) {
    let selected: Vec<File> = files().into_iter().filter(|file| select(file)).collect();
    assert!(!selected.is_empty(), "tidy looked at no file at all: the walk is broken");
    let found = selected.iter().flat_map(|file| located(&file.path, check(file)));
    report(&found.collect::<Vec<String>>());
}

/// Runs `check` over the manifests of all members and fails with everything it found.
fn check_members(check: impl Fn(&Member) -> Vec<Finding>) {
    let found = |member: &Member| located(&format!("{}/Cargo.toml", member.folder), check(member));
    report(&members().iter().flat_map(found).collect::<Vec<String>>());
}

fn report(findings: &[String]) {
    assert!(findings.is_empty(), "tidy has {} findings:\n{}", findings.len(), findings.join("\n"));
}

#[test]
fn the_walk_finds_tidy_itself_and_no_build_output() {
    let paths: Vec<String> = files().into_iter().map(|file| file.path).collect();
    assert!(paths.iter().any(|path| path == "tests/tests/tidy/main.rs"), "found only {paths:?}");
    assert!(!paths.iter().any(|path| path.starts_with("target/")));
}

#[test]
fn every_rust_file_opens_with_a_header() {
    check_files(File::is_rust, |file| {
        let is_crate_root = file.path.ends_with("/lib.rs");
        shape::header(&file.text, if is_crate_root { None } else { Some(shape::MAX_HEADER_LINES) })
    });
}

#[test]
fn no_line_is_wider_than_100_columns() {
    check_files(File::is_rust, |file| shape::wide_lines(&file.text));
}

#[test]
fn no_function_is_longer_than_70_lines() {
    check_files(File::is_rust, |file| shape::long_functions(&file.text));
}

#[test]
fn no_rust_file_is_longer_than_600_lines() {
    check_files(File::is_rust, |file| shape::long_file(&file.text));
}

#[test]
fn core_names_no_clock_no_chance_no_io_and_no_hash_map() {
    check_files(File::is_core_source, |file| words::banned_in_core(&file.text));
}

#[test]
fn core_unwraps_nothing_outside_its_tests() {
    let is_checked = |file: &File| file.is_core_source() && !words::is_test_file(&file.path);
    check_files(is_checked, |file| words::unwraps(&file.text));
}

#[test]
fn core_declares_no_std_and_forbids_unsafe_code() {
    let path = "core/src/lib.rs";
    report(&located(path, words::core_attributes(&read(path))));
}

#[test]
fn unsafe_code_stands_in_one_file_of_the_tests() {
    let is_checked = |file: &File| file.is_rust() && file.path != "store-sqlite-vfs/src/vfs.rs";
    check_files(is_checked, |file| words::unsafe_code(&file.text));
}

#[test]
fn nothing_is_left_undone_or_ignored_or_sleeps() {
    check_files(File::is_rust, |file| words::unfinished(&file.text));
}

#[test]
fn core_the_stores_and_the_runtime_say_things_by_their_usual_names() {
    let sources = ["core/src/", "runtime-tokio/src/", "store-"];
    let select = |file: &File| sources.iter().any(|folder| file.path.starts_with(folder));
    check_files(|file| file.is_rust() && select(file), |file| words::unclear(&file.text));
}

#[test]
fn every_allowed_or_expected_lint_has_a_reason() {
    check_files(File::is_rust, |file| words::allows_without_reason(&file.text));
}

#[test]
fn no_file_holds_an_absolute_path_of_a_machine() {
    check_files(|_| true, |file| words::machine_paths(&file.text));
}

#[test]
fn every_figure_in_the_readme_was_measured() {
    let findings = figures::unmeasured(&read("README.md"), &read("bench/RESULTS.md"));
    report(&located("README.md", findings));
}

#[test]
fn every_link_to_a_file_leads_somewhere() {
    check_files(
        |file| Path::new(&file.path).extension().is_some_and(|end| end == "md"),
        |file| {
            let folder = root().join(&file.path).parent().map(Path::to_path_buf);
            let folder = folder.expect("a file lies in a folder");
            words::links(&file.text)
                .into_iter()
                .filter(|link| !folder.join(&link.what).exists())
                .map(|link| Finding::new(link.line, format!("{} leads nowhere", link.what)))
                .collect()
        },
    );
}

#[test]
fn the_readme_states_the_rust_version_of_the_manifest() {
    let version = manifest::package_value(&read("Cargo.toml"), "rust-version");
    let version = version.expect("Cargo.toml: [workspace.package] must state `rust-version`");
    let stated = words::states_rust_version(&read("README.md"), &version);
    assert!(stated, "README.md:1: write \"Rust {version}\", the `rust-version` of Cargo.toml");
}

#[test]
fn the_changelog_has_a_section_for_this_version_or_for_unreleased() {
    let version = manifest::package_value(&read("Cargo.toml"), "version");
    let version = version.expect("Cargo.toml: [workspace.package] must state `version`");
    let named = words::has_section(&read("CHANGELOG.md"), &version);
    assert!(named, "CHANGELOG.md:1: add a section \"## Unreleased\" or \"## {version}\"");
}

#[test]
fn dependency_versions_stand_only_in_the_root_manifest() {
    check_members(|member| manifest::own_versions(&member.text));
}

#[test]
fn the_root_manifest_names_each_dependency_once() {
    report(&located("Cargo.toml", manifest::repeated_dependencies(&read("Cargo.toml"))));
}

#[test]
fn every_member_takes_the_lints_of_the_workspace() {
    check_members(|member| manifest::missing_lints(&member.text));
}

#[test]
fn every_relaxed_workspace_lint_has_a_comment_above_it() {
    report(&located("Cargo.toml", manifest::unexplained_lints(&read("Cargo.toml"))));
}

#[test]
fn crates_depend_only_in_the_allowed_direction() {
    check_members(manifest::wrong_direction);
}

#[test]
fn the_dashboard_makes_no_markup_of_text_and_imports_only_its_own_files() {
    let is_ui = |file: &File| file.path.starts_with("server/ui/");
    let all = files();
    let names: Vec<&str> =
        all.iter().filter_map(|file| file.path.strip_prefix("server/ui/")).collect();
    // The picture names the namespace of SVG, which is no request.
    check_files(|file| is_ui(file) && !file.ends_in("svg"), |file| ui::dangers(&file.text));
    check_files(is_ui, |file| ui::lost_imports(&file.text, &names));
}

/// Bytes of the dashboard: those of the files, and those of its stylesheet.
const UI_BYTES: (usize, usize) = (200_000, 43_000);

#[test]
fn the_dashboard_stays_small() {
    let all = files();
    let ui = || all.iter().filter(|file| file.path.starts_with("server/ui/"));
    let sum: usize = ui().map(|file| file.text.len()).sum();
    let css: usize = ui().filter(|file| file.ends_in("css")).map(|file| file.text.len()).sum();
    assert!(sum <= UI_BYTES.0, "server/ui has {sum} bytes");
    assert!(css <= UI_BYTES.1, "app.css has {css} bytes");
}
