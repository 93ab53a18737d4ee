//! On which line does a record of a CSV file begin, and how many fields has it?
//!
//! Read only once something is wrong: the reader of rows counts records, people count lines.
//!
//! Invariants
//! - Records end where the reader of rows ends them: at a line feed, carriage return or both outside of quotes; a quote opens
//!   only at a field's beginning; lines without any character are no records.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Bytes},
    iter::Peekable,
    path::Path,
};

/// The records of a file, the header included.
pub(super) struct Records<R: BufRead> {
    bytes: Peekable<Bytes<R>>,
    delimiter: u8,
    line: u64,
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The line on which it begins, counted from 1.
    pub(super) line: u64,
    /// Its fields.
    pub(super) fields: usize,
}

/// Where in a field we are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    Beginning,
    Plain,
    Quotes,
    /// After a quote that ends the quotes, or is the first of two that mean one.
    QuoteInQuotes,
}

impl Records<BufReader<File>> {
    /// Begins at the file's header.
    pub(super) fn open(path: &Path, delimiter: u8) -> io::Result<Self> {
        Ok(Self::new(BufReader::new(File::open(path)?), delimiter))
    }
}

impl<R: BufRead> Records<R> {
    fn new(reader: R, delimiter: u8) -> Self {
        Self { bytes: reader.bytes().peekable(), delimiter, line: 1 }
    }

    /// The next byte; two bytes that end a line count as one.
    fn byte(&mut self) -> Option<io::Result<u8>> {
        let byte = self.bytes.next()?;
        if let Ok(b'\r') = byte
            && let Some(Ok(b'\n')) = self.bytes.peek()
        {
            self.bytes.next();
            return Some(Ok(b'\n'));
        }
        Some(byte)
    }
}

impl<R: BufRead> Iterator for Records<R> {
    type Item = io::Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut record = None::<Record>;
        let mut within = Within::Beginning;
        loop {
            let byte = match self.byte() {
                None => return record.map(Ok),
                Some(Err(error)) => return Some(Err(error)),
                Some(Ok(byte)) => byte,
            };
            let is_end_of_line = matches!(byte, b'\n' | b'\r');
            let line = self.line;
            self.line += u64::from(is_end_of_line);
            if is_end_of_line && within != Within::Quotes {
                if record.is_some() {
                    return record.map(Ok);
                }
                continue;
            }
            let begun = record.get_or_insert(Record { line, fields: 1 });
            within = match (within, byte) {
                (Within::Quotes, b'"') => Within::QuoteInQuotes,
                (Within::Quotes, _) => Within::Quotes,
                (Within::Beginning | Within::QuoteInQuotes, b'"') => Within::Quotes,
                (_, byte) if byte == self.delimiter => {
                    begun.fields += 1;
                    Within::Beginning
                }
                _ => Within::Plain,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(text: &str) -> Vec<(u64, usize)> {
        let records = Records::new(text.as_bytes(), b',');
        records.map(|record| record.unwrap()).map(|record| (record.line, record.fields)).collect()
    }

    #[test]
    fn records_begin_on_the_lines_that_people_see() {
        assert_eq!(records("a,b\n1,2\r\n3\n4,5,6"), [(1, 2), (2, 2), (3, 1), (4, 3)]);
        assert_eq!(records(""), []);
    }

    #[test]
    fn lines_within_quotes_belong_to_their_record() {
        assert_eq!(records("a,b\n\"x\ny\",2\n3,4\n"), [(1, 2), (2, 2), (4, 2)]);
        assert_eq!(records("a,b\n\"x\"\"\n,\",2\n3,4\n"), [(1, 2), (2, 2), (4, 2)]);
    }

    #[test]
    fn a_quote_in_the_middle_of_a_field_quotes_nothing() {
        assert_eq!(records("a,b\n5\" disk,2\n3,4\n"), [(1, 2), (2, 2), (3, 2)]);
    }

    #[test]
    fn empty_lines_are_no_records_but_count_as_lines() {
        assert_eq!(records("\na,b\n\r\n\n3,4\n"), [(2, 2), (5, 2)]);
    }
}
