//! Implements functions that return texts, with a limit on the length of their results.
//!
//! DataFusion's functions reserve no memory for their results: `lpad('x', 2000000000)` took a
//! minute, and a column of such texts used all memory of the host. Ours compute the length first.
//! This includes functions whose results are about as long as their arguments: a join repeats a
//! long text as a view (a reference to shared bytes), and `upper` then makes a copy for each row.
//! Results are views, so that a join does not copy them.

use std::sync::Arc;

use az::SaturatingAs;
use datafusion::{
    arrow::{
        array::{Array, AsArray},
        compute::cast,
        datatypes::{DataType, FieldRef, Int64Type},
    },
    common::{DataFusionError, Result},
    functions::{core, datetime, encoding, regex, string, unicode},
    logical_expr::{
        ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
        Signature,
    },
    scalar::ScalarValue,
};

use crate::forward::forward;
use crate::limits::{BATCH_COPY_BYTES_MAX, BATCH_TEXT_BYTES_MAX};

/// One of these functions.
#[derive(Debug, PartialEq, Eq, Hash)]
struct LongText {
    inner: Arc<ScalarUDF>,
    growth: Growth,
}

/// How the length of the result depends on the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Growth {
    /// The first argument, repeated as often as the second says.
    Repeated,
    /// As many characters as the second argument says.
    Padded,
    /// The first argument, with each occurrence of the second one replaced by the third one.
    Replaced,
    /// As `Replaced`, but with a pattern, which may match everywhere.
    Matched,
    /// All arguments together, or a few times as long.
    Joined,
    /// All arguments, with the first one between them.
    Separated,
}

/// All functions, under DataFusion's names.
pub(super) fn long_texts() -> impl Iterator<Item = Arc<ScalarUDF>> {
    let functions = [
        (string::repeat(), Growth::Repeated),
        (unicode::lpad(), Growth::Padded),
        (unicode::rpad(), Growth::Padded),
        (string::replace(), Growth::Replaced),
        (regex::regexp_replace(), Growth::Matched),
        (string::concat_ws(), Growth::Separated),
        (string::concat(), Growth::Joined),
        (string::lower(), Growth::Joined),
        (string::split_part(), Growth::Joined),
        (string::upper(), Growth::Joined),
        (unicode::initcap(), Growth::Joined),
        (unicode::reverse(), Growth::Joined),
        (unicode::translate(), Growth::Joined),
        (core::overlay(), Growth::Joined),
        (datetime::to_char(), Growth::Joined),
        (encoding::encode(), Growth::Joined),
        (encoding::decode(), Growth::Joined),
        (regex::regexp_match(), Growth::Joined),
    ];
    functions
        .into_iter()
        .map(|(inner, growth)| Arc::new(ScalarUDF::new_from_impl(LongText { inner, growth })))
}

impl ScalarUDFImpl for LongText {
    forward! { inner =>
        fn name(&self) -> &str;
        fn aliases(&self) -> &[String];
        fn signature(&self) -> &Signature;
        fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>>;
        fn is_strict(&self) -> bool;
        fn documentation(&self) -> Option<&Documentation>;
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments).map(|found| view_of(&found).unwrap_or(found))
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let field = self.inner.return_field_from_args(arguments)?;
        Ok(match view_of(field.data_type()) {
            Some(view) => Arc::new(field.as_ref().clone().with_data_type(view)),
            None => field,
        })
    }

    fn invoke_with_args(&self, mut arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if self.growth == Growth::Padded
            && let Some(length) = arguments.args.get_mut(1)
        {
            not_negative(length)?;
        }
        let bytes = self.growth.bytes(&arguments.args)?;
        within_bounds(bytes, rows(&arguments.args), &format!("{}()", self.name()))?;
        let types = arguments.arg_fields.iter().map(|field| field.data_type().clone()).collect::<Vec<_>>();
        let made = self.inner.return_type(&types)?;
        arguments.return_field = Arc::new(arguments.return_field.as_ref().clone().with_data_type(made));
        let made = self.inner.invoke_with_args(arguments)?;
        match view_of(&made.data_type()) {
            Some(view) => made.cast_to(&view, None),
            None => Ok(made),
        }
    }
}

/// Bytes of the texts of all arguments, row by row.
pub(super) fn joined_bytes(arguments: &[ColumnarValue]) -> Result<u64> {
    Growth::Joined.bytes(arguments)
}

/// Checks the bytes of texts that an operation makes for a batch of rows.
///
/// # Errors
/// More than [`BATCH_TEXT_BYTES_MAX`].
pub(super) fn within_bounds(bytes: u64, rows: usize, operation: &str) -> Result<()> {
    if bytes > BATCH_TEXT_BYTES_MAX {
        let long = LongBatch { operation: operation.to_owned(), bytes, rows };
        return Err(DataFusionError::External(Box::new(long)));
    }
    Ok(())
}

/// A batch of rows makes too much text. The query can be planned again with fewer rows in each
/// batch.
#[derive(Debug, thiserror::Error)]
#[error(
    "requested length too large: {operation} makes {bytes} bytes of text of {rows} rows, expected at most \
     {BATCH_TEXT_BYTES_MAX}"
)]
pub(crate) struct LongBatch {
    operation: String,
    bytes: u64,
    rows: usize,
}

impl LongBatch {
    /// How many rows make less text; 0 if a single row makes too much.
    pub(crate) fn fewer_rows(&self) -> u64 {
        match self.rows as u64 {
            0 | 1 => 0,
            rows => (BATCH_COPY_BYTES_MAX as u64 / (self.bytes / rows).max(1)).max(1),
        }
    }
}

/// The view type for a type of texts or bytes.
fn view_of(found: &DataType) -> Option<DataType> {
    match found {
        DataType::Utf8 | DataType::LargeUtf8 => Some(DataType::Utf8View),
        DataType::Binary | DataType::LargeBinary => Some(DataType::BinaryView),
        _ => None,
    }
}

/// Lengths below zero become 0: DataFusion's functions panic at them.
fn not_negative(length: &mut ColumnarValue) -> Result<()> {
    match length {
        ColumnarValue::Scalar(ScalarValue::Int64(Some(length))) => *length = (*length).max(0),
        ColumnarValue::Scalar(_) => {}
        ColumnarValue::Array(lengths) => {
            let found = cast(lengths, &DataType::Int64)?;
            let found = found.as_primitive::<Int64Type>().unary::<_, Int64Type>(|length| length.max(0));
            *lengths = Arc::new(found);
        }
    }
    Ok(())
}

/// The rows of the arguments: 1 if all are constants.
fn rows(arguments: &[ColumnarValue]) -> usize {
    let rows = arguments.iter().filter_map(|argument| match argument {
        ColumnarValue::Array(array) => Some(array.len()),
        ColumnarValue::Scalar(_) => None,
    });
    rows.max().unwrap_or(1)
}

impl Growth {
    /// An upper bound of the bytes of all results; NULL results are counted as well.
    fn bytes(self, arguments: &[ColumnarValue]) -> Result<u64> {
        let rows = rows(arguments);
        let lengths = arguments.iter().enumerate();
        let lengths = lengths.map(|(at, argument)| Lengths::of(argument, self.is_count(at)));
        let lengths = lengths.collect::<Result<Vec<_>>>()?;
        let of = |at: usize, row: usize| lengths.get(at).map_or(0, |lengths| lengths.at(row));
        let sum = |row: usize| (0..lengths.len()).map(|at| of(at, row)).fold(0, u64::saturating_add);
        let bytes = (0..rows).map(|row| match self {
            Self::Repeated => of(0, row).saturating_mul(of(1, row)),
            Self::Padded => of(1, row),
            Self::Replaced => {
                let replaced = of(0, row) / of(1, row).max(1);
                replaced.saturating_mul(of(2, row)).saturating_add(of(0, row))
            }
            Self::Matched => {
                let replaced = of(0, row).saturating_add(1).saturating_mul(of(2, row));
                replaced.saturating_add(of(0, row))
            }
            Self::Joined => sum(row),
            Self::Separated => of(0, row).saturating_mul(lengths.len() as u64).saturating_add(sum(row)),
        });
        Ok(bytes.fold(0, u64::saturating_add))
    }

    /// Whether the argument at this position is a number of repetitions or characters.
    fn is_count(self, at: usize) -> bool {
        at == 1 && matches!(self, Self::Repeated | Self::Padded)
    }
}

/// Lengths of texts in bytes, or numbers: one for all rows, or one for each row.
struct Lengths(Vec<u64>);

impl Lengths {
    fn of(argument: &ColumnarValue, is_count: bool) -> Result<Self> {
        let array = match argument {
            ColumnarValue::Scalar(scalar) => scalar.to_array()?,
            ColumnarValue::Array(array) => Arc::clone(array),
        };
        if is_count {
            let counts = cast(&array, &DataType::Int64)?;
            let counts = counts.as_primitive::<Int64Type>().iter();
            return Ok(Self(counts.map(|count| count.unwrap_or(0).saturating_as::<u64>()).collect()));
        }
        if array.data_type().is_binary() {
            let values = cast(&array, &DataType::BinaryView)?;
            let lengths = values.as_binary_view().iter();
            return Ok(Self(lengths.map(|bytes| bytes.map_or(0, |bytes| bytes.len() as u64)).collect()));
        }
        let texts = cast(&array, &DataType::Utf8View)?;
        let texts = texts.as_string_view();
        let lengths = texts.iter().map(|text| text.map_or(0, |text| text.len() as u64));
        Ok(Self(lengths.collect()))
    }

    fn at(&self, row: usize) -> u64 {
        self.0[if self.0.len() == 1 { 0 } else { row }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::StringArray;

    #[test]
    fn the_length_of_a_text_is_known_before_it_is_made() {
        let texts = ColumnarValue::Array(Arc::new(StringArray::from(vec![Some("ab"), None, Some("cccc")])));
        let text = |text: &str| ColumnarValue::Scalar(ScalarValue::from(text));
        let count = |count: i64| ColumnarValue::Scalar(ScalarValue::from(count));
        for (growth, arguments, expected) in [
            (Growth::Repeated, vec![texts.clone(), count(1000)], 6000),
            (Growth::Repeated, vec![texts.clone(), count(-1)], 0),
            (Growth::Padded, vec![texts.clone(), count(70)], 210),
            (Growth::Replaced, vec![texts.clone(), text("c"), text("1234567890")], 66),
            (Growth::Matched, vec![texts.clone(), text(""), text("12"), text("g")], 24),
            (Growth::Repeated, vec![text("ab"), count(i64::MAX)], u64::MAX - 1),
            (Growth::Joined, vec![texts.clone(), text("12"), texts.clone()], 18),
            (Growth::Joined, vec![ColumnarValue::Array(Arc::new(StringArray::new_null(0))), text("12")], 0),
            (Growth::Separated, vec![text("--"), texts.clone(), texts], 36),
        ] {
            assert_eq!(growth.bytes(&arguments).unwrap(), expected, "{growth:?}");
        }
    }
}
