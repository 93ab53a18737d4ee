//! Reads the bytes of a file as text.
//!
//! ```text
//! file --> decompressed, if its first bytes are those of gzip, zstd, bzip2 or xz
//!      --> decoded, from the encoding of the options, of the byte order mark, or UTF-8
//! ```
//!
//! Invariants
//! - The text is UTF-8 without a byte order mark. Bytes that are invalid in the encoding become
//!   U+FFFD, and their positions are recorded: the caller refuses the records that contain them.

use std::{
    collections::VecDeque,
    io::{self, Cursor, Read},
    os::unix::fs::MetadataExt,
    path::Path,
};

use encoding_rs::{Decoder, DecoderResult, UTF_8, UTF_16BE, UTF_16LE};

use liblzma::stream::{CONCATENATED, Stream};

use crate::limits::{INPUT_BYTES, INPUT_HEAD_BYTES, XZ_MEMORY_BYTES_MAX};

/// The text of a file, from its beginning to its end.
pub(super) struct Input {
    bytes: Box<dyn Read + Send>,
    decoder: Decoder,
    buffer: Box<[u8]>,
    /// Bytes of the text decoded so far.
    text_bytes: u64,
    malformed: VecDeque<u64>,
    has_ended: bool,
}

impl Input {
    /// Reads a file, compressed or not, in the given encoding or in the one it seems to have.
    pub(super) fn new(file: impl Read + Send + 'static, encoding: Option<Encoding>) -> io::Result<Self> {
        let (head, file) = peek_head(Box::new(file))?;
        let (head, bytes) = peek_head(decompressed(&head, file)?)?;
        let encoding = encoding.map_or_else(|| encoding_of(&head), |Encoding(encoding)| encoding);
        Ok(Self {
            bytes,
            // A byte order mark of another encoding takes precedence, and a byte order mark is
            // never part of the text.
            decoder: encoding.new_decoder(),
            buffer: vec![0; INPUT_BYTES].into_boxed_slice(),
            text_bytes: 0,
            malformed: VecDeque::new(),
            has_ended: false,
        })
    }

    /// Appends more of the text; `false` at its end.
    pub(super) fn read(&mut self, text: &mut String) -> io::Result<bool> {
        let before = text.len();
        while text.len() == before && !self.has_ended {
            let read = match self.bytes.read(&mut self.buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            self.has_ended = read == 0;
            self.decode(read, text);
        }
        self.text_bytes += (text.len() - before) as u64;
        Ok(text.len() > before)
    }

    fn decode(&mut self, read: usize, text: &mut String) {
        let (mut at, before) = (0, text.len());
        loop {
            let source = &self.buffer[at..read];
            let room = self.decoder.max_utf8_buffer_length_without_replacement(source.len());
            text.reserve(room.unwrap_or(0).max(INPUT_BYTES));
            let decoder = &mut self.decoder;
            let (result, taken) = decoder.decode_to_string_without_replacement(source, text, self.has_ended);
            at += taken;
            match result {
                DecoderResult::InputEmpty => return,
                DecoderResult::OutputFull => {}
                DecoderResult::Malformed(..) => {
                    self.malformed.push_back(self.text_bytes + (text.len() - before) as u64);
                    text.push(char::REPLACEMENT_CHARACTER);
                }
            }
        }
    }

    /// Whether the text before this position has invalid bytes. Forgets the positions before it.
    pub(super) fn take_malformed_before(&mut self, end: u64) -> bool {
        let count = self.malformed.iter().take_while(|place| **place < end).count();
        self.malformed.drain(..count);
        count > 0
    }

    /// The name of the encoding in use.
    pub(super) fn encoding(&self) -> &'static str {
        self.decoder.encoding().name()
    }
}

/// Reads the first bytes, and returns them and a reader of all bytes.
fn peek_head(mut bytes: Box<dyn Read + Send>) -> io::Result<(Vec<u8>, Box<dyn Read + Send>)> {
    let mut head = Vec::new();
    bytes.by_ref().take(INPUT_HEAD_BYTES).read_to_end(&mut head)?;
    let all = Box::new(Cursor::new(head.clone()).chain(bytes));
    Ok((head, all))
}

fn decompressed(head: &[u8], bytes: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
    let (format, bytes): (_, Box<dyn Read + Send>) = match head {
        [0x1f, 0x8b, ..] => ("gzip", Box::new(flate2::read::MultiGzDecoder::new(bytes))),
        // A frame, or a skippable frame.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            ("zstd", Box::new(zstd::Decoder::new(bytes)?))
        }
        // A block, or the end of the stream.
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, ..]
        | [b'B', b'Z', b'h', b'1'..=b'9', 0x17, 0x72, 0x45, 0x38, ..] => {
            ("bzip2", Box::new(bzip2::read::MultiBzDecoder::new(bytes)))
        }
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => {
            let stream = Stream::new_stream_decoder(XZ_MEMORY_BYTES_MAX, CONCATENATED);
            let stream = stream.map_err(io::Error::other)?;
            ("xz", Box::new(liblzma::read::XzDecoder::new_stream(bytes, stream)))
        }
        _ => return Ok(bytes),
    };
    Ok(Box::new(DecompressedReader { format, bytes }))
}

/// Names the compression format in errors.
struct DecompressedReader {
    format: &'static str,
    bytes: Box<dyn Read + Send>,
}

impl Read for DecompressedReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.bytes.read(buffer).map_err(|error| {
            let problem = format!("its {} data is damaged or cut off: {error}", self.format);
            io::Error::new(error.kind(), problem)
        })
    }
}

/// Guesses the encoding of a text without a byte order mark from its first bytes. In UTF-16 every
/// other byte of Latin letters, digits and delimiters is 0, which occurs in no CSV file in UTF-8.
/// The decoder handles byte order marks.
fn encoding_of(head: &[u8]) -> &'static encoding_rs::Encoding {
    let zeros = |from: usize| head.iter().skip(from).step_by(2).filter(|byte| **byte == 0).count();
    let (even, odd) = (zeros(0), zeros(1));
    match head.len() / 4 {
        quarter if odd > quarter && even * 4 < odd => UTF_16LE,
        quarter if even > quarter && odd * 4 < even => UTF_16BE,
        _ => UTF_8,
    }
}

/// An encoding of the WHATWG Encoding Standard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding(&'static encoding_rs::Encoding);

/// The encoding with this name.
///
/// # Errors
/// If the name is unknown.
pub fn encoding_named(name: &str) -> Result<Encoding, String> {
    encoding_rs::Encoding::for_label(name.as_bytes()).map(Encoding).ok_or_else(|| {
        "expected the name of an encoding, such as utf-8, utf-16le, iso-8859-1, windows-1252 or shift_jis"
            .into()
    })
}

/// Whether two paths lead to the same file.
pub(super) fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const TEXT: &str = "id,name\n1,Zo\u{eb}\n2,\u{6771}\u{4eac}\n3,\u{1f600}\n";

    fn text_of(bytes: Vec<u8>, encoding: Option<Encoding>) -> io::Result<String> {
        let mut text = String::new();
        let mut input = Input::new(Cursor::new(bytes), encoding)?;
        while input.read(&mut text)? {}
        assert!(!input.take_malformed_before(u64::MAX));
        Ok(text)
    }

    fn utf_16(text: &str, is_little: bool) -> Vec<u8> {
        let bytes = |unit: u16| if is_little { unit.to_le_bytes() } else { unit.to_be_bytes() };
        text.encode_utf16().flat_map(bytes).collect()
    }

    fn compressed(text: &[u8]) -> [(&'static str, Vec<u8>); 4] {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(text).unwrap();
        let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::default());
        bzip2.write_all(text).unwrap();
        let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
        xz.write_all(text).unwrap();
        [
            ("gzip", gzip.finish().unwrap()),
            ("bzip2", bzip2.finish().unwrap()),
            ("xz", xz.finish().unwrap()),
            ("zstd", zstd::encode_all(text, 1).unwrap()),
        ]
    }

    #[test]
    fn utf_8_and_utf_16_are_recognised_with_and_without_a_byte_order_mark() {
        let marked = format!("\u{feff}{TEXT}");
        for text in [TEXT, marked.as_str()] {
            assert_eq!(text_of(text.as_bytes().to_vec(), None).unwrap(), TEXT);
            assert_eq!(text_of(utf_16(text, true), None).unwrap(), TEXT);
            assert_eq!(text_of(utf_16(text, false), None).unwrap(), TEXT);
        }
    }

    #[test]
    fn an_encoding_is_read_by_its_name() {
        let latin = encoding_named("latin1").unwrap();
        assert_eq!(text_of(b"Zo\xeb\n".to_vec(), Some(latin)).unwrap(), "Zo\u{eb}\n");
        assert!(encoding_named("klingon").unwrap_err().contains("windows-1252"));
    }

    #[test]
    fn compressed_text_of_several_members_is_read_whole_and_damage_is_an_error_that_names_the_format() {
        let long = TEXT.repeat(20_000);
        for ((format, bytes), (_, more)) in compressed(long.as_bytes()).into_iter().zip(compressed(b"end\n"))
        {
            let both = [bytes.clone(), more].concat();
            assert!(text_of(both, None).unwrap() == format!("{long}end\n"), "{format}");
            let cut = bytes[..bytes.len() / 2].to_vec();
            let error = text_of(cut, None).unwrap_err().to_string();
            assert!(error.contains(&format!("its {format} data is damaged or cut off")), "{error}");
        }
    }

    #[test]
    fn bytes_that_the_encoding_does_not_have_are_told_by_their_place() {
        let mut input = Input::new(Cursor::new(b"ab\xff,c\n\xffd\n".to_vec()), None).unwrap();
        let mut text = String::new();
        while input.read(&mut text).unwrap() {}
        assert_eq!(text, "ab\u{fffd},c\n\u{fffd}d\n");
        assert!(!input.take_malformed_before(2));
        assert!(input.take_malformed_before(8));
        assert!(!input.take_malformed_before(8));
        assert!(input.take_malformed_before(9));
    }
}
