//! How fast is each part, next to its limit?
