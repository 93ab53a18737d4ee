//! Splits a row of CSV into fields, and quotes fields.
//!
//! Invariants
//! - A row is one line: a quoted field may contain the delimiter and quotes (written twice), but no
//!   line break.

use std::borrow::Cow;

/// The fields of a row.
///
/// # Errors
/// When a quote is not closed, or text follows a closing quote.
pub(super) fn fields(line: &str, delimiter: char) -> Result<Vec<Cow<'_, str>>, String> {
    let mut fields = Vec::with_capacity(12);
    let mut rest = line;
    loop {
        let (field, behind) = match rest.trim_start_matches(' ').strip_prefix('"') {
            Some(quoted) => quoted_field(quoted, delimiter)?,
            None => match rest.split_once(delimiter) {
                Some((field, behind)) => (Cow::Borrowed(field.trim()), Some(behind)),
                None => (Cow::Borrowed(rest.trim()), None),
            },
        };
        fields.push(field);
        match behind {
            Some(behind) => rest = behind,
            None => return Ok(fields),
        }
    }
}

/// Parses the field after an opening quote; returns it and the text after the next delimiter.
fn quoted_field(text: &str, delimiter: char) -> Result<(Cow<'_, str>, Option<&str>), String> {
    let mut from = 0;
    let end = loop {
        let Some(quote) = text[from..].find('"').map(|at| from + at) else {
            return Err("found a quote that does not end on its line".to_owned());
        };
        if !text[quote + 1..].starts_with('"') {
            break quote;
        }
        from = quote + 2;
    };
    let field = &text[..end];
    let field =
        if field.contains('"') { Cow::Owned(field.replace("\"\"", "\"")) } else { Cow::Borrowed(field) };
    let behind = text[end + 1..].trim_start_matches(' ');
    if behind.is_empty() {
        return Ok((field, None));
    }
    match behind.strip_prefix(delimiter) {
        Some(rest) => Ok((field, Some(rest))),
        None => Err(format!("found text behind a quoted field, expected {delimiter:?} or the line's end")),
    }
}

/// The field as written in a row: quoted if necessary. Control characters, which could end a line,
/// become `?`.
pub(super) fn quoted(field: &str) -> Cow<'_, str> {
    let is_odd = |c: char| c.is_control() || matches!(c, '"' | ',');
    if !field.contains(is_odd) && field.trim() == field {
        return Cow::Borrowed(field);
    }
    let text: String = field.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_split_outside_of_quotes() {
        assert_eq!(fields("a, b ,c", ',').unwrap(), ["a", "b", "c"]);
        assert_eq!(fields("\"a,b\";\"\";c;", ';').unwrap(), ["a,b", "", "c", ""]);
        assert_eq!(fields("x,\"say \"\"hi\"\"\"", ',').unwrap(), ["x", "say \"hi\""]);
        assert_eq!(fields("", ',').unwrap(), [""]);
        assert_eq!(fields("5\" disk,2", ',').unwrap(), ["5\" disk", "2"]);
    }

    #[test]
    fn quotes_that_do_not_fit_are_refused() {
        assert!(fields("a,\"b", ',').unwrap_err().contains("does not end"));
        assert!(fields("\"a\"b,c", ',').unwrap_err().contains("behind a quoted field"));
    }

    #[test]
    fn a_field_is_read_as_it_was_written() {
        for field in ["plain", "with,comma", "with \"quotes\"", " spaces ", "", "\"", "\"\"", "caf\u{e9}"] {
            let row = format!("{},{}", quoted(field), quoted(field));
            assert_eq!(fields(&row, ',').unwrap(), [field, field], "{row}");
        }
        assert_eq!(quoted("two\nlines"), "\"two?lines\"");
    }
}
