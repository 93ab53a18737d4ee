//! Generates chunks for tests, and reads all values of them.

use rackscan_format::{
    chunk::{ChunkError, ChunkInput, ChunkWriter, Effort, EncodedPage, Values},
    encoding::{
        Encoding,
        bitpack::Scratch,
        text::{TextBuffer, TextValues},
    },
    ids::{ColumnId, PageNumber, SegmentId, TableId},
    page::{PageFault, PageIdentity, PageView},
    schema::ColumnType,
};

/// The column that tests encode.
pub(crate) fn identity(page: usize) -> PageIdentity {
    PageIdentity {
        table: TableId(0x0a0b_0c0d),
        segment: SegmentId(7),
        column: ColumnId(3),
        page: PageNumber(u16::try_from(page).expect("tests write few pages")),
    }
}

/// Values of a chunk that tests own.
#[derive(Clone, Debug)]
pub(crate) enum Column {
    Integers(Vec<i64>),
    Floats(Vec<f64>),
    Texts(Vec<Vec<u8>>),
}

impl Column {
    pub(crate) fn rows(&self) -> usize {
        match self {
            Self::Integers(values) => values.len(),
            Self::Floats(values) => values.len(),
            Self::Texts(values) => values.len(),
        }
    }

    /// The chosen rows. Values are as the reader returns them, floats as bits.
    pub(crate) fn rows_at(&self, rows: &[u32]) -> Decoded {
        let rows = rows.iter().map(|row| *row as usize);
        match self {
            Self::Integers(values) => Decoded::Integers(rows.map(|row| values[row]).collect()),
            Self::Floats(values) => Decoded::Floats(rows.map(|row| values[row].to_bits()).collect()),
            Self::Texts(values) => Decoded::Texts(rows.map(|row| values[row].clone()).collect()),
        }
    }
}

/// Values that were read from pages.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decoded {
    Integers(Vec<i64>),
    Floats(Vec<u64>),
    Texts(Vec<Vec<u8>>),
}

/// One bit per row.
pub(crate) fn bitmap(valid: &[bool]) -> Vec<u8> {
    let byte = |bits: &[bool]| bits.iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(*bit));
    valid.chunks(8).map(byte).collect()
}

/// The pages of a chunk.
pub(crate) fn encode(
    column: &Column,
    valid: Option<&[bool]>,
    page_bytes: u32,
) -> Result<Vec<EncodedPage>, ChunkError> {
    encode_with(Effort::Full, column, valid, page_bytes)
}

pub(crate) fn encode_with(
    effort: Effort,
    column: &Column,
    valid: Option<&[bool]>,
    page_bytes: u32,
) -> Result<Vec<EncodedPage>, ChunkError> {
    let texts;
    let (values, column_type) = match column {
        Column::Integers(values) => (Values::Integers(values), ColumnType::Int64),
        Column::Floats(values) => (Values::Floats(values), ColumnType::Float64),
        Column::Texts(values) => {
            let ends = values.iter().scan(0, |end, text| {
                *end += u32::try_from(text.len()).expect("tests write short texts");
                Some(*end)
            });
            texts = (values.concat(), std::iter::once(0).chain(ends).collect::<Vec<u32>>());
            (Values::Text(TextValues { bytes: &texts.0, offsets: &texts.1 }), ColumnType::Text)
        }
    };
    let PageIdentity { table, segment, column, .. } = identity(0);
    let validity = valid.map(bitmap);
    let validity = validity.as_deref();
    let chunk = ChunkInput { table, segment, column, column_type, values, validity, page_bytes };
    let mut pages = Vec::new();
    ChunkWriter::with(effort).encode(&chunk, &mut |page| pages.push(page))?;
    Ok(pages)
}

/// All rows of a page.
pub(crate) fn decode(view: &PageView<'_>) -> Result<Decoded, PageFault> {
    let mut scratch = Scratch::new();
    let mut texts = TextBuffer::default();
    match view.encoding() {
        Encoding::Integer => {
            let mut values = Vec::new();
            view.integers()?.decode_into(0..view.rows(), &mut scratch, &mut values)?;
            return Ok(Decoded::Integers(values));
        }
        Encoding::Float => {
            let mut values = Vec::new();
            view.floats()?.decode_into(0..view.rows(), &mut values)?;
            return Ok(Decoded::Floats(values.into_iter().map(f64::to_bits).collect()));
        }
        Encoding::Dictionary => {
            let page = view.dictionary()?;
            let mut codes = Vec::new();
            (0..view.blocks()).try_for_each(|block| page.decode_block(block, &mut scratch, &mut codes))?;
            return Ok(Decoded::Texts(
                codes.iter().map(|code| page.entry(*code as usize).to_vec()).collect(),
            ));
        }
        Encoding::Fsst => {
            let page = view.fsst()?;
            (0..view.blocks()).try_for_each(|block| page.decode_block(block, &mut scratch, &mut texts))?;
        }
        Encoding::Plain => {
            let mut page = view.plain()?;
            (0..view.blocks()).try_for_each(|block| page.decode_block(block, &mut scratch, &mut texts))?;
        }
    }
    Ok(Decoded::Texts((0..texts.len()).map(|row| texts.get(row).to_vec()).collect()))
}

/// Some rows of a page.
pub(crate) fn gather(view: &PageView<'_>, rows: &[u32]) -> Result<Decoded, PageFault> {
    let mut scratch = Scratch::new();
    let mut texts = TextBuffer::default();
    match view.encoding() {
        Encoding::Integer => {
            let mut values = Vec::new();
            view.integers()?.gather(rows, &mut scratch, &mut values)?;
            return Ok(Decoded::Integers(values));
        }
        Encoding::Float => {
            let mut values = Vec::new();
            view.floats()?.gather(rows, &mut values)?;
            return Ok(Decoded::Floats(values.into_iter().map(f64::to_bits).collect()));
        }
        Encoding::Dictionary => {
            let page = view.dictionary()?;
            let mut codes = Vec::new();
            page.gather(rows, &mut scratch, &mut codes)?;
            return Ok(Decoded::Texts(
                codes.iter().map(|code| page.entry(*code as usize).to_vec()).collect(),
            ));
        }
        Encoding::Fsst => view.fsst()?.gather(rows, &mut scratch, &mut texts)?,
        Encoding::Plain => view.plain()?.gather(rows, &mut scratch, &mut texts)?,
    }
    Ok(Decoded::Texts((0..texts.len()).map(|row| texts.get(row).to_vec()).collect()))
}

/// Pseudorandom numbers, the same in every run.
pub(crate) fn noise(seed: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(seed), |state| {
        Some(state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f))
    })
    .map(|state| state ^ state >> 29)
    .skip(1)
}

/// One chunk for each encoding, with the encoding.
pub(crate) fn one_of_each() -> Vec<(&'static str, Encoding, Column)> {
    let rows = 1500;
    let words = ["final", "deposits", "sleep", "furiously", "among", "the", "regular", "ideas"];
    let sentence = |number: u64| {
        let word = |place: u64| words[usize::try_from(number >> (3 * place) & 7).expect("three bits")];
        format!("{} {} {} {number}", word(0), word(1), word(2)).into_bytes()
    };
    let plain = |number: u64| number.to_le_bytes()[..usize::try_from(number % 9).expect("small")].to_vec();
    let sparse = |row: i64| if row % 7 < 3 { row * 4 } else { row * 4 + 1 };
    let numbers = || noise(42).take(rows);
    let cents = numbers().map(|number| i64::from(number.to_le_bytes()[3]) * 100 - 5000).collect();
    let wide = numbers().map(u64::cast_signed).collect();
    vec![
        ("packed", Encoding::Integer, Column::Integers(cents)),
        ("wide", Encoding::Integer, Column::Integers(wide)),
        ("increments", Encoding::Integer, Column::Integers((0..1500).map(sparse).collect())),
        ("constant", Encoding::Integer, Column::Integers(vec![-7; rows])),
        ("float", Encoding::Float, Column::Floats((0..1500).map(|row| f64::from(row) / 8.0).collect())),
        ("dictionary", Encoding::Dictionary, Column::Texts(numbers().map(|n| sentence(n % 37)).collect())),
        ("fsst", Encoding::Fsst, Column::Texts(numbers().map(|n| sentence(n >> 40)).collect())),
        ("plain", Encoding::Plain, Column::Texts(numbers().map(plain).collect())),
    ]
}
