//! Computes the sums and row counts of a materialised view, by group.
//!
//! | column | type | contents |
//! |---|---|---|
//! | [`GROUP`] | that of the group's column | a value; each value has one row |
//! | [`SUM`] | decimal(38, s); s is the number of digits after the point of the amounts | sum of the amounts |
//! | [`ROWS`] | bigint | number of rows, at least one |
//!
//! Two computations give exactly the same results: one from all rows of the table, and one from the
//! stored sums over its segments and the changed rows ([`rackscan_delta::derived`]).
//!
//! The stored sums are in a base, which is a table with the sums of one view ([`super::base`]). It
//! stores each sum in two columns, because stored numbers have 64 bits. [`HIGH`], a bigint, counts
//! units of 10^(18 - s). [`LOW`], a decimal(18, s), is the remainder, with the same sign.

use crate::{pushdown::arrow_type, snapshot::zone_scalar, table::Table};
use datafusion::{
    arrow::{
        array::{Array, ArrayRef, Decimal128Array, Int64Array, RecordBatch},
        datatypes::{DataType, Field, Schema},
        error::ArrowError,
    },
    common::TableReference,
    datasource::{MemTable, provider_as_source},
    error::{DataFusionError, Result},
    functions_aggregate::expr_fn::{count, sum},
    logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast, ident, lit},
    scalar::ScalarValue,
};
use rackscan_delta::{derived::Amount, row::Datum};
use rackscan_format::{
    derived::{Factor, SumDefinition, Within},
    ids::ColumnId,
    limits::DECIMAL_DIGITS_MAX,
    schema::{ColumnType, TableDefinition},
    zone::ZoneValue,
};
use std::sync::Arc;

pub(super) const GROUP: &str = "group";
pub(super) const SUM: &str = "sum";
pub(super) const HIGH: &str = "high";
pub(super) const LOW: &str = "low";
pub(super) const ROWS: &str = "rows";
/// The precision of sums.
pub(super) const SUM_DIGITS: u8 = 38;

/// The type of a sum.
pub(super) fn sum_type(table: &TableDefinition, of: &SumDefinition) -> DataType {
    // The definition is verified: amounts have at most 18 digits behind the point.
    let scale = i8::try_from(of.scale(table)).expect("the scale of a verified sum: at most 18");
    DataType::Decimal128(SUM_DIGITS, scale)
}

/// Splits sums into the columns of a base: high and low.
///
/// # Errors
/// The first sum that is too large.
pub(super) fn divided(sums: &Decimal128Array) -> Result<(Int64Array, Decimal128Array), i128> {
    let unit = 10_i128.pow(DECIMAL_DIGITS_MAX.into());
    let high = |sum: i128| i64::try_from(sum / unit).map_err(|_| sum);
    let high = sums.values().iter().map(|sum| high(*sum)).collect::<Result<Vec<_>, _>>()?;
    let low = Decimal128Array::from_iter_values(sums.values().iter().map(|sum| sum % unit));
    let low = low.with_data_type(DataType::Decimal128(DECIMAL_DIGITS_MAX, sums.scale()));
    Ok((Int64Array::from(high), low))
}

/// The inverse of [`divided`], as an expression.
fn put_together(table: &TableDefinition, of: &SumDefinition) -> Expr {
    let sum_type = sum_type(table, of);
    let digits = u32::from(DECIMAL_DIGITS_MAX).saturating_sub(of.scale(table));
    let unit = lit(ScalarValue::Decimal128(Some(10_i128.pow(digits)), DECIMAL_DIGITS_MAX + 1, 0));
    let high = cast(ident(HIGH), DataType::Decimal128(DECIMAL_DIGITS_MAX + 1, 0)) * unit;
    cast(cast(high, sum_type.clone()) + cast(ident(LOW), sum_type.clone()), sum_type)
}

/// A plan of the sums over all rows of a table.
pub(crate) fn of_rows(table: &Arc<Table>, of: &SumDefinition) -> Result<LogicalPlan> {
    let definition = table.definition();
    let mut rows = scan(&definition.name, Arc::clone(table) as _)?;
    if let Some(within) = of.within {
        rows = rows.filter(is_within(definition, within)?)?;
    }
    let factors = of.factors.iter().map(|factor| amount(definition, *factor));
    let product = factors.collect::<Result<Vec<_>>>()?.into_iter().reduce(|product, factor| product * factor);
    let (total, rows_of_all) = ("sum of all", "rows of all");
    let group = ident(column(definition, of.group)?);
    // Without factors an amount is 1.
    let product = product.unwrap_or_else(|| cast(lit(1_i64), DataType::Decimal128(1, 0)));
    let aggregates = vec![sum(product).alias(total), count(lit(1_i64)).alias(rows_of_all)];
    let added = rows.aggregate(vec![group.clone()], aggregates)?;
    added
        .project(vec![
            group.alias(GROUP),
            cast(ident(total), sum_type(definition, of)).alias(SUM),
            cast(ident(rows_of_all), DataType::Int64).alias(ROWS),
        ])?
        .build()
}

/// A plan of the sums over all rows of a table, from the sums over its segments in `base` and the
/// changes by its changed rows.
pub(crate) fn of_base(
    table: &TableDefinition,
    of: &SumDefinition,
    base: &Arc<Table>,
    changes: &[(Datum, Amount)],
) -> Result<LogicalPlan> {
    let sum_type = sum_type(table, of);
    let columns = |sum: Expr| vec![ident(GROUP), sum.alias(SUM), ident(ROWS)];
    let segments = scan(&base.definition().name, Arc::clone(base) as _)?;
    let segments = segments.project(columns(put_together(table, of)))?;
    let batch = changed(table, of, changes)?;
    let beside = MemTable::try_new(batch.schema(), vec![vec![batch]])?;
    let beside = scan("rows beside segments", Arc::new(beside))?.project(columns(ident(SUM)))?.build()?;
    let totals = segments.union(beside)?.aggregate(
        vec![ident(GROUP)],
        vec![sum(ident(SUM)).alias("sum of all"), sum(ident(ROWS)).alias("rows of all")],
    )?;
    let rows = ident("rows of all");
    let present = totals.filter(rows.clone().gt(lit(0_i64)))?;
    present
        .project(vec![ident(GROUP), cast(ident("sum of all"), sum_type).alias(SUM), rows.alias(ROWS)])?
        .build()
}

fn scan(name: &str, provider: Arc<dyn datafusion::catalog::TableProvider>) -> Result<LogicalPlanBuilder> {
    LogicalPlanBuilder::scan(TableReference::bare(name), provider_as_source(provider), None)
}

fn column(table: &TableDefinition, column: ColumnId) -> Result<&str> {
    let column = table.columns.get(column.index());
    let missing = || {
        DataFusionError::Internal(format!("table {} does not have a column that its view uses", table.name))
    };
    column.map(|column| column.name.as_str()).ok_or_else(missing)
}

fn column_type(table: &TableDefinition, column: ColumnId) -> ColumnType {
    table.columns.get(column.index()).map_or(ColumnType::Int64, |column| column.column_type)
}

/// A factor as a decimal, because products of integers would wrap.
fn amount(table: &TableDefinition, factor: Factor) -> Result<Expr> {
    let value = ident(column(table, factor.column())?);
    let value = match column_type(table, factor.column()) {
        ColumnType::Decimal { .. } => value,
        _ => cast(value, DataType::Decimal128(19, 0)),
    };
    Ok(match factor {
        Factor::Column(_) => value,
        Factor::OneMinus(_) => lit(1_i64) - value,
        Factor::OnePlus(_) => lit(1_i64) + value,
    })
}

fn is_within(table: &TableDefinition, within: Within) -> Result<Expr> {
    let value = ident(column(table, within.column)?);
    let column_type = column_type(table, within.column);
    let (least, most) = match column_type {
        ColumnType::Boolean => (0, 1),
        ColumnType::Int32 | ColumnType::Date32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (i64::MIN, i64::MAX),
    };
    if within.from >= within.until || within.from > most || within.until <= least {
        return Ok(lit(false));
    }
    let bound = |bound: i64| {
        let scalar = zone_scalar(column_type, &ZoneValue::Integer(bound));
        scalar.map(lit).ok_or_else(|| DataFusionError::Internal(format!("{bound} is no {column_type}")))
    };
    // Rows with a missing value do not count.
    let mut condition = value.clone().is_not_null();
    if within.from > least {
        condition = condition.and(value.clone().gt_eq(bound(within.from)?));
    }
    if within.until <= most {
        condition = condition.and(value.lt(bound(within.until)?));
    }
    Ok(condition)
}

/// The changes by changed rows, as a batch.
fn changed(table: &TableDefinition, of: &SumDefinition, changes: &[(Datum, Amount)]) -> Result<RecordBatch> {
    let group_type = column_type(table, of.group);
    let arrow_group = arrow_type(group_type.into());
    let group = |datum: &Datum| {
        let value = match datum {
            Datum::Null => return ScalarValue::try_from(&arrow_group),
            Datum::Integer(value) => ZoneValue::Integer(*value),
            Datum::Float(value) => ZoneValue::Float(*value),
            Datum::Text(text) => ZoneValue::Text(text.as_bytes().to_vec()),
        };
        let no_value = || {
            DataFusionError::Internal(format!(
                "a group of a view of table {} is not a {group_type}",
                table.name
            ))
        };
        zone_scalar(group_type, &value).ok_or_else(no_value)
    };
    let groups = changes.iter().map(|(datum, _)| group(datum)).collect::<Result<Vec<_>>>()?;
    let groups: ArrayRef = if groups.is_empty() {
        datafusion::arrow::array::new_empty_array(&arrow_group)
    } else {
        ScalarValue::iter_to_array(groups)?
    };
    let sums = Decimal128Array::from_iter_values(changes.iter().map(|(_, amount)| amount.sum));
    let sums = sums.with_data_type(sum_type(table, of));
    sums.validate_decimal_precision(SUM_DIGITS)?;
    let rows = Int64Array::from_iter_values(changes.iter().map(|(_, amount)| amount.rows));
    let fields = vec![
        Field::new(GROUP, arrow_group, true),
        Field::new(SUM, sums.data_type().clone(), false),
        Field::new(ROWS, DataType::Int64, false),
    ];
    let columns: Vec<ArrayRef> = vec![groups, Arc::new(sums), Arc::new(rows)];
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(|error: ArrowError| error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a base has of sums, and what that is again.
    fn kept(sums: &[i128], scale: i8) -> Vec<i128> {
        let sums =
            Decimal128Array::from(sums.to_vec()).with_data_type(DataType::Decimal128(SUM_DIGITS, scale));
        let (high, low) = divided(&sums).unwrap();
        assert_eq!(low.data_type(), &DataType::Decimal128(DECIMAL_DIGITS_MAX, scale));
        low.validate_decimal_precision(DECIMAL_DIGITS_MAX).unwrap();
        let high = high.values().iter().map(|high| i128::from(*high) * 10_i128.pow(18));
        high.zip(low.values()).map(|(high, low)| high + low).collect()
    }

    #[test]
    fn a_sum_is_kept_to_the_last_digit_whatever_its_sign_and_size() {
        let unit = 10_i128.pow(18);
        let sums =
            [0, 1, -1, unit - 1, unit, unit + 1, -unit, -unit - 7, 3 * unit - 5, i128::from(i64::MAX) * unit];
        for scale in [0, 4, 18] {
            assert_eq!(kept(&sums, scale), sums, "{scale}");
        }
        let too_large = (i128::from(i64::MAX) + 1) * unit;
        assert_eq!(divided(&Decimal128Array::from(vec![3, too_large])).unwrap_err(), too_large);
    }
}
