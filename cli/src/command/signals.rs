//! Lets signals end a command in order.

use crate::failure::Failure;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::{Arc, atomic::AtomicBool};

/// A flag that Ctrl-C or SIGTERM sets.
pub(super) fn stop_on_signals() -> Result<Arc<AtomicBool>, Failure> {
    stop_on(&[SIGINT, SIGTERM])
}

/// A flag that these signals set.
pub(super) fn stop_on(signals: &[i32]) -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in signals {
        signal_hook::flag::register(*signal, Arc::clone(&stop))
            .map_err(|error| Failure::Runtime(format!("cannot watch for signals: {error}")))?;
    }
    Ok(stop)
}
