//! Compares two answers: names, types and rows, bit for bit. Sums, averages and extremes of doubles
//! may differ as much as another order of rows can change them.

use crate::query::{Query, Wanted};
use rackscan_engine::arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch},
    compute::concat_batches,
    datatypes::{Float64Type, SchemaRef},
    error::ArrowError,
    row::{RowConverter, Rows, SortField},
    util::display::array_value_to_string,
};
use std::{cmp::Ordering, ops::Range, sync::Arc};

/// Of the magnitudes' sum: more than the roundings of `JOINED_ROWS_MAX` additions in any order, and
/// in both answers.
const SUM_ERROR_MAX: f64 = 2.0 * 20_000.0 * f64::EPSILON;

/// An answer.
pub(crate) struct Answer {
    rows: RecordBatch,
}

/// An answer whose exact columns can be compared.
struct Compared<'a> {
    rows: &'a RecordBatch,
    keys: Option<Rows>,
    order: Vec<usize>,
}

impl Answer {
    pub(crate) fn new(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Self, ArrowError> {
        Ok(Self { rows: concat_batches(schema, batches)? })
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows.num_rows()
    }

    /// Some of the rows.
    pub(crate) fn part(&self, rows: Range<usize>) -> Self {
        Self { rows: self.rows.slice(rows.start, rows.len()) }
    }

    /// What differs first from the answer that is expected of `query`, if anything does.
    pub(crate) fn difference(&self, expected: &Self, query: &Query) -> Option<String> {
        let scales = query.scales();
        if let Some(different) = self.shape_differs(expected, scales.len()) {
            return Some(different);
        }
        let exact: Vec<usize> = (0..scales.len()).filter(|column| scales[*column].is_none()).collect();
        let is_ordered = matches!(query.wanted, Wanted::InOrder { .. });
        let compared = |answer| Compared::new(answer, &exact, is_ordered);
        let (found, expected) = match (compared(&self.rows), compared(&expected.rows)) {
            (Ok(found), Ok(expected)) => (found, expected),
            (found, expected) => return Some(format!("{:?} {:?}", found.err(), expected.err())),
        };
        if let Wanted::Any { limit } = query.wanted {
            return found.is_no_part(&expected, usize::try_from(limit).unwrap_or(usize::MAX));
        }
        found.differs(&expected, &scales)
    }

    fn shape_differs(&self, expected: &Self, columns: usize) -> Option<String> {
        let (found, expected) = (self.rows.schema(), expected.rows.schema());
        let described = |schema: &SchemaRef, columns: usize| {
            let fields = schema.fields().iter().take(columns);
            fields
                .map(|field| format!("{} {}", field.name(), field.data_type()))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let (found, expected) = (described(&found, usize::MAX), described(&expected, columns));
        (found != expected).then(|| format!("columns {found}, expected {expected}"))
    }
}

impl<'a> Compared<'a> {
    fn new(rows: &'a RecordBatch, exact: &[usize], is_ordered: bool) -> Result<Self, ArrowError> {
        let columns = exact.iter().map(|column| ArrayRef::clone(rows.column(*column)));
        // Rows that differ by the sign of a zero alone are equal to an order, and come in any.
        let columns = columns.map(|column| match column.as_primitive_opt::<Float64Type>() {
            Some(doubles) if is_ordered => {
                Arc::new(doubles.unary::<_, Float64Type>(|double| double + 0.0)) as ArrayRef
            }
            _ => column,
        });
        let columns: Vec<ArrayRef> = columns.collect();
        let fields = columns.iter().map(|column| SortField::new(column.data_type().clone()));
        let mut order: Vec<usize> = (0..rows.num_rows()).collect();
        if columns.is_empty() {
            return Ok(Self { rows, keys: None, order });
        }
        let keys = RowConverter::new(fields.collect())?.convert_columns(&columns)?;
        if !is_ordered {
            // Rows with equal keys, such as the group of NULL and the total of CUBE, are told apart
            // by their sums.
            let sums = (0..rows.num_columns()).filter(|column| !exact.contains(column));
            let sums = sums.filter_map(|column| rows.column(column).as_primitive_opt::<Float64Type>());
            let sums: Vec<_> = sums.collect();
            let by_sums = |one: usize, two: usize| {
                let orders = sums.iter().map(|sums| {
                    let nulls = sums.is_valid(one).cmp(&sums.is_valid(two));
                    nulls.then_with(|| sums.value(one).total_cmp(&sums.value(two)))
                });
                orders.fold(Ordering::Equal, Ordering::then)
            };
            order.sort_unstable_by(|one, two| {
                keys.row(*one).cmp(&keys.row(*two)).then_with(|| by_sums(*one, *two))
            });
        }
        Ok(Self { rows, keys: Some(keys), order })
    }

    fn key(&self, position: usize) -> Option<&[u8]> {
        self.keys.as_ref().map(|keys| keys.row(self.order[position]).data())
    }

    /// A row as people read it.
    fn text(&self, position: usize) -> String {
        let Some(row) = self.order.get(position) else { return "no row".to_owned() };
        let values = self.rows.columns().iter().map(|column| {
            if column.is_null(*row) {
                return "NULL".to_owned();
            }
            array_value_to_string(column, *row).unwrap_or_else(|error| error.to_string())
        });
        values.collect::<Vec<_>>().join(" | ")
    }

    fn differs(&self, expected: &Self, scales: &[Option<usize>]) -> Option<String> {
        let (found_rows, expected_rows) = (self.order.len(), expected.order.len());
        let at = |position: usize| {
            let (found, wanted) = (self.text(position), expected.text(position));
            Some(format!(
                "row {position} is\n  {found}\nexpected\n  {wanted}\nof {found_rows} rows, expected {expected_rows}"
            ))
        };
        for position in 0..found_rows.min(expected_rows) {
            if self.key(position) != expected.key(position) {
                return at(position);
            }
            for (column, scale) in scales.iter().enumerate() {
                let Some(scale) = scale else { continue };
                let value = |of: &Self, column: usize| of.double(column, position);
                if !is_near(value(self, column), value(expected, column), value(expected, *scale)) {
                    return at(position);
                }
            }
        }
        if found_rows == expected_rows { None } else { at(found_rows.min(expected_rows)) }
    }

    fn double(&self, column: usize, position: usize) -> Option<f64> {
        let column = self.rows.column(column).as_primitive::<Float64Type>();
        let row = self.order[position];
        column.is_valid(row).then(|| column.value(row))
    }

    /// Whether there are more or fewer rows than `limit` of `expected`'s, or others.
    fn is_no_part(&self, expected: &Self, limit: usize) -> Option<String> {
        let (found_rows, wanted) = (self.order.len(), expected.order.len().min(limit));
        if found_rows != wanted {
            return Some(format!("{found_rows} rows, expected {wanted} of {}", expected.order.len()));
        }
        let mut next = 0;
        for position in 0..found_rows {
            while next < expected.order.len() && expected.key(next) < self.key(position) {
                next += 1;
            }
            if next == expected.order.len() || expected.key(next) != self.key(position) {
                return Some(format!("a row that is not there, or not as often:\n  {}", self.text(position)));
            }
            next += 1;
        }
        None
    }
}

/// Whether two sums of the same numbers can be so far from each other; `scale` is the sum of their
/// magnitudes.
fn is_near(found: Option<f64>, expected: Option<f64>, scale: Option<f64>) -> bool {
    match (found, expected, scale) {
        (None, None, _) => true,
        // Infinite or no numbers: then the order of additions decides what comes out.
        (Some(_), Some(_), Some(scale)) if !scale.is_finite() => true,
        (Some(found), Some(expected), Some(scale)) => {
            found == expected || (found - expected).abs() <= scale * SUM_ERROR_MAX
        }
        _ => false,
    }
}

#[test]
fn sums_are_near_if_only_the_order_of_additions_can_have_made_the_difference() {
    assert!(is_near(Some(1e-4), Some(-1e-4), Some(1e9)));
    assert!(!is_near(Some(1e-4), Some(-1e-4), Some(1e6)));
    assert!(is_near(None, None, None) && !is_near(None, Some(0.0), Some(0.0)));
    assert!(!is_near(Some(1.0), Some(1.0 + 1e-9), Some(1.0)));
}
