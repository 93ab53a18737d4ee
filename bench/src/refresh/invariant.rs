//! Checks that every order is visible with all of its lines, or not at all.
//!
//! One statement counts orders and lines of the keys that streams insert and delete. The result is
//! compared with what the streams write: a visible order has exactly its lines, and a visible line
//! has its order.

use super::RefreshError;
use az::SaturatingAs;
use rackscan_datasets::refresh;
use rackscan_engine::{
    Engine,
    arrow::{array::AsArray, datatypes::Int64Type},
};
use std::collections::BTreeMap;

/// An order that was partly visible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a query found order {key} {orders} times with {lines} lines, expected once with {expected} lines, or not at all: a transaction was \
     visible only in part; please report this"
)]
pub struct Fracture {
    /// Its key.
    pub key: i64,
    /// Rows of `orders` with it.
    pub orders: i64,
    /// Rows of `lineitem` with it.
    pub lines: i64,
    /// Number of lines that the order has.
    pub expected: i64,
}

/// The orders of some streams, and how many lines each has.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    lines: BTreeMap<i64, i64>,
}

impl Expected {
    /// Adds what further streams insert and delete at a scale factor. Orders to be deleted must be
    /// complete, or deleted already.
    ///
    /// # Errors
    /// There are no such streams, or the tables cannot be read.
    pub async fn add(&mut self, engine: &Engine, scale: f64, streams: &[u32]) -> Result<(), RefreshError> {
        let mut old = BTreeMap::new();
        for stream in streams {
            let new = refresh::new_sales(scale, *stream)?;
            self.lines.extend(new.map(|order| (order.key, order.lines.len().saturating_as::<i64>())));
            old.extend(refresh::old_sales(scale, *stream)?.map(|key| (key, 0)));
        }
        let counted = Self { lines: old }.count(engine).await?;
        self.lines.extend(counted.into_iter().map(|(key, (_, of_lines))| (key, of_lines)));
        Ok(())
    }

    /// Checks all orders in one statement. Returns how many are visible.
    ///
    /// # Errors
    /// [`Fracture`], as a [`RefreshError`].
    pub async fn check(&self, engine: &Engine) -> Result<u64, RefreshError> {
        let mut there = 0;
        for (key, (orders, lines)) in self.count(engine).await? {
            let Some(expected) = self.lines.get(&key).copied() else { continue };
            if (orders, lines) != (1, expected) {
                return Err(Fracture { key, orders, lines, expected }.into());
            }
            there += 1;
        }
        Ok(there)
    }

    /// Numbers of orders and of lines by key, for keys that have any.
    async fn count(&self, engine: &Engine) -> Result<BTreeMap<i64, (i64, i64)>, RefreshError> {
        let Some((first, last)) = self.lines.keys().next().zip(self.lines.keys().next_back()) else {
            return Ok(BTreeMap::new());
        };
        let sql = format!(
            "SELECT k, sum(o), sum(l) FROM (SELECT o_orderkey AS k, CAST(1 AS BIGINT) AS o, CAST(0 AS BIGINT) AS l FROM orders \
             WHERE o_orderkey BETWEEN {first} AND {last} UNION ALL SELECT l_orderkey, CAST(0 AS BIGINT), CAST(1 AS BIGINT) FROM lineitem \
             WHERE l_orderkey BETWEEN {first} AND {last}) AS both_tables GROUP BY k"
        );
        let mut counted = BTreeMap::new();
        for batch in engine.sql(&sql).await?.batches {
            let [keys, orders, lines] =
                [0, 1, 2].map(|column| batch.column(column).as_primitive::<Int64Type>().values().clone());
            let counts = keys.iter().zip(orders.iter().zip(lines.iter()));
            let known = counts.filter(|(key, _)| self.lines.contains_key(key));
            counted.extend(known.map(|(key, (orders, lines))| (*key, (*orders, *lines))));
        }
        Ok(counted)
    }
}
