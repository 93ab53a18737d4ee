//! Tests how generated CSV files are loaded that have invalid rows or changed bytes.

use std::fs;

use arrow::{
    array::{Array, AsArray},
    csv::ReaderBuilder,
    datatypes::{DataType, Field, Schema},
};
use fastrand::Rng;
use rackscan_datasets::limits::PIECE_ROWS;

use super::{
    assert_same,
    cells::{Cell, Row},
    columns,
    compression::Compression,
    csv::{arrow_texts, load, row_count},
    csv_files::{CsvFile, Line, Wish},
    seeds, stored,
};
use crate::cluster::TestCluster;

/// A row that is not what the others are.
#[derive(Debug)]
struct Odd {
    row: usize,
    /// The name of the column that must be told, if one must.
    column: Option<String>,
    /// What the message says.
    told: &'static str,
}

/// Makes some rows of a file odd, from the last to the first.
fn make_odd(random: &mut Rng, file: &mut CsvFile) -> Vec<Odd> {
    let count = file.rows.len();
    let mut odd: Vec<Odd> = Vec::new();
    for _ in 0..random.usize(1..6) {
        let end = odd.last().map_or(count, |last| last.row);
        if end == 0 {
            break;
        }
        let row = match random.u8(..6) {
            // Behind the rows that decide the types.
            0..5 if end > PIECE_ROWS + 10 => random.usize(PIECE_ROWS + 10..end),
            0..2 => end - 1,
            _ => random.usize(0..end),
        };
        odd.extend(make_row_odd(random, file, row));
    }
    odd.reverse();
    odd
}

fn make_row_odd(random: &mut Rng, file: &mut CsvFile, row: usize) -> Option<Odd> {
    let delimiter = char::from(file.options.delimiter);
    let width = file.columns.len();
    let field = random.usize(0..width);
    let (name, type_name) = file.columns[field].clone();
    let quote = file.options.quote.map(char::from);
    // Lines within a row would be rows of their own behind a fault of quotes.
    let texts = file.rows[row].texts.iter().map(|text| text.replace(['\n', '\r'], "_"));
    let mut fields: Vec<String> = texts.map(|text| file.written(&text, false)).collect();
    let has_later_quotes = |quote: char| file.rows[row + 1..].iter().any(|row| row.written.contains(quote));
    let (column, told) = match (random.u8(..6), quote) {
        (0, _) if width > 2 => {
            fields.pop();
            (None, "fields, expected the header's")
        }
        (1, Some(quote)) if delimiter != 'x' => {
            fields[field] = format!("{quote}a{quote}x");
            (Some(name), "the quote that opens here is closed before")
        }
        (2, Some(quote)) if field + 1 == width && !has_later_quotes(quote) => {
            fields[field] = format!("{quote}a");
            (Some(name), "the quote that opens here is not closed")
        }
        (3, _) => {
            fields[field] = file.written("a\0", false);
            (None, "U+0000")
        }
        (4 | 5, _) if type_name != "text" => {
            let text = odd_value(random, &type_name, row > PIECE_ROWS + 9)?;
            fields[field] = file.written(text, random.bool());
            (Some(name), "expected a value of type")
        }
        _ => {
            fields.push(String::new());
            (None, "fields, expected the header's")
        }
    };
    let (end, empty_lines) = (file.rows[row].end, file.rows[row].empty_lines.clone());
    let written = fields.join(&delimiter.to_string());
    file.rows[row] = Line { written, texts: Vec::new(), cells: Vec::new(), end, empty_lines };
    Some(Odd { row, column, told })
}

/// A text that a column of this type does not hold. Among the rows that decide the types it has the
/// shape of those that it does.
fn odd_value(random: &mut Rng, type_name: &str, is_late: bool) -> Option<&'static str> {
    let dates = ["2024-02-30", "2023-02-29", "2024-13-01", "2024-00-10", "1900-02-29"];
    let times =
        ["2024-02-30 00:00:00", "2024-01-01T24:00:01", "2024-01-01 00:60:00", "2024-13-01T00:00:00.5"];
    let late: &[&str] = match type_name {
        "boolean" => &["1", "yes", "t", "off"],
        "bigint" => &["1.0", "9223372036854775808", "007", "+5", " 5", "1e3", "0x10", "x", "true"],
        "double" => &["1e999", "12345678901234567890", "9007199254740993", "1e-400", "1,5", "x", "00.5"],
        "date" => &["2024-01-01 00:00:00", "01/02/2024", "2024-1-1", "x", "20240101"],
        "timestamp" => &["2024-01-01T00:00:00Z", "2024-01-01 00:00", "12:00:00", "x", "7"],
        _ => return None,
    };
    let shaped: &[&str] = match type_name {
        "date" => &dates,
        "timestamp" => &times,
        _ => &[],
    };
    let fitting = if is_late && (shaped.is_empty() || random.bool()) { late } else { shaped };
    random.choice(fitting).copied()
}

/// The line, the column, the reason and the text of each row that was left out.
fn rejected(text: &str) -> Vec<(usize, [String; 3])> {
    let fields = ["line", "column", "reason", "row"].map(|name| Field::new(name, DataType::Utf8, true));
    let reader = ReaderBuilder::new(Schema::new(fields.to_vec()).into()).with_header(true);
    let mut rows = Vec::new();
    for batch in reader.build(text.as_bytes()).expect("rejected rows") {
        let batch = batch.expect("rejected rows");
        let text = |column: usize, row: usize| {
            let texts = batch.column(column).as_string::<i32>();
            if texts.is_null(row) { String::new() } else { texts.value(row).to_owned() }
        };
        let told =
            |row: usize| (text(0, row).parse().expect("a line"), [1, 2, 3].map(|column| text(column, row)));
        rows.extend((0..batch.num_rows()).map(told));
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_odd_are_named_by_their_line_and_left_out_exactly_where_that_is_asked_for() {
    let cluster = TestCluster::start(2).await.unwrap();
    let mut told_late = 0;
    for seed in seeds(200) {
        let random = &mut Rng::with_seed(seed);
        let compression = *random.choice(&Compression::ALL).expect("one");
        // Only behind a whole piece of rows are there values of other types.
        let rows = if seed.is_multiple_of(60) { 17_000 } else { row_count(random).clamp(1, 100) };
        let mut file = CsvFile::draw(random, Wish { compression, is_plain_text: false, rows });
        if file.columns.len() == 1 {
            continue;
        }
        let types = file.columns.clone();
        let odd = make_odd(random, &mut file);
        let numbers = file.numbers();
        let (text, options) = (file.text(), format!("{:?}", file.options));
        let bytes = file.bytes(random, &text);
        let lines: Vec<usize> = odd.iter().map(|odd| numbers[odd.row]).collect();
        let of_odd = odd.iter().map(|odd| odd.row).collect::<Vec<_>>();
        let is_first_odd = file.header.is_none() && of_odd.first() == Some(&0);
        // Without a header the first row says how many columns there are, and odd rows that are
        // anchors decide types.
        let is_anchored = file.is_anchored_without(&of_odd);
        if odd.is_empty() || is_first_odd || !is_anchored {
            continue;
        }
        told_late += odd.iter().filter(|odd| odd.row > PIECE_ROWS && odd.column.is_some()).count();
        let error = load(&cluster, seed, &file, &bytes, None).await.expect_err(&text);
        let named = lines.iter().zip(&odd).any(|(line, odd)| {
            let column = odd.column.as_ref().map_or(String::new(), |name| format!(", column {name:?}"));
            error.contains(&format!(": line {line}{column}")) && error.contains(odd.told)
        });
        assert!(named, "seed {seed:#x}, {options}: {error}, expected lines {lines:?}, {odd:?} {text:?}");

        let path = cluster.folder().join("rejected.csv");
        let loaded = load(&cluster, seed, &file, &bytes, Some(&path)).await;
        let loaded = loaded.unwrap_or_else(|error| panic!("seed {seed:#x}: {error}, {options} {text:?}"));
        let told = rejected(&fs::read_to_string(&path).unwrap());
        let told_lines: Vec<usize> = told.iter().map(|(line, ..)| *line).collect();
        assert_eq!(told_lines, lines, "seed {seed:#x}, {options}: {odd:?} {text:?}");
        for ((_, [column, reason, written]), odd) in told.iter().zip(&odd) {
            let is_told = reason.contains(odd.told) && odd.column.as_ref().is_none_or(|name| name == column);
            assert!(is_told, "seed {seed:#x}: {column:?}, {reason}, expected {odd:?}");
            assert_eq!(written, &file.rows[odd.row].written, "seed {seed:#x}, {odd:?}");
        }
        let good: Vec<Row> = file.stored_rows().into_iter().filter(|row| !row.is_empty()).collect();
        assert_eq!((loaded.rows, loaded.rows_rejected), (good.len() as u64, odd.len() as u64));
        assert_eq!(columns(&cluster).await, types, "seed {seed:#x}, {options} {text:?}");
        assert_same(seed, &options, stored(&cluster).await, good);
    }
    let cases = seeds(200).count();
    assert!(told_late > 0 || cases < 200, "no value of another type behind a piece was drawn");
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_changed_in_a_compressed_file_it_is_loaded_as_it_was_or_refused() {
    let cluster = TestCluster::start(1).await.unwrap();
    let (mut refused, mut cases) = (0, 0);
    for seed in seeds(200) {
        let random = &mut Rng::with_seed(seed);
        let compression = *random.choice(&Compression::ALL[1..]).expect("one");
        let rows = random.usize(1..60);
        let file = CsvFile::draw(random, Wish { compression, is_plain_text: false, rows });
        let members = file.members(random, &file.text());
        let (mut bytes, first) = (members.concat(), members[0].len());
        // Without its first bytes nobody knows that a file is compressed.
        let at = random.usize(6..bytes.len());
        // What is cut off where a member ends is whole.
        let is_cut = random.u8(..4) == 0 && at != first;
        if is_cut {
            bytes.truncate(at);
        } else {
            bytes[at] ^= random.u8(1..);
        }
        cases += 1;
        match load(&cluster, seed, &file, &bytes, None).await {
            Ok(_) => assert_same(
                seed,
                &format!("{compression:?}, cut: {is_cut}, {at} of {bytes:?}"),
                stored(&cluster).await,
                file.stored_rows(),
            ),
            Err(_) => refused += 1,
        }
    }
    assert!(refused * 10 > cases * 7, "only {refused} of {cases} files were refused");
}

/// What is read of a text: as one that stands for NULL it may have been in quotes, or not.
fn meant(nulls: &[String], text: &str) -> Cell {
    if nulls.iter().any(|null| null == text) { Cell::Null } else { Cell::Text(text.to_owned()) }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_changed_in_a_file_of_texts_what_is_loaded_is_what_arrow_reads_of_it() {
    let cluster = TestCluster::start(1).await.unwrap();
    let (mut refused, mut compared, mut cases) = (0, 0, 0);
    for seed in seeds(300) {
        let random = &mut Rng::with_seed(seed);
        let rows = random.usize(1..30);
        let wish = Wish { compression: Compression::None, is_plain_text: true, rows };
        let file = CsvFile::draw(random, wish);
        let mut bytes = file.bytes(random, &file.text());
        for _ in 0..random.usize(1..3) {
            let at = random.usize(0..bytes.len());
            bytes[at] = match random.u8(..4) {
                0 => random.u8(..),
                1 => bytes[at] ^ (1 << random.u8(..8)),
                2 => file.options.quote.unwrap_or(b'"'),
                _ => *random.choice(&[b'\n', b'\r', file.options.delimiter, b'a']).expect("one"),
            };
        }
        if random.u8(..5) == 0 {
            bytes.truncate(random.usize(0..bytes.len()));
        }
        cases += 1;
        if load(&cluster, seed, &file, &bytes, None).await.is_err() {
            refused += 1;
            continue;
        }
        // Before ordinary characters, arrow drops an escape that is a character of its own.
        if file.options.escape == Some(b'\\') {
            continue;
        }
        let text =
            String::from_utf8(bytes).unwrap_or_else(|_| panic!("seed {seed:#x}: bytes that are no text"));
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let (options, columns) = (&file.options, columns(&cluster).await);
        let texts = arrow_texts(text, options, columns.len());
        let texts =
            texts.unwrap_or_else(|error| panic!("seed {seed:#x}, arrow: {error}, {options:?} {text:?}"));
        // A change may have made numbers of texts.
        let is_text: Vec<bool> = columns.iter().map(|(_, type_name)| type_name == "text").collect();
        let of_texts = |cells: Row| -> Row {
            let texts = cells.into_iter().zip(&is_text).filter(|(_, is_text)| **is_text);
            texts
                .map(
                    |(cell, _)| if let Cell::Text(text) = cell { meant(&options.nulls, &text) } else { cell },
                )
                .collect()
        };
        let read = texts.iter().map(|row| row.iter().map(|text| meant(&options.nulls, text)).collect());
        let found = stored(&cluster).await.into_iter().map(of_texts).collect();
        assert_same(seed, &format!("{options:?} {text:?}"), found, read.map(of_texts).collect());
        compared += usize::from(is_text.iter().filter(|is_text| **is_text).count() + 1 == is_text.len());
    }
    let is_enough = refused * 10 > cases && compared * 10 > cases;
    assert!(is_enough || cases < 20, "of {cases} files {refused} were refused, {compared} compared");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_lies_in_no_field_changes_no_row() {
    let cluster = TestCluster::start(1).await.unwrap();
    let mut changes = [0; 4];
    for seed in seeds(200) {
        let random = &mut Rng::with_seed(seed);
        let rows = random.usize(1..40);
        let wish = Wish { compression: Compression::None, is_plain_text: true, rows };
        let mut file = CsvFile::draw(random, wish);
        let change = random.usize(..changes.len());
        match (change, &mut file.header) {
            // A letter of a column's name.
            (0, Some(header)) if header.written.contains("c0") => {
                header.written = header.written.replacen("c0", "d0", 1);
            }
            // The end of the last line.
            (1, _) => {
                if let Some(last) = file.rows.last_mut() {
                    last.end = if last.end.is_empty() { "\n" } else { "" };
                }
            }
            // The end of another line.
            (2, _) if rows > 1 => {
                let line = &mut file.rows[random.usize(0..rows - 1)];
                line.end = *random.choice(&["\n", "\r\n"]).expect("one");
            }
            // A line without anything.
            (3, _) => file.rows[random.usize(0..rows)].empty_lines.push_str("\r\n"),
            _ => continue,
        }
        changes[change] += 1;
        let text = file.text();
        let bytes = file.bytes(random, &text);
        let loaded = load(&cluster, seed, &file, &bytes, None).await;
        loaded.unwrap_or_else(|error| panic!("seed {seed:#x}: {error}, {:?} {text:?}", file.options));
        let what = format!("change {change}, {:?} {text:?}", file.options);
        assert_same(seed, &what, stored(&cluster).await, file.stored_rows());
    }
    assert!(changes.iter().all(|count| *count > 0) || seeds(200).count() < 100, "{changes:?}");
}
