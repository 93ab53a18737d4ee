//! How does load get in? (see the crate's documentation)
