//! Implements `string_agg()` over a moving frame.
//!
//! DataFusion's version cannot remove the rows that leave a frame.

use std::collections::VecDeque;

use datafusion::{
    arrow::{
        array::{ArrayRef, AsArray},
        compute::cast,
        datatypes::DataType,
    },
    common::{Result, not_impl_err},
    logical_expr::Accumulator,
    scalar::ScalarValue,
};

use super::joined_text::check_length;

/// The texts of a frame, without NULLs.
#[derive(Debug)]
pub(super) struct TextWindow {
    delimiter: String,
    texts: VecDeque<String>,
    bytes: usize,
}

impl TextWindow {
    pub(super) fn new(delimiter: String) -> Self {
        Self { delimiter, texts: VecDeque::new(), bytes: 0 }
    }
}

impl Accumulator for TextWindow {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for text in cast(&values[0], &DataType::Utf8View)?.as_string_view().iter().flatten() {
            self.bytes += text.len();
            self.texts.push_back(text.to_owned());
        }
        let delimiters = self.texts.len().saturating_sub(1).saturating_mul(self.delimiter.len());
        check_length(self.bytes.saturating_add(delimiters))
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for _ in 0..values[0].len() - values[0].logical_null_count() {
            let text = self.texts.pop_front().expect("a text that leaves has come in");
            self.bytes -= text.len();
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.texts.is_empty() {
            return Ok(ScalarValue::Utf8View(None));
        }
        Ok(ScalarValue::Utf8View(Some(self.texts.make_contiguous().join(&self.delimiter))))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        not_impl_err!("the state of a frame")
    }

    fn merge_batch(&mut self, _states: &[ArrayRef]) -> Result<()> {
        not_impl_err!("the state of a frame")
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.texts.capacity() * size_of::<String>() + self.bytes
    }
}
