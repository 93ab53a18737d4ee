//! Implements exact `sum()` of integers and decimals. A sum that its type cannot hold is an error.
//!
//! DataFusion's version wraps. Sums of integers have 128 bits until they are returned as bigint, so
//! only the whole sum can overflow, whatever the order of rows. DataFusion still computes other
//! types.

use std::{collections::HashMap, sync::Arc};

use datafusion::{
    arrow::{
        array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, ListArray},
        buffer::{NullBuffer, OffsetBuffer},
        datatypes::{
            DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Field, FieldRef, Int64Type, UInt64Type, i256,
        },
        error::ArrowError,
    },
    common::{Result, exec_err},
    error::DataFusionError,
    functions_aggregate::sum::Sum as DataFusionSum,
    logical_expr::{
        Accumulator, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF,
        SetMonotonicity, Signature,
        function::{AccumulatorArgs, StateFieldsArgs},
        utils::{AggregateOrderSensitivity, format_state_name},
    },
    scalar::ScalarValue,
};

use super::{
    checked::sql_name,
    filter::{is_kept, kept},
    float_window::{FloatWindow, Said},
};
use crate::forward::forward;

/// The smallest number that has more digits than a decimal can hold.
const LARGEST: i128 = 10_i128.pow(DECIMAL128_MAX_PRECISION as u32);

#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Sum(DataFusionSum);

/// The type of sums until they are returned; `None` for types that are left to DataFusion.
fn state_type(sum: &DataType) -> Option<DataType> {
    match sum {
        DataType::Int64 | DataType::UInt64 => Some(DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0)),
        DataType::Decimal128(..) => Some(sum.clone()),
        _ => None,
    }
}

/// Values as integers of 128 bits.
fn wide(values: &ArrayRef) -> Result<Decimal128Array> {
    Ok(match values.data_type() {
        DataType::Int64 => values.as_primitive::<Int64Type>().unary::<_, Decimal128Type>(i128::from),
        DataType::UInt64 => values.as_primitive::<UInt64Type>().unary::<_, Decimal128Type>(i128::from),
        DataType::Decimal128(..) => values.as_primitive::<Decimal128Type>().clone(),
        other => return exec_err!("sum() of {other}, expected bigint or decimal"),
    })
}

fn plus(sum: i128, value: i128) -> Result<i128> {
    sum.checked_add(value).ok_or_else(|| overflow(format!("decimal out of range: the sum {sum} + {value}")))
}

fn overflow(what: String) -> DataFusionError {
    ArrowError::ArithmeticOverflow(what).into()
}

/// Sums as values of their result type.
fn put_out(sums: Decimal128Array, sum_type: &DataType) -> Result<ArrayRef> {
    let beyond = |sum: i128| {
        ArrowError::ArithmeticOverflow(format!("{} out of range: the sum {sum}", sql_name(sum_type)))
    };
    Ok(match sum_type {
        DataType::Int64 => {
            let narrow = |sum: i128| i64::try_from(sum).map_err(|_| beyond(sum));
            Arc::new(sums.try_unary::<_, Int64Type, _>(narrow)?) as ArrayRef
        }
        DataType::UInt64 => {
            let narrow = |sum: i128| u64::try_from(sum).map_err(|_| beyond(sum));
            Arc::new(sums.try_unary::<_, UInt64Type, _>(narrow)?)
        }
        sum_type => {
            if let Some(sum) = sums.iter().flatten().find(|sum| sum.abs() >= LARGEST) {
                let what = format!("decimal out of range: the sum {sum} has more than 38 digits");
                return Err(overflow(what));
            }
            Arc::new(sums.with_data_type(sum_type.clone()))
        }
    })
}

fn scalar(sum: Option<i128>, data_type: &DataType) -> Result<ScalarValue> {
    let sums = put_out(Decimal128Array::from(vec![sum]), data_type)?;
    ScalarValue::try_from_array(&sums, 0)
}

/// The sum of one group or window. New rows are added before old ones leave, so it may need more
/// than 128 bits.
#[derive(Debug)]
struct Total {
    sum: i256,
    /// How many values are in it.
    values: usize,
    sum_type: DataType,
    state_type: DataType,
}

impl Total {
    fn sum(&self) -> Result<Option<i128>> {
        if self.values == 0 {
            return Ok(None);
        }
        let beyond = || overflow(format!("decimal out of range: the sum {}", self.sum));
        self.sum.to_i128().ok_or_else(beyond).map(Some)
    }

    fn add(&mut self, value: i128) {
        self.sum = self.sum.wrapping_add(i256::from_i128(value));
        self.values += 1;
    }

    fn remove(&mut self, value: i128) {
        self.sum = self.sum.wrapping_sub(i256::from_i128(value));
        self.values -= 1;
    }
}

impl Accumulator for Total {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in wide(&values[0])?.iter().flatten() {
            self.add(value);
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in wide(&values[0])?.iter().flatten() {
            self.remove(value);
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![scalar(self.sum()?, &self.state_type)?])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        scalar(self.sum()?, &self.sum_type)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// The sum of the distinct values of one group or window.
#[derive(Debug)]
struct DistinctTotal {
    total: Total,
    /// How often each value is in it.
    times: HashMap<i128, usize>,
}

impl DistinctTotal {
    fn add(&mut self, values: &ArrayRef) -> Result<()> {
        for value in wide(values)?.iter().flatten() {
            let times = self.times.entry(value).or_default();
            *times += 1;
            if *times == 1 {
                self.total.add(value);
            }
        }
        Ok(())
    }
}

impl Accumulator for DistinctTotal {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(&values[0])
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in wide(&values[0])?.iter().flatten() {
            let times = self.times.get_mut(&value).expect("a value leaves a window that it is in");
            *times -= 1;
            if *times == 0 {
                self.times.remove(&value);
                self.total.remove(value);
            }
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for values in states[0].as_list::<i32>().iter().flatten() {
            self.add(&values)?;
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values = Decimal128Array::from_iter_values(self.times.keys().copied());
        let values = values.with_data_type(self.total.state_type.clone());
        let item = Arc::new(Field::new_list_field(self.total.state_type.clone(), true));
        let offsets = OffsetBuffer::from_lengths([values.len()]);
        Ok(vec![ScalarValue::List(Arc::new(ListArray::try_new(item, offsets, Arc::new(values), None)?))])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.total.evaluate()
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.times.capacity() * size_of::<(i128, usize)>()
    }
}

/// The sums of all groups.
#[derive(Debug)]
struct Totals {
    sums: Vec<i128>,
    /// Which groups have a value.
    seen: Vec<bool>,
    sum_type: DataType,
    state_type: DataType,
}

impl Totals {
    fn take(&mut self, emit_to: EmitTo) -> Decimal128Array {
        let sums = emit_to.take_needed(&mut self.sums);
        let seen = NullBuffer::from(emit_to.take_needed(&mut self.seen));
        Decimal128Array::new(sums.into(), Some(seen).filter(|seen| seen.null_count() > 0))
    }
}

impl GroupsAccumulator for Totals {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total_groups: usize,
    ) -> Result<()> {
        self.sums.resize(total_groups, 0);
        self.seen.resize(total_groups, false);
        let values = wide(&values[0])?;
        let mut add = |group: usize, value: i128| {
            self.seen[group] = true;
            plus(self.sums[group], value).map(|sum| self.sums[group] = sum)
        };
        if values.null_count() == 0 && filter.is_none() {
            return groups.iter().zip(values.values()).try_for_each(|(group, value)| add(*group, *value));
        }
        for (row, (group, value)) in groups.iter().zip(values.iter()).enumerate() {
            if let (true, Some(value)) = (is_kept(filter, row), value) {
                add(*group, value)?;
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total_groups: usize) -> Result<()> {
        self.update_batch(states, groups, None, total_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        put_out(self.take(emit_to), &self.sum_type)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![put_out(self.take(emit_to), &self.state_type)?])
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let values = wide(&values[0])?;
        let nulls = kept(values.nulls(), filter);
        let states = Decimal128Array::new(values.values().clone(), nulls);
        Ok(vec![put_out(states, &self.state_type)?])
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<i128>() + self.seen.capacity()
    }
}

impl Sum {
    /// Our accumulator for one group, if the type has one.
    fn exact(arguments: &AccumulatorArgs<'_>) -> Option<Box<dyn Accumulator>> {
        let sum_type = arguments.return_type().clone();
        let total = Total { sum: i256::ZERO, values: 0, state_type: state_type(&sum_type)?, sum_type };
        Some(if arguments.is_distinct {
            Box::new(DistinctTotal { total, times: HashMap::new() })
        } else {
            Box::new(total)
        })
    }
}

impl AggregateUDFImpl for Sum {
    forward! { 0 =>
        fn name(&self) -> &str;
        fn signature(&self) -> &Signature;
        fn return_type(&self, arguments: &[DataType]) -> Result<DataType>;
        fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity;
        fn documentation(&self) -> Option<&Documentation>;
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Self::exact(&arguments).map_or_else(|| self.0.accumulator(arguments), Ok)
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if *arguments.return_type() == DataType::Float64 && !arguments.is_distinct {
            return Ok(Box::new(FloatWindow::new(Said::Sum)));
        }
        Self::exact(&arguments).map_or_else(|| self.0.create_sliding_accumulator(arguments), Ok)
    }

    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let Some(state_type) = state_type(arguments.return_type()) else {
            return self.0.state_fields(arguments);
        };
        let field = if arguments.is_distinct {
            let item = Field::new_list_field(state_type, true);
            Field::new_list(format_state_name(arguments.name, "sum distinct"), item, false)
        } else {
            Field::new(format_state_name(arguments.name, "sum"), state_type, true)
        };
        Ok(vec![Arc::new(field)])
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs<'_>) -> bool {
        !arguments.is_distinct
    }

    fn create_groups_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let sum_type = arguments.return_type().clone();
        match state_type(&sum_type) {
            Some(state_type) => {
                Ok(Box::new(Totals { sums: Vec::new(), seen: Vec::new(), sum_type, state_type }))
            }
            None => self.0.create_groups_accumulator(arguments),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Int64Array, UInt64Array};

    fn totals(sum_type: &DataType) -> Totals {
        let state_type = state_type(sum_type).unwrap();
        Totals { sums: Vec::new(), seen: Vec::new(), sum_type: sum_type.clone(), state_type }
    }

    #[test]
    fn only_the_whole_sum_decides_whether_it_fits_a_bigint() {
        let values: ArrayRef =
            Arc::new(Int64Array::from(vec![Some(i64::MAX), Some(1), None, Some(i64::MAX)]));
        let mut sums = totals(&DataType::Int64);
        sums.update_batch(&[values], &[0, 0, 2, 1], None, 3).unwrap();
        let states = sums.state(EmitTo::All).unwrap();
        let mut merged = totals(&DataType::Int64);
        merged.merge_batch(&states, &[0, 1, 2], 3).unwrap();
        let less: ArrayRef = Arc::new(Int64Array::from(vec![-1]));
        merged.update_batch(&[less], &[0], None, 3).unwrap();
        let found = merged.evaluate(EmitTo::All).unwrap();
        assert_eq!(
            found.as_primitive::<Int64Type>(),
            &Int64Array::from(vec![Some(i64::MAX), Some(i64::MAX), None])
        );

        let more: ArrayRef = Arc::new(Int64Array::from(vec![i64::MAX, 1]));
        merged.update_batch(&[more], &[0, 0], None, 1).unwrap();
        let error = merged.evaluate(EmitTo::All).unwrap_err().to_string();
        assert!(error.contains("bigint out of range: the sum 9223372036854775808"), "{error}");
    }

    #[test]
    fn rows_that_a_filter_drops_are_in_no_sum_also_where_rows_become_states_at_once() {
        let values: ArrayRef = Arc::new(UInt64Array::from(vec![Some(1), Some(2), None, Some(4)]));
        let filter = BooleanArray::from(vec![Some(true), Some(false), Some(true), None]);
        let mut sums = totals(&DataType::UInt64);
        sums.update_batch(&[Arc::clone(&values)], &[0, 0, 0, 0], Some(&filter), 1).unwrap();
        let states = sums.convert_to_state(&[values], Some(&filter)).unwrap();
        assert_eq!(states[0].null_count(), 3);
        let mut merged = totals(&DataType::UInt64);
        merged.merge_batch(&states, &[0, 0, 0, 0], 1).unwrap();
        assert_eq!(&sums.evaluate(EmitTo::All).unwrap(), &merged.evaluate(EmitTo::All).unwrap());
    }

    #[test]
    fn a_decimal_beyond_128_bits_is_an_error() {
        let largest = 10_i128.pow(38) - 1;
        let sum_type = DataType::Decimal128(38, 0);
        let values = Decimal128Array::from(vec![largest; 2]).with_data_type(sum_type.clone());
        let mut sums = totals(&sum_type);
        let error = sums.update_batch(&[Arc::new(values)], &[0, 0], None, 1).unwrap_err();
        assert!(error.to_string().contains("decimal out of range"), "{error}");
        let values = Decimal128Array::from(vec![largest, 1]).with_data_type(sum_type.clone());
        let mut sums = totals(&sum_type);
        sums.update_batch(&[Arc::new(values)], &[0, 0], None, 1).unwrap();
        assert!(sums.evaluate(EmitTo::All).is_err(), "39 digits");
    }

    #[test]
    fn a_moving_sum_is_right_where_it_passes_128_bits_on_the_way() {
        let sum_type = DataType::Decimal128(38, 0);
        let array = |value: i128| -> ArrayRef {
            Arc::new(Decimal128Array::from(vec![value]).with_data_type(sum_type.clone()))
        };
        let state_type = sum_type.clone();
        let mut total = Total { sum: i256::ZERO, values: 0, sum_type: sum_type.clone(), state_type };
        let large = 9 * 10_i128.pow(37);
        total.update_batch(&[array(large)]).unwrap();
        total.update_batch(&[array(large)]).unwrap();
        assert!(total.evaluate().is_err());
        total.retract_batch(&[array(large)]).unwrap();
        let expected = ScalarValue::Decimal128(Some(large), 38, 0);
        assert_eq!(total.evaluate().unwrap(), expected);
    }
}
