//! `avg()` of decimals: with as many digits as fit.
//!
//! DataFusion's has four digits more than its argument, PostgreSQL's at least sixteen that count.
//! Sums of 10^10 rows fit in any case.

use datafusion::{
    arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, FieldRef},
    common::Result,
    functions_aggregate::average::Avg,
    logical_expr::{
        Accumulator, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF, Signature,
        function::{AccumulatorArgs, StateFieldsArgs},
    },
};

/// Digits after the point that nobody misses.
const SCALE_MAX: i8 = 16;
/// Digits by which a sum may have more than its values.
const SUM_DIGITS: i8 = 10;

#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Average(Avg);

/// Digits after the point of an average of such decimals.
fn scale(precision: u8, scale: i8) -> i8 {
    let whole = i8::try_from(precision).unwrap_or(i8::MAX).saturating_sub(scale);
    let room = i8::try_from(DECIMAL128_MAX_PRECISION).unwrap_or(i8::MAX) - whole - SUM_DIGITS;
    let least = scale.saturating_add(4).min(i8::try_from(DECIMAL128_MAX_PRECISION).unwrap_or(i8::MAX));
    room.min(SCALE_MAX).max(least)
}

impl AggregateUDFImpl for Average {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn aliases(&self) -> &[String] {
        self.0.aliases()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [DataType::Decimal128(precision, of)] => {
                Ok(DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale(*precision, *of)))
            }
            other => self.0.return_type(other),
        }
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.0.accumulator(arguments)
    }

    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.0.state_fields(arguments)
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs<'_>) -> bool {
        self.0.groups_accumulator_supported(arguments)
    }

    fn create_groups_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        self.0.create_groups_accumulator(arguments)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.0.reverse_expr()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.0.documentation()
    }
}

#[cfg(test)]
mod tests {
    use super::scale;

    #[test]
    fn averages_have_sixteen_digits_after_the_point_where_their_sums_fit() {
        assert_eq!(
            [scale(15, 2), scale(12, 2), scale(18, 0), scale(38, 20), scale(38, 36)],
            [15, 16, 10, 24, 38]
        );
    }
}
