//! Where should a scan run?
