//! How does home get in? (see the crate's documentation)
