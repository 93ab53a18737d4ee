//! Implements `sum()` and `avg()` of doubles over a moving frame, computed from the values in the
//! frame.
//!
//! DataFusion's versions subtract the values that leave the frame. After a NaN, an infinity or
//! 1e300 has left, their sums stay wrong. PostgreSQL also computes the frame again when a row
//! leaves it.

use std::collections::VecDeque;

use datafusion::{
    arrow::{
        array::{ArrayRef, AsArray},
        datatypes::Float64Type,
    },
    common::{Result, not_impl_err},
    logical_expr::Accumulator,
    scalar::ScalarValue,
};

/// The result that is computed over a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Sum,
    Average,
}

/// The doubles of a frame.
#[derive(Debug)]
pub(super) struct FloatWindow {
    said: Said,
    values: VecDeque<f64>,
    /// The sum of all values; `None` after one has left.
    sum: Option<f64>,
}

impl FloatWindow {
    pub(super) fn new(said: Said) -> Self {
        Self { said, values: VecDeque::new(), sum: Some(0.0) }
    }
}

impl Accumulator for FloatWindow {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in values[0].as_primitive::<Float64Type>().iter().flatten() {
            self.values.push_back(value);
            self.sum = self.sum.map(|sum| sum + value);
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for _ in values[0].as_primitive::<Float64Type>().iter().flatten() {
            self.values.pop_front();
            self.sum = None;
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    #[expect(clippy::cast_precision_loss, reason = "a frame has fewer rows than 2^53")]
    fn evaluate(&mut self) -> Result<ScalarValue> {
        let sum = *self.sum.get_or_insert_with(|| self.values.iter().fold(0.0, |sum, value| sum + value));
        let said = match self.said {
            Said::Sum => sum,
            Said::Average => sum / self.values.len() as f64,
        };
        let said = if said.is_nan() { f64::NAN } else { said };
        Ok(ScalarValue::Float64((!self.values.is_empty()).then_some(said)))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        not_impl_err!("the state of a frame")
    }

    fn merge_batch(&mut self, _states: &[ArrayRef]) -> Result<()> {
        not_impl_err!("the state of a frame")
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * size_of::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::Float64Array;
    use std::sync::Arc;

    #[test]
    fn what_has_left_a_frame_leaves_nothing_in_its_sum() {
        for large in [1e300, f64::NAN, f64::INFINITY] {
            let array = |value: f64| -> ArrayRef { Arc::new(Float64Array::from(vec![Some(value), None])) };
            let mut window = FloatWindow::new(Said::Average);
            window.update_batch(&[array(large)]).unwrap();
            window.update_batch(&[array(1.0)]).unwrap();
            window.retract_batch(&[array(large)]).unwrap();
            window.update_batch(&[array(2.0)]).unwrap();
            assert_eq!(window.evaluate().unwrap(), ScalarValue::Float64(Some(1.5)));
        }
    }
}
