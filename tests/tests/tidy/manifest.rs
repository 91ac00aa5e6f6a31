//! Checks of the `Cargo.toml` files: where versions stand, who depends on whom, why lints are off.
//!
//! The reader understands the TOML that manifests here are written in, not all of TOML.

use std::collections::BTreeSet;

use super::Finding;

/// Who may depend on whom, by folder; `*` is the rest of a name. A dev-dependency is free,
/// except in core. A new crate is added here.
const ALLOWED_EDGES: [(&str, &[&str]); 8] = [
    ("core", &[]),
    ("store-sqlite-vfs", &[]),
    ("store-*", &["core", "store-file"]),
    ("runtime-tokio", &["core"]),
    ("sim", &["core", "store-*", "tests"]),
    ("server", &["core", "store-*", "runtime-tokio"]),
    ("tests", &["*"]),
    ("bench", &["*"]),
];

/// What only tests may depend on, though a pattern of the table fits it.
const FOR_TESTS: [&str; 1] = ["store-sqlite-vfs"];

/// The manifest of a workspace member.
pub(crate) struct Member {
    /// Its folder, relative to the root.
    pub(crate) folder: String,
    /// The text of its `Cargo.toml`.
    pub(crate) text: String,
}

/// One `key = value`, with the table it stands in.
struct Entry {
    line: usize,
    table: String,
    key: String,
    value: String,
    has_comment_above: bool,
}

/// A dependency as a manifest declares it.
struct Dependency {
    line: usize,
    /// The kind of its table: `dev-`, `workspace.` and so on, or nothing.
    table: String,
    key: String,
    attributes: Vec<(String, String)>,
}

impl Dependency {
    /// The name of the crate, also when it goes by another key here.
    fn name(&self) -> String {
        let renamed = self.attributes.iter().find(|(attribute, _)| attribute == "package");
        renamed.and_then(|(_, value)| quoted(value).next()).unwrap_or_else(|| self.key.clone())
    }

    fn is_dev(&self) -> bool {
        self.table.ends_with("dev-")
    }

    fn is_inherited(&self) -> bool {
        let has = |wanted: &str| self.attributes.iter().any(|(attribute, _)| attribute == wanted);
        has("workspace") && !["version", "path", "git"].into_iter().any(has)
    }
}

fn entries(text: &str) -> Vec<Entry> {
    let mut table = String::new();
    let mut found: Vec<Entry> = Vec::new();
    let mut open = 0_usize;
    let mut above_is_comment = false;
    for (index, raw) in text.lines().enumerate() {
        let line = without_comment(raw).trim();
        if open > 0 {
            let entry = found.last_mut().expect("a value is open, so it has an entry");
            entry.value.push_str(line);
            open = open_brackets(&entry.value);
        } else if line.starts_with('[') {
            line.trim_matches(['[', ']']).clone_into(&mut table);
        } else if let Some((key, value)) = line.split_once('=') {
            found.push(Entry {
                line: index + 1,
                table: table.clone(),
                key: key.trim().to_owned(),
                value: value.trim().to_owned(),
                has_comment_above: above_is_comment,
            });
            open = open_brackets(value);
        }
        above_is_comment = raw.trim_start().starts_with('#');
    }
    found
}

fn without_comment(line: &str) -> &str {
    let mut is_quoted = false;
    for (at, c) in line.char_indices() {
        match c {
            '"' => is_quoted = !is_quoted,
            '#' if !is_quoted => return &line[..at],
            _ => {}
        }
    }
    line
}

fn open_brackets(value: &str) -> usize {
    let opened = value.matches(['[', '{']).count();
    opened.saturating_sub(value.matches([']', '}']).count())
}

/// The quoted parts of a value.
fn quoted(value: &str) -> impl Iterator<Item = String> {
    value.split('"').skip(1).step_by(2).map(str::to_owned)
}

/// Every dependency: `a = …`, `a.workspace = true` and the table `[dependencies.a]`.
fn dependencies(text: &str) -> Vec<Dependency> {
    let mut found: Vec<Dependency> = Vec::new();
    for entry in entries(text) {
        let path = format!("{}.{}", entry.table, entry.key);
        let Some((table, rest)) = path.split_once("dependencies.") else {
            continue;
        };
        let (key, attribute) = rest.split_once('.').unwrap_or((rest, ""));
        let attributes = attributes(attribute, &entry.value);
        match found.last_mut() {
            Some(last) if last.table == table && last.key == key && !attribute.is_empty() => {
                last.attributes.extend(attributes);
            }
            _ => found.push(Dependency {
                line: entry.line,
                table: table.to_owned(),
                key: key.to_owned(),
                attributes,
            }),
        }
    }
    found
}

/// What one entry says of a dependency: a named attribute, a bare version, or an inline table.
fn attributes(attribute: &str, value: &str) -> Vec<(String, String)> {
    if !attribute.is_empty() {
        return vec![(attribute.to_owned(), value.to_owned())];
    }
    if value.starts_with('"') {
        return vec![("version".to_owned(), value.to_owned())];
    }
    let parts = value.trim_matches(['{', '}', ' ']).split(',');
    let pairs = parts.filter_map(|part| part.split_once('='));
    pairs.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned())).collect()
}

/// The folders that the root manifest lists as members.
pub(crate) fn members(root: &str) -> Vec<String> {
    let entries = entries(root);
    let listed = entries.iter().find(|entry| entry.table == "workspace" && entry.key == "members");
    listed.map(|entry| quoted(&entry.value).collect()).unwrap_or_default()
}

/// A quoted value of the root manifest.
pub(crate) fn value(root: &str, table: &str, key: &str) -> Option<String> {
    let is_wanted = |entry: &Entry| entry.table == table && entry.key == key;
    entries(root).into_iter().find(is_wanted).and_then(|entry| quoted(&entry.value).next())
}

/// Dependencies of a member that state a version, a path or a repository of their own.
pub(crate) fn own_versions(member: &str) -> Vec<Finding> {
    let own = dependencies(member).into_iter().filter(|dependency| !dependency.is_inherited());
    let what =
        |name: String| format!("{name}: version in the root Cargo.toml, `workspace = true` here");
    own.map(|dependency| Finding::new(dependency.line, what(dependency.name()))).collect()
}

/// Dependencies that the root manifest names more than once, under another key or in another table.
pub(crate) fn repeated_dependencies(root: &str) -> Vec<Finding> {
    let mut seen = BTreeSet::new();
    let repeated = dependencies(root).into_iter().filter(|d| !seen.insert(d.name()));
    let what = |name: &str| format!("{name} has a version already: keep one of the two");
    repeated.map(|dependency| Finding::new(dependency.line, what(&dependency.name()))).collect()
}

/// A member that does not take the lints of the workspace.
pub(crate) fn missing_lints(member: &str) -> Vec<Finding> {
    let takes = |e: &Entry| e.table == "lints" && e.key == "workspace" && e.value == "true";
    if entries(member).iter().any(takes) {
        return Vec::new();
    }
    vec![Finding::new(1, "add `[lints]` with `workspace = true`")]
}

/// Lints that the root manifest allows without a comment right above.
pub(crate) fn unexplained_lints(root: &str) -> Vec<Finding> {
    let is_relaxed =
        |e: &Entry| e.table.starts_with("workspace.lints") && e.value.contains("\"allow\"");
    let relaxed = entries(root).into_iter().filter(is_relaxed);
    let unexplained = relaxed.filter(|entry| !entry.has_comment_above);
    let what = |key: &str| format!("{key} is relaxed: say why in a comment right above");
    unexplained.map(|entry| Finding::new(entry.line, what(&entry.key))).collect()
}

/// Dependencies between our crates that the table does not allow.
pub(crate) fn wrong_direction(member: &Member) -> Vec<Finding> {
    let folder = &member.folder;
    let Some((_, allowed)) = ALLOWED_EDGES.iter().find(|(from, _)| fits(from, folder)) else {
        let what = format!("{folder} is unknown: add it to the table ALLOWED_EDGES of tidy");
        return vec![Finding::new(1, what)];
    };
    let mut findings = Vec::new();
    for dependency in dependencies(&member.text) {
        let name = dependency.name();
        let Some(to) = name.strip_prefix("windlass-") else {
            continue;
        };
        let is_free = dependency.is_dev() && folder != "core";
        let is_allowed = allowed.iter().any(|pattern| fits(pattern, to));
        if !is_free && (!is_allowed || FOR_TESTS.contains(&to)) {
            let what = format!("{folder} may not depend on {to}: dependencies point towards core");
            findings.push(Finding::new(dependency.line, what));
        }
    }
    findings
}

fn fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(findings: &[Finding], expected_lines: &[usize]) {
        let lines: Vec<usize> = findings.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, expected_lines, "{findings:?}");
    }

    fn member(folder: &str, text: &str) -> Member {
        Member { folder: folder.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn members_are_read_from_one_line_or_many() {
        assert_eq!(members("[workspace]\nmembers = [\"a\", \"b\"]\n"), ["a", "b"]);
        let text = "[workspace]\nmembers = [\n  \"a\", # first\n  \"b\",\n]\n[other]\nx = 1\n";
        assert_eq!(members(text), ["a", "b"]);
    }

    #[test]
    fn an_inherited_dependency_has_no_version_of_its_own() {
        check(&own_versions("[dependencies]\na.workspace = true\n"), &[]);
        check(&own_versions("[dependencies]\na = { workspace = true, optional = true }\n"), &[]);
        check(&own_versions("[dependencies.a]\nfeatures = [\"x\"]\nworkspace = true\n"), &[]);
    }

    #[test]
    fn a_version_in_a_member_is_found_in_every_form() {
        check(&own_versions("[dependencies]\na = \"1\"\n"), &[2]);
        check(&own_versions("[dev-dependencies]\na = { version = \"1\" }\n"), &[2]);
        check(&own_versions("[build-dependencies]\na = { path = \"../a\" }\n"), &[2]);
        check(&own_versions("[target.'cfg(unix)'.dependencies]\na.version = \"1\"\n"), &[2]);
        check(&own_versions("[dependencies.a]\nversion = \"1\"\nfeatures = []\n"), &[2]);
    }

    #[test]
    fn a_dependency_named_twice_in_the_root_is_found() {
        let once = "[workspace.dependencies]\na = \"1\"\nb = \"1\"\n";
        check(&repeated_dependencies(once), &[]);
        let renamed = format!("{once}c = {{ version = \"2\", package = \"a\" }}\n");
        check(&repeated_dependencies(&renamed), &[4]);
    }

    #[test]
    fn a_relaxed_lint_needs_a_comment_right_above() {
        let table = "[workspace.lints.clippy]\n";
        check(&unexplained_lints(&format!("{table}a = \"warn\"\n# So.\nb = \"allow\"\n")), &[]);
        check(&unexplained_lints(&format!("{table}# So.\nb = \"allow\"\nc = \"allow\"\n")), &[4]);
    }

    #[test]
    fn a_member_without_the_workspace_lints_is_found() {
        check(&missing_lints("[package]\n[lints]\nworkspace = true\n"), &[]);
        check(&missing_lints("[package]\nname = \"a\"\n"), &[1]);
    }

    #[test]
    fn the_arrows_point_towards_core() {
        let on_core = "[dependencies]\nwindlass-core.workspace = true\n";
        check(&wrong_direction(&member("store-new", on_core)), &[]);
        let on_server = "[dependencies]\nwindlass-server.workspace = true\n";
        check(&wrong_direction(&member("store-new", on_server)), &[2]);
        check(&wrong_direction(&member("runtime-tokio", on_server)), &[2]);
        check(&wrong_direction(&member("tests", on_server)), &[]);
    }

    #[test]
    fn a_dev_dependency_is_free_except_in_core() {
        let text = "[dev-dependencies]\nwindlass-tests.workspace = true\n";
        check(&wrong_direction(&member("store-new", text)), &[]);
        check(&wrong_direction(&member("core", text)), &[2]);
    }

    #[test]
    fn only_tests_depend_on_what_is_for_tests() {
        let text = "[dependencies]\nwindlass-store-sqlite-vfs.workspace = true\n";
        check(&wrong_direction(&member("server", text)), &[2]);
        check(&wrong_direction(&member("server", &text.replace("[dep", "[dev-dep"))), &[]);
    }

    #[test]
    fn an_unknown_folder_is_refused() {
        let findings = wrong_direction(&member("misc", ""));
        assert!(findings[0].what.contains("add it to the table"), "{findings:?}");
    }
}
