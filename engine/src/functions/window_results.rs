//! Counts the texts and lists that window functions return as memory of the query.
//!
//! DataFusion's window operators allocate a separate value for each row, and reserve no memory for
//! it: `string_agg(s) OVER (PARTITION BY k)` of long texts used all memory of the host. A function
//! whose values have no fixed size is wrapped in a function that reserves memory for each value.
//! The memory is released when the operator returns the rows (`memory::window`).

use std::{
    hash::{Hash, Hasher},
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use datafusion::{
    arrow::{
        array::{Array, ArrayRef, AsArray},
        compute::SortOptions,
        datatypes::{DataType, FieldRef},
    },
    common::Result,
    execution::{
        TaskContext,
        memory_pool::{MemoryConsumer, MemoryReservation},
    },
    logical_expr::{
        Accumulator, AggregateUDF, AggregateUDFImpl, LimitEffect, PartitionEvaluator, ReversedUDAF,
        ReversedUDWF, Signature, WindowFunctionDefinition, WindowUDF, WindowUDFImpl,
        function::{
            AccumulatorArgs, ExpressionArgs, PartitionEvaluatorArgs, StateFieldsArgs, WindowUDFFieldArgs,
        },
        utils::AggregateOrderSensitivity,
        window_state::WindowAggState,
    },
    physical_expr::{
        PhysicalExpr,
        window::{PlainAggregateWindowExpr, SlidingAggregateWindowExpr, StandardWindowExpr, WindowExpr},
    },
    physical_plan::windows::WindowUDFExpr,
    scalar::ScalarValue,
};

use crate::forward::forward;

/// A value is made once, and copied into the array of all rows' values.
const COPIES: usize = 2;
/// The maximum bytes of values for which no memory is reserved yet.
const PENDING_BYTES_MAX: usize = 1 << 20;

/// The memory of one function's values in one query.
#[derive(Debug)]
pub(crate) struct WindowResults {
    /// Whether all rows of a partition have the same value. Then a text is made once per partition,
    /// a list for each row.
    is_constant: bool,
    pending: AtomicUsize,
    memory: Mutex<Weak<MemoryReservation>>,
}

impl WindowResults {
    /// The values of an operator's functions, if they are counted.
    pub(crate) fn of(window: &dyn WindowExpr) -> Option<Arc<Self>> {
        let window = window.as_any();
        let aggregate = if let Some(plain) = window.downcast_ref::<PlainAggregateWindowExpr>() {
            plain.get_aggregate_expr()
        } else if let Some(sliding) = window.downcast_ref::<SlidingAggregateWindowExpr>() {
            sliding.get_aggregate_expr()
        } else {
            let function = window.downcast_ref::<StandardWindowExpr>()?.get_standard_func_expr();
            let function = function.as_any().downcast_ref::<WindowUDFExpr>()?.fun().inner();
            return function.downcast_ref::<Metered<WindowUDF>>().map(|metered| Arc::clone(&metered.results));
        };
        let aggregate = aggregate.fun().inner().downcast_ref::<Metered<AggregateUDF>>()?;
        Some(Arc::clone(&aggregate.results))
    }

    /// Begins to count the memory of the values, for all partitions of the operator `name`.
    pub(crate) fn begin(&self, name: &str, context: &TaskContext) -> Arc<MemoryReservation> {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.upgrade().unwrap_or_else(|| {
            let reservation = Arc::new(MemoryConsumer::new(name).register(context.memory_pool()));
            *memory = Arc::downgrade(&reservation);
            reservation
        })
    }

    /// Counts a value of an aggregate that has read this many rows.
    fn add(&self, value: &ScalarValue, rows: usize) -> Result<()> {
        let bytes = match value {
            ScalarValue::List(list) if self.is_constant => array_bytes(list.values()).saturating_mul(rows),
            ScalarValue::List(list) => array_bytes(list.values()),
            ScalarValue::BinaryView(Some(bytes)) => bytes.len(),
            other => other.try_as_str().flatten().map_or(0, str::len),
        };
        let bytes = bytes.saturating_mul(COPIES);
        let pending = self.pending.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if pending < PENDING_BYTES_MAX {
            return Ok(());
        }
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        let pending = self.pending.swap(0, Ordering::Relaxed);
        memory.map_or(Ok(()), |memory| memory.try_grow(pending))
    }

    /// Gives back the memory of values that have left the operator. Constant values are not given
    /// back here, but when the operator ends.
    pub(crate) fn remove(&self, values: &ArrayRef, memory: &MemoryReservation) {
        if !self.is_constant {
            // For values that share their texts less was reserved. Another partition may give back
            // memory between the check and the shrinking.
            let bytes = array_bytes(values).saturating_mul(COPIES);
            while memory.try_shrink(bytes.min(memory.size())).is_err() {}
        }
    }
}

/// Bytes of the values of an array.
fn array_bytes(array: &ArrayRef) -> usize {
    let lengths = |views: &[u128]| views.iter().map(view_bytes).sum();
    match array.data_type() {
        DataType::Utf8View => lengths(array.as_string_view().views()),
        DataType::BinaryView => lengths(array.as_binary_view().views()),
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let (first, last) = (list.value_offsets()[0] as usize, list.value_offsets()[list.len()] as usize);
            array_bytes(&list.values().slice(first, last - first))
        }
        of => of.primitive_width().unwrap_or(size_of::<u128>()).saturating_mul(array.len()),
    }
}

/// The function with its values counted; `None` if they have a fixed size, or are counted already.
pub(crate) fn metered(
    function: &WindowFunctionDefinition,
    of: &DataType,
    is_constant: bool,
) -> Option<WindowFunctionDefinition> {
    if of.is_primitive() || matches!(of, DataType::Boolean | DataType::Null) {
        return None;
    }
    let (pending, memory) = (AtomicUsize::new(0), Mutex::new(Weak::new()));
    let results = Arc::new(WindowResults { is_constant, pending, memory });
    match function {
        WindowFunctionDefinition::AggregateUDF(inner) => {
            let is_metered = inner.inner().is::<Metered<AggregateUDF>>();
            let metered = || AggregateUDF::from(Metered { inner: inner.as_ref().clone(), results });
            (!is_metered).then(|| WindowFunctionDefinition::AggregateUDF(Arc::new(metered())))
        }
        WindowFunctionDefinition::WindowUDF(inner) => {
            let is_metered = inner.inner().is::<Metered<WindowUDF>>();
            let metered = || WindowUDF::from(Metered { inner: inner.as_ref().clone(), results });
            (!is_metered).then(|| WindowFunctionDefinition::WindowUDF(Arc::new(metered())))
        }
    }
}

/// A function whose values are counted.
#[derive(Debug)]
struct Metered<F> {
    inner: F,
    results: Arc<WindowResults>,
}

impl<F: PartialEq> PartialEq for Metered<F> {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner
    }
}

impl<F: Eq> Eq for Metered<F> {}

impl<F: Hash> Hash for Metered<F> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl<F> Metered<F> {
    fn like(&self, inner: F) -> Self {
        Self { inner, results: Arc::clone(&self.results) }
    }

    fn values<T>(&self, inner: T) -> MeteredValues<T> {
        MeteredValues { inner, rows: 0, results: Arc::clone(&self.results) }
    }
}

impl AggregateUDFImpl for Metered<AggregateUDF> {
    forward! { inner =>
        fn name(&self) -> &str;
        fn signature(&self) -> &Signature;
        fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>>;
        fn return_type(&self, types: &[DataType]) -> Result<DataType>;
        fn return_field(&self, fields: &[FieldRef]) -> Result<FieldRef>;
        fn is_nullable(&self) -> bool;
        fn default_value(&self, of: &DataType) -> Result<ScalarValue>;
        fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>>;
        fn order_sensitivity(&self) -> AggregateOrderSensitivity;
        fn supports_null_handling_clause(&self) -> bool;
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(self.values(self.inner.accumulator(arguments)?)))
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(self.values(self.inner.create_sliding_accumulator(arguments)?)))
    }

    /// Only functions that do not depend on the order may be reversed: DataFusion takes `array_agg`
    /// for its own reverse, and returned the rows of a window in reverse order.
    fn reverse_expr(&self) -> ReversedUDAF {
        match self.inner.reverse_udf() {
            ReversedUDAF::Identical => ReversedUDAF::Identical,
            ReversedUDAF::NotSupported | ReversedUDAF::Reversed(_) => ReversedUDAF::NotSupported,
        }
    }
}

impl WindowUDFImpl for Metered<WindowUDF> {
    forward! { inner =>
        fn name(&self) -> &str;
        fn signature(&self) -> &Signature;
        fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>>;
        fn expressions(&self, arguments: ExpressionArgs<'_>) -> Vec<Arc<dyn PhysicalExpr>>;
        fn field(&self, arguments: WindowUDFFieldArgs<'_>) -> Result<FieldRef>;
        fn sort_options(&self) -> Option<SortOptions>;
    }

    fn partition_evaluator(
        &self,
        arguments: PartitionEvaluatorArgs<'_>,
    ) -> Result<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(self.values(self.inner.partition_evaluator_factory(arguments)?)))
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        match self.inner.reverse_expr() {
            ReversedUDWF::Reversed(inner) => {
                ReversedUDWF::Reversed(Arc::new(WindowUDF::from(self.like(inner.as_ref().clone()))))
            }
            other => other,
        }
    }

    fn limit_effect(&self, arguments: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.inner.inner().limit_effect(arguments)
    }
}

/// The values of a partition.
#[derive(Debug)]
struct MeteredValues<T> {
    inner: T,
    /// How many rows an aggregate has read.
    rows: usize,
    results: Arc<WindowResults>,
}

impl Accumulator for MeteredValues<Box<dyn Accumulator>> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.rows += values[0].len();
        self.inner.update_batch(values)
    }

    forward! { inner =>
        fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()>;
        fn supports_retract_batch(&self) -> bool;
        fn state(&mut self) -> Result<Vec<ScalarValue>>;
        fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()>;
        fn size(&self) -> usize;
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let value = self.inner.evaluate()?;
        self.results.add(&value, self.rows)?;
        Ok(value)
    }
}

impl PartitionEvaluator for MeteredValues<Box<dyn PartitionEvaluator>> {
    forward! { inner =>
        fn memoize(&mut self, state: &mut WindowAggState) -> Result<()>;
        fn get_range(&self, row: usize, rows: usize) -> Result<Range<usize>>;
        fn is_causal(&self) -> bool;
        fn evaluate_all_with_rank(&self, rows: usize, ranks: &[Range<usize>]) -> Result<ArrayRef>;
        fn supports_bounded_execution(&self) -> bool;
        fn uses_window_frame(&self) -> bool;
        fn include_rank(&self) -> bool;
    }

    /// These values are computed for all rows at once, and share their texts.
    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        self.inner.evaluate_all(values, rows)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        let value = self.inner.evaluate(values, range)?;
        self.results.add(&value, range.len())?;
        Ok(value)
    }
}

/// The length of a text of an array of views: the low 32 bits of its view (Arrow, "Variable-size
/// Binary View Layout").
#[expect(clippy::cast_possible_truncation, reason = "the low bits")]
pub(crate) fn view_bytes(view: &u128) -> usize {
    *view as u32 as usize
}
