//! Defines the dialect of a CSV file (delimiter, quotes, encoding and so on), and what the loader
//! does with rows that do not parse.

use std::path::PathBuf;

use super::input::Encoding;
use crate::LoadError;

/// How the file is written, and what happens to rows that do not parse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvOptions {
    /// The ASCII character between fields.
    pub delimiter: u8,
    /// The ASCII character around a field that contains delimiters, line ends or quotes; `None` if
    /// there is no such character.
    pub quote: Option<u8>,
    /// The ASCII character before a quote within quotes; `None` if it is the quote itself.
    pub escape: Option<u8>,
    /// The texts that stand for NULL.
    pub nulls: Vec<String>,
    /// Whether the first row names the columns. If not, they are `column1`, `column2` and so on.
    pub has_header: bool,
    /// The file's encoding; `None` for UTF-8, or UTF-16 where it is recognised.
    pub encoding: Option<Encoding>,
    /// The file to which rows that do not parse are written, which the table then leaves out;
    /// `None` if such a row ends the load.
    pub reject: Option<PathBuf>,
}

impl Default for CsvOptions {
    fn default() -> Self {
        Self {
            delimiter: b',',
            quote: Some(b'"'),
            escape: None,
            nulls: vec![String::new()],
            has_header: true,
            encoding: None,
            reject: None,
        }
    }
}

/// The special characters of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dialect {
    pub(super) delimiter: u8,
    pub(super) quote: Option<u8>,
    pub(super) escape: u8,
}

#[cfg(test)]
impl Default for Dialect {
    fn default() -> Self {
        Self { delimiter: b',', quote: Some(b'"'), escape: b'"' }
    }
}

impl CsvOptions {
    pub(super) fn dialect(&self) -> Result<Dialect, LoadError> {
        let is_plain = |byte: u8| byte.is_ascii() && !matches!(byte, b'\n' | b'\r');
        let (quote, escape) = (self.quote, self.escape.or(self.quote));
        let problem =
            if !is_plain(self.delimiter) || quote.into_iter().chain(escape).any(|byte| !is_plain(byte)) {
                "ASCII characters that end no line"
            } else if quote == Some(self.delimiter) || self.escape == Some(self.delimiter) {
                "another delimiter than the quote and the escape"
            } else if quote.is_none() && self.escape.is_some() {
                "no escape where there are no quotes"
            } else {
                return Ok(Dialect { delimiter: self.delimiter, quote, escape: escape.unwrap_or(0) });
            };
        let excerpt =
            |byte: Option<u8>| byte.map_or("none".to_owned(), |byte| format!("{:?}", char::from(byte)));
        let found = [Some(self.delimiter), quote, self.escape].map(excerpt).join(", ");
        Err(LoadError::Option { what: "delimiter, quote and escape", found, expected: problem.to_owned() })
    }
}
