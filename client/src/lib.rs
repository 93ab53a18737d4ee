//! How do I talk to storage nodes?
