//! How does parquet get in? (see the crate's documentation)
