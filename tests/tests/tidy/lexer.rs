//! A lexer for just enough Rust: it blanks what is not code, and matches braces.
//!
//! It is no parser. What it keeps: the blanked text has the lines and the columns of the original,
//! so that a place found in one is a place in the other.

/// `text` with every comment, string and character literal replaced by spaces.
pub(crate) fn code_only(text: &str) -> Vec<char> {
    let mut chars: Vec<char> = text.chars().collect();
    let mut at = 0;
    while at < chars.len() {
        let end = end_of_non_code(&chars, at);
        for place in &mut chars[at..end] {
            if *place != '\n' {
                *place = ' ';
            }
        }
        at = end.max(at + 1);
    }
    chars
}

/// The string literals of `text` with their lines, as a reader sees them: lines that a backslash
/// continues are joined.
pub(crate) fn literals(text: &str) -> Vec<(usize, String)> {
    let chars: Vec<char> = text.chars().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let end = end_of_non_code(&chars, at);
        let literal: String = chars[at..end].iter().collect();
        if let Some(quote) = literal.find('"').filter(|_| !literal.starts_with(['/', '\''])) {
            let inside = literal[quote + 1..].trim_end_matches('#');
            found.push((line_of(&chars, at), joined(inside.strip_suffix('"').unwrap_or(inside))));
        }
        at = end.max(at + 1);
    }
    found
}

/// A literal without the backslashes that continue its lines, and the indents behind them.
fn joined(literal: &str) -> String {
    let mut parts = literal.split("\\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.trim_start())
}

/// The end of the comment or literal that begins at `at`; `at` itself when code stands there.
fn end_of_non_code(chars: &[char], at: usize) -> usize {
    let next = chars.get(at + 1).copied();
    match chars[at] {
        '/' if next == Some('/') => find(chars, at, |c| c == '\n'),
        '/' if next == Some('*') => end_of_block_comment(chars, at),
        '"' => end_of_quoted(chars, at, '"'),
        'r' if !follows_name(chars, at) || is_prefixed_raw(chars, at) => end_of_raw(chars, at),
        '\'' if next == Some('\\') || chars.get(at + 2) == Some(&'\'') => {
            end_of_quoted(chars, at, '\'')
        }
        _ => at,
    }
}

fn end_of_block_comment(chars: &[char], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => {
                depth += 1;
                at += 2;
            }
            ('*', Some('/')) => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    chars.len()
}

fn end_of_quoted(chars: &[char], start: usize, quote: char) -> usize {
    let mut at = start + 1;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            c if c == quote => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// The end of the raw string whose `r` stands at `start`; `start` when it is no raw string.
fn end_of_raw(chars: &[char], start: usize) -> usize {
    let quote = find(chars, start + 1, |c| c != '#');
    if chars.get(quote) != Some(&'"') {
        return start;
    }
    let hashes = quote - start - 1;
    let closes = |at: usize| {
        let rest = chars.get(at + 1..at + 1 + hashes);
        chars[at] == '"' && rest.is_some_and(|rest| rest.iter().all(|&c| c == '#'))
    };
    let close = (quote + 1..chars.len()).find(|&at| closes(at));
    close.map_or(chars.len(), |at| at + 1 + hashes)
}

/// Whether the `r` at `at` is that of `br"` or `cr"`.
fn is_prefixed_raw(chars: &[char], at: usize) -> bool {
    at > 0 && matches!(chars[at - 1], 'b' | 'c') && !follows_name(chars, at - 1)
}

fn follows_name(chars: &[char], at: usize) -> bool {
    at > 0 && is_name(chars[at - 1])
}

/// Whether `c` may stand inside an identifier.
pub(crate) fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The first place from `start` on that `wanted` accepts, or the end.
pub(crate) fn find(chars: &[char], start: usize, wanted: impl Fn(char) -> bool) -> usize {
    (start..chars.len()).find(|&at| wanted(chars[at])).unwrap_or(chars.len())
}

/// The places where `needle` begins, not glued to an identifier on a side where it is one itself.
pub(crate) fn places(chars: &[char], needle: &str) -> Vec<usize> {
    let needle: Vec<char> = needle.chars().collect();
    let (Some(&first), Some(&last)) = (needle.first(), needle.last()) else {
        return Vec::new();
    };
    let is_whole = |at: usize| {
        let glued_before = is_name(first) && follows_name(chars, at);
        let after = chars.get(at + needle.len()).copied();
        let glued_after = is_name(last) && after.is_some_and(is_name);
        !glued_before && !glued_after
    };
    let starts = 0..(chars.len() + 1).saturating_sub(needle.len());
    starts.filter(|&at| chars[at..].starts_with(&needle) && is_whole(at)).collect()
}

/// The line of a place, counted from one.
pub(crate) fn line_of(chars: &[char], at: usize) -> usize {
    1 + chars[..at].iter().filter(|&&c| c == '\n').count()
}

/// The end of the item that begins at `start` in blanked code: behind its closing brace, or behind
/// the semicolon of an item without a body.
pub(crate) fn end_of_item(code: &[char], start: usize) -> usize {
    let mut depth = 0_usize;
    for (at, c) in code.iter().enumerate().skip(start) {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 && *c == '}' {
                    return at + 1;
                }
            }
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blanks `text`, and compares what is left with `expected`, spaces aside.
    #[track_caller]
    fn check(text: &str, expected: &str) {
        let code = code_only(text);
        assert_eq!(code.len(), text.chars().count(), "columns moved");
        assert_eq!(code.split(|&c| c == ' ').collect::<Vec<_>>().concat(), chars(expected));
    }

    fn chars(text: &str) -> Vec<char> {
        text.chars().collect()
    }

    #[test]
    fn comments_are_blanked_and_lines_are_kept() {
        check("a // {\nb", "a\nb");
        check("a /* { /* } */\n { */ b", "a\nb");
    }

    #[test]
    fn literals_are_blanked_whatever_they_hold() {
        check(r#"a("{ \" // "); b"#, "a();b");
        check(r##"a(r#"{ " // "#); b"##, "a();b");
        check(r##"a(br#"{"#, b"}"); c"##, "a(b,b);c");
        check(r"a('{', '\'', '\u{7b}'); b", "a(,,);b");
    }

    #[test]
    fn literals_are_read_with_their_continued_lines_joined() {
        let text = "// \"no\"\nlet a = \"one \\\n    two\"; b('\"'); c(r#\"th\"ree\"#);";
        let expected = [(2, "one two".to_owned()), (3, "th\"ree".to_owned())];
        assert_eq!(literals(text), expected);
    }

    #[test]
    fn lifetimes_and_raw_names_are_code() {
        check("a<'a>(b: &'a str) { r#type }", "a<'a>(b:&'astr){r#type}");
    }

    #[test]
    fn a_needle_is_found_as_a_whole_word_only() {
        let code = code_only("rand brand random rand::x my_rand");
        assert_eq!(places(&code, "rand"), [0, 18]);
    }

    #[test]
    fn an_item_ends_at_its_own_brace_or_semicolon() {
        assert_eq!(end_of_item(&chars("fn a(x: [u8; 2]) { if b { c } } d"), 0), 31);
        assert_eq!(end_of_item(&chars("fn a(x: [u8; 2]); d"), 0), 17);
    }
}
