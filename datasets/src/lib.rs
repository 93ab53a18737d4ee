//! How do tables get in?

#![forbid(unsafe_code)]

pub mod csv;
pub mod home;
pub mod load;
pub mod parquet;
pub mod tpch;
