//! Generates CSV files, with the rows that a load must find in them.
//!
//! A file is generated column by column: values first, then texts that represent them, then quotes
//! around the texts that need them and around some that do not. In each column one early value has
//! a shape that only its type has, so that the type is known without the other values.

use encoding_rs::{GB18030, SHIFT_JIS, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};
use fastrand::Rng;
use rackscan_datasets::csv::{CsvOptions, encoding_named};

use super::{
    cells::{Cell, Row},
    compression::Compression,
    csv_values::{Kind, is_in, parts, random_kind, value},
    values,
};

/// A file that is not yet bytes.
pub(super) struct CsvFile {
    pub(super) options: CsvOptions,
    /// The columns' names and types in the cluster.
    pub(super) columns: Vec<(String, String)>,
    pub(super) header: Option<Line>,
    pub(super) rows: Vec<Line>,
    encoding: &'static encoding_rs::Encoding,
    has_mark: bool,
    compression: Compression,
    key: usize,
    /// The rows by which columns have their types.
    anchors: Vec<usize>,
}

/// A row as it is written; the header is one, too.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// Without its end.
    pub(super) written: String,
    /// What the fields say, NULL or not.
    pub(super) texts: Vec<String>,
    pub(super) cells: Row,
    pub(super) end: &'static str,
    /// Empty lines before it, as they are written.
    pub(super) empty_lines: String,
}

/// What is asked of a file that is drawn.
#[derive(Clone, Copy)]
pub(super) struct Wish {
    pub(super) compression: Compression,
    /// All columns but the key are text, and the encoding is UTF-8.
    pub(super) is_plain_text: bool,
    pub(super) rows: usize,
}

/// A field before it is written.
struct Drawn {
    text: String,
    cell: Cell,
    may_be_quoted: bool,
    must_be_quoted: bool,
}

/// How often quotes are written where none are needed, of 8.
type QuotedOf8 = u8;

impl CsvFile {
    pub(super) fn draw(random: &mut Rng, wish: Wish) -> Self {
        let encodings = [UTF_8, UTF_8, UTF_8, UTF_16LE, UTF_16BE, WINDOWS_1252, SHIFT_JIS, GB18030];
        let encoding = if wish.is_plain_text { UTF_8 } else { random.choice(encodings).expect("one") };
        let is_utf = encoding.name().starts_with("UTF");
        let mut file = Self {
            options: options(random),
            columns: Vec::new(),
            header: None,
            rows: Vec::new(),
            encoding,
            has_mark: is_utf && random.bool(),
            compression: wish.compression,
            key: 0,
            anchors: Vec::new(),
        };
        let parts = parts(&file.options, encoding);
        let is_alone = random.u8(..20) == 0 && !wish.is_plain_text;
        let count = if is_alone { 1 } else { random.usize(2..9) };
        let key = random.usize(..count);
        file.key = key;
        let kinds = (0..count).map(|column| match column {
            column if column == key => Kind::Key,
            _ if wish.is_plain_text => Kind::Text,
            _ => random_kind(random),
        });
        let kinds: Vec<Kind> = kinds.collect();
        let mut columns: Vec<Vec<Drawn>> = Vec::new();
        for kind in &kinds {
            let anchor = random.usize(..wish.rows.clamp(1, 50));
            file.anchors.push(anchor);
            columns.push(file.column(random, *kind, anchor, wish.rows, &parts));
        }
        let quoted: QuotedOf8 = *random.choice(&[0, 0, 2, 8]).expect("one");
        let style = random.u8(..4);
        for row in 0..wish.rows {
            let fields: Vec<&Drawn> = columns.iter().map(|column| &column[row]).collect();
            let line = file.line(random, &fields, quoted, style, !is_alone);
            file.rows.push(line);
        }
        file.name_columns(random, &kinds, &columns, quoted, style);
        if let Some(last) = file.rows.last_mut() {
            last.end = if random.bool() { last.end } else { "" };
        }
        // The encoding is recognised in text that is mostly Latin, and with a mark.
        let text = file.text();
        let latin = text.chars().take(2000).filter(char::is_ascii).count();
        let is_latin = text.len() > 40 && latin * 10 > text.chars().take(2000).count() * 9;
        let is_recognised = encoding == UTF_8 || (is_utf && (file.has_mark || is_latin));
        if !is_recognised || random.u8(..4) == 0 {
            file.options.encoding = Some(encoding_named(encoding.name()).expect("a known name"));
        }
        file
    }

    fn column(
        &self,
        random: &mut Rng,
        kind: Kind,
        anchor: usize,
        rows: usize,
        parts: &[String],
    ) -> Vec<Drawn> {
        let nulls_of_8 = match kind {
            Kind::Key => 0,
            _ => *random.choice(&[0, 1, 1, 4, 7, 8]).expect("one"),
        };
        let is_empty = nulls_of_8 == 8;
        let field = |row: usize| {
            let is_anchor = row == anchor && !is_empty;
            if !is_anchor && random.u8(..8) < nulls_of_8 {
                let text = random.choice(&self.options.nulls).expect("one").clone();
                let may_be_quoted = kind != Kind::Text && !is_empty;
                return Drawn { text, cell: Cell::Null, may_be_quoted, must_be_quoted: false };
            }
            let (text, cell) = match kind {
                Kind::Key => (row.to_string(), Cell::Integer(row as i128)),
                Kind::Text => {
                    let text = values::text(random, parts);
                    let text = self.writable(if is_anchor { format!("t{text}") } else { text });
                    (text.clone(), Cell::Text(text))
                }
                _ => value(random, kind, is_anchor),
            };
            let must_be_quoted = kind == Kind::Text && self.options.nulls.contains(&text);
            Drawn { text, cell, may_be_quoted: true, must_be_quoted }
        };
        (0..rows).map(field).collect()
    }

    /// A text without what only quotes can hold, if there are no quotes.
    fn writable(&self, text: String) -> String {
        if self.options.quote.is_some() {
            return text;
        }
        let delimiter = char::from(self.options.delimiter);
        let text = text.replace([delimiter, '\n', '\r'], "_");
        if self.options.nulls.contains(&text) { format!("t{text}") } else { text }
    }

    fn line(
        &self,
        random: &mut Rng,
        fields: &[&Drawn],
        quoted: QuotedOf8,
        style: u8,
        may_skip: bool,
    ) -> Line {
        let end = match style {
            0 => "\n",
            1 => "\r\n",
            2 => "\r",
            _ => *random.choice(&["\n", "\r\n"]).expect("one"),
        };
        let written = fields.iter().map(|field| {
            let is_quoted = field.must_be_quoted || (field.may_be_quoted && random.u8(..8) < quoted);
            self.written(&field.text, is_quoted)
        });
        let written: Vec<String> = written.collect();
        let empty = if may_skip && random.u8(..16) == 0 { random.usize(1..3) } else { 0 };
        Line {
            written: written.join(&char::from(self.options.delimiter).to_string()),
            texts: fields.iter().map(|field| field.text.clone()).collect(),
            cells: fields.iter().map(|field| field.cell.clone()).collect(),
            end,
            empty_lines: end.repeat(empty),
        }
    }

    /// A field as it is written, in quotes if it needs some or if that is asked for.
    pub(super) fn written(&self, text: &str, is_quoted: bool) -> String {
        let Some(quote) = self.options.quote.map(char::from) else { return text.to_owned() };
        let is_special = text.contains(['\n', '\r', char::from(self.options.delimiter)]);
        if !is_quoted && !is_special && !text.starts_with(quote) {
            return text.to_owned();
        }
        let escape = self.options.escape.map_or(quote, char::from);
        let mut written = String::from(quote);
        for character in text.chars() {
            if character == quote || character == escape {
                written.push(escape);
            }
            written.push(character);
        }
        written.push(quote);
        written
    }

    fn name_columns(
        &mut self,
        random: &mut Rng,
        kinds: &[Kind],
        columns: &[Vec<Drawn>],
        quoted: QuotedOf8,
        style: u8,
    ) {
        // A file of no rows has a header at least.
        self.options.has_header &= columns.len() > 1 || random.bool();
        self.options.has_header |= columns[0].is_empty();
        let mut header = Vec::new();
        for (column, (kind, drawn)) in kinds.iter().zip(columns).enumerate() {
            let odd = ["\u{e9}", " x", "\"", "'", ",;", "\n", "\t", "A b"];
            let name = match random.u8(..8) {
                _ if *kind == Kind::Key => "key".to_owned(),
                0 => String::new(),
                1 => format!("c{column}{}", random.choice(odd).expect("one")),
                _ => format!("c{column}"),
            };
            let name = if is_in(self.encoding, &name) { name } else { format!("c{column}") };
            let name = if name.is_empty() { name } else { self.without_special(name) };
            let stored = match name.as_str() {
                name if self.options.has_header && !name.is_empty() => name.to_owned(),
                _ => format!("column{}", column + 1),
            };
            let value = drawn.iter().find(|field| field.cell != Cell::Null);
            let type_name = value.map_or(Cell::Null.type_name(), |field| field.cell.type_name());
            let type_name = if *kind == Kind::Key && drawn.is_empty() { "text" } else { type_name };
            self.columns.push((stored, type_name.to_owned()));
            header.push(Drawn { text: name, cell: Cell::Null, may_be_quoted: true, must_be_quoted: false });
        }
        if self.options.has_header {
            let fields: Vec<&Drawn> = header.iter().collect();
            self.header = Some(self.line(random, &fields, quoted, style, true));
        }
    }

    fn without_special(&self, name: String) -> String {
        match self.options.quote {
            Some(_) => name,
            None => name.replace([char::from(self.options.delimiter), '\n', '\r'], "_"),
        }
    }

    /// The name of the column whose values are all there and different.
    pub(super) fn key(&self) -> &str {
        &self.columns[self.key].0
    }

    fn all_lines(&self) -> impl Iterator<Item = &Line> {
        self.header.iter().chain(&self.rows)
    }

    pub(super) fn text(&self) -> String {
        let lines = self.all_lines().map(|line| format!("{}{}{}", line.empty_lines, line.written, line.end));
        lines.collect()
    }

    /// The lines on which rows begin, counted from 1.
    pub(super) fn numbers(&self) -> Vec<usize> {
        let (mut numbers, mut number) = (Vec::new(), 1);
        for line in self.all_lines() {
            number += ends_in(&line.empty_lines);
            numbers.push(number);
            number += ends_in(&format!("{}{}", line.written, line.end));
        }
        numbers.split_off(usize::from(self.header.is_some()))
    }

    /// The bytes of a text in the file's encoding and compression.
    pub(super) fn bytes(&self, random: &mut Rng, text: &str) -> Vec<u8> {
        self.members(random, text).concat()
    }

    /// The bytes of each member of the compressed file.
    pub(super) fn members(&self, random: &mut Rng, text: &str) -> Vec<Vec<u8>> {
        let mark = if self.has_mark { "\u{feff}" } else { "" };
        let text = format!("{mark}{text}");
        let units = |bytes: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(bytes).collect();
        let bytes: Vec<u8> = match self.encoding {
            encoding if encoding == UTF_16LE => units(u16::to_le_bytes),
            encoding if encoding == UTF_16BE => units(u16::to_be_bytes),
            encoding => encoding.encode(&text).0.into_owned(),
        };
        let is_whole = self.compression == Compression::None || random.bool();
        let cut = if is_whole { bytes.len() } else { random.usize(..=bytes.len()) };
        let parts = [&bytes[..cut], &bytes[cut..]];
        parts[..2 - usize::from(is_whole)].iter().map(|part| self.compression.member(part)).collect()
    }

    /// Whether every column has the type that it had if these rows are not there.
    pub(super) fn is_anchored_without(&self, odd: &[usize]) -> bool {
        !self.anchors.iter().any(|row| odd.contains(row))
    }

    pub(super) fn stored_rows(&self) -> Vec<Row> {
        self.rows.iter().map(|row| row.cells.clone()).collect()
    }
}

/// The line ends that people count.
fn ends_in(text: &str) -> usize {
    text.replace("\r\n", "\n").matches(['\n', '\r']).count()
}

fn options(random: &mut Rng) -> CsvOptions {
    let quote = *random.choice(&[Some(b'"'), Some(b'"'), Some(b'"'), Some(b'\''), None]).expect("one");
    let delimiter = *match quote {
        Some(_) => random.choice(b",,,;\t|: ^\x01.-x1"),
        None => random.choice(b",;\t|"),
    }
    .expect("one");
    let escape =
        quote.filter(|_| random.u8(..3) == 0).map(|quote| *random.choice(&[b'\\', quote]).expect("one"));
    // What stands for NULL without quotes must be writable so.
    let nulls = ["", "", "", "NA", "NULL", "\\N", "-", "?"];
    let nulls = nulls.into_iter().filter(|null| !null.contains(char::from(delimiter)));
    let nulls: Vec<&str> = nulls.collect();
    let nulls = (0..random.usize(1..3)).map(|_| (*random.choice(&nulls).expect("one")).to_owned()).collect();
    CsvOptions {
        delimiter,
        quote,
        escape,
        nulls,
        has_header: random.u8(..4) > 0,
        encoding: None,
        reject: None,
    }
}
