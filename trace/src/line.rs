//! Reads the lines of a text file, and refuses lines that are too long or not text.
//!
//! Invariants
//! - A line longer than the limit is skipped without being stored in memory.
//! - Lines end with a line feed, which a carriage return may precede; a byte-order mark before the
//!   first line is skipped.

use std::{
    borrow::Cow,
    io::{self, BufRead, BufReader, Read},
};

use crate::limits::{BUFFER_BYTES, LINE_BYTES_MAX};

/// The lines of a text.
pub(crate) struct LineReader<R> {
    input: BufReader<R>,
    line: Vec<u8>,
    number: u64,
    position_bytes: u64,
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl<R: Read> LineReader<R> {
    pub(crate) fn new(input: R) -> Self {
        let input = BufReader::with_capacity(BUFFER_BYTES, input);
        Self { input, line: Vec::new(), number: 0, position_bytes: 0 }
    }

    /// The number of the line last read, counted from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Bytes read so far.
    pub(crate) fn position_bytes(&self) -> u64 {
        self.position_bytes
    }

    /// The next line, or the reason why it is refused; `None` at the end.
    pub(crate) fn next(&mut self) -> io::Result<Option<Result<Cow<'_, str>, String>>> {
        self.line.clear();
        let length_bytes = self.read_line()?;
        if length_bytes == 0 {
            return Ok(None);
        }
        self.position_bytes += length_bytes;
        self.number += 1;
        if self.line.len() > LINE_BYTES_MAX {
            let reason = format!("a line of {length_bytes} bytes, expected at most {LINE_BYTES_MAX}");
            return Ok(Some(Err(reason)));
        }
        let mut line = self.line.as_slice();
        if self.number == 1 {
            line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        }
        line = line.strip_suffix(b"\n").unwrap_or(line);
        line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.contains(&0) {
            return Ok(Some(Err("found a zero byte, expected text: is the file binary?".to_owned())));
        }
        Ok(Some(Ok(String::from_utf8_lossy(line))))
    }

    /// Reads to the end of a line and returns its length. Keeps at most one byte more than the
    /// limit.
    fn read_line(&mut self) -> io::Result<u64> {
        let mut length_bytes = 0;
        loop {
            let bytes = match self.input.fill_buf() {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let end = bytes.iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |at| at + 1);
            let is_whole = bytes[..end].ends_with(b"\n") || bytes.is_empty();
            let room = (LINE_BYTES_MAX + 1).saturating_sub(self.line.len());
            self.line.extend_from_slice(&bytes[..end.min(room)]);
            self.input.consume(end);
            length_bytes += end as u64;
            if is_whole {
                return Ok(length_bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8]) -> Vec<Result<String, String>> {
        let mut reader = LineReader::new(bytes);
        let mut lines = Vec::new();
        while let Some(line) = reader.next().unwrap() {
            lines.push(line.map(Cow::into_owned));
        }
        lines
    }

    #[test]
    fn lines_end_as_unix_and_windows_end_them() {
        assert_eq!(lines(b"\xef\xbb\xbfa\r\nb\n\nc"), ["a", "b", "", "c"].map(|line| Ok(line.to_owned())));
        assert_eq!(lines(b""), []);
    }

    #[test]
    fn a_huge_line_is_passed_over() {
        let mut text = vec![b'x'; 3 * LINE_BYTES_MAX];
        text.extend_from_slice(b"\nnext\n");
        let lines = lines(&text);
        assert!(lines[0].as_ref().unwrap_err().contains("196609 bytes"), "{lines:?}");
        assert_eq!(lines[1], Ok("next".to_owned()));
        let mut reader = LineReader::new(text.as_slice());
        reader.next().unwrap();
        assert!(reader.line.len() <= LINE_BYTES_MAX + 1);
    }

    #[test]
    fn a_line_of_the_longest_length_is_kept() {
        let mut text = vec![b'x'; LINE_BYTES_MAX - 1];
        text.push(b'\n');
        assert!(lines(&text)[0].is_ok());
    }

    #[test]
    fn binary_is_told_from_text() {
        assert!(lines(b"a\0b\n")[0].as_ref().unwrap_err().contains("binary"));
    }
}
