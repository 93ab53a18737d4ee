//! `rackscan stripe`: where the cells of a stripe lie, and how they get there. It needs no cluster.

use crate::{
    args::{ScheduleArgument, Stripe},
    failure::{Failure, at_path},
    output::print_text,
};
use rackscan_stripe::{Geometry, Schedule, Shown, Way};

/// Prints a stripe, and draws it if a file is named.
pub(crate) fn run(options: &Stripe) -> Result<(), Failure> {
    let geometry = Geometry::new(options.nodes).map_err(|error| Failure::Usage(error.to_string()))?;
    let way = options.schedule.map(|schedule| match schedule {
        ScheduleArgument::Naive => Way::Naive,
        ScheduleArgument::Relay => Way::Relay,
    });
    let schedule = way.map(|way| Schedule::new(&geometry, way));
    let shown = Shown::new(&geometry, options.stripe, schedule.as_ref());
    if let Some(file) = &options.svg {
        std::fs::write(file, shown.svg()).map_err(at_path(file))?;
    }
    if !options.json {
        return print_text(&shown.to_string());
    }
    let json = serde_json::to_string_pretty(&shown)
        .map_err(|error| Failure::Runtime(format!("cannot write the stripe as JSON: {error}")))?;
    print_text(&json)
}
