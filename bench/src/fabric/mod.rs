//! Measures each wire next to a plain copy in memory and a socket of the kernel.
//!
//! There are two processes, which share only what the wire shares: this one measures, and a second
//! one of the same program ([`answer`]) is its partner.
//!
//! Invariants
//! - What is compared is measured in alternating turns of one run, so that noise affects both
//!   sides. A line contains all turns. The best turn of each side counts, and ratios compare these.
//! - Every measured byte is checked: transfers are read back, and receivers check messages.

mod answer;
mod ends;
mod error;
mod line;
mod one_sided;
mod partner;
mod round_trips;

pub use answer::answer;
pub use ends::{Ends, Outgoing, Through};
pub use error::FabricBenchError;
pub use line::{FabricLine, FabricOptions};
pub use partner::{Partner, Place, Shape, Task};

pub(crate) use line::{least, most, times};
pub(crate) use partner::{accept, distinct};

/// Runs the measurement; `progress` receives what is measured next.
///
/// # Errors
/// The first failure.
pub fn run(
    options: &FabricOptions,
    start: &dyn Fn() -> std::process::Command,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<FabricLine>, FabricBenchError> {
    let mut lines = Vec::new();
    for place in &options.places {
        let mut partner = Partner::start(place, start())?;
        progress(&format!("{}: transfers", place.wire()));
        lines.extend(one_sided::measure(&mut partner, place, options)?);
        progress(&format!("{}: round trips", place.wire()));
        lines.extend(round_trips::measure(&mut partner, place, options)?);
        partner.stop()?;
    }
    Ok(lines)
}
