//! Looks up in an index which rows a scan needs.
//!
//! Each scan has one lookup. The first segment that is scanned runs it, so that planning needs no
//! IO.

use super::layout::VALUE;
use crate::limits::{INDEX_ROWS_MAX, INDEX_VALUES_MAX};
use crate::visitors::Tree;
use datafusion::{
    arrow::{array::AsArray, datatypes::Int64Type},
    common::{Column, tree_node::Transformed},
    error::Result,
    execution::TaskContext,
    logical_expr::{BinaryExpr, Expr, Operator, expr::InList},
    physical_plan::{ExecutionPlan, execute_stream},
};
use futures::TryStreamExt;
use rackscan_format::{ids::SegmentId, row_place::RowPlace, withheld::WithheldRows};
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::OnceCell;

/// Places by their segments.
type Places = BTreeMap<SegmentId, Vec<u32>>;

/// The index lookup of one scan.
#[derive(Debug)]
pub(crate) struct Lookup {
    index: String,
    below: SegmentId,
    plan: Arc<dyn ExecutionPlan>,
    /// `None`: too many rows, or the index cannot be read.
    found: OnceCell<Option<Places>>,
}

/// Which rows of a segment a scan wants.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// The index does not say.
    All,
    /// No row.
    Nothing,
    /// All rows but these. The set is small: a block without wanted rows takes only its header.
    AllBut(Arc<WithheldRows>),
}

impl Lookup {
    /// The lookup of an index that covers the segments below `below`. `plan` returns the places of
    /// the rows that are asked for.
    pub(crate) fn new(index: String, below: SegmentId, plan: Arc<dyn ExecutionPlan>) -> Self {
        Self { index, below, plan, found: OnceCell::new() }
    }

    /// The index's name.
    pub(crate) fn index(&self) -> &str {
        &self.index
    }

    /// The plan that reads the index.
    pub(crate) fn plan(&self) -> &Arc<dyn ExecutionPlan> {
        &self.plan
    }

    /// The wanted rows of a stored segment of `rows` rows, of which some are withheld.
    pub(crate) async fn wanted(
        &self,
        segment: SegmentId,
        rows: u32,
        withheld: Option<&WithheldRows>,
        context: &Arc<TaskContext>,
    ) -> Wanted {
        if segment >= self.below {
            return Wanted::All;
        }
        let found = self.found.get_or_init(|| async {
            match self.look_up(context).await {
                Ok(found) => found,
                Err(error) => {
                    tracing::warn!(index = self.index, %error, "an index cannot be read; the table is scanned");
                    None
                }
            }
        });
        let Some(found) = found.await else { return Wanted::All };
        let of_segment = found.get(&segment).map_or(&[][..], Vec::as_slice);
        let is_there = |row: &u32| withheld.is_none_or(|withheld| !withheld.contains(*row));
        let kept: Vec<u32> = of_segment.iter().copied().filter(is_there).collect();
        if kept.is_empty() {
            return Wanted::Nothing;
        }
        WithheldRows::all_but(kept, rows).map_or(Wanted::All, |rows| Wanted::AllBut(Arc::new(rows)))
    }

    async fn look_up(&self, context: &Arc<TaskContext>) -> Result<Option<Places>> {
        let mut batches = execute_stream(Arc::clone(&self.plan), Arc::clone(context))?;
        let (mut places, mut rows) = (Places::new(), 0);
        while let Some(batch) = batches.try_next().await? {
            rows += batch.num_rows();
            if rows > INDEX_ROWS_MAX {
                return Ok(None);
            }
            for place in batch.column(0).as_primitive::<Int64Type>().values() {
                let RowPlace { segment, row } = RowPlace::of_number(*place);
                places.entry(segment).or_default().push(row);
            }
        }
        Ok(Some(places))
    }
}

/// The filter over an index's values that asks for what these filters ask of the indexed column;
/// `None` if they do not restrict it to few named values.
pub(crate) fn filter_of_values(filters: &[Expr], column: &str) -> Result<Option<Expr>> {
    let asked = filters.iter().find_map(|filter| asked(filter, column));
    let Some(asked) = asked else { return Ok(None) };
    let of_index = asked.transform_up(|expr| {
        Ok(match expr {
            Expr::Column(_) => Transformed::yes(Expr::Column(Column::from_name(VALUE))),
            other => Transformed::no(other),
        })
    })?;
    Ok(Some(of_index.data))
}

/// The part of a filter that restricts the column to few named values.
fn asked(filter: &Expr, column: &str) -> Option<Expr> {
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            asked(left, column).or_else(|| asked(right, column))
        }
        other => (1..=INDEX_VALUES_MAX).contains(&values(other, column)?).then(|| other.clone()),
    }
}

/// How many values an expression allows for the column; `None` if it says something else.
fn values(expr: &Expr, column: &str) -> Option<usize> {
    let is_column = |expr: &Expr| matches!(expr, Expr::Column(found) if found.name == column);
    let is_value = |expr: &Expr| matches!(expr, Expr::Literal(value, _) if !value.is_null());
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            let is_asked = (is_column(left) && is_value(right)) || (is_value(left) && is_column(right));
            is_asked.then_some(1)
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            Some(values(left, column)?.saturating_add(values(right, column)?))
        }
        Expr::InList(InList { expr, list, negated: false }) => {
            (is_column(expr) && list.iter().all(is_value)).then_some(list.len())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::{
        logical_expr::{col, in_list, lit},
        scalar::ScalarValue,
    };

    #[test]
    fn only_filters_that_name_values_of_the_column_are_looked_up() {
        let key = || col("key");
        let named = [
            (key().eq(lit(3_i64)), 1),
            (lit(3_i64).eq(key()), 1),
            (key().eq(lit(3_i64)).or(key().eq(lit(4_i64))), 2),
            (in_list(key(), vec![lit(1_i64), lit(2_i64), lit(3_i64)], false), 3),
        ];
        for (filter, expected) in named {
            assert_eq!(values(&filter, "key"), Some(expected), "{filter}");
            assert_eq!(asked(&filter, "key"), Some(filter.clone()));
            let with_another = col("other").gt(lit(1_i64)).and(filter.clone());
            assert_eq!(asked(&with_another, "key"), Some(filter));
        }
        let others = [
            col("other").eq(lit(3_i64)),
            key().gt(lit(3_i64)),
            key().not_eq(lit(3_i64)),
            key().eq(col("other")),
            key().eq(lit(ScalarValue::Int64(None))),
            key().eq(lit(3_i64)).or(col("other").eq(lit(3_i64))),
            in_list(key(), vec![lit(1_i64)], true),
            in_list(key(), vec![lit(1_i64), col("other")], false),
            in_list(key(), Vec::new(), false),
            in_list(key(), (0..=INDEX_VALUES_MAX as i64).map(lit).collect(), false),
        ];
        for filter in others {
            assert_eq!(asked(&filter, "key"), None, "{filter}");
        }
    }
}
