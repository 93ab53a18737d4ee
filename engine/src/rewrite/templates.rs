//! Translates the patterns of `to_char` and similar functions.
//!
//! Patterns have PostgreSQL's meaning: `YYYY-MM-DD`. DataFusion expects patterns of strftime,
//! `%Y-%m-%d`, and returns a pattern without `%` unchanged. Patterns that contain a `%` are not
//! translated.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
};

use super::{
    refusal::refuse,
    syntax::{call, is_null, number, text, text_of},
};
use crate::error::EngineError;

/// How a formatted field is adjusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Plain,
    Upper,
    Lower,
    /// Padded with blanks to the length of the longest name.
    Padded,
    UpperPadded,
    LowerPadded,
}

use Shape::{Lower, LowerPadded, Padded, Plain, Upper, UpperPadded};

/// The length of the longest name of a month or a day, in characters.
const NAME_CHARACTERS: &str = "9";

/// PostgreSQL's fields and strftime's. A field that begins with another one comes before it. The
/// third value is strftime's field without leading zeros, for `FM`, if there is one.
const FIELDS: [(&str, &str, Option<&str>, Shape); 34] = [
    ("YYYY", "%Y", Some("%-Y"), Plain),
    ("IYYY", "%G", Some("%-G"), Plain),
    ("YY", "%y", Some("%-y"), Plain),
    ("IW", "%V", Some("%-V"), Plain),
    ("ID", "%u", Some("%u"), Plain),
    ("MONTH", "%B", Some("%B"), UpperPadded),
    ("Month", "%B", Some("%B"), Padded),
    ("month", "%B", Some("%B"), LowerPadded),
    ("MON", "%b", Some("%b"), Upper),
    ("Mon", "%b", Some("%b"), Plain),
    ("mon", "%b", Some("%b"), Lower),
    ("MM", "%m", Some("%-m"), Plain),
    ("MI", "%M", Some("%-M"), Plain),
    ("MS", "%3f", None, Plain),
    ("DAY", "%A", Some("%A"), UpperPadded),
    ("Day", "%A", Some("%A"), Padded),
    ("day", "%A", Some("%A"), LowerPadded),
    ("DY", "%a", Some("%a"), Upper),
    ("Dy", "%a", Some("%a"), Plain),
    ("dy", "%a", Some("%a"), Lower),
    ("DDD", "%j", Some("%-j"), Plain),
    ("DD", "%d", Some("%-d"), Plain),
    ("HH24", "%H", Some("%-H"), Plain),
    ("HH12", "%I", Some("%-I"), Plain),
    ("HH", "%I", Some("%-I"), Plain),
    ("SS", "%S", Some("%-S"), Plain),
    ("US", "%6f", None, Plain),
    ("FF3", "%3f", None, Plain),
    ("FF6", "%6f", None, Plain),
    ("Q", "%q", Some("%q"), Plain),
    ("AM", "%p", Some("%p"), Plain),
    ("PM", "%p", Some("%p"), Plain),
    ("am", "%P", Some("%P"), Plain),
    ("pm", "%P", Some("%P"), Plain),
];

/// Letters that make another field of one in [`FIELDS`]: `DDth`, and `SSSS` from `SS`.
const SUFFIXES: [&str; 4] = ["TH", "th", "SS", "ss"];

/// Translates constant patterns of `to_char`, `to_date` and `to_timestamp` to DataFusion's.
pub(super) fn rewrite(expression: &mut Expr) -> Result<(), Box<EngineError>> {
    let Expr::Function(function) = &mut *expression else { return Ok(()) };
    let name = function.name.to_string().to_ascii_lowercase();
    if !matches!(name.as_str(), "to_char" | "to_date" | "to_timestamp") {
        return Ok(());
    }
    let Some(mut arguments) = arguments(function) else { return Ok(()) };
    if name == "to_char"
        && let [value, pattern] = arguments.as_mut_slice()
    {
        let Some(pieces) = pieces_of(&name, pattern)? else { return Ok(()) };
        *expression = formatted(value, &pieces);
        return Ok(());
    }
    for pattern in arguments.into_iter().skip(1) {
        if let Some(pieces) = pieces_of(&name, pattern)? {
            let read: String = pieces.into_iter().map(|(piece, _)| piece).collect();
            if (read.contains("%H") || read.contains("%I")) && !read.contains("%M") {
                // DataFusion would ignore the hours.
                return Err(refuse(
                    &format!("{name} with hours and no minutes"),
                    "add MI to the pattern and text",
                ));
            }
            // Fractions are read with as many digits as the text has.
            *pattern = text(read.replace(".%3f", "%.f").replace(".%6f", "%.f"));
        }
    }
    Ok(())
}

fn arguments(function: &mut Function) -> Option<Vec<&mut Expr>> {
    let FunctionArguments::List(list) = &mut function.args else { return None };
    let value = |argument| match argument {
        &mut FunctionArg::Unnamed(FunctionArgExpr::Expr(ref mut value)) => Some(value),
        _ => None,
    };
    list.args.iter_mut().map(value).collect()
}

type Pieces = Vec<(String, Shape)>;

/// The pieces of a pattern; `None` if it is NULL or a pattern of strftime.
fn pieces_of(function: &str, pattern: &Expr) -> Result<Option<Pieces>, Box<EngineError>> {
    match text_of(pattern) {
        Some(pattern) if pattern.contains('%') => Ok(None),
        Some(pattern) => pieces(function, pattern).map(Some),
        None if is_null(pattern) => Ok(None),
        None => Err(refuse(
            &format!("{function} with a pattern that is not a constant"),
            "write the pattern as a text",
        )),
    }
}

/// The pieces of PostgreSQL's pattern, each as a piece of strftime.
fn pieces(function: &str, pattern: &str) -> Result<Pieces, Box<EngineError>> {
    let unknown = |what: &str| {
        let what = format!("{what} in the pattern {pattern} of {function}");
        refuse(&what, "write a pattern of strftime, such as '%Y-%m-%d', or \"...\" around what is no field")
    };
    if is_of_numbers(pattern) {
        let what = format!("{function} with a pattern of numbers, such as {pattern},");
        return Err(refuse(&what, "write CAST(... AS VARCHAR), with round(...) for fewer digits"));
    }
    let mut pieces: Pieces = Vec::new();
    let mut rest = pattern;
    while let Some(character) = rest.chars().next() {
        if let Some(quoted) = rest.strip_prefix('"') {
            let (literal, after) = quoted_text(quoted);
            push(&mut pieces, &literal, Plain);
            rest = after;
        } else if character.is_ascii_alphabetic() {
            let (written, shape, after) = field(rest).map_err(unknown)?;
            push(&mut pieces, written, shape);
            rest = after;
        } else {
            let literal = rest.strip_prefix("\\\"").map_or(character, |_| '"');
            push(&mut pieces, literal.encode_utf8(&mut [0; 4]), Plain);
            rest = rest.strip_prefix("\\\"").unwrap_or(&rest[character.len_utf8()..]);
        }
    }
    Ok(pieces)
}

/// The field at the beginning of the pattern in strftime's form, its shape, and the rest of the
/// pattern. The error is the text that is not a field.
fn field(pattern: &str) -> Result<(&'static str, Shape, &str), &str> {
    let without_mode = pattern.strip_prefix("FM").or_else(|| pattern.strip_prefix("fm"));
    let Some((length, with_zeros, without_zeros, shape)) = field_at(without_mode.unwrap_or(pattern)) else {
        let end = pattern.find(|character: char| !character.is_ascii_alphabetic());
        return Err(&pattern[..end.unwrap_or(pattern.len())]);
    };
    let (found, after) = without_mode.unwrap_or(pattern).split_at(length);
    let is_suffix = |suffix: &&&str| {
        after.starts_with(**suffix)
            && (!suffix.eq_ignore_ascii_case("ss") || found.eq_ignore_ascii_case(suffix))
    };
    let suffix = SUFFIXES.iter().find(is_suffix);
    let written = if without_mode.is_some() { without_zeros } else { Some(with_zeros) };
    match written.filter(|_| suffix.is_none()) {
        Some(written) if without_mode.is_some() => Ok((written, shape.without_blanks(), after)),
        Some(written) => Ok((written, shape, after)),
        None => {
            let rest = after.len() - suffix.map_or(0, |suffix| suffix.len());
            Err(&pattern[..pattern.len() - rest])
        }
    }
}

/// Whether a pattern is one for numbers: it has digits and nothing else than what number patterns
/// have.
fn is_of_numbers(pattern: &str) -> bool {
    let of_numbers = |character: char| "09.,FMDGSLVPRTHEIB$+- ".contains(character.to_ascii_uppercase());
    pattern.contains(['0', '9']) && pattern.chars().all(of_numbers)
}

/// The field at the beginning of the pattern: its length, strftime's field, the one without leading
/// zeros, and its shape. Except for names, the letters of a field are all upper or all lower case.
fn field_at(pattern: &str) -> Option<(usize, &'static str, Option<&'static str>, Shape)> {
    let is_at = |field: &str, shape: Shape| {
        let small = field.to_ascii_lowercase();
        let has_cases = shape != Plain || matches!(field, "Mon" | "Dy" | "AM" | "PM");
        pattern.starts_with(field) || (!has_cases && pattern.starts_with(&small))
    };
    let mut fields = FIELDS.iter();
    let (field, with_zeros, without_zeros, shape) =
        fields.find(|(field, _, _, shape)| is_at(field, *shape))?;
    Some((field.len(), with_zeros, *without_zeros, *shape))
}

/// The text up to the closing quote, with backslash escapes resolved, and what follows.
fn quoted_text(quoted: &str) -> (String, &str) {
    let mut literal = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (literal, &quoted[at + 1..]),
            '\\' => literal.extend(characters.next().map(|(_, next)| next)),
            _ => literal.push(character),
        }
    }
    (literal, "")
}

fn push(pieces: &mut Pieces, piece: &str, shape: Shape) {
    match pieces.last_mut() {
        Some((last, last_shape)) if *last_shape == Plain && shape == Plain => last.push_str(piece),
        _ => pieces.push((piece.to_owned(), shape)),
    }
}

impl Shape {
    fn without_blanks(self) -> Self {
        match self {
            Padded => Plain,
            UpperPadded => Upper,
            LowerPadded => Lower,
            other => other,
        }
    }

    fn of(self, value: Expr) -> Expr {
        let cased = match self {
            Plain | Padded => value,
            Upper | UpperPadded => call("upper", vec![value]),
            Lower | LowerPadded => call("lower", vec![value]),
        };
        match self {
            Padded | UpperPadded | LowerPadded => call("rpad", vec![cased, number(NAME_CHARACTERS)]),
            Plain | Upper | Lower => cased,
        }
    }
}

/// The concatenation of a value's pieces.
fn formatted(value: &Expr, pieces: &[(String, Shape)]) -> Expr {
    let piece = |(piece, shape): &(String, Shape)| {
        shape.of(call("to_char", vec![value.clone(), text(piece.clone())]))
    };
    let joined = pieces.iter().map(piece).reduce(|left, right| Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::StringConcat,
        right: Box::new(right),
    });
    match joined {
        Some(joined) if pieces.len() == 1 => joined,
        Some(joined) => Expr::Nested(Box::new(joined)),
        // For an empty pattern the result is NULL.
        None => {
            let empty = text(String::new());
            call("nullif", vec![call("to_char", vec![value.clone(), empty.clone()]), empty])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rewrite::tests::rewritten;

    fn strftime(pattern: &str) -> String {
        pieces("to_char", pattern).unwrap().into_iter().map(|(piece, _)| piece).collect()
    }

    #[test]
    fn patterns_of_postgresql_become_those_of_strftime() {
        for (pattern, expected) in [
            ("YYYY-MM-DD HH24:MI:SS.US", "%Y-%m-%d %H:%M:%S.%6f"),
            ("yyyy/mm/dd hh12:mi:ss.ms pm", "%Y/%m/%d %I:%M:%S.%3f %P"),
            ("YY DDD HH:MI AM", "%y %j %I:%M %p"),
            ("Dy, FMDD. FMMonth YYYY", "%a, %-d. %B %Y"),
            ("YYYY\"T\"HH24\" \\\"h\\\"\"", "%YT%H \"h\""),
            ("IYYY-\"W\"IW-ID Q", "%G-W%V-%u %q"),
            ("YYYYMMDD", "%Y%m%d"),
        ] {
            assert_eq!(strftime(pattern), expected);
        }
    }

    #[test]
    fn names_have_the_letters_and_blanks_of_their_field() {
        for (pattern, expected) in [
            ("YYYY MON", "(to_char(d, '%Y ') || upper(to_char(d, '%b')))"),
            ("Month", "rpad(to_char(d, '%B'), 9)"),
            ("FMDAY", "upper(to_char(d, '%A'))"),
            ("%d", "to_char(d, '%d')"),
        ] {
            let sql = format!("SELECT x FROM t WHERE a = to_char(d, '{pattern}')");
            assert_eq!(rewritten(&sql).unwrap(), format!("SELECT x FROM t WHERE a = {expected}"));
        }
        assert_eq!(
            rewritten("SELECT x FROM t WHERE a = to_date(b, 'DD MON YYYY')").unwrap(),
            "SELECT x FROM t WHERE a = to_date(b, '%d %b %Y')"
        );
    }

    #[test]
    fn what_is_no_field_is_named() {
        for (pattern, named) in [
            ("YYYY x", "x in"),
            ("FMMS", "FMMS"),
            ("SSSS", "SSS"),
            ("DDth", "DDt"),
            ("J", "J"),
            ("999", "numbers"),
        ] {
            let refused = rewritten(&format!("SELECT to_char(d, '{pattern}') FROM t")).unwrap_err();
            assert!(refused.contains(named), "{pattern}: {refused}");
        }
        assert!(rewritten("SELECT to_char(d, p) FROM t").unwrap_err().contains("not a constant"));
    }
}
