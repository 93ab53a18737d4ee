//! Splits the text of a CSV file into records and fields.
//!
//! Records follow RFC 4180 with the dialect of the options. A quote quotes only at the beginning of
//! a field; in a field that does not begin with a quote it is an ordinary character. Text that RFC
//! 4180 does not allow (a quote that is not closed, text after a closing quote) is an error: other
//! readers guess there, and change data silently.
//!
//! Invariants
//! - Lines end with a line feed, a carriage return or both. An empty line is not a record, except
//!   in a file with one column, where it is a record of one empty field.
//! - Memory contains at most one record, of at most `CSV_RECORD_BYTES_MAX` bytes, and the bytes of
//!   one read.

use std::{borrow::Cow, io, ops::Range};

use memchr::{memchr, memchr2, memchr2_iter, memchr3};

use rackscan_format::limits::COLUMNS_MAX;

use super::{input::Input, options::Dialect};
use crate::limits::CSV_RECORD_BYTES_MAX;

/// The records of a text.
pub(super) struct Records {
    input: Input,
    dialect: Dialect,
    /// The text that was read and not passed yet.
    text: String,
    /// The position in `text` where the current record begins.
    begin: usize,
    /// Bytes of the text before `text`.
    bytes_before: u64,
    /// The line on which the current record begins, counted from 1.
    line: u64,
    /// Bytes of the current record with its line end.
    length: usize,
    fields: Vec<Field>,
    has_ended: bool,
    /// The lines up to this one are skipped, because the record that begins on the first of them
    /// has a fault.
    faulty_through: Option<u64>,
    /// Empty lines directly before the current record.
    empty_lines: u64,
    /// Whether an empty line is a record of one empty field.
    has_empty_records: bool,
}

/// A field of the current record.
#[derive(Clone, Debug)]
struct Field {
    /// Its bytes within the record, without quotes.
    range: Range<usize>,
    is_quoted: bool,
    /// Whether it contains escapes that must be removed.
    is_escaped: bool,
}

/// Why a record cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RecordFault {
    /// The line of the fault, counted from 1.
    pub(super) line: u64,
    /// The field, counted from 0, if the fault belongs to one.
    pub(super) field: Option<usize>,
    pub(super) reason: String,
}

/// Why reading a record ended early.
enum ReadError {
    Fault(RecordFault),
    Io(io::Error),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Records {
    pub(super) fn new(input: Input, dialect: Dialect) -> Self {
        Self {
            input,
            dialect,
            text: String::new(),
            begin: 0,
            bytes_before: 0,
            line: 1,
            length: 0,
            fields: Vec::new(),
            has_ended: false,
            faulty_through: None,
            empty_lines: 0,
            has_empty_records: false,
        }
    }

    /// Makes each further empty line a record of one empty field.
    pub(super) fn count_empty_lines_as_records(&mut self) {
        self.has_empty_records = true;
    }

    /// Reads the next record, whose fields are available until the next call. `None` at the end.
    /// After a fault of quotes, the lines of the record up to that of the fault are skipped, and
    /// reading continues after them.
    pub(super) fn next(&mut self) -> io::Result<Option<Result<(), RecordFault>>> {
        if let Some(through) = self.faulty_through.take() {
            while self.line <= through && self.skip_line()? {}
        }
        self.advance(self.length);
        self.empty_lines = 0;
        loop {
            match self.end_of_line(0)? {
                Some(0) => return Ok(None),
                Some(length) if !self.has_empty_records => {
                    self.advance(length);
                    self.empty_lines += 1;
                }
                _ => break,
            }
        }
        match self.read_fields() {
            Ok(()) => {}
            Err(ReadError::Io(error)) => return Err(error),
            Err(ReadError::Fault(fault)) => {
                self.faulty_through = Some(fault.line);
                return Ok(Some(Err(fault)));
            }
        }
        let end = self.text_position(self.length);
        if self.input.take_malformed_before(end) {
            return Ok(Some(Err(self.malformed())));
        }
        if memchr(0, &self.rest().as_bytes()[..self.length]).is_some() {
            let reason = "found the character U+0000, which texts cannot contain; if the file has another encoding, name it, such as \
                          --encoding utf-16be"
                .to_owned();
            return Ok(Some(Err(RecordFault { line: self.line, field: None, reason })));
        }
        Ok(Some(Ok(())))
    }

    /// The number of empty lines directly before the record.
    pub(super) fn empty_lines(&self) -> u64 {
        self.empty_lines
    }

    fn malformed(&self) -> RecordFault {
        let sign = char::REPLACEMENT_CHARACTER;
        let field = (0..self.fields.len()).find(|field| self.field(*field).contains(sign));
        let name = self.input.encoding();
        let reason = format!(
            "found bytes that are not valid in the encoding {name}; if the file has another encoding, name it, such as --encoding windows-1252"
        );
        RecordFault { line: self.line, field, reason }
    }

    /// Skips a line. Returns `false` at the end of the text.
    fn skip_line(&mut self) -> io::Result<bool> {
        loop {
            let found = memchr2(b'\n', b'\r', self.rest().as_bytes());
            let end = match found {
                Some(at) => at + self.end_of_line(at)?.unwrap_or(0),
                None => self.rest().len(),
            };
            self.forget_malformed(end);
            self.advance(end);
            if found.is_some() {
                return Ok(true);
            }
            if !self.read_more()? {
                return Ok(false);
            }
        }
    }

    fn forget_malformed(&mut self, length: usize) {
        let end = self.text_position(length);
        self.input.take_malformed_before(end);
    }

    /// The number of fields of the record.
    pub(super) fn len(&self) -> usize {
        self.fields.len()
    }

    /// The line on which the record begins.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// The record as it is in the file. For a record with a fault of quotes, what was read of the
    /// skipped lines.
    pub(super) fn raw_text(&self) -> &str {
        let rest = self.rest();
        let end = match self.faulty_through {
            None => self.length,
            Some(through) => {
                let lines = usize::try_from(through - self.line);
                let lines = lines.expect("the lines of a record: all of them are in memory");
                ends_of_lines(rest.as_bytes()).nth(lines).map_or(rest.len(), |end| end + 1)
            }
        };
        rest[..end].trim_end_matches(['\r', '\n'])
    }

    /// The text of a field.
    pub(super) fn field(&self, field: usize) -> Cow<'_, str> {
        let field = &self.fields[field];
        let text = &self.rest()[field.range.clone()];
        if !field.is_escaped {
            return Cow::Borrowed(text);
        }
        let (quote, escape) = (self.dialect.quote.map(char::from), char::from(self.dialect.escape));
        let mut plain = String::with_capacity(text.len());
        let mut characters = text.chars().peekable();
        while let Some(character) = characters.next() {
            let is_escape = character == escape
                && characters.peek().is_some_and(|next| Some(*next) == quote || *next == escape);
            plain.push(if is_escape { characters.next().unwrap_or(character) } else { character });
        }
        Cow::Owned(plain)
    }

    /// Whether a field was written in quotes.
    pub(super) fn is_quoted(&self, field: usize) -> bool {
        self.fields[field].is_quoted
    }

    fn rest(&self) -> &str {
        &self.text[self.begin..]
    }

    /// The position in the whole text of an offset in the record.
    fn text_position(&self, offset: usize) -> u64 {
        self.bytes_before + (self.begin + offset) as u64
    }

    fn advance(&mut self, length: usize) {
        self.line += lines_in(&self.rest().as_bytes()[..length]);
        self.begin += length;
        self.length = 0;
    }

    /// Reads more of the text. Returns `false` at its end.
    fn read_more(&mut self) -> io::Result<bool> {
        if self.has_ended {
            return Ok(false);
        }
        self.bytes_before += self.begin as u64;
        self.text.drain(..std::mem::take(&mut self.begin));
        self.has_ended = !self.input.read(&mut self.text)?;
        Ok(!self.has_ended)
    }

    /// The byte at this offset of the record, or `None` beyond the end of the text.
    fn byte(&mut self, at: usize) -> io::Result<Option<u8>> {
        while self.rest().len() <= at {
            if !self.read_more()? {
                return Ok(None);
            }
        }
        Ok(Some(self.rest().as_bytes()[at]))
    }

    /// The number of bytes that end the line at this offset: 0 at the end of the text. `None` if
    /// the line does not end there.
    fn end_of_line(&mut self, at: usize) -> io::Result<Option<usize>> {
        Ok(match self.byte(at)? {
            None => Some(0),
            Some(b'\n') => Some(1),
            Some(b'\r') => Some(if self.byte(at + 1)? == Some(b'\n') { 2 } else { 1 }),
            Some(_) => None,
        })
    }

    fn read_fields(&mut self) -> Result<(), ReadError> {
        self.fields.clear();
        let mut at = 0;
        loop {
            let quote = self.byte(at)?.filter(|byte| Some(*byte) == self.dialect.quote);
            let end = match quote {
                Some(quote) => self.quoted_field(at, quote)?,
                None => self.plain_field(at)?,
            };
            if let Some(length) = self.end_of_line(end)? {
                self.length = end + length;
                return Ok(());
            }
            self.check_length(end, None)?;
            if self.fields.len() > COLUMNS_MAX {
                let reason = format!("found more than {COLUMNS_MAX} fields, expected at most {COLUMNS_MAX}");
                return Err(ReadError::Fault(RecordFault { line: self.line_at(end), field: None, reason }));
            }
            at = end + 1;
        }
    }

    /// Reads a field without quotes, and returns its end.
    fn plain_field(&mut self, at: usize) -> Result<usize, ReadError> {
        let mut from = at;
        loop {
            let rest = self.rest().as_bytes();
            if let Some(found) = memchr3(self.dialect.delimiter, b'\n', b'\r', &rest[from..]) {
                let range = at..from + found;
                let end = range.end;
                self.fields.push(Field { range, is_quoted: false, is_escaped: false });
                return Ok(end);
            }
            from = rest.len();
            self.check_length(from, None)?;
            if !self.read_more()? {
                self.fields.push(Field { range: at..from, is_quoted: false, is_escaped: false });
                return Ok(from);
            }
        }
    }

    /// Reads a field in quotes that begins at this offset, and returns its end.
    fn quoted_field(&mut self, at: usize, quote: u8) -> Result<usize, ReadError> {
        let escape = self.dialect.escape;
        let (mut from, mut is_escaped) = (at + 1, false);
        loop {
            self.check_length(from, Some(at))?;
            let rest = self.rest().as_bytes();
            let Some(found) = memchr2(quote, escape, &rest[from..]).map(|found| from + found) else {
                from = rest.len();
                if !self.read_more()? {
                    return Err(self.fault(at, &unclosed(quote, "the end of the file")));
                }
                continue;
            };
            let (byte, next) = (rest[found], self.byte(found + 1)?);
            if byte == escape && next.is_some_and(|next| next == quote || next == escape) {
                (from, is_escaped) = (found + 2, true);
            } else if byte == quote {
                let end = found + 1;
                let is_closed = next == Some(self.dialect.delimiter) || self.end_of_line(end)?.is_some();
                if !is_closed {
                    return Err(self.text_after_quote(at, end, quote));
                }
                self.fields.push(Field { range: at + 1..found, is_quoted: true, is_escaped });
                return Ok(end);
            } else {
                from = found + 1;
            }
        }
    }

    /// Refuses a record that is longer than its limit, possibly because a quote is not closed.
    fn check_length(&self, at: usize, quote: Option<usize>) -> Result<(), ReadError> {
        if at <= CSV_RECORD_BYTES_MAX {
            return Ok(());
        }
        let within = format!("the first {CSV_RECORD_BYTES_MAX} bytes of its record");
        Err(match quote.zip(self.dialect.quote) {
            Some((begin, quote)) => self.fault(begin, &unclosed(quote, &within)),
            None => {
                let reason = format!("found no end of the row in {within}, expected rows that are no longer");
                ReadError::Fault(RecordFault { line: self.line_at(at), field: None, reason })
            }
        })
    }

    fn text_after_quote(&self, at: usize, end: usize, quote: u8) -> ReadError {
        let quote = char::from(quote);
        let closed = self.line_at(end);
        let text: String =
            self.rest()[end..].chars().take_while(|c| *c != '\n' && *c != '\r').take(20).collect();
        let place = if closed == self.line_at(at) { String::new() } else { format!(" on line {closed}") };
        let reason = format!(
            "the quote that opens here is closed{place} before {text:?}, expected a delimiter or the end of the line after it; \
             write quotes within quotes twice, or load with --quote none if {quote} is an ordinary character"
        );
        self.fault(at, &reason)
    }

    fn fault(&self, at: usize, reason: &str) -> ReadError {
        let field = Some(self.fields.len());
        ReadError::Fault(RecordFault { line: self.line_at(at), field, reason: reason.to_owned() })
    }

    /// The line of this offset of the record.
    fn line_at(&self, at: usize) -> u64 {
        self.line + lines_in(&self.rest().as_bytes()[..at])
    }
}

fn unclosed(quote: u8, before: &str) -> String {
    let quote = char::from(quote);
    format!(
        "the quote that opens here is not closed before {before}, expected a second one; load with --quote none if {quote} is an \
         ordinary character"
    )
}

/// The number of line ends in these bytes.
fn lines_in(bytes: &[u8]) -> u64 {
    ends_of_lines(bytes).count() as u64
}

/// The positions of the last byte of each line end.
fn ends_of_lines(bytes: &[u8]) -> impl Iterator<Item = usize> + '_ {
    memchr2_iter(b'\n', b'\r', bytes).filter(|at| bytes[*at] == b'\n' || bytes.get(at + 1) != Some(&b'\n'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    /// The records of a text, with the lines on which they begin; faults as what they say.
    fn records_of(text: &str, dialect: Dialect) -> Vec<String> {
        let input = Input::new(Cursor::new(text.as_bytes().to_vec()), None).unwrap();
        let (mut records, mut seen) = (Records::new(input, dialect), Vec::new());
        while let Some(record) = records.next().unwrap() {
            seen.push(match record {
                Ok(()) => {
                    let fields: Vec<_> = (0..records.len()).map(|field| records.field(field)).collect();
                    format!("{}: {}", records.line(), fields.join("|"))
                }
                Err(fault) => {
                    let reason: String = fault.reason.chars().take(41).collect();
                    format!("{}, field {:?}: {reason} <{}>", fault.line, fault.field, records.raw_text())
                }
            });
        }
        seen
    }

    fn records(text: &str) -> Vec<String> {
        records_of(text, Dialect::default())
    }

    #[test]
    fn records_begin_on_the_lines_that_people_see() {
        assert_eq!(records("a,b\n1,2\r\n3\r4,5,6"), ["1: a|b", "2: 1|2", "3: 3", "4: 4|5|6"]);
        assert_eq!(records("\na,b\n\r\n\n3,\n"), ["2: a|b", "5: 3|"]);
        assert!(records("").is_empty() && records("\r\n\n").is_empty());
    }

    #[test]
    fn lines_delimiters_and_quotes_within_quotes_belong_to_their_field() {
        assert_eq!(records("\"x\ny\",2\n3,4"), ["1: x\ny|2", "3: 3|4"]);
        assert_eq!(records("\"x\"\"\r\n,\",\"\"\n3,4\n"), ["1: x\"\r\n,|", "3: 3|4"]);
    }

    #[test]
    fn a_quote_in_a_field_that_does_not_begin_with_one_is_kept() {
        assert_eq!(records("5\" disk,a \"b\" c\n"), ["1: 5\" disk|a \"b\" c"]);
    }

    #[test]
    fn without_quotes_every_quote_is_kept() {
        let dialect = Dialect { quote: None, ..Dialect::default() };
        assert_eq!(records_of("\"a,b\"\n\"\"", dialect), ["1: \"a|b\"", "2: \"\""]);
    }

    #[test]
    fn an_escape_makes_a_quote_or_itself_ordinary_and_nothing_else() {
        let dialect = Dialect { escape: b'\\', ..Dialect::default() };
        assert_eq!(records_of(r#""a\"b\\","c\nd",e\"f"#, dialect), [r#"1: a"b\|c\nd|e\"f"#]);
    }

    #[test]
    fn a_quote_that_is_not_closed_is_told_on_its_line_and_spoils_no_other_line() {
        assert_eq!(
            records("a,b\n1,\"open\n3,4\n5,6\n"),
            [
                "1: a|b",
                "2, field Some(1): the quote that opens here is not closed b <1,\"open>",
                "3: 3|4",
                "4: 5|6"
            ]
        );
        let behind_lines = records("\"x\ny\",\"open");
        assert!(behind_lines[0].starts_with("2, field Some(1): "), "{behind_lines:?}");
    }

    #[test]
    fn text_after_a_closing_quote_is_told_with_both_lines() {
        let text = "1,plain\n2,\"Nick\" and Nora\n3,\"open\n4,four\n5,six\" end\n";
        assert_eq!(
            records(text),
            [
                "1: 1|plain",
                "2, field Some(1): the quote that opens here is closed befor <2,\"Nick\" and Nora>",
                "3, field Some(1): the quote that opens here is closed on li <3,\"open>",
                "4: 4|four",
                "5: 5|six\" end",
            ]
        );
    }

    #[test]
    fn lines_of_a_quoted_field_before_a_fault_are_no_records() {
        let text = "1,\"x\n2,y,z\n\",\"bad\" q\n3,c,d\n";
        let seen = records(text);
        assert_eq!(seen.len(), 2, "{seen:?}");
        assert!(
            seen[0].starts_with("3, field Some(2): ") && seen[0].ends_with("<1,\"x\n2,y,z\n\",\"bad\" q>"),
            "{seen:?}"
        );
        assert_eq!(seen[1], "4: 3|c|d");
        let returns = records("1,\"a\" b\r2,c\r");
        assert!(returns[0].ends_with("<1,\"a\" b>"), "{returns:?}");
        assert_eq!(returns[1..], ["2: 2|c"]);
    }

    #[test]
    fn quotes_without_end_are_refused_when_they_are_too_many() {
        for quotes in [CSV_RECORD_BYTES_MAX + (2 << 20), CSV_RECORD_BYTES_MAX + (2 << 20) + 1] {
            let seen = records(&format!("a\n{}\n2\n", "\"".repeat(quotes)));
            assert!(
                seen[1].starts_with("2, field Some(0): the quote that opens here is not closed"),
                "{}",
                &seen[1][..80]
            );
            assert_eq!(seen[2..], ["3: 2"]);
        }
    }

    #[test]
    fn a_character_that_no_text_has_is_a_fault() {
        let seen = records("a,b\n1,\0\n2,c\n");
        assert!(seen[1].contains("U+0000"), "{seen:?}");
        assert_eq!(seen[2], "3: 2|c");
    }

    #[test]
    fn a_record_without_an_end_is_refused_when_it_is_too_long() {
        for (long, field) in [("x", "None"), ("\"", "Some(1)")] {
            let text = format!("1,{long}{}\n2,b\n", "y".repeat(CSV_RECORD_BYTES_MAX + (1 << 20)));
            let seen = records(&text);
            assert!(seen[0].starts_with(&format!("1, field {field}: ")), "{}", &seen[0][..80]);
            assert_eq!(seen[1..], ["2: 2|b"]);
        }
        let wide = format!("{}\n1,2\n", ",".repeat(COLUMNS_MAX + 1));
        assert!(records(&wide)[0].contains("found more than"));
    }

    #[test]
    fn bytes_that_are_no_text_are_told_with_their_field() {
        let input = Input::new(Cursor::new(b"a,b\n1,\xff\n2,c\n".to_vec()), None).unwrap();
        let mut records = Records::new(input, Dialect::default());
        assert_eq!(records.next().unwrap(), Some(Ok(())));
        let fault = records.next().unwrap().unwrap().unwrap_err();
        assert_eq!((fault.line, fault.field), (2, Some(1)));
        assert!(fault.reason.contains("UTF-8"), "{}", fault.reason);
        assert_eq!(records.next().unwrap(), Some(Ok(())));
        assert_eq!(records.field(1), "c");
    }
}
