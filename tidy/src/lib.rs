//! Does the tree keep its own rules?
