//! Implements `avg()` of decimals: rounded, with as many digits as fit.
//!
//! DataFusion's version has four digits more than its argument and truncates the last one. Ours
//! calls that version for one digit more than it returns, and rounds. PostgreSQL has at least
//! sixteen significant digits.

use std::sync::Arc;

use datafusion::{
    arrow::{
        array::{ArrayRef, BooleanArray},
        compute::{CastOptions, cast_with_options},
        datatypes::{DECIMAL128_MAX_PRECISION, DataType, FieldRef},
    },
    common::Result,
    functions_aggregate::average::Avg,
    logical_expr::{
        Accumulator, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF, Signature,
        function::{AccumulatorArgs, StateFieldsArgs},
    },
    scalar::ScalarValue,
};

use super::float_window::{FloatWindow, Said};
use crate::forward::forward;

/// The maximum digits of a decimal.
const DIGITS_MAX: i16 = DECIMAL128_MAX_PRECISION as i16;
/// The maximum digits after the point of an average, unless its argument has more.
const SCALE_MAX: i16 = 16;
/// By how many digits a sum may be longer than its values: 10^10 rows.
const SUM_DIGITS: i16 = 10;
/// Digits of the widest values whose sums DataFusion makes in 128 bits; others have 256.
const NARROW_DIGITS_MAX: i16 = DIGITS_MAX - 13;

#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Average(Avg);

/// Digits after the point of an average of such decimals, and whether the type has room for one
/// more.
fn scale(precision: u8, scale: i8) -> (i8, bool) {
    let (precision, scale) = (i16::from(precision), i16::from(scale));
    let sum_digits = if precision > NARROW_DIGITS_MAX { 0 } else { SUM_DIGITS };
    let room = DIGITS_MAX - (precision - scale) - sum_digits - 1;
    let found = room.min(SCALE_MAX).max(scale);
    (i8::try_from(found).expect("no more digits than a decimal has"), found <= room)
}

/// The arguments of an average with one more digit, which is rounded off; `None` for other types,
/// and where there is no room.
fn one_digit_more<'a>(arguments: &AccumulatorArgs<'a>) -> Option<AccumulatorArgs<'a>> {
    let DataType::Decimal128(precision, of) = arguments.expr_fields.first()?.data_type() else { return None };
    let (found, true) = scale(*precision, *of) else { return None };
    let data_type = DataType::Decimal128(DECIMAL128_MAX_PRECISION, found + 1);
    let return_field = arguments.return_field.as_ref().clone().with_data_type(data_type);
    let AccumulatorArgs {
        schema,
        ignore_nulls,
        order_bys,
        is_reversed,
        name,
        is_distinct,
        exprs,
        expr_fields,
        ..
    } = *arguments;
    Some(AccumulatorArgs {
        return_field: Arc::new(return_field),
        schema,
        ignore_nulls,
        order_bys,
        is_reversed,
        name,
        is_distinct,
        exprs,
        expr_fields,
    })
}

/// An average with one digit too many, which is rounded when it is returned.
#[derive(Debug)]
struct Rounded<A: ?Sized> {
    to: DataType,
    exact: Box<A>,
}

impl Accumulator for Rounded<dyn Accumulator> {
    forward! { exact =>
        fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()>;
        fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()>;
        fn supports_retract_batch(&self) -> bool;
        fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()>;
        fn state(&mut self) -> Result<Vec<ScalarValue>>;
        fn size(&self) -> usize;
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.exact.evaluate()?.cast_to(&self.to)
    }
}

impl GroupsAccumulator for Rounded<dyn GroupsAccumulator> {
    forward! { exact =>
        fn update_batch(
            &mut self,
            values: &[ArrayRef],
            groups: &[usize],
            filter: Option<&BooleanArray>,
            total_groups: usize,
        ) -> Result<()>;
        fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total_groups: usize) -> Result<()>;
        fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>>;
        fn convert_to_state(
            &self,
            values: &[ArrayRef],
            filter: Option<&BooleanArray>,
        ) -> Result<Vec<ArrayRef>>;
        fn size(&self) -> usize;
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let options = CastOptions { safe: false, ..CastOptions::default() };
        Ok(cast_with_options(&self.exact.evaluate(emit_to)?, &self.to, &options)?)
    }
}

impl AggregateUDFImpl for Average {
    forward! { 0 =>
        fn name(&self) -> &str;
        fn aliases(&self) -> &[String];
        fn signature(&self) -> &Signature;
        fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>>;
        fn groups_accumulator_supported(&self, arguments: AccumulatorArgs<'_>) -> bool;
        fn reverse_expr(&self) -> ReversedUDAF;
        fn documentation(&self) -> Option<&Documentation>;
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [DataType::Decimal128(precision, of)] => {
                Ok(DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale(*precision, *of).0))
            }
            other => self.0.return_type(other),
        }
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let to = arguments.return_type().clone();
        match one_digit_more(&arguments) {
            Some(more) => Ok(Box::new(Rounded { to, exact: self.0.accumulator(more)? })),
            None => self.0.accumulator(arguments),
        }
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if *arguments.return_type() == DataType::Float64 && !arguments.is_distinct {
            return Ok(Box::new(FloatWindow::new(Said::Average)));
        }
        self.accumulator(arguments)
    }

    fn create_groups_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let to = arguments.return_type().clone();
        match one_digit_more(&arguments) {
            Some(more) => Ok(Box::new(Rounded { to, exact: self.0.create_groups_accumulator(more)? })),
            None => self.0.create_groups_accumulator(arguments),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::scale;

    #[test]
    fn averages_have_sixteen_digits_after_the_point_where_their_sums_fit() {
        assert_eq!(
            [scale(15, 2), scale(12, 2), scale(18, 0), scale(28, 20), scale(38, 20), scale(38, 36)],
            [(14, true), (16, true), (9, true), (20, true), (20, false), (36, false)]
        );
    }
}
