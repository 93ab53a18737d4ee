//! Translates the patterns of SIMILAR TO.
//!
//! A pattern must match the whole text, with `%` and `_` as in LIKE and with elements of regular
//! expressions (SQL:2016 8.6). DataFusion treats it as a regular expression that may match anywhere
//! in the text.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Value, ValueWithSpan};

use super::{refusal::refuse, syntax::bare};
use crate::error::EngineError;

/// Replaces SIMILAR TO by a match of a regular expression, and gives LIKE the escape character that
/// DataFusion has.
pub(super) fn rewrite(expression: &mut Expr) -> Result<(), Box<EngineError>> {
    if let Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. } = expression {
        return escape_like(pattern, escape_char);
    }
    let Expr::SimilarTo { negated, expr, pattern, escape_char } = &*expression else { return Ok(()) };
    let escape = match escape_char.as_ref().map(|escape| &escape.value) {
        None => Some('\\'),
        Some(Value::SingleQuotedString(text)) if text.chars().count() <= 1 => text.chars().next(),
        Some(other) => return Err(no_escape(other)),
    };
    let pattern = match bare(pattern) {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(pattern) => {
                Value::SingleQuotedString(regular_expression(pattern, escape)?)
            }
            Value::Null => Value::Null,
            other => return Err(refuse(&format!("SIMILAR TO {other}"), "write the pattern as a text")),
        },
        other => return Err(refuse(&format!("SIMILAR TO {other}"), "write the pattern as a text")),
    };
    let op = if *negated { BinaryOperator::PGRegexNotMatch } else { BinaryOperator::PGRegexMatch };
    *expression = Expr::BinaryOp { left: expr.clone(), op, right: Box::new(Expr::Value(pattern.into())) };
    Ok(())
}

fn no_escape(found: &Value) -> Box<EngineError> {
    let message = format!("invalid escape {found}, expected one character, or ''");
    Box::new(EngineError::invalid("22025", message))
}

fn escape_like(pattern: &mut Expr, escape_char: &mut Option<ValueWithSpan>) -> Result<(), Box<EngineError>> {
    let escape = match escape_char.take().map(|escape| escape.value) {
        None => return Ok(()),
        Some(Value::SingleQuotedString(text)) if text == "\\" => return Ok(()),
        Some(Value::SingleQuotedString(text)) if text.chars().count() <= 1 => text.chars().next(),
        Some(other) => return Err(no_escape(&other)),
    };
    let text = match bare(pattern) {
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => text.clone(),
        Expr::Value(ValueWithSpan { value: Value::Null, .. }) => return Ok(()),
        other => {
            return Err(refuse(
                &format!("LIKE {other} with an escape character"),
                "write the pattern as a text, or \\ before what is meant as it is",
            ));
        }
    };
    let (mut escaped, mut characters) = (String::with_capacity(text.len()), text.chars());
    while let Some(character) = characters.next() {
        if Some(character) == escape {
            let Some(next) = characters.next() else {
                return Err(refuse(
                    &format!("a pattern that ends with its escape character: {text}"),
                    "write a character after it",
                ));
            };
            escaped.extend(['\\', next]);
        } else if character == '\\' {
            escaped.push_str("\\\\");
        } else {
            escaped.push(character);
        }
    }
    *pattern = Expr::Value(Value::SingleQuotedString(escaped).into());
    Ok(())
}

fn regular_expression(pattern: &str, escape: Option<char>) -> Result<String, Box<EngineError>> {
    let mut regular = String::from("(?s)^(?:");
    let mut characters = pattern.chars().peekable();
    // The number of characters so far in a class, if one is open.
    let mut class: Option<usize> = None;
    // Whether it is within braces.
    let mut is_count = false;
    while let Some(character) = characters.next() {
        if Some(character) == escape {
            let Some(next) = characters.next() else {
                return Err(refuse(
                    &format!("a pattern that ends with its escape character: {pattern}"),
                    "write a character after it",
                ));
            };
            class = class.map(|begun| begun + 1);
            match next {
                // Marks for parts of a pattern (`substring`), which have no meaning here.
                '"' => {}
                'd' | 's' | 'w' | 'D' | 'S' | 'W' if character == '\\' => regular.extend(['\\', next]),
                _ if next.is_ascii_alphanumeric() => {
                    return Err(refuse(
                        &format!("{character}{next} in a pattern"),
                        "write the character alone",
                    ));
                }
                _ => ordinary(next, &mut regular),
            }
            continue;
        }
        class = match class {
            Some(begun) => {
                match character {
                    ']' if begun > 0 => {}
                    '^' if begun == 0 && !regular.ends_with('^') => {
                        regular.push('^');
                        continue;
                    }
                    '[' if characters.peek() == Some(&':') => {
                        named_class(&mut characters, &mut regular);
                        class = Some(begun + 1);
                        continue;
                    }
                    ']' | '[' | '\\' | '&' | '~' | '^' => regular.push('\\'),
                    _ => {}
                }
                regular.push(character);
                if character == ']' && begun > 0 { None } else { Some(begun + 1) }
            }
            None => {
                match character {
                    '%' => regular.push_str(".*"),
                    '_' => regular.push('.'),
                    '(' => regular.push_str("(?:"),
                    '{' | '}' => {
                        is_count = character == '{';
                        regular.push(character);
                    }
                    '[' | '|' | '*' | '+' | '?' | ')' => regular.push(character),
                    ',' if is_count => regular.push(character),
                    _ => ordinary(character, &mut regular),
                }
                (character == '[').then_some(0)
            }
        };
    }
    regular.push_str(")$");
    Ok(regular)
}

/// A class within a class, such as `[:alpha:]`, after its opening bracket. Letters are those of all
/// languages.
fn named_class(characters: &mut std::iter::Peekable<std::str::Chars<'_>>, regular: &mut String) {
    let name: String = characters.by_ref().take_while(|character| *character != ']').collect();
    regular.push_str(match name.as_str() {
        ":alpha:" => r"\p{Alphabetic}",
        ":alnum:" => r"\p{Alphabetic}\p{Nd}",
        ":lower:" => r"\p{Lowercase}",
        ":upper:" => r"\p{Uppercase}",
        _ => {
            regular.push_str(&format!("[{name}]"));
            return;
        }
    });
}

/// A literal character.
fn ordinary(character: char, regular: &mut String) {
    if character.is_ascii_punctuation() {
        regular.push('\\');
    }
    regular.push(character);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rewrite::tests::rewritten;

    #[test]
    fn a_pattern_is_one_of_the_whole_text() {
        for (pattern, expected) in [
            ("foo%", "(?s)^(?:foo.*)$"),
            ("f_o", "(?s)^(?:f.o)$"),
            ("%(b|d)%", "(?s)^(?:.*(?:b|d).*)$"),
            ("a.c$", r"(?s)^(?:a\.c\$)$"),
            (r"a\%", r"(?s)^(?:a\%)$"),
            ("[^a-c%]+", "(?s)^(?:[^a-c%]+)$"),
            ("[[:alpha:]&]", r"(?s)^(?:[\p{Alphabetic}\&])$"),
            ("a{2,3}[[:digit:]]", "(?s)^(?:a{2,3}[[:digit:]])$"),
            ("[^^]", r"(?s)^(?:[^\^])$"),
            (r"\d\W", r"(?s)^(?:\d\W)$"),
            ("[]a]", r"(?s)^(?:[\]a])$"),
        ] {
            assert_eq!(regular_expression(pattern, Some('\\')).unwrap(), expected);
        }
        assert!(regular_expression("a\\", Some('\\')).is_err());
        assert_eq!(regular_expression("a\\", None).unwrap(), r"(?s)^(?:a\\)$");
    }

    #[test]
    fn like_has_the_escape_character_that_it_says() {
        for (like, expected) in [
            ("x LIKE 'a!%b!!' ESCAPE '!'", r"x LIKE 'a\%b\!'"),
            (r"x NOT LIKE 'a\%' ESCAPE ''", r"x NOT LIKE 'a\\%'"),
            (r"x ILIKE 'a\%' ESCAPE '\'", r"x ILIKE 'a\%'"),
            (r"x LIKE y", r"x LIKE y"),
        ] {
            let sql = format!("SELECT x FROM t WHERE {like}");
            assert_eq!(rewritten(&sql).unwrap(), format!("SELECT x FROM t WHERE {expected}"));
        }
        assert!(rewritten("SELECT x LIKE y ESCAPE '!'").unwrap_err().contains("as a text"));
    }

    #[test]
    fn similar_to_becomes_a_match_and_what_is_no_text_is_refused() {
        assert_eq!(
            rewritten("SELECT x FROM t WHERE x NOT SIMILAR TO 'a#%' ESCAPE '#'").unwrap(),
            r"SELECT x FROM t WHERE x !~ '(?s)^(?:a\%)$'"
        );
        assert!(rewritten("SELECT x SIMILAR TO y FROM t").unwrap_err().contains("write the pattern"));
    }
}
