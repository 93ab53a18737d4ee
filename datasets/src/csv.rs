//! How does csv get in? (see the crate's documentation)
