//! The dashboard: no way for text to become markup or code, and no import that leads nowhere.

use super::Finding;

/// What makes markup or code out of text, or reaches another server.
const FORBIDDEN: [&str; 10] = [
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "document.write",
    "eval(",
    "new Function",
    "style=\"",
    "javascript:",
    "http://",
    "https://",
];

/// Lines that could let text act.
pub(crate) fn dangers(text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let lower = line.to_lowercase();
        for word in FORBIDDEN.iter().filter(|word| lower.contains(&word.to_lowercase())) {
            found.push(Finding::new(at + 1, format!("{word} is not used in the dashboard")));
        }
        let listener = |part: &&str| part.starts_with("on") && part.contains("=\"");
        if let Some(part) = line.split_whitespace().find(listener) {
            found.push(Finding::new(at + 1, format!("{part} is a listener written as markup")));
        }
    }
    found
}

/// Imports of files that are not there.
pub(crate) fn lost_imports(text: &str, files: &[&str]) -> Vec<Finding> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| line.starts_with("import ")) {
        let from = line.split('\'').nth(1).unwrap_or_default();
        let known = from.strip_prefix("./").is_some_and(|name| files.contains(&name));
        if !known {
            found.push(Finding::new(at + 1, format!("imports {from:?}, which is not there")));
        }
    }
    found
}

#[test]
fn text_that_becomes_markup_is_found() {
    assert_eq!(dangers("node.textContent = text;"), []);
    for bad in ["a.innerHTML = b", "<p style=\"x\">", "<a onclick=\"x()\">", "fetch('https://x')"] {
        assert_eq!(dangers(bad).len(), 1, "{bad}");
    }
}

#[test]
fn an_import_that_leads_nowhere_is_found() {
    let files = ["dom.js"];
    assert_eq!(lost_imports("import { h } from './dom.js';", &files), []);
    for bad in ["import { h } from './none.js';", "import x from 'left-pad';"] {
        assert_eq!(lost_imports(bad, &files).len(), 1, "{bad}");
    }
}
