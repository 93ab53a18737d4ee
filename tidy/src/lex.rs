//! Classifies the bytes of a Rust source as code, comments or insides of literals, and masks the
//! classes that a rule does not search.
//!
//! The rules search for words (`unsafe`, `mod`, ...), and must not find them inside strings or
//! comments.
//!
//! Invariant: a masked text has the length and the line breaks of its source, so positions stay
//! valid.

/// What a byte of a Rust source belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// The source with comments and the insides of literals replaced by blanks.
pub(crate) fn code_of(source: &str) -> String {
    masked(source, |kind| kind == Kind::Code)
}

/// The source with the insides of literals replaced by blanks.
pub(crate) fn code_and_comments_of(source: &str) -> String {
    masked(source, |kind| kind != Kind::Literal)
}

/// Whether `line` contains `word` with no letter, digit or underscore on either side.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(start, _)| {
        let before = line.get(..start).and_then(|text| text.chars().next_back());
        let after = line.get(start + word.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(part_of_word) && !after.is_some_and(part_of_word)
    })
}

fn masked(source: &str, keep: impl Fn(Kind) -> bool) -> String {
    let kinds = kinds_of(source.as_bytes());
    let mut out = String::with_capacity(source.len());
    for (at, c) in source.char_indices() {
        if c == '\n' || keep(kinds[at]) {
            out.push(c);
        } else {
            out.extend(std::iter::repeat_n(' ', c.len_utf8()));
        }
    }
    out
}

fn kinds_of(bytes: &[u8]) -> Vec<Kind> {
    let mut kinds = vec![Kind::Code; bytes.len()];
    let mut at = 0;
    while at < bytes.len() {
        let (kind, end) = if bytes[at..].starts_with(b"//") {
            (Kind::Comment, line_end(bytes, at))
        } else if bytes[at..].starts_with(b"/*") {
            (Kind::Comment, block_comment_end(bytes, at))
        } else if let Some(end) = raw_string_end(bytes, at) {
            (Kind::Literal, end)
        } else if bytes[at] == b'"' {
            (Kind::Literal, quoted_end(bytes, at))
        } else if let Some(end) = char_end(bytes, at) {
            (Kind::Literal, end)
        } else {
            (Kind::Code, at + 1)
        };
        kinds[at..end].fill(kind);
        at = end;
    }
    kinds
}

fn line_end(bytes: &[u8], start: usize) -> usize {
    bytes[start..].iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |length| start + length)
}

/// The end of a block comment; block comments nest.
fn block_comment_end(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

/// The end of `r"..."` or `r#"..."#` (also after `b` or `c`) that starts here.
fn raw_string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let before = start.checked_sub(1).map(|at| bytes[at]);
    let in_a_name = before.is_some_and(|byte| byte.is_ascii_alphanumeric() && byte != b'b' && byte != b'c');
    if bytes[start] != b'r' || in_a_name || before == Some(b'_') {
        return None;
    }
    let hashes = bytes[start + 1..].iter().take_while(|&&byte| byte == b'#').count();
    let open = start + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let body = &bytes[open + 1..];
    let length = body.windows(close.len()).position(|window| window == close);
    Some(length.map_or(bytes.len(), |length| open + 1 + length + close.len()))
}

fn quoted_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of a character literal that starts here; `None` for a lifetime.
fn char_end(bytes: &[u8], start: usize) -> Option<usize> {
    if bytes[start] != b'\'' {
        return None;
    }
    let first = *bytes.get(start + 1)?;
    // The escaped character may be a quote, so the search for the closing quote starts after it.
    let from = if first == b'\\' { start + 3 } else { start + 2 };
    let width_max = if first == b'\\' { 9 } else { 4 };
    let rest = bytes.get(from..)?;
    let close = from + rest.iter().take(width_max).position(|&byte| byte == b'\'')?;
    // `'a, 'b` are two lifetimes: without an escape, exactly one character is between the quotes.
    let one_char = std::str::from_utf8(&bytes[start + 1..close]).is_ok_and(|text| text.chars().count() == 1);
    (first == b'\\' || one_char).then_some(close + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_comments_strings_and_characters_are_blanked() {
        let source = r####"a(); // b
/* c /* d */ e */ f("g \" h", r#"i " j"#, '"', '\'', b'k');"####;
        assert_eq!(
            code_of(source).split_whitespace().collect::<Vec<_>>(),
            ["a();", "f(", ",", ",", ",", ",", "b", ");"]
        );
        assert_eq!(code_of(source).len(), source.len());
    }

    #[test]
    fn lifetimes_do_not_start_a_literal() {
        let source = "fn f<'a, 'b>(x: &'a str, y: &'b str) -> &'a str { unsafe { g(x, y) } }";
        assert_eq!(code_of(source), source);
    }

    #[test]
    fn comments_stay_where_they_are_asked_for() {
        assert_eq!(code_and_comments_of("f(\"x\"); // y"), "f(   ); // y");
    }

    #[test]
    fn an_open_string_or_comment_ends_with_the_text() {
        for source in ["f(\"abc", "f(\"abc\\", "/* a /* b */", "r#\"abc\"", "'", "'\\", "r"] {
            assert_eq!(code_of(source).len(), source.len(), "{source}");
        }
    }

    #[test]
    fn a_word_inside_a_name_is_not_that_word() {
        assert!(has_word("{ unsafe {", "unsafe"));
        assert!(!has_word("unsafe_code and an_unsafe", "unsafe"));
    }
}
