//! How does tpch get in? (see the crate's documentation)
