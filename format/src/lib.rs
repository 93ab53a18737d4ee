//! What do our bytes mean, on disk and on the wire?
