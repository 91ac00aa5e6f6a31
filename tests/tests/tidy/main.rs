//! Tidy: the style of this repository as tests.
//!
//! Each check is a pure function from text to findings, in the modules beside this file, and has a
//! unit test there that feeds it a violation. This file only walks the workspace and reports.

mod comments;
mod container;
mod documents;
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
fn the_server_names_concrete_stores_in_one_place() {
    let is_checked = |file: &File| {
        let is_source = file.is_rust() && file.path.starts_with("server/src/");
        is_source && !file.path.starts_with("server/src/store")
    };
    check_files(is_checked, |file| words::concrete_stores(&file.text));
}

#[test]
fn nothing_is_left_undone_or_ignored_or_sleeps() {
    check_files(File::is_rust, |file| words::unfinished(&file.text));
}

#[test]
fn code_and_documents_use_the_usual_words() {
    let ends =
        ["rs", "md", "js", "mjs", "py", "go", "toml", "yaml", "yml", "service", "snap", "sql"];
    let select =
        |file: &File| file.path.starts_with(".ci/") || ends.iter().any(|end| file.ends_in(end));
    check_files(select, |file| words::unclear(&file.text));
}

#[test]
fn what_users_read_uses_the_usual_words() {
    let is_shown = |file: &File| {
        file.path == "server/openapi.json" || file.path.starts_with("server/tests/cli/snapshots/")
    };
    let is_help = |file: &File| {
        file.path.starts_with("server/src/cli/") || file.path == "server/src/kinds/args.rs"
    };
    // The head of a snapshot says which code made it.
    let body = |text: &str| match text.match_indices("---\n").nth(1) {
        Some((end, _)) => "\n".repeat(text[..end].lines().count()) + &text[end..],
        None => text.to_owned(),
    };
    check_files(is_shown, |file| words::unclear_to_users(&body(&file.text)));
    check_files(is_help, |file| words::unclear_to_users(&words::help(&file.text)));
    check_files(is_shipped, |file| words::unclear_literals(&file.text));
    let is_script = |file: &File| file.path.starts_with("server/ui/") && file.ends_in("js");
    check_files(is_script, |file| ui::unclear_literals(&file.text));
}

/// Source of the crates that users install or link; their string literals are messages, help and
/// the descriptions of the API.
fn is_shipped(file: &File) -> bool {
    let (folder, rest) = file.path.split_once('/').unwrap_or_default();
    let is_source = file.is_rust() && rest.starts_with("src/") && !words::is_test_file(rest);
    let is_store = folder.starts_with("store-") && folder != "store-sqlite-vfs";
    is_source && (is_store || ["core", "runtime-tokio", "server"].contains(&folder))
}

/// A folder without prose: the figures of the benchmarks.
const NAMES_NOT_SEARCHED: &str = "bench/results/";

#[test]
fn names_use_the_usual_words_too() {
    let is_searched = |file: &File| {
        let is_excluded = file.path.starts_with(NAMES_NOT_SEARCHED);
        // Pictures are no text of ours.
        !is_excluded && !file.ends_in("svg")
    };
    check_files(is_searched, |file| words::unclear_in_names(&file.text));
}

#[test]
fn functions_are_named_by_what_they_do() {
    let is_source = |file: &File| file.is_rust() && file.path.contains("/src/");
    check_files(is_source, |file| words::telling_functions(&file.text));
}

#[test]
fn no_doc_comment_only_repeats_a_name() {
    check_files(File::is_rust, |file| comments::noise(&file.text));
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
fn the_container_image_keeps_jobs_and_runs_without_rights() {
    let version = manifest::value(&read("Cargo.toml"), "workspace.package", "rust-version")
        .unwrap_or_default();
    let path = "deploy/Dockerfile";
    report(&located(path, container::dockerfile(&read(path), &version)));
    report(&located(".dockerignore", container::context(&read(".dockerignore"))));
}

#[test]
fn the_binary_that_users_install_is_stripped_and_the_one_for_profilers_is_not() {
    let strip = |profile: &str| {
        let table = format!("profile.{profile}.package.windlass-server");
        manifest::value(&read("Cargo.toml"), &table, "strip")
    };
    assert_eq!(strip("release").as_deref(), Some("debuginfo"), "it has 100 MB otherwise");
    assert_eq!(strip("profiling").as_deref(), Some("none"));
}

#[test]
fn git_ignores_what_programs_leave_in_the_repository() {
    let ignored = read(".gitignore");
    for line in ["/target", "windlass-data/", ".schemathesis/", ".hypothesis/"] {
        assert!(ignored.lines().any(|one| one == line), ".gitignore:1: add {line}");
    }
}

/// Pages that people write. The report of the benchmarks is written by their program.
fn is_page(file: &File) -> bool {
    file.ends_in("md") && file.path != "bench/RESULTS.md"
}

#[test]
fn every_link_to_a_file_or_heading_leads_somewhere() {
    check_files(is_page, |file| {
        let folder = root().join(&file.path).parent().map(Path::to_path_buf);
        documents::dead_links(&file.text, &folder.expect("a file lies in a folder"))
    });
}

#[test]
fn every_block_of_commands_is_run_or_says_why_not() {
    let ci = read(".ci/run");
    let steps = documents::steps(&ci);
    assert!(steps.len() > 10, ".ci/run has the steps {steps:?} only: are they found?");
    let exists = |path: &str| root().join(path).exists();
    check_files(is_page, |file| documents::unclear_blocks(&file.text, &steps, &exists));
}

#[test]
fn the_configurations_of_proxies_are_shown_as_they_are_tested() {
    let page = read("docs/PROXIES.md");
    let shown = documents::blocks(&page);
    for path in ["examples/proxies/nginx.conf", "examples/proxies/Caddyfile"] {
        let tested = documents::without_comments(&read(path));
        let is_shown = shown.iter().any(|(_, _, text)| *text == tested);
        assert!(is_shown, "docs/PROXIES.md:1: show {path} without its comments:\n{tested}");
    }
}

/// The examples are run by `.ci/run`, so this program is too.
#[test]
fn the_program_of_the_readme_is_an_example_that_is_run() {
    let (readme, example) = (read("README.md"), read("runtime-tokio/examples/readme.rs"));
    let (_, program) = example.split_at(example.find("use ").unwrap_or_default());
    let shown = documents::blocks(&readme);
    let is_shown = shown.iter().any(|(_, info, text)| info.starts_with("rust") && text == program);
    assert!(is_shown, "README.md:1: show runtime-tokio/examples/readme.rs from its `use` on");
}

#[test]
fn every_test_that_a_document_names_exists() {
    let all = files();
    let sources = all.iter().filter(|file| file.is_rust());
    let names = sources.flat_map(|file| file.text.split("fn ").skip(1));
    let names = names.filter_map(|rest| rest.split(['(', '<']).next()).collect();
    check_files(is_page, |file| documents::unknown_tests(&file.text, &names));
}

/// The front page of each crate leads to the guide: rustdoc is built beside the book.
#[test]
fn the_front_pages_of_the_crates_link_to_pages_of_the_book() {
    let page = |name: &str| fs::read_to_string(root().join("docs").join(name)).ok();
    check_files(File::is_rust, |file| documents::dead_book_links(&file.text, &page));
    let is_front = |file: &File| {
        let named = file.path.split_once("/src/").filter(|(folder, _)| !folder.contains('/'));
        let is_binary = ["server", "bench"].contains(&named.unwrap_or_default().0);
        named.is_some_and(|(_, name)| name == if is_binary { "main.rs" } else { "lib.rs" })
    };
    check_files(is_front, |file| {
        let leads = !documents::book_links(&file.text).is_empty();
        let what = "link to a page of the book: [guide](../../book/LIBRARY.html)";
        if leads { Vec::new() } else { vec![Finding::new(1, what)] }
    });
}

#[test]
fn every_page_of_the_documentation_is_in_its_indexes() {
    let all = files();
    let pages = || {
        let names = all.iter().filter_map(|file| file.path.strip_prefix("docs/"));
        names.filter(|name| name.strip_suffix(".md").is_some_and(|page| page != "SUMMARY"))
    };
    let index = pages().filter(|name| *name != "README.md");
    report(&located("docs/README.md", documents::unlisted(&read("docs/README.md"), index)));
    report(&located("docs/SUMMARY.md", documents::unlisted(&read("docs/SUMMARY.md"), pages())));
}

#[test]
fn the_readme_is_shorter_than_200_lines() {
    assert!(read("README.md").lines().count() < 200, "move details to docs/");
}

#[test]
fn the_readme_states_the_rust_version_of_the_manifest() {
    let version = manifest::value(&read("Cargo.toml"), "workspace.package", "rust-version");
    let version = version.expect("Cargo.toml: [workspace.package] must state `rust-version`");
    let stated = words::states_rust_version(&read("README.md"), &version);
    assert!(stated, "README.md:1: write \"Rust {version}\", the `rust-version` of Cargo.toml");
}

#[test]
fn the_changelog_has_a_section_for_this_version_or_for_unreleased() {
    let version = manifest::value(&read("Cargo.toml"), "workspace.package", "version");
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

/// Bytes of the dashboard: all files, and the stylesheet. Nothing minifies them.
const UI_BYTES: (usize, usize) = (252_500, 40_500);
/// Columns of a line of the dashboard's modules and stylesheet.
const UI_COLUMNS: usize = 120;

#[test]
fn the_dashboard_stays_small() {
    let all = files();
    let ui = || all.iter().filter(|file| file.path.starts_with("server/ui/"));
    let sum: usize = ui().map(|file| file.text.len()).sum();
    let css: usize = ui().filter(|file| file.ends_in("css")).map(|file| file.text.len()).sum();
    assert!(sum <= UI_BYTES.0, "server/ui has {sum} bytes");
    assert!(css <= UI_BYTES.1, "app.css has {css} bytes");
    let code = ui().filter(|file| file.ends_in("js") || file.ends_in("css"));
    let wide = code.flat_map(|file| {
        let lines = file.text.lines().enumerate();
        let wide = lines.filter(|(_, line)| line.chars().count() > UI_COLUMNS);
        wide.map(|(at, _)| format!("{}:{}: wider than {UI_COLUMNS} columns", file.path, at + 1))
    });
    report(&wide.collect::<Vec<_>>());
}
