//! What is said on standard error, if anybody reads it.
//!
//! `eprintln!` panics where the reader has gone (`rackscan load ... 2>&1 | head -1`): a load that
//! has succeeded would end with status 101.

/// Writes a line to standard error.
macro_rules! note {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        // Whoever has closed it does not want to know.
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}
