//! Measures the encoded size of TPC-H `lineitem`, and the speed of encoding and decoding it.
//!
//!     cargo run --release -p rackscan-format --example encode_lineitem -- --scale 1
//!
//! Prints one JSON line: stored bytes per column; MB/s of encoding on one core, counted in bytes of
//! the rows' text form, without the time of generating rows; GB/s of decoding, counted in decoded
//! bytes, including the check of checksums; nanoseconds per unpacked block of integers.

use rackscan_format::{
    chunk::{ChunkInput, ChunkWriter, EncodedPage, Values},
    encoding::{
        Encoding,
        bitpack::Scratch,
        text::{TextBuffer, TextValues},
    },
    ids::{ColumnId, PageNumber, SegmentId, TableId},
    limits::{PAGE_SIZE_DEFAULT, SEGMENT_ROWS_DEFAULT},
    page::{PageFault, PageIdentity, PageView},
    schema::ColumnType,
};
use std::{
    fmt::Write,
    hint::black_box,
    time::{Duration, Instant},
};
use tpchgen::generators::{LineItem, LineItemGenerator};

const MONEY: ColumnType = ColumnType::Decimal { precision: 15, scale: 2 };
const TABLE: TableId = TableId(1);

const COLUMNS: [(&str, ColumnType); 16] = [
    ("l_orderkey", ColumnType::Int64),
    ("l_partkey", ColumnType::Int64),
    ("l_suppkey", ColumnType::Int64),
    ("l_linenumber", ColumnType::Int32),
    ("l_quantity", MONEY),
    ("l_extendedprice", MONEY),
    ("l_discount", MONEY),
    ("l_tax", MONEY),
    ("l_shipdate", ColumnType::Date32),
    ("l_commitdate", ColumnType::Date32),
    ("l_receiptdate", ColumnType::Date32),
    ("l_returnflag", ColumnType::Text),
    ("l_linestatus", ColumnType::Text),
    ("l_shipinstruct", ColumnType::Text),
    ("l_shipmode", ColumnType::Text),
    ("l_comment", ColumnType::Text),
];
const INTEGERS: usize = 11;

/// The rows of one segment, column by column.
#[derive(Default)]
struct Segment {
    integers: [Vec<i64>; INTEGERS],
    texts: [TextBuffer; COLUMNS.len() - INTEGERS],
    text_form_bytes: u64,
}

impl Segment {
    fn push(&mut self, row: &LineItem<'_>, line: &mut String) -> Result<(), PageFault> {
        let integers = [
            row.l_orderkey,
            row.l_partkey,
            row.l_suppkey,
            row.l_linenumber.into(),
            row.l_quantity * 100,
            row.l_extendedprice.into_inner(),
            row.l_discount.into_inner(),
            row.l_tax.into_inner(),
            row.l_shipdate.to_unix_epoch().into(),
            row.l_commitdate.to_unix_epoch().into(),
            row.l_receiptdate.to_unix_epoch().into(),
        ];
        self.integers.iter_mut().zip(integers).for_each(|(column, value)| column.push(value));
        let texts = [row.l_returnflag, row.l_linestatus, row.l_shipinstruct, row.l_shipmode, row.l_comment];
        for (column, text) in self.texts.iter_mut().zip(texts) {
            column.push(text.as_bytes())?;
        }
        line.clear();
        write!(line, "{row}").expect("writing to a string succeeds");
        self.text_form_bytes += line.len() as u64 + 1;
        Ok(())
    }

    fn rows(&self) -> usize {
        self.integers[0].len()
    }

    fn clear(&mut self) {
        self.integers.iter_mut().for_each(Vec::clear);
        self.texts.iter_mut().for_each(TextBuffer::clear);
    }
}

/// The measurements of one column.
#[derive(Clone, Copy, Default)]
struct Measured {
    pages: u64,
    stored_bytes: u64,
    decoded_bytes: u64,
    blocks: u64,
    encode: Duration,
    open: Duration,
    decode: Duration,
    unpack: Duration,
    encoding: Option<Encoding>,
}

struct Bench {
    writer: ChunkWriter,
    scratch: Box<Scratch>,
    integers: Vec<i64>,
    codes: Vec<u32>,
    texts: TextBuffer,
    columns: [Measured; COLUMNS.len()],
}

impl Bench {
    fn segment(&mut self, number: u32, segment: &Segment) -> Result<(), Box<dyn std::error::Error>> {
        for (index, (_, column_type)) in COLUMNS.iter().enumerate() {
            let offsets: Vec<u32>;
            let values = match segment.integers.get(index) {
                Some(values) => Values::Integers(values),
                None => {
                    let TextBuffer { bytes, ends } = &segment.texts[index - INTEGERS];
                    offsets = std::iter::once(0).chain(ends.iter().copied()).collect();
                    Values::Text(TextValues { bytes, offsets: &offsets })
                }
            };
            let chunk = ChunkInput {
                table: TABLE,
                segment: SegmentId(number),
                column: ColumnId(u16::try_from(index)?),
                column_type: *column_type,
                values,
                validity: None,
                page_bytes: PAGE_SIZE_DEFAULT,
            };
            let mut pages = Vec::new();
            let start = Instant::now();
            self.writer.encode(&chunk, &mut |page| pages.push(page))?;
            self.columns[index].encode += start.elapsed();
            for (page, encoded) in (0..).map(PageNumber).zip(&pages) {
                let identity =
                    PageIdentity { table: TABLE, segment: chunk.segment, column: chunk.column, page };
                self.page(index, encoded, &identity)?;
            }
        }
        Ok(())
    }

    fn page(&mut self, column: usize, page: &EncodedPage, identity: &PageIdentity) -> Result<(), PageFault> {
        let measured = &mut self.columns[column];
        measured.pages += 1;
        measured.stored_bytes += page.bytes.len() as u64;
        let start = Instant::now();
        let view = PageView::open(&page.bytes, identity)?;
        measured.open += start.elapsed();
        measured.encoding = Some(view.encoding());
        measured.blocks += view.blocks() as u64;
        let start = Instant::now();
        let decoded = match view.encoding() {
            Encoding::Integer => {
                self.integers.clear();
                view.integers()?.decode_into(0..view.rows(), &mut self.scratch, &mut self.integers)?;
                size_of_val(self.integers.as_slice())
            }
            Encoding::Dictionary => {
                self.codes.clear();
                let dictionary = view.dictionary()?;
                for block in 0..view.blocks() {
                    dictionary.decode_block(block, &mut self.scratch, &mut self.codes)?;
                }
                size_of_val(self.codes.as_slice())
            }
            _ => self.texts(&view)?,
        };
        let measured = &mut self.columns[column];
        measured.decoded_bytes += decoded as u64;
        measured.decode += start.elapsed();
        if view.encoding() == Encoding::Integer {
            let integers = view.integers()?;
            let start = Instant::now();
            for block in 0..view.blocks() {
                black_box(integers.block(block)?.unpack(&mut self.scratch));
            }
            measured.unpack += start.elapsed();
        }
        Ok(())
    }

    fn texts(&mut self, view: &PageView<'_>) -> Result<usize, PageFault> {
        self.texts.clear();
        match view.encoding() {
            Encoding::Fsst => {
                let page = view.fsst()?;
                (0..view.blocks())
                    .try_for_each(|block| page.decode_block(block, &mut self.scratch, &mut self.texts))?;
            }
            _ => {
                let mut page = view.plain()?;
                (0..view.blocks())
                    .try_for_each(|block| page.decode_block(block, &mut self.scratch, &mut self.texts))?;
            }
        }
        Ok(self.texts.bytes.len() + size_of_val(self.texts.ends.as_slice()))
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn per(amount: u64, time: Duration) -> f64 {
    amount as f64 / time.as_secs_f64().max(1e-9)
}

fn report(scale: f64, rows: usize, text_form_bytes: u64, columns: &[Measured]) -> String {
    let sum = |of: fn(&Measured) -> Duration| columns.iter().map(of).sum::<Duration>();
    let total = |of: fn(&Measured) -> u64| columns.iter().map(of).sum::<u64>();
    let encode = sum(|column| column.encode);
    let stored = total(|column| column.stored_bytes);
    let mut line = format!(
        "{{\"bench\":\"encode_lineitem\",\"scale\":{scale},\"rows\":{rows},\"text_form_bytes\":{text_form_bytes},\
         \"stored_bytes\":{stored},\"encode_s\":{:.3},\"encode_mb_s\":{:.0},\"open_gb_s\":{:.2},\"decode_gb_s\":{:.2},\
         \"columns\":{{",
        encode.as_secs_f64(),
        per(text_form_bytes, encode) / 1e6,
        per(stored, sum(|column| column.open)) / 1e9,
        per(total(|column| column.decoded_bytes), sum(|column| column.open) + sum(|column| column.decode))
            / 1e9,
    );
    for (index, ((name, _), column)) in COLUMNS.iter().zip(columns).enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let unpack_ns = 1e9 / per(column.blocks, column.unpack);
        let encoding = column.encoding.map_or("none", Encoding::name);
        let decode = per(column.decoded_bytes, column.decode) / 1e9;
        let Measured { stored_bytes, pages, .. } = column;
        write!(
            line,
            "{comma}\"{name}\":{{\"encoding\":\"{encoding}\",\"bytes\":{stored_bytes},\"pages\":{pages},\
             \"encode_s\":{:.3},\"decode_gb_s\":{decode:.2},\"unpack_ns\":{unpack_ns:.0}}}",
            column.encode.as_secs_f64(),
        )
        .expect("writing to a string succeeds");
    }
    line + "}}"
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let scale: f64 = match arguments.as_slice() {
        [] => 0.01,
        [flag, scale] if flag == "--scale" => scale.parse()?,
        other => return Err(format!("found {other:?}, expected --scale SCALE").into()),
    };
    let mut bench = Bench {
        writer: ChunkWriter::new(),
        scratch: Scratch::new(),
        integers: Vec::new(),
        codes: Vec::new(),
        texts: TextBuffer::default(),
        columns: [Measured::default(); COLUMNS.len()],
    };
    let (mut segment, mut line) = (Segment::default(), String::new());
    let (mut rows, mut number) = (0, 0);
    for row in LineItemGenerator::new(scale, 1, 1).iter() {
        segment.push(&row, &mut line)?;
        if segment.rows() == SEGMENT_ROWS_DEFAULT as usize {
            bench.segment(number, &segment)?;
            (rows, number) = (rows + segment.rows(), number + 1);
            segment.clear();
        }
    }
    if segment.rows() > 0 {
        bench.segment(number, &segment)?;
        rows += segment.rows();
    }
    println!("{}", report(scale, rows, segment.text_form_bytes, &bench.columns));
    Ok(())
}
