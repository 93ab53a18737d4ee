//! Parses the input of the prompt: whether a statement is complete, and which command of the shell
//! it is.
//!
//! All functions are pure; the prompt calls them after every line.

use rackscan_planner::Policy;

/// One input at the prompt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    /// Only blanks or comments.
    Nothing,
    /// SQL without its semicolon.
    Sql(String),
    /// `\d` or `\d TABLE`
    Describe(Option<String>),
    /// `\timing`, `\timing on`, `\timing off`
    Timing(Option<bool>),
    /// `\placement`, `\placement local`
    Placement(Option<Policy>),
    /// `\?`
    Help,
    /// `\q`
    Quit,
    /// Another backslash command: the message to print.
    Unknown(String),
}

/// Whether a statement is complete: it ends with a semicolon outside quotes and comments, or is a
/// backslash command.
pub(crate) fn is_complete(text: &str) -> bool {
    let trimmed = text.trim();
    trimmed.is_empty()
        || trimmed.starts_with('\\')
        || matches!(scan(trimmed), Ending::Semicolon | Ending::Blank)
}

/// Parses one complete input.
pub(crate) fn parse(text: &str) -> Typed {
    let trimmed = text.trim();
    if let Some(command) = trimmed.strip_prefix('\\') {
        return backslash(command.trim_end_matches(';'));
    }
    if matches!(scan(trimmed), Ending::Blank) {
        return Typed::Nothing;
    }
    Typed::Sql(trimmed.trim_end_matches(';').trim().to_owned())
}

fn backslash(command: &str) -> Typed {
    let mut words = command.split_whitespace();
    let name = words.next().unwrap_or_default();
    let argument = words.next();
    match (name, argument) {
        ("d", table) => Typed::Describe(table.map(str::to_owned)),
        ("timing", None) => Typed::Timing(None),
        ("timing", Some("on")) => Typed::Timing(Some(true)),
        ("timing", Some("off")) => Typed::Timing(Some(false)),
        ("timing", Some(other)) => Typed::Unknown(format!("\\timing {other}: expected on or off")),
        ("placement", None) => Typed::Placement(None),
        ("placement", Some(name)) => name.to_ascii_lowercase().parse::<Policy>().map_or_else(
            |_| {
                Typed::Unknown(format!(
                    "\\placement {name}: expected local, remote-fetch, remote-process or auto"
                ))
            },
            |placement| Typed::Placement(Some(placement)),
        ),
        ("?" | "h" | "help", _) => Typed::Help,
        ("q" | "quit" | "exit", _) => Typed::Quit,
        (other, _) => Typed::Unknown(format!("\\{other}: unknown command; \\? lists the commands")),
    }
}

enum Ending {
    /// Only blanks and comments.
    Blank,
    /// The last character outside of comments was a semicolon.
    Semicolon,
    /// Inside a quote or a comment, or without a semicolon.
    Open,
}

fn scan(text: &str) -> Ending {
    let mut ending = Ending::Blank;
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\'' | '"' => {
                if !rest.by_ref().any(|next| next == c) {
                    return Ending::Open;
                }
                ending = Ending::Open;
            }
            '-' if rest.peek() == Some(&'-') => {
                rest.by_ref().find(|&next| next == '\n');
            }
            '/' if rest.peek() == Some(&'*') => {
                rest.next();
                let mut before = ' ';
                if !rest.by_ref().any(|next| std::mem::replace(&mut before, next) == '*' && next == '/') {
                    return Ending::Open;
                }
            }
            ';' => ending = Ending::Semicolon,
            c if c.is_whitespace() => {}
            _ => ending = Ending::Open,
        }
    }
    ending
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_ends_with_a_semicolon_outside_quotes_and_comments() {
        for complete in
            ["select 1;", "select ';' ;", "select 1; -- done", "", "  ", "\\d lineitem", "/* ; */ select 1;"]
        {
            assert!(is_complete(complete), "{complete:?}");
        }
        for open in ["select 1", "select ';", "select 1 -- ;", "select /* ;", "select \"a;\""] {
            assert!(!is_complete(open), "{open:?}");
        }
    }

    #[test]
    fn a_doubled_quote_stays_inside_the_text() {
        assert!(is_complete("select 'it''s;' ;"));
        assert!(!is_complete("select 'it''s;"));
    }

    #[test]
    fn backslash_commands_are_told_apart() {
        assert_eq!(parse("\\d"), Typed::Describe(None));
        assert_eq!(parse("\\d lineitem;"), Typed::Describe(Some("lineitem".into())));
        assert_eq!(parse("\\timing off"), Typed::Timing(Some(false)));
        assert_eq!(parse("\\placement remote-fetch"), Typed::Placement(Some(Policy::RemoteFetch)));
        assert_eq!(parse("\\q"), Typed::Quit);
        assert!(matches!(parse("\\placement moon"), Typed::Unknown(text) if text.contains("moon")));
        assert!(matches!(parse("\\x"), Typed::Unknown(text) if text.contains("\\x")));
    }

    #[test]
    fn sql_loses_only_its_semicolon() {
        assert_eq!(parse(" select 1 ;; "), Typed::Sql("select 1".into()));
        assert_eq!(parse("-- nothing\n"), Typed::Nothing);
    }
}
