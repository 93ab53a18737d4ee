//! Generates and loads the eight tables of TPC-H.
//!
//! The generator first builds 300 MB of text, from which it cuts all comments. That takes about a
//! second, during which nothing is stored.
//!
//! Invariants
//! - Rows are those of the specification's generator at that scale factor, whatever the number of
//!   threads.
//! - An order and its lines are on the same node: both tables are partitioned by the order's key.

use std::{str::FromStr, time::Instant};

use arrow::{array::RecordBatch, datatypes::SchemaRef, error::ArrowError};
use rackscan_client::Cluster;
use rackscan_format::schema::ColumnDefinition;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};

use crate::{
    LoadError, LoadOptions, LoadSummary, OnProgress,
    cut::{Piece, Pieces},
    limits::{PIECE_ROWS, TPCH_SCALE_MAX, TPCH_SCALE_MIN},
    load::{NewTable, StoredTable, store},
    stored::Conversion,
};

/// The tables, in the order of loading.
pub const TABLES: [&str; 8] =
    ["region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem"];

const GENERATE: &str = "generate its rows";

/// A table to sort, and the column to sort it by: `lineitem.l_shipdate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortBy {
    /// The table.
    pub table: String,
    /// Its column.
    pub column: String,
}

/// The error for a text that is not `TABLE.COLUMN`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} does not name a column of a table, expected TABLE.COLUMN, such as lineitem.l_shipdate")]
pub struct NotTableColumn {
    /// The text.
    pub found: String,
}

impl FromStr for SortBy {
    type Err = NotTableColumn;

    fn from_str(text: &str) -> Result<Self, NotTableColumn> {
        match text.split_once('.') {
            Some((table, column)) if !table.is_empty() && !column.is_empty() => {
                Ok(Self { table: table.to_owned(), column: column.to_owned() })
            }
            _ => Err(NotTableColumn { found: text.to_owned() }),
        }
    }
}

/// The source that the definitions of tables loaded at this scale name.
#[must_use]
pub fn source(scale: f64) -> String {
    format!("tpch scale {scale}")
}

/// The columns of a table, as a load defines them.
///
/// # Errors
/// If the name is not in [`TABLES`].
pub fn columns(table: &str) -> Result<Vec<ColumnDefinition>, LoadError> {
    let generated = GENERATED.iter().find(|generated| generated.name == table);
    let generated = generated.ok_or_else(|| unknown_table("the table", table))?;
    Ok(generated.conversion()?.definitions())
}

/// Bytes of the `.tbl` files that hold the same rows. Exact at scale 1; at other scales in
/// proportion, which is within 5 % from scale 0.01 on (keys have fewer or more digits).
#[must_use]
pub fn raw_bytes(scale: f64) -> u64 {
    GENERATED.iter().map(|table| table.raw_bytes(scale)).sum()
}

/// Generates and loads all tables. No table is published before every row of all of them is stored,
/// so a load that fails leaves the tables of an earlier load unchanged.
///
/// # Errors
/// See [`LoadError`]; nothing is published then, unless publishing itself fails between two tables.
pub async fn load(
    cluster: &Cluster,
    scale: f64,
    sort_by: &[SortBy],
    options: &LoadOptions,
    progress: OnProgress<'_>,
) -> Result<LoadSummary, LoadError> {
    load_some(cluster, scale, &TABLES, sort_by, options, progress).await
}

/// Like [`load`], for some of the tables.
///
/// # Errors
/// As for [`load`], and if a name is not in [`TABLES`].
pub async fn load_some(
    cluster: &Cluster,
    scale: f64,
    tables: &[&str],
    sort_by: &[SortBy],
    options: &LoadOptions,
    progress: OnProgress<'_>,
) -> Result<LoadSummary, LoadError> {
    check(scale, sort_by)?;
    if let Some(unknown) = tables.iter().find(|table| !TABLES.contains(table)) {
        return Err(unknown_table("the table to load", unknown));
    }
    let started = Instant::now();
    let wanted: Vec<&GeneratedTable> =
        GENERATED.iter().filter(|table| tables.contains(&table.name)).collect();
    let mut stored: Vec<StoredTable> = Vec::with_capacity(wanted.len());
    for table in &wanted {
        let sort_by = sort_by.iter().rfind(|sort| sort.table == table.name);
        match store(cluster, table.new_table(scale, sort_by)?, options, progress).await {
            Ok(table) => stored.push(table),
            Err(error) => {
                abort(stored).await;
                return Err(error);
            }
        }
    }
    let mut loaded = Vec::with_capacity(stored.len());
    for table in stored {
        loaded.push(table.publish().await?);
    }
    let raw_bytes = wanted.iter().map(|table| table.raw_bytes(scale)).sum();
    Ok(LoadSummary::new(loaded, raw_bytes, started))
}

async fn abort(stored: Vec<StoredTable>) {
    for StoredTable { session, loaded } in stored {
        if let Err(error) = session.abort().await {
            tracing::warn!(table = loaded.name, %error, "could not abort the load on every node; a node discards it when it restarts");
        }
    }
}

fn check(scale: f64, sort_by: &[SortBy]) -> Result<(), LoadError> {
    if !(TPCH_SCALE_MIN..=TPCH_SCALE_MAX).contains(&scale) {
        let expected = format!("{TPCH_SCALE_MIN} to {TPCH_SCALE_MAX}");
        return Err(LoadError::Option { what: "the scale factor", found: scale.to_string(), expected });
    }
    match sort_by.iter().find(|sort| !TABLES.contains(&sort.table.as_str())) {
        None => Ok(()),
        Some(sort) => Err(unknown_table("the table to sort", &sort.table)),
    }
}

fn unknown_table(what: &'static str, found: &str) -> LoadError {
    LoadError::Option { what, found: format!("{found:?}"), expected: format!("one of {}", TABLES.join(", ")) }
}

/// A table and its generator.
struct GeneratedTable {
    name: &'static str,
    partition_by: &'static str,
    schema: fn() -> SchemaRef,
    /// All rows of one of several parts as one batch, given scale, part (from 1) and number of
    /// parts.
    part: fn(f64, i32, i32) -> Option<Result<RecordBatch, ArrowError>>,
    /// Rows at scale 1.
    rows: u64,
    /// Bytes of the `.tbl` file at scale 1.
    tbl_bytes: u64,
    /// Whether the scale factor changes the number of rows.
    is_scaled: bool,
}

/// Generates one part of a table as one batch.
macro_rules! part {
    ($arrow:ident, $generator:ident) => {
        |scale, part, parts| {
            $arrow::new($generator::new(scale, part, parts)).with_batch_size(usize::MAX).next()
        }
    };
}

/// Rows and bytes were counted over all rows that the generator prints at scale 1; dbgen's files
/// have the same numbers.
const GENERATED: [GeneratedTable; 8] = [
    GeneratedTable {
        name: "region",
        partition_by: "r_regionkey",
        schema: RegionArrow::schema_ref,
        part: part!(RegionArrow, RegionGenerator),
        rows: 5,
        tbl_bytes: 389,
        is_scaled: false,
    },
    GeneratedTable {
        name: "nation",
        partition_by: "n_nationkey",
        schema: NationArrow::schema_ref,
        part: part!(NationArrow, NationGenerator),
        rows: 25,
        tbl_bytes: 2_224,
        is_scaled: false,
    },
    GeneratedTable {
        name: "supplier",
        partition_by: "s_suppkey",
        schema: SupplierArrow::schema_ref,
        part: part!(SupplierArrow, SupplierGenerator),
        rows: 10_000,
        tbl_bytes: 1_409_184,
        is_scaled: true,
    },
    GeneratedTable {
        name: "customer",
        partition_by: "c_custkey",
        schema: CustomerArrow::schema_ref,
        part: part!(CustomerArrow, CustomerGenerator),
        rows: 150_000,
        tbl_bytes: 24_346_144,
        is_scaled: true,
    },
    GeneratedTable {
        name: "part",
        partition_by: "p_partkey",
        schema: PartArrow::schema_ref,
        part: part!(PartArrow, PartGenerator),
        rows: 200_000,
        tbl_bytes: 24_135_125,
        is_scaled: true,
    },
    GeneratedTable {
        name: "partsupp",
        partition_by: "ps_partkey",
        schema: PartSuppArrow::schema_ref,
        part: part!(PartSuppArrow, PartSuppGenerator),
        rows: 800_000,
        tbl_bytes: 118_984_616,
        is_scaled: true,
    },
    GeneratedTable {
        name: "orders",
        partition_by: "o_orderkey",
        schema: OrderArrow::schema_ref,
        part: part!(OrderArrow, OrderGenerator),
        rows: 1_500_000,
        tbl_bytes: 171_952_161,
        is_scaled: true,
    },
    GeneratedTable {
        name: "lineitem",
        partition_by: "l_orderkey",
        schema: LineItemArrow::schema_ref,
        part: part!(LineItemArrow, LineItemGenerator),
        rows: 6_001_215,
        tbl_bytes: 759_863_287,
        is_scaled: true,
    },
];

impl GeneratedTable {
    fn conversion(&self) -> Result<Conversion, LoadError> {
        let schema = (self.schema)();
        Conversion::of(self.name, schema.fields().iter().map(AsRef::as_ref))
    }

    fn new_table<'t>(&'t self, scale: f64, sort_by: Option<&'t SortBy>) -> Result<NewTable<'t>, LoadError> {
        let conversion = self.conversion()?;
        Ok(NewTable {
            name: self.name,
            columns: conversion.definitions(),
            partition_by: self.partition_by,
            sort_by: sort_by.map(|sort| sort.column.as_str()),
            source: source(scale),
            rows_total: Some(self.scaled(self.rows, scale)),
            pieces: self.pieces(scale, conversion),
        })
    }

    /// Parts of about [`PIECE_ROWS`] rows, in key order.
    fn pieces(&self, scale: f64, conversion: Conversion) -> Pieces {
        let parts = self.scaled(self.rows, scale).div_ceil(PIECE_ROWS as u64);
        let parts =
            i32::try_from(parts).expect("the parts of a table: TPCH_SCALE_MAX bounds its rows").max(1);
        let (name, generate) = (self.name, self.part);
        Box::new((1..=parts).map(move |part| {
            let conversion = conversion.clone();
            let piece: Piece = Box::new(move || match generate(scale, part, parts) {
                Some(batch) => conversion
                    .stored(batch.map_err(|source| not_generated(name, source))?.columns())
                    .map_err(|fault| fault.in_table(name, GENERATE, 0)),
                None => Ok(conversion.no_rows()),
            });
            Ok(piece)
        }))
    }

    fn raw_bytes(&self, scale: f64) -> u64 {
        self.scaled(self.tbl_bytes, scale)
    }

    fn scaled(&self, at_scale_one: u64, scale: f64) -> u64 {
        if !self.is_scaled {
            return at_scale_one;
        }
        scaled(at_scale_one, scale)
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the scale factor is positive and bounded, and the generator rounds its own row counts in the same way"
)]
fn scaled(at_scale_one: u64, scale: f64) -> u64 {
    (at_scale_one as f64 * scale) as u64
}

fn not_generated(table: &str, source: ArrowError) -> LoadError {
    LoadError::Rows { table: table.to_owned(), action: GENERATE, source }
}
