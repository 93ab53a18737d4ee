//! `string_agg()` with a bound on the length of its results.
//!
//! DataFusion's builds the texts of a whole batch before it reserves memory for them:
//! `string_agg(s, repeat('y', 100000000))` took all memory of the host. Ours checks the lengths
//! first. It returns text views, so that a join does not copy a long text.

use std::sync::Arc;

use datafusion::{
    arrow::{
        array::{Array, ArrayRef, AsArray, BooleanArray},
        compute::cast,
        datatypes::{DataType, FieldRef},
    },
    common::{Result, exec_err},
    functions_aggregate::string_agg::string_agg_udaf,
    logical_expr::{
        Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF,
        Signature,
        function::{AccumulatorArgs, StateFieldsArgs},
        utils::AggregateOrderSensitivity,
    },
    physical_expr::expressions::Literal,
    scalar::ScalarValue,
};

use super::{is_kept, text_window::TextWindow};
use crate::limits::COLLECTED_BYTES_MAX;

/// DataFusion's, bounded.
#[derive(Debug, PartialEq, Eq, Hash)]
struct StringAgg {
    inner: AggregateUDF,
}

/// It takes the place of DataFusion's.
pub(super) fn string_agg() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(StringAgg { inner: string_agg_udaf().as_ref().clone() }))
}

/// The arguments with the type that DataFusion's returns.
fn of_inner(mut arguments: AccumulatorArgs<'_>) -> AccumulatorArgs<'_> {
    let field = arguments.return_field.as_ref().clone().with_data_type(DataType::LargeUtf8);
    arguments.return_field = Arc::new(field);
    arguments
}

impl AggregateUDFImpl for StringAgg {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(arguments)
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let measure = Measure::new(&arguments);
        let inner = self.inner.accumulator(of_inner(arguments))?;
        Ok(Box::new(MeasuredValue { inner, measure, read_bytes: 0 }))
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if arguments.is_distinct {
            return self.accumulator(arguments);
        }
        let measure = Measure::new(&arguments);
        let inner = Box::new(TextWindow::new(delimiter(&arguments).to_owned()));
        Ok(Box::new(MeasuredValue { inner, measure, read_bytes: 0 }))
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs<'_>) -> bool {
        self.inner.groups_accumulator_supported(arguments)
    }

    fn create_groups_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let measure = Measure::new(&arguments);
        let inner = self.inner.create_groups_accumulator(of_inner(arguments))?;
        Ok(Box::new(MeasuredTexts { inner, measure }))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn with_beneficial_ordering(
        self: Arc<Self>,
        is_beneficial: bool,
    ) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        let inner = self.inner.clone().with_beneficial_ordering(is_beneficial)?;
        Ok(inner.map(|inner| Arc::new(Self { inner }) as _))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        match self.inner.reverse_udf() {
            ReversedUDAF::Reversed(inner) => {
                let reversed = Self { inner: inner.as_ref().clone() };
                ReversedUDAF::Reversed(Arc::new(AggregateUDF::from(reversed)))
            }
            other => other,
        }
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.inner.supports_null_handling_clause()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

/// The constant between two texts; DataFusion refuses others.
fn delimiter<'a>(arguments: &AccumulatorArgs<'a>) -> &'a str {
    let literal = arguments.exprs.get(1).and_then(|delimiter| delimiter.downcast_ref::<Literal>());
    literal.and_then(|literal| literal.value().try_as_str().flatten()).unwrap_or_default()
}

/// How the bytes of one aggregate are counted.
#[derive(Debug)]
struct Measure {
    is_distinct: bool,
    delimiter_bytes: u64,
}

impl Measure {
    fn new(arguments: &AccumulatorArgs<'_>) -> Self {
        let delimiter_bytes = delimiter(arguments).len() as u64;
        Self { is_distinct: arguments.is_distinct, delimiter_bytes }
    }

    /// Bytes of the texts of the rows that a filter keeps, or of the states of groups, with a
    /// delimiter for each. DISTINCT keeps few of its texts, so only its delimiters count.
    fn bytes(&self, values: &ArrayRef, filter: Option<&BooleanArray>) -> Result<u64> {
        let texts = match values.data_type() {
            DataType::List(_) => values.as_list::<i32>().values(),
            _ => values,
        };
        let texts = cast(texts, &DataType::Utf8View)?;
        let texts = texts.as_string_view().iter().enumerate();
        let kept = texts.filter(|(row, _)| is_kept(filter, *row)).filter_map(|(_, text)| text);
        let of_text = |text: &str| if self.is_distinct { 0 } else { text.len() as u64 };
        let bytes = kept.map(|text| of_text(text).saturating_add(self.delimiter_bytes));
        Ok(bytes.fold(0, u64::saturating_add))
    }

    fn check(&self, bytes: u64) -> Result<()> {
        if bytes > COLLECTED_BYTES_MAX {
            return exec_err!(
                "requested length too large: string_agg() makes {bytes} bytes or more of the rows of a group, \
                 a window, or a batch, expected at most {COLLECTED_BYTES_MAX}"
            );
        }
        Ok(())
    }
}

/// The value of one group, or those of a window.
#[derive(Debug)]
struct MeasuredValue {
    inner: Box<dyn Accumulator>,
    measure: Measure,
    read_bytes: u64,
}

impl MeasuredValue {
    fn add(&mut self, values: &ArrayRef) -> Result<()> {
        self.read_bytes = self.read_bytes.saturating_add(self.measure.bytes(values, None)?);
        self.measure.check(self.read_bytes)
    }
}

impl Accumulator for MeasuredValue {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(&values[0])?;
        self.inner.update_batch(values)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.add(&states[0])?;
        self.inner.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.read_bytes = self.read_bytes.saturating_sub(self.measure.bytes(&values[0], None)?);
        self.inner.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(match self.inner.evaluate()? {
            ScalarValue::LargeUtf8(text) => ScalarValue::Utf8View(text),
            other => other,
        })
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }
}

/// The texts of groups.
struct MeasuredTexts {
    inner: Box<dyn GroupsAccumulator>,
    measure: Measure,
}

impl MeasuredTexts {
    fn check(&self, values: &ArrayRef, filter: Option<&BooleanArray>) -> Result<()> {
        self.measure.check(self.measure.bytes(values, filter)?)
    }
}

impl GroupsAccumulator for MeasuredTexts {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total_groups: usize,
    ) -> Result<()> {
        self.check(&values[0], filter)?;
        self.inner.update_batch(values, groups, filter, total_groups)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total_groups: usize) -> Result<()> {
        // The texts of states are in memory, and accounted for.
        let known = groups.len() - states[0].null_count();
        self.measure.check(self.measure.delimiter_bytes.saturating_mul(known as u64))?;
        self.inner.merge_batch(states, groups, total_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        Ok(cast(&self.inner.evaluate(emit_to)?, &DataType::Utf8View)?)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.inner.state(emit_to)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.check(&values[0], filter)?;
        self.inner.convert_to_state(values, filter)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }
}
