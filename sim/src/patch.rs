//! Patches in the unified format, applied exactly: the context must be in the file, once, and the
//! head of a hunk must count its lines rightly. A patch that no longer fits is an error.

use std::fs;
use std::path::Path;

/// The changes of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePatch {
    /// Path from the root of the workspace.
    pub path: String,
    hunks: Vec<Hunk>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Hunk {
    before: Vec<String>,
    after: Vec<String>,
    /// Numbers of lines before and after, from the head of the hunk.
    counts: (usize, usize),
}

/// Parses the hunks of each file; checks the counts of lines.
pub fn parse(text: &str) -> Result<Vec<FilePatch>, String> {
    let mut files: Vec<FilePatch> = Vec::new();
    for line in text.lines() {
        if let Some(path) = line.strip_prefix("+++ b/") {
            files.push(FilePatch { path: path.trim().to_owned(), hunks: Vec::new() });
        } else if line.starts_with("@@") {
            let file = files.last_mut().ok_or("a hunk before any file")?;
            let counts = counts(line).ok_or_else(|| format!("not the head of a hunk: {line}"))?;
            file.hunks.push(Hunk { counts, ..Hunk::default() });
        } else if line.starts_with("--- ") || line.starts_with("diff ") {
            // What follows belongs to the next file, which names itself.
        } else if let Some(hunk) = files.last_mut().and_then(|file| file.hunks.last_mut()) {
            let rest = line.get(1..).unwrap_or("").to_owned();
            match line.chars().next() {
                Some('-') => hunk.before.push(rest),
                Some('+') => hunk.after.push(rest),
                Some(' ') | None => {
                    hunk.before.push(rest.clone());
                    hunk.after.push(rest);
                }
                Some(other) => return Err(format!("a line of a patch starts with {other:?}")),
            }
        }
    }
    files.iter().try_for_each(check_counts)?;
    if files.is_empty() { Err("no file is changed".into()) } else { Ok(files) }
}

/// The counts in the head of a hunk: `@@ -from,before +to,after @@`. One is left out if it is 1.
fn counts(head: &str) -> Option<(usize, usize)> {
    let mut words = head.split(' ').skip(1);
    let mut count = |sign| {
        let range = words.next()?.strip_prefix(sign)?;
        range.split_once(',').map_or(Some(1), |(_, count)| count.parse().ok())
    };
    Some((count('-')?, count('+')?))
}

/// Checks the counts of lines: other programs refuse a patch whose counts are wrong.
fn check_counts(file: &FilePatch) -> Result<(), String> {
    for (hunk, number) in file.hunks.iter().zip(1..) {
        let counted = (hunk.before.len(), hunk.after.len());
        if counted != hunk.counts {
            let (path, said) = (&file.path, hunk.counts);
            return Err(format!("{path}: hunk {number} has {counted:?} lines, not {said:?}"));
        }
    }
    Ok(())
}

/// Returns the text of a file with a patch applied.
pub fn apply(patch: &FilePatch, text: &str) -> Result<String, String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for hunk in &patch.hunks {
        let found: Vec<usize> = lines
            .windows(hunk.before.len().max(1))
            .enumerate()
            .filter(|(_, window)| *window == hunk.before)
            .map(|(at, _)| at)
            .collect();
        let [at] = found.as_slice() else {
            return Err(format!(
                "{}: the context of a hunk is found {} times, not once: {:?}",
                patch.path,
                found.len(),
                hunk.before.first()
            ));
        };
        lines.splice(*at..at + hunk.before.len(), hunk.after.iter().cloned());
    }
    Ok(lines.join("\n") + "\n")
}

/// Returns path and text of the files that a patch changes. Nothing is written.
pub fn applied(patch: &str, root: &Path) -> Result<Vec<(String, String)>, String> {
    let patched = |file: FilePatch| {
        let text = fs::read_to_string(root.join(&file.path));
        let text = text.map_err(|error| format!("{}: {error}", file.path))?;
        Ok((file.path.clone(), apply(&file, &text)?))
    };
    parse(patch)?.into_iter().map(patched).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "--- a/x.rs\n+++ b/x.rs\n@@ -1,3 +1,3 @@\n one\n-two\n+deux\n three\n";

    #[test]
    fn a_patch_changes_what_it_names_and_nothing_else() {
        let patch = &parse(PATCH).unwrap()[0];
        let text = apply(patch, "zero\none\ntwo\nthree\nfour\n");
        assert_eq!(text.as_deref(), Ok("zero\none\ndeux\nthree\nfour\n"));
    }

    #[test]
    fn a_patch_whose_context_is_gone_or_ambiguous_is_refused() {
        let patch = &parse(PATCH).unwrap()[0];
        assert!(apply(patch, "one\nzwei\nthree\n").is_err());
        assert!(apply(patch, "one\ntwo\nthree\none\ntwo\nthree\n").is_err());
        assert!(parse("nothing").is_err());
    }

    #[test]
    fn a_patch_that_counts_its_lines_wrongly_is_refused() {
        for (right, wrong) in [("-1,3", "-1,4"), ("+1,3", "+1,2"), ("+1,3", "+1"), ("@@ -", "@@ ")]
        {
            assert!(parse(&PATCH.replacen(right, wrong, 1)).is_err(), "{wrong}");
        }
        assert!(parse("+++ b/x.rs\n@@ -1 +1 @@\n-two\n+deux\n").is_ok());
    }
}
