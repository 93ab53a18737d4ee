//! Translates regular expressions from PostgreSQL's syntax.
//!
//! In PostgreSQL a `.` matches each character, also the end of a line, and a replacement refers to
//! the match by `\1` and `\&`. The crate that DataFusion uses needs `(?s)`, `${1}` and `${0}` for
//! that.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
};

use super::syntax::{bare, is_null, text, text_of};

/// The flag by which `.` also matches the end of a line.
const ALL_CHARACTERS: &str = "(?s)";

/// Functions whose second argument is a regular expression, and the position of their flags.
const FUNCTIONS: [(&str, usize); 5] = [
    ("regexp_like", 2),
    ("regexp_match", 2),
    ("regexp_replace", 3),
    ("regexp_count", 3),
    ("regexp_instr", 4),
];

/// Translates regular expressions and replacements from PostgreSQL's syntax to DataFusion's.
pub(super) fn rewrite(expression: &mut Expr) {
    match expression {
        Expr::BinaryOp {
            op:
                BinaryOperator::PGRegexMatch
                | BinaryOperator::PGRegexIMatch
                | BinaryOperator::PGRegexNotMatch
                | BinaryOperator::PGRegexNotIMatch,
            right,
            ..
        } => match_all_characters(right),
        Expr::Function(function) => of_function(function),
        _ => {}
    }
}

fn of_function(function: &mut Function) {
    let name = function.name.to_string().to_ascii_lowercase();
    let Some((_, flags_at)) = FUNCTIONS.iter().find(|(known, _)| *known == name) else { return };
    let FunctionArguments::List(list) = &mut function.args else { return };
    let mut arguments: Vec<&mut Expr> = Vec::new();
    for argument in &mut list.args {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) = argument else { return };
        arguments.push(argument);
    }
    let is_by_line = arguments.get_mut(*flags_at).is_some_and(|flags| by_line(flags));
    if !is_by_line && let Some(pattern) = arguments.get_mut(1) {
        match_all_characters(pattern);
    }
    if name == "regexp_replace"
        && let Some(replacement) = arguments.get_mut(2)
        && let Some(constant) = text_of(replacement)
    {
        **replacement = text(with_groups(constant));
    }
}

/// Whether constant flags say that `.` does not match the end of a line: `n`, or `m`, which is the
/// one that DataFusion has.
fn by_line(flags: &mut Expr) -> bool {
    let Some(constant) = text_of(flags) else { return false };
    let is_by_line = constant.contains(['m', 'n']);
    if constant.contains('n') {
        *flags = text(constant.replace('n', "m"));
    }
    is_by_line
}

fn match_all_characters(pattern: &mut Expr) {
    if is_null(pattern) {
        return;
    }
    *pattern = match text_of(pattern) {
        Some(constant) if constant.starts_with(ALL_CHARACTERS) || !has_dot(constant) => return,
        Some(constant) => text(format!("{ALL_CHARACTERS}{constant}")),
        // Unlike `concat`, `||` is NULL if an operand is NULL.
        None => Expr::Nested(Box::new(Expr::BinaryOp {
            left: Box::new(text(ALL_CHARACTERS.to_owned())),
            op: BinaryOperator::StringConcat,
            right: Box::new(Expr::Nested(Box::new(bare(pattern).clone()))),
        })),
    };
}

/// Whether a pattern may have a `.` that stands for any character.
fn has_dot(pattern: &str) -> bool {
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => {
                characters.next();
            }
            '.' => return true,
            _ => {}
        }
    }
    false
}

/// A replacement in which `${1}` stands for a group and `$$` for a `$`.
fn with_groups(replacement: &str) -> String {
    let mut written = String::with_capacity(replacement.len());
    let mut characters = replacement.chars().peekable();
    while let Some(character) = characters.next() {
        match (character, characters.peek().copied()) {
            ('\\', Some(group @ '1'..='9')) => {
                characters.next();
                written.extend(["${", group.to_string().as_str(), "}"]);
            }
            ('\\', Some('&')) => {
                characters.next();
                written.push_str("${0}");
            }
            ('\\', next) => {
                written.push('\\');
                if next == Some('\\') {
                    characters.next();
                }
                // DataFusion takes a digit after a backslash for a group. A reference to a group
                // that does not exist separates the two.
                if characters.peek().is_some_and(char::is_ascii_digit) {
                    written.push_str("${none}");
                }
            }
            ('$', _) => written.push_str("$$"),
            _ => written.push(character),
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::with_groups;
    use crate::rewrite::tests::rewritten;

    #[test]
    fn a_dot_matches_ends_of_lines() {
        for (test, expected) in [
            ("x ~ 'a.b'", "x ~ '(?s)a.b'"),
            ("x !~* E'a.b'", "x !~* '(?s)a.b'"),
            ("x ~ 'ab'", "x ~ 'ab'"),
            (r"x ~ 'a\.b'", r"x ~ 'a\.b'"),
            ("x ~ y", "x ~ ('(?s)' || (y))"),
            ("x ~ NULL", "x ~ NULL"),
            ("x SIMILAR TO 'a_b'", "x ~ '(?s)^(?:a.b)$'"),
            ("regexp_like(x, 'a.b')", "regexp_like(x, '(?s)a.b')"),
            ("regexp_like(x, 'a.b', 'in')", "regexp_like(x, 'a.b', 'im')"),
            ("regexp_count(x, 'a.b', 1, 'i') > 1", "regexp_count(x, '(?s)a.b', 1, 'i') > 1"),
        ] {
            let sql = format!("SELECT a FROM t WHERE {test}");
            assert_eq!(rewritten(&sql).unwrap(), format!("SELECT a FROM t WHERE {expected}"));
        }
    }

    #[test]
    fn replacements_have_groups_and_dollars() {
        for (replacement, expected) in [
            (r"\1-\2", "${1}-${2}"),
            (r"\12", "${1}2"),
            (r"<\&>", "<${0}>"),
            ("$1", "$$1"),
            (r"\\1", r"\${none}1"),
            (r"\\a\b", r"\a\b"),
            (r"\0", r"\${none}0"),
        ] {
            assert_eq!(with_groups(replacement), expected);
        }
        assert_eq!(
            rewritten(r"SELECT a FROM t WHERE regexp_replace(x, 'a', '\&$', 'g') = 'b'").unwrap(),
            "SELECT a FROM t WHERE regexp_replace(x, 'a', '${0}$$', 'g') = 'b'"
        );
    }
}
