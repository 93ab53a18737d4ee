//! How do values become few bytes?
