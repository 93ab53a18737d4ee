//! `rackscan lab stripe`: shows which node stores each cell of a stripe, and how the cells get
//! there. It needs no cluster.

use crate::{
    args::Stripe,
    failure::{Failure, at_path},
    output::print_text,
};
use rackscan_stripe::{Geometry, Node, Rebuild, Schedule, Shown, ShownRebuild, StripeError};
use serde::Serialize;
use std::fmt::Display;

/// Prints a stripe, and draws it into a file if one is named.
pub(crate) fn run(options: &Stripe) -> Result<(), Failure> {
    let usage = |error: StripeError| Failure::Usage(error.to_string());
    let geometry = Geometry::with_parity(options.nodes, options.parity).map_err(usage)?;
    if !options.rebuild.is_empty() {
        let nodes: Vec<Node> = options.rebuild.iter().copied().map(Node).collect();
        let lost = geometry.lost_with(options.stripe, &nodes).map_err(usage)?;
        let rebuild = Rebuild::new(&geometry, lost).map_err(usage)?;
        return print(&ShownRebuild::new(&geometry, options.stripe, &rebuild), options.json);
    }
    let schedule = options.schedule.map(|way| Schedule::new(&geometry, way));
    let shown = Shown::new(&geometry, options.stripe, schedule.as_ref());
    if let Some(file) = &options.svg {
        std::fs::write(file, shown.svg()).map_err(at_path(file))?;
    }
    print(&shown, options.json)
}

/// Prints as text or as one JSON object.
fn print(shown: &(impl Display + Serialize), as_json: bool) -> Result<(), Failure> {
    if !as_json {
        return print_text(&shown.to_string());
    }
    let json = serde_json::to_string_pretty(shown)
        .map_err(|error| Failure::Runtime(format!("cannot write the stripe as JSON: {error}")))?;
    print_text(&json)
}
