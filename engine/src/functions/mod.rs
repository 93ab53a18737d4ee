//! Implements SQL functions that replace DataFusion's, where DataFusion's give other answers than
//! PostgreSQL's.

mod average;
mod bytea;
mod canonical;
mod checked;
mod coalesce;
mod date_part;
mod date_trunc;
mod extreme;
mod filter;
mod first_rows;
mod float_window;
mod interval;
mod interval_product;
mod joined_text;
mod long_text;
mod moments;
mod named_cast;
mod now;
mod nullable;
mod nullif;
mod rounding;
mod single_row;
mod string_agg;
mod sum;
mod text;
mod text_concat;
mod text_window;
mod window_results;

use std::sync::Arc;

use chrono::{DateTime, SubsecRound, Utc};
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};

pub(crate) use bytea::{BYTEA, bytea, bytea_length, bytea_text};
pub(crate) use canonical::{ONE_NAN, canonical, of_double, one_nan};
pub(crate) use checked::{Checked, checked_functions};
pub(crate) use first_rows::FIRST_ROWS;
pub(crate) use interval::{INTERVAL, interval_length};
pub(crate) use interval_product::{interval_of_difference, interval_product, interval_quotient};
pub(crate) use long_text::LongBatch;
pub(crate) use named_cast::NAMED_CAST;
pub(crate) use nullable::nullable;
pub(crate) use rounding::{rounded, whole_numbers};
pub(crate) use single_row::single_row;
pub(crate) use text::{short_text, text};
pub(crate) use text_concat::text_concat;
pub(crate) use window_results::{WindowResults, metered, view_bytes};

/// Functions that replace DataFusion's functions of the same names.
pub(crate) fn functions() -> Vec<Arc<ScalarUDF>> {
    let ours = [
        Arc::new(ScalarUDF::from(now::Now::default())),
        bytea(),
        canonical(),
        one_nan(),
        Arc::new(ScalarUDF::from(date_trunc::DateTrunc::default())),
        date_part(),
        Arc::new(ScalarUDF::from(rounding::Round::default())),
        Arc::new(ScalarUDF::from(coalesce::Coalesce::default())),
        Arc::new(ScalarUDF::from(nullif::NullIf::default())),
        Arc::new(ScalarUDF::from(named_cast::NamedCast::default())),
        Arc::new(ScalarUDF::from(first_rows::FirstRows::default())),
    ];
    ours.into_iter().chain(long_text::long_texts()).collect()
}

/// Aggregates that replace DataFusion's aggregates of the same names.
pub(crate) fn aggregates() -> Vec<Arc<AggregateUDF>> {
    let ours = [
        Arc::new(AggregateUDF::from(average::Average::default())),
        Arc::new(AggregateUDF::from(sum::Sum::default())),
        Arc::new(AggregateUDF::from(extreme::Least::default())),
        Arc::new(AggregateUDF::from(extreme::Largest::default())),
        string_agg::string_agg(),
    ];
    ours.into_iter().chain(moments::statistics()).collect()
}

/// `date_part`, for the rule that replaces DataFusion's own.
pub(crate) fn date_part() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(date_part::DatePart::default()))
}

/// The time of a statement or transaction that begins now, to the microsecond.
pub(crate) fn time() -> DateTime<Utc> {
    Utc::now().trunc_subsecs(6)
}
