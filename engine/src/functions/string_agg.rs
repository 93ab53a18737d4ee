//! Implements `string_agg()` so that it reserves memory before it allocates it, with a limit on the
//! length of results.
//!
//! DataFusion's version allocates memory before it reserves any: a `String` that grows needs twice
//! its length, and `string_agg(s, repeat('y', 100000000))` used all memory of the host. Ours stores
//! the texts in parts, and reserves the memory of the whole text before it builds the text. It
//! returns text views, so that a join does not copy a long text. With DISTINCT or ORDER BY,
//! DataFusion's `array_agg()` collects the texts.

use std::{mem, sync::Arc};

use datafusion::{
    arrow::{
        array::{Array, ArrayRef, AsArray, BooleanArray, StringViewBuilder},
        buffer::Buffer,
        compute::{cast, nullif},
        datatypes::{DataType, Field, FieldRef},
    },
    common::{Result, internal_err, not_impl_err},
    functions_aggregate::{array_agg::array_agg_udaf, string_agg::string_agg_udaf},
    logical_expr::{
        Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF,
        Signature,
        function::{AccumulatorArgs, StateFieldsArgs},
        utils::{AggregateOrderSensitivity, format_state_name},
    },
    physical_expr::expressions::Literal,
    scalar::ScalarValue,
};

use super::{
    filter::is_kept,
    joined_text::{JoinedText, check_length},
    text_window::TextWindow,
};
use crate::forward::forward;

/// DataFusion copies a text into a value, and the value into an array.
const COPIES: usize = 2;
/// A text of at least this many bytes becomes a block of its array, without a copy.
const BLOCK_BYTES_MIN: usize = 64 << 10;
/// The minimum bytes of a text in a list: those of its view.
const LISTED_BYTES_MIN: usize = size_of::<u128>();

/// Our `string_agg`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct StringAgg {
    inner: Arc<AggregateUDF>,
}

/// The function that replaces DataFusion's.
pub(super) fn string_agg() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(StringAgg { inner: string_agg_udaf() }))
}

impl AggregateUDFImpl for StringAgg {
    forward! { inner =>
        fn name(&self) -> &str;
        fn signature(&self) -> &Signature;
        fn order_sensitivity(&self) -> AggregateOrderSensitivity;
        fn documentation(&self) -> Option<&Documentation>;
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        if arguments.is_distinct || !arguments.ordering_fields.is_empty() {
            return array_agg_udaf().state_fields(arguments);
        }
        let name = format_state_name(arguments.name, self.name());
        Ok(vec![Arc::new(Field::new(name, DataType::Utf8View, true))])
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let delimiter = delimiter(&arguments)?;
        if is_plain(&arguments) {
            return Ok(Box::new(TextOfAll { delimiter, joined: JoinedText::default() }));
        }
        Ok(Box::new(TextOfList { delimiter, list: list(arguments)?, read_texts: 0 }))
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if arguments.is_distinct {
            return self.accumulator(arguments);
        }
        Ok(Box::new(TextWindow::new(delimiter(&arguments)?)))
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs<'_>) -> bool {
        is_plain(&arguments)
    }

    fn create_groups_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let delimiter = delimiter(&arguments)?;
        Ok(Box::new(TextsOfGroups { delimiter, groups: Vec::new(), stored_bytes: 0, longest: 0 }))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Reversed(string_agg())
    }
}

/// The constant delimiter; empty if it is NULL.
fn delimiter(arguments: &AccumulatorArgs<'_>) -> Result<String> {
    match arguments.exprs.get(1).and_then(|delimiter| delimiter.downcast_ref::<Literal>()) {
        Some(constant) => Ok(constant.value().try_as_str().flatten().unwrap_or_default().to_owned()),
        None => not_impl_err!("a delimiter of string_agg() that is not a constant"),
    }
}

/// Whether the texts are joined in the order in which they come, with duplicates.
fn is_plain(arguments: &AccumulatorArgs<'_>) -> bool {
    !arguments.is_distinct && arguments.order_bys.is_empty()
}

/// Collects the texts, without the delimiter.
fn list(mut arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
    let (exprs, fields) = (arguments.exprs, arguments.expr_fields);
    let of = DataType::new_list(fields[0].data_type().clone(), true);
    arguments.return_field = Arc::new(Field::new(arguments.name, of, true));
    arguments.exprs = &exprs[..1];
    arguments.expr_fields = &fields[..1];
    array_agg_udaf().accumulator(arguments)
}

/// The text of all rows.
#[derive(Debug)]
struct TextOfAll {
    delimiter: String,
    joined: JoinedText,
}

impl Accumulator for TextOfAll {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for text in cast(&values[0], &DataType::Utf8View)?.as_string_view().iter().flatten() {
            self.joined.push(text);
        }
        check_length(self.joined.len(&self.delimiter))
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Utf8View(self.joined.text(&self.delimiter)))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let joined = mem::take(&mut self.joined);
        Ok(vec![ScalarValue::Utf8View(joined.into_text(&self.delimiter))])
    }

    fn size(&self) -> usize {
        let text = self.joined.len(&self.delimiter);
        self.joined.size().saturating_add(text.saturating_mul(COPIES))
    }
}

/// The texts of one group in an order, or the distinct ones.
#[derive(Debug)]
struct TextOfList {
    delimiter: String,
    list: Box<dyn Accumulator>,
    read_texts: usize,
}

impl Accumulator for TextOfList {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.read_texts += values[0].len();
        // The delimiter is left out; the columns to order by follow it.
        let (text, order) = (&values[..1], values.get(2..).unwrap_or_default());
        self.list.update_batch(&[text, order].concat())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.read_texts += states[0].as_list::<i32>().values().len();
        self.list.merge_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let ScalarValue::List(list) = self.list.evaluate()? else {
            return internal_err!("array_agg() makes a list");
        };
        let texts = cast(list.values(), &DataType::Utf8View)?;
        let texts: Vec<&str> = texts.as_string_view().iter().flatten().collect();
        let delimiters = self.delimiter.len().saturating_mul(texts.len().saturating_sub(1));
        let bytes = texts.iter().fold(delimiters, |bytes, text| bytes.saturating_add(text.len()));
        check_length(bytes)?;
        Ok(ScalarValue::Utf8View((!texts.is_empty()).then(|| texts.join(&self.delimiter))))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.list.state()
    }

    fn size(&self) -> usize {
        let list = self.list.size();
        let texts = self.read_texts.min(list / LISTED_BYTES_MIN);
        let delimiters = self.delimiter.len().saturating_mul(texts);
        list.saturating_add(list.saturating_add(delimiters).saturating_mul(COPIES))
    }
}

/// The texts of groups.
struct TextsOfGroups {
    delimiter: String,
    groups: Vec<JoinedText>,
    /// Bytes of memory of their texts.
    stored_bytes: usize,
    /// Bytes of the longest text.
    longest: usize,
}

impl GroupsAccumulator for TextsOfGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total_groups: usize,
    ) -> Result<()> {
        self.groups.resize_with(total_groups, JoinedText::default);
        let texts = cast(&values[0], &DataType::Utf8View)?;
        for ((row, text), group) in texts.as_string_view().iter().enumerate().zip(groups) {
            let Some(text) = text.filter(|_| is_kept(filter, row)) else { continue };
            let joined = &mut self.groups[*group];
            self.stored_bytes += joined.push(text);
            self.longest = self.longest.max(joined.len(&self.delimiter));
        }
        check_length(self.longest)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total_groups: usize) -> Result<()> {
        self.update_batch(states, groups, None, total_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let groups = emit_to.take_needed(&mut self.groups);
        let mut texts = StringViewBuilder::with_capacity(groups.len());
        for joined in groups {
            self.stored_bytes -= joined.size();
            append(&mut texts, joined.into_text(&self.delimiter))?;
        }
        Ok(Arc::new(texts.finish()))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(emit_to)?])
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let texts = cast(&values[0], &DataType::Utf8View)?;
        let is_left_out = (0..texts.len()).map(|row| Some(!is_kept(filter, row)));
        Ok(vec![nullif(&texts, &is_left_out.collect())?])
    }

    fn size(&self) -> usize {
        let groups = self.groups.capacity() * size_of::<JoinedText>();
        self.stored_bytes.saturating_add(self.longest.saturating_mul(COPIES)).saturating_add(groups)
    }
}

/// Appends a text to those of groups, without a copy if it is long.
fn append(texts: &mut StringViewBuilder, text: Option<String>) -> Result<()> {
    match text {
        Some(text) if text.len() >= BLOCK_BYTES_MIN => {
            let bytes = u32::try_from(text.len()).expect("a result is bounded");
            let block = texts.append_block(Buffer::from_vec(text.into_bytes()));
            texts.try_append_view(block, 0, bytes)?;
        }
        text => texts.append_option(text),
    }
    Ok(())
}
