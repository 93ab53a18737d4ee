//! What are the eight tables of TPC-H, and how are their rows made?

use std::str::FromStr;

use rackscan_client::Cluster;

use crate::{LoadError, LoadOptions, LoadSummary, OnProgress};

/// The tables, in the order of loading.
pub const TABLES: [&str; 8] =
    ["region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem"];

/// A table to sort, and by which column: `lineitem.l_shipdate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortBy {
    /// The table.
    pub table: String,
    /// Its column.
    pub column: String,
}

/// A text that is not `TABLE.COLUMN`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not TABLE.COLUMN, such as lineitem.l_shipdate")]
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

/// What the definitions of tables loaded at this scale name as their source.
#[must_use]
pub fn source(scale: f64) -> String {
    format!("tpch scale {scale}")
}

/// Generates and loads all tables. None is published before every row of all of them is stored.
///
/// # Errors
/// See [`LoadError`]; nothing is published then.
pub async fn load(
    cluster: &Cluster,
    scale: f64,
    sort_by: &[SortBy],
    options: &LoadOptions,
    progress: OnProgress<'_>,
) -> Result<LoadSummary, LoadError> {
    let _ = (cluster, scale, sort_by, options, progress);
    Err(LoadError::File {
        action: "load",
        path: source(scale).into(),
        source: std::io::ErrorKind::Unsupported.into(),
    })
}
