//! Writes messages to standard error, and ignores a closed one.
//!
//! `eprintln!` panics if the reader is gone (`rackscan load ... 2>&1 | head -1`): a load that
//! succeeded would then end with status 101.

/// Writes a line to standard error.
macro_rules! note {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        // Nobody reads a closed standard error.
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}
