//! Maps errors of DataFusion and arrow to SQLSTATEs, by texts in their messages.
//!
//! DataFusion and arrow have one error kind for all faults of a plan, and one for all faults of a
//! running query. `queries/slt/errors.slt` compares the codes with those of PostgreSQL.

/// Parts of messages and their SQLSTATEs. The first part that a message contains counts.
const KINDS: [(&str, &str); 79] = [
    // Functions and operators.
    ("there is no function ", "42883"),
    ("No function matches", "42883"),
    ("for logical boolean operation", "42804"),
    ("operator does not exist", "42883"),
    ("Unary operator 'NOT'", "42804"),
    ("Unary operator", "42883"),
    ("There isn't a common type", "42883"),
    ("in SetComparison", "42883"),
    ("Cannot automatically convert", "42883"),
    ("Argument #", "42883"),
    ("[return_type]", "42883"),
    // Types.
    ("must be type boolean", "42804"),
    ("non-boolean predicate", "42804"),
    ("Join condition must be boolean", "42804"),
    ("cannot be matched", "42804"),
    ("Inconsistent data type", "42804"),
    ("cannot cast type", "42846"),
    ("Unsupported CAST", "42846"),
    ("should satisfy", "22023"),
    ("length for type", "22023"),
    // Groups and windows.
    ("must appear in the GROUP BY", "42803"),
    ("must be in GROUP BY", "42803"),
    ("Aggregate functions are not allowed", "42803"),
    ("Aggregate function calls cannot be nested", "42803"),
    ("to grouping function is not in", "42803"),
    ("cannot contain window function calls", "42P20"),
    ("frame offsets for ROWS", "22013"),
    ("RANGE with a distance is not supported", "0A000"),
    ("Invalid window frame", "42P20"),
    ("RANGE requires", "42P20"),
    ("GROUPS requires", "42P20"),
    // Names and columns.
    ("Projections require unique expression names", "42701"),
    ("WITH query name", "42712"),
    ("Invalid qualifier", "42P01"),
    ("Order by column out of bounds", "42P10"),
    ("Order by index starts at 1", "42P10"),
    ("Cannot find column with position", "42P10"),
    ("ORDER BY expressions", "42P10"),
    ("names given as column alias", "42P10"),
    ("different number of columns", "42601"),
    ("same number of columns", "42601"),
    ("Too many columns", "42601"),
    ("Inconsistent data length", "42601"),
    ("SELECT * with no tables", "42601"),
    ("LIMIT must be >= 0", "2201W"),
    ("OFFSET must be >=0", "2201X"),
    // Arguments of functions.
    ("square root of a negative number", "2201F"),
    ("raised to a negative power", "2201F"),
    ("negative count not allowed", "22011"),
    ("invalid regular expression: unrecognized flag", "22023"),
    ("invalid regular expression", "2201B"),
    ("NTILE requires", "22014"),
    ("nth_value() of row", "22016"),
    ("field position must not be zero", "22023"),
    ("invalid Unicode scalar value", "22023"),
    ("invalid hexadecimal", "22023"),
    ("date_trunc granularity", "22023"),
    ("date_trunc to ", "22023"),
    ("Date part '", "22023"),
    ("Step cannot be zero", "22023"),
    (" does not support: ", "0A000"),
    ("requested length too large", "54000"),
    ("division by zero", "22012"),
    ("interval out of range", "22008"),
    ("Percentile value", "22003"),
    ("factorial of a negative number", "22003"),
    // Values.
    ("Overflow happened on", "22003"),
    (" overflow on ", "22003"),
    ("too large to store", "22003"),
    ("Can't cast value", "22003"),
    ("Overflowing", "22003"),
    ("Month value", "22008"),
    ("Day value", "22008"),
    ("using format", "22007"),
    ("Error parsing timestamp", DATE),
    ("Invalid input syntax for type interval", "22007"),
    ("Cannot cast string", TEXT),
    ("Cannot cast value", "22P02"),
    ("out of range", "22003"),
];

/// The text is not a date or time (22007), or has numbers that no date or time has (22008).
const DATE: &str = "a date or time";
/// The text is not a value of a type: a date or time as for [`DATE`], not a number (22P02), or a
/// number beyond its type (22003).
const TEXT: &str = "a text";

/// The SQLSTATE of a message, if it is of a known kind.
pub(super) fn sqlstate_of(message: &str) -> Option<&'static str> {
    let (_, sqlstate) = KINDS.iter().find(|(words, _)| message.contains(words))?;
    let text = message.split('\'').nth(1).unwrap_or_default();
    let is_of_digits_and = |others: &[u8]| {
        text.bytes().any(|byte| byte.is_ascii_digit())
            && text.bytes().all(|byte| byte.is_ascii_digit() || others.contains(&byte))
    };
    let of_date = if is_of_digits_and(b"-: .T") && text.len() >= "00:00".len() { "22008" } else { "22007" };
    Some(match *sqlstate {
        DATE => of_date,
        TEXT if [" date ", " time ", " timestamp "].iter().any(|name| message.contains(name)) => of_date,
        TEXT if is_of_digits_and(b"-+") => "22003",
        TEXT => "22P02",
        known => known,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_no_values_are_told_from_values_beyond_their_types() {
        for (message, expected) in [
            ("Cannot cast string 'x' to value of integer type", Some("22P02")),
            ("Cannot cast string '' to value of integer type", Some("22P02")),
            ("Cannot cast string '99999999999' to value of integer type", Some("22003")),
            ("Cannot cast string '2000-13-01' to value of date type", Some("22008")),
            ("Cannot cast string 'tomorrow' to value of date type", Some("22007")),
            ("Cannot cast string '7' to value of date type", Some("22007")),
            ("something else", None),
        ] {
            assert_eq!(sqlstate_of(message), expected, "{message}");
        }
    }
}
