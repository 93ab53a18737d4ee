//! How is a column of a segment cut into pages?
