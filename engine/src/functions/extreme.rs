//! Implements `min()` and `max()` of doubles by group, where NaN is larger than every number.
//!
//! In DataFusion's versions the order of rows decides whether a NaN is kept. They still compute
//! other types, and doubles without groups.

use std::sync::Arc;

use datafusion::{
    arrow::{
        array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array},
        buffer::NullBuffer,
        datatypes::{DataType, FieldRef, Float64Type},
    },
    common::Result,
    functions_aggregate::min_max::{Max, Min},
    logical_expr::{
        Accumulator, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF,
        SetMonotonicity, Signature, StatisticsArgs,
        function::{AccumulatorArgs, StateFieldsArgs},
        utils::AggregateOrderSensitivity,
    },
    scalar::ScalarValue,
};

use super::filter::{is_kept, kept};
use crate::forward::forward;

/// The minima or maxima of all groups.
#[derive(Debug)]
struct Extremes {
    is_least: bool,
    values: Vec<f64>,
    /// Which groups have a value.
    seen: Vec<bool>,
}

impl Extremes {
    fn add(&mut self, group: usize, value: f64) {
        let known = &mut self.values[group];
        let order = value.total_cmp(known);
        if !self.seen[group] || (if self.is_least { order.is_lt() } else { order.is_gt() }) {
            (*known, self.seen[group]) = (value, true);
        }
    }
}

impl GroupsAccumulator for Extremes {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total_groups: usize,
    ) -> Result<()> {
        self.values.resize(total_groups, 0.0);
        self.seen.resize(total_groups, false);
        let values = values[0].as_primitive::<Float64Type>();
        for (row, (group, value)) in groups.iter().zip(values.iter()).enumerate() {
            if let (true, Some(value)) = (is_kept(filter, row), value) {
                self.add(*group, value);
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total_groups: usize) -> Result<()> {
        self.update_batch(states, groups, None, total_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let values = emit_to.take_needed(&mut self.values);
        let seen = NullBuffer::from(emit_to.take_needed(&mut self.seen));
        Ok(Arc::new(Float64Array::new(values.into(), Some(seen).filter(|seen| seen.null_count() > 0))))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(emit_to)?])
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let values = values[0].as_primitive::<Float64Type>();
        let nulls = kept(values.nulls(), filter);
        Ok(vec![Arc::new(Float64Array::new(values.values().clone(), nulls))])
    }

    fn size(&self) -> usize {
        self.values.capacity() * size_of::<f64>() + self.seen.capacity()
    }
}

macro_rules! extreme {
    ($name:ident, $of:ident, $is_least:literal) => {
        #[derive(Debug, Default, PartialEq, Eq, Hash)]
        pub(super) struct $name($of);

        impl AggregateUDFImpl for $name {
            forward! { 0 =>
                fn name(&self) -> &str;
                fn aliases(&self) -> &[String];
                fn signature(&self) -> &Signature;
                fn return_type(&self, arguments: &[DataType]) -> Result<DataType>;
                fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>>;
                fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>>;
                fn create_sliding_accumulator(
                    &self,
                    arguments: AccumulatorArgs<'_>,
                ) -> Result<Box<dyn Accumulator>>;
                fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>>;
                fn groups_accumulator_supported(&self, arguments: AccumulatorArgs<'_>) -> bool;
                fn is_descending(&self) -> Option<bool>;
                fn value_from_stats(&self, statistics: &StatisticsArgs<'_>) -> Option<ScalarValue>;
                fn order_sensitivity(&self) -> AggregateOrderSensitivity;
                fn reverse_expr(&self) -> ReversedUDAF;
                fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity;
                fn documentation(&self) -> Option<&Documentation>;
            }

            fn create_groups_accumulator(
                &self,
                arguments: AccumulatorArgs<'_>,
            ) -> Result<Box<dyn GroupsAccumulator>> {
                match arguments.return_type() {
                    DataType::Float64 => {
                        Ok(Box::new(Extremes { is_least: $is_least, values: Vec::new(), seen: Vec::new() }))
                    }
                    _ => self.0.create_groups_accumulator(arguments),
                }
            }
        }
    };
}
extreme!(Least, Min, true);
extreme!(Largest, Max, false);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_is_larger_than_every_number_whatever_the_order_of_rows() {
        for values in [[1.5, f64::NAN], [f64::NAN, 1.5]] {
            for (is_least, expected) in [(true, 1.5), (false, f64::NAN)] {
                let mut extremes = Extremes { is_least, values: Vec::new(), seen: Vec::new() };
                let array: ArrayRef = Arc::new(Float64Array::from(values.to_vec()));
                extremes.update_batch(&[array], &[1, 1], None, 2).unwrap();
                let found = extremes.evaluate(EmitTo::All).unwrap();
                let found = found.as_primitive::<Float64Type>();
                assert!(found.is_null(0) && found.value(1).total_cmp(&expected).is_eq(), "{found:?}");
            }
        }
    }
}
