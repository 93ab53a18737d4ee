//! Writes messages to standard error, and ignores write errors.
//!
//! `eprintln!` panics if nobody reads standard error any more (`rackscan load ... 2>&1 | head -1`):
//! a load that succeeded would then end with status 101.

/// Writes a line to standard error.
macro_rules! note {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        // Nobody reads a closed standard error.
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}
