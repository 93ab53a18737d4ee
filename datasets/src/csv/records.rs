//! Which fields has each record of a CSV file, and what is wrong with one that is none?
//!
//! Records are those of RFC 4180, with the dialect that was asked for. A quote quotes only at the
//! beginning of a field; within a field that does not begin with one it is an ordinary character.
//! What RFC 4180 does not have (a quote that is not closed, text after a closing quote) is a fault:
//! other readers guess there, and change data without a word.
//!
//! Invariants
//! - Lines end with a line feed, a carriage return or both. Lines without any character are no
//!   records, but of a file with one column, where they are an empty field.
//! - No more is held than one record of at most `CSV_RECORD_BYTES_MAX` and one read.

use std::{borrow::Cow, io, ops::Range};

use memchr::{memchr, memchr2, memchr2_iter, memchr3};

use rackscan_format::limits::COLUMNS_MAX;

use super::{Dialect, input::Input};
use crate::limits::CSV_RECORD_BYTES_MAX;

/// The records of a text.
pub(super) struct Records {
    input: Input,
    dialect: Dialect,
    /// What has been read of the text and not left behind.
    text: String,
    /// Where in `text` the present record begins.
    begin: usize,
    /// Bytes of the text before `text`.
    bytes_before: u64,
    /// The line on which the present record begins, counted from 1.
    line: u64,
    /// Bytes of the present record with the end of its line.
    length: usize,
    fields: Vec<Field>,
    has_ended: bool,
    /// The lines up to this one are left out, because of a fault of the record that begins on the
    /// first of them.
    faulty_through: Option<u64>,
    /// Empty lines before the present record.
    empty_lines: u64,
    /// Whether an empty line is a record of one empty field.
    has_empty_records: bool,
}

/// Where a field lies in its record.
#[derive(Clone, Debug)]
struct Field {
    /// Without its quotes.
    place: Range<usize>,
    is_quoted: bool,
    /// Whether it holds quotes or escapes of which one must go.
    is_escaped: bool,
}

/// Why a record has no fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RecordFault {
    /// The line of the fault, counted from 1.
    pub(super) line: u64,
    /// The field, counted from 0, if it is one's.
    pub(super) field: Option<usize>,
    pub(super) reason: String,
}

/// How reading a record ends.
enum End {
    Fault(RecordFault),
    Io(io::Error),
}

impl From<io::Error> for End {
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

    /// From now on an empty line is a record of one empty field.
    pub(super) fn take_empty_lines(&mut self) {
        self.has_empty_records = true;
    }

    /// Reads the next record, whose fields can be looked at until the one after it is read; `None`
    /// at the end. After a fault of quotes the record is left out up to the line of the fault, and
    /// what follows is read as if that were not there.
    pub(super) fn next(&mut self) -> io::Result<Option<Result<(), RecordFault>>> {
        if let Some(through) = self.faulty_through.take() {
            while self.line <= through && self.skip_line()? {}
        }
        self.leave_behind(self.length);
        self.empty_lines = 0;
        loop {
            match self.end_of_line(0)? {
                Some(0) => return Ok(None),
                Some(length) if !self.has_empty_records => {
                    self.leave_behind(length);
                    self.empty_lines += 1;
                }
                _ => break,
            }
        }
        match self.read_fields() {
            Ok(()) => {}
            Err(End::Io(error)) => return Err(error),
            Err(End::Fault(fault)) => {
                self.faulty_through = Some(fault.line);
                return Ok(Some(Err(fault)));
            }
        }
        let end = self.place(self.length);
        if self.input.is_malformed_before(end) {
            return Ok(Some(Err(self.malformed())));
        }
        if memchr(0, &self.rest().as_bytes()[..self.length]).is_some() {
            let reason = "found the character U+0000, which no text has; if the file has another encoding, name it, such as \
                          --encoding utf-16be"
                .to_owned();
            return Ok(Some(Err(RecordFault { line: self.line, field: None, reason })));
        }
        Ok(Some(Ok(())))
    }

    /// How many empty lines there are right before the record.
    pub(super) fn empty_lines(&self) -> u64 {
        self.empty_lines
    }

    fn malformed(&self) -> RecordFault {
        let sign = char::REPLACEMENT_CHARACTER;
        let field = (0..self.fields.len()).find(|field| self.field(*field).contains(sign));
        let name = self.input.encoding();
        let reason = format!(
            "found bytes that are no text in {name}, expected {name}; if the file has another encoding, name it: --encoding windows-1252"
        );
        RecordFault { line: self.line, field, reason }
    }

    /// Leaves a line behind; `false` at the end.
    fn skip_line(&mut self) -> io::Result<bool> {
        loop {
            let found = memchr2(b'\n', b'\r', self.rest().as_bytes());
            let end = match found {
                Some(at) => at + self.end_of_line(at)?.unwrap_or(0),
                None => self.rest().len(),
            };
            self.forget_malformed(end);
            self.leave_behind(end);
            if found.is_some() {
                return Ok(true);
            }
            if !self.read_more()? {
                return Ok(false);
            }
        }
    }

    fn forget_malformed(&mut self, length: usize) {
        let end = self.place(length);
        self.input.is_malformed_before(end);
    }

    /// How many fields the record has.
    pub(super) fn len(&self) -> usize {
        self.fields.len()
    }

    /// The line on which the record begins.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// The record as it was written; of one that has a fault of quotes what was read of the lines
    /// that are left out.
    pub(super) fn written(&self) -> &str {
        let rest = self.rest();
        let end = match self.faulty_through {
            None => self.length,
            Some(through) => {
                let lines = usize::try_from(through - self.line).unwrap_or(usize::MAX);
                ends_of_lines(rest.as_bytes()).nth(lines).map_or(rest.len(), |end| end + 1)
            }
        };
        rest[..end].trim_end_matches(['\r', '\n'])
    }

    /// The text of a field.
    pub(super) fn field(&self, field: usize) -> Cow<'_, str> {
        let field = &self.fields[field];
        let text = &self.rest()[field.place.clone()];
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

    /// The place in the whole text of what lies so far behind the record's beginning.
    fn place(&self, offset: usize) -> u64 {
        self.bytes_before + (self.begin + offset) as u64
    }

    fn leave_behind(&mut self, length: usize) {
        self.line += lines_in(&self.rest().as_bytes()[..length]);
        self.begin += length;
        self.length = 0;
    }

    /// Reads more of the text; `false` at its end.
    fn read_more(&mut self) -> io::Result<bool> {
        if self.has_ended {
            return Ok(false);
        }
        self.bytes_before += self.begin as u64;
        self.text.drain(..std::mem::take(&mut self.begin));
        self.has_ended = !self.input.read(&mut self.text)?;
        Ok(!self.has_ended)
    }

    /// The byte at this place of the record, if the text goes on so far.
    fn byte(&mut self, at: usize) -> io::Result<Option<u8>> {
        while self.rest().len() <= at {
            if !self.read_more()? {
                return Ok(None);
            }
        }
        Ok(Some(self.rest().as_bytes()[at]))
    }

    /// The bytes that end the line at this place: 0 at the end of the text, `None` if it goes on.
    fn end_of_line(&mut self, at: usize) -> io::Result<Option<usize>> {
        Ok(match self.byte(at)? {
            None => Some(0),
            Some(b'\n') => Some(1),
            Some(b'\r') => Some(if self.byte(at + 1)? == Some(b'\n') { 2 } else { 1 }),
            Some(_) => None,
        })
    }

    fn read_fields(&mut self) -> Result<(), End> {
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
                let reason = format!("found more than {COLUMNS_MAX} fields, expected at most as many");
                return Err(End::Fault(RecordFault { line: self.line_at(end), field: None, reason }));
            }
            at = end + 1;
        }
    }

    /// Reads a field without quotes; where it ends.
    fn plain_field(&mut self, at: usize) -> Result<usize, End> {
        let mut from = at;
        loop {
            let rest = self.rest().as_bytes();
            if let Some(found) = memchr3(self.dialect.delimiter, b'\n', b'\r', &rest[from..]) {
                let place = at..from + found;
                let end = place.end;
                self.fields.push(Field { place, is_quoted: false, is_escaped: false });
                return Ok(end);
            }
            from = rest.len();
            self.check_length(from, None)?;
            if !self.read_more()? {
                self.fields.push(Field { place: at..from, is_quoted: false, is_escaped: false });
                return Ok(from);
            }
        }
    }

    /// Reads a field in quotes, of which the first is at this place; where the last one has ended.
    fn quoted_field(&mut self, at: usize, quote: u8) -> Result<usize, End> {
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
                self.fields.push(Field { place: at + 1..found, is_quoted: true, is_escaped });
                return Ok(end);
            } else {
                from = found + 1;
            }
        }
    }

    /// Refuses a record that goes on beyond its limit at this place, because a quote is perhaps not
    /// closed.
    fn check_length(&self, at: usize, quote: Option<usize>) -> Result<(), End> {
        if at <= CSV_RECORD_BYTES_MAX {
            return Ok(());
        }
        let within = format!("the first {CSV_RECORD_BYTES_MAX} bytes of its record");
        Err(match quote.zip(self.dialect.quote) {
            Some((begin, quote)) => self.fault(begin, &unclosed(quote, &within)),
            None => {
                let reason = format!("found no end of the row in {within}, expected rows of at most as many");
                End::Fault(RecordFault { line: self.line_at(at), field: None, reason })
            }
        })
    }

    fn text_after_quote(&self, at: usize, end: usize, quote: u8) -> End {
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

    fn fault(&self, at: usize, reason: &str) -> End {
        let field = Some(self.fields.len());
        End::Fault(RecordFault { line: self.line_at(at), field, reason: reason.to_owned() })
    }

    /// The line of this place of the record.
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

/// The lines that end in these bytes.
fn lines_in(bytes: &[u8]) -> u64 {
    ends_of_lines(bytes).count() as u64
}

/// The places of the last bytes of lines.
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
                    format!("{}, field {:?}: {reason} <{}>", fault.line, fault.field, records.written())
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
