//! Computes the rows that the refresh functions of TPC-H insert and delete.
//!
//! RF1 inserts new orders with their lines, RF2 deletes old orders with theirs (clauses 2.6 and 2.7
//! of revision 3). Each affects a thousandth of the loaded orders. An order with all of its lines
//! is one transaction.
//!
//! ```text
//! order numbers  1 .. 1,500,000 x scale                   each stream has a thousandth of them
//! keys           of each 32 keys the first 8 are loaded   RF2 deletes the keys of its stream's order numbers
//!                the next 8 belong to RF1                 RF1 inserts the keys of the same order numbers
//! values         rows of the generator after the loaded ones, a thousandth for each stream
//! ```
//!
//! Invariants
//! - Keys are those of `dbgen -U` (clause 4.2.3, `mk_sparse` in its sources), for the streams
//!   before it uses the third 8 of each 32 keys.
//! - No two streams share a key, and no key that RF1 inserts was loaded.
//! - The same scale and stream give the same rows in every release.
//! - Values have the order and the stored form of the loaded tables' columns
//!   ([`crate::tpch::columns`]).

use tpchgen::generators::{LineItem, LineItemGenerator, Order, OrderGenerator};

use rackscan_delta::row::Datum;

use crate::limits::{REFRESH_STREAMS_MAX, TPCH_SCALE_MAX, TPCH_SCALE_MIN};

/// The number of parts of the orders: one for each stream, and one that no stream uses.
const PARTS: i32 = 1000;
/// How many consecutive keys, of each 32, have the same use.
const KEYS_OF_ONE_USE: i64 = 8;
/// The first order number of the generator.
const FIRST_NUMBER: i64 = 1;

// Every stream has its own part of the loaded orders and of the orders after them.
const _: () = assert!(REFRESH_STREAMS_MAX < PARTS.unsigned_abs());

/// An order to insert, as one transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct RefreshOrder {
    /// The key of the order and of its lines.
    pub key: i64,
    /// The row of `orders`.
    pub order: Vec<Datum>,
    /// The rows of `lineitem`, 1 to 7.
    pub lines: Vec<Vec<Datum>>,
}

/// A scale factor or stream that the specification does not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} of a refresh is {found}, expected {expected}")]
pub struct RefreshFault {
    /// The parameter.
    pub what: &'static str,
    /// Its value.
    pub found: String,
    /// What was expected.
    pub expected: String,
}

/// The number of orders that a stream inserts, which is also the number that it deletes.
///
/// # Errors
/// [`RefreshFault`].
pub fn orders_per_stream(scale: f64, stream: u32) -> Result<u64, RefreshFault> {
    Ok(StreamPart::of(scale, stream)?.numbers().count() as u64)
}

/// The orders that RF1 of a stream (from 1) inserts, in ascending order of keys. The first call in
/// a process generates the text pool, which takes about a second.
///
/// # Errors
/// [`RefreshFault`].
pub fn new_sales(scale: f64, stream: u32) -> Result<impl Iterator<Item = RefreshOrder> + Send, RefreshFault> {
    let part = StreamPart::of(scale, stream)?;
    // The generator continues after its last part, because its orders depend only on their numbers.
    let behind = PARTS + part.stream;
    let orders = OrderGenerator::new(scale, behind, PARTS).into_iter();
    let mut lines = LineItemGenerator::new(scale, behind, PARTS).into_iter().peekable();
    Ok(part.numbers().zip(orders).map(move |(number, order)| {
        let key = inserted_key(number);
        let mut own = Vec::new();
        while let Some(line) = lines.next_if(|line| line.l_orderkey == order.o_orderkey) {
            own.push(line_row(key, &line));
        }
        RefreshOrder { key, order: order_row(key, &order), lines: own }
    }))
}

/// The keys of the orders that RF2 of a stream (from 1) deletes, with all of their lines,
/// ascending. All of them were loaded.
///
/// # Errors
/// [`RefreshFault`].
pub fn old_sales(scale: f64, stream: u32) -> Result<impl Iterator<Item = i64> + Send, RefreshFault> {
    Ok(StreamPart::of(scale, stream)?.numbers().map(OrderGenerator::make_order_key))
}

/// A stream's thousandth of the loaded orders.
#[derive(Clone, Copy, Debug)]
struct StreamPart {
    stream: i32,
    orders: i64,
}

impl StreamPart {
    fn of(scale: f64, stream: u32) -> Result<Self, RefreshFault> {
        if !(TPCH_SCALE_MIN..=TPCH_SCALE_MAX).contains(&scale) {
            let expected = format!("{TPCH_SCALE_MIN} to {TPCH_SCALE_MAX}");
            return Err(RefreshFault { what: "the scale factor", found: scale.to_string(), expected });
        }
        let fits = i32::try_from(stream).ok().filter(|_| (1..=REFRESH_STREAMS_MAX).contains(&stream));
        let Some(number) = fits else {
            let expected =
                format!("1 to {REFRESH_STREAMS_MAX}: load the tables again, or begin again with stream 1");
            return Err(RefreshFault { what: "the stream", found: stream.to_string(), expected });
        };
        Ok(Self { stream: number, orders: OrderGenerator::calculate_row_count(scale, number, PARTS) })
    }

    /// The numbers of the orders of this part.
    fn numbers(self) -> impl Iterator<Item = i64> + Send {
        let first = FIRST_NUMBER + i64::from(self.stream - 1) * self.orders;
        first..first + self.orders
    }
}

/// The key that RF1 inserts for the order with this number: the loaded key plus 8.
fn inserted_key(number: i64) -> i64 {
    OrderGenerator::make_order_key(number) + KEYS_OF_ONE_USE
}

fn text(text: &str) -> Datum {
    Datum::Text(text.to_owned())
}

/// A row of `orders`.
fn order_row(key: i64, order: &Order<'_>) -> Vec<Datum> {
    vec![
        Datum::Integer(key),
        Datum::Integer(order.o_custkey),
        text(order.o_orderstatus.as_str()),
        Datum::Integer(order.o_totalprice.into_inner()),
        Datum::Integer(order.o_orderdate.to_unix_epoch().into()),
        text(order.o_orderpriority),
        Datum::Text(order.o_clerk.to_string()),
        Datum::Integer(order.o_shippriority.into()),
        text(order.o_comment),
    ]
}

/// A row of `lineitem`.
fn line_row(key: i64, line: &LineItem<'_>) -> Vec<Datum> {
    vec![
        Datum::Integer(key),
        Datum::Integer(line.l_partkey),
        Datum::Integer(line.l_suppkey),
        Datum::Integer(line.l_linenumber.into()),
        // The generator's quantities are whole numbers; the column has two decimal places.
        Datum::Integer(line.l_quantity * 100),
        Datum::Integer(line.l_extendedprice.into_inner()),
        Datum::Integer(line.l_discount.into_inner()),
        Datum::Integer(line.l_tax.into_inner()),
        text(line.l_returnflag),
        text(line.l_linestatus),
        Datum::Integer(line.l_shipdate.to_unix_epoch().into()),
        Datum::Integer(line.l_commitdate.to_unix_epoch().into()),
        Datum::Integer(line.l_receiptdate.to_unix_epoch().into()),
        text(line.l_shipinstruct),
        text(line.l_shipmode),
        text(line.l_comment),
    ]
}

#[cfg(test)]
mod tests;
