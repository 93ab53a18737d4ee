//! Shows progress on the terminal: a bar on standard error, or nothing if standard error is no
//! terminal.

use indicatif::{ProgressBar, ProgressStyle};
use rackscan_client::RepairProgress;
use rackscan_lab::Step;
use std::time::Duration;

const BAR: &str =
    "{msg:<24} [{bar:30}] {percent:>3}%  {human_pos} of {human_len} rows  {elapsed} (about {eta} left)";
const TURNS: &str = "[{bar:30}] {pos} of {len} turns  {elapsed} (about {eta} left)  {msg}";
const REQUESTS: &str =
    "[{bar:30}] {percent:>3}%  {human_pos} of {human_len} requests  {elapsed} (about {eta} left)";
const BYTES: &str = "{msg:<16} [{bar:30}] {percent:>3}%  {bytes} of {total_bytes}, {bytes_per_sec}  {elapsed} (about {eta} left)";
const SPINNER: &str = "{spinner} {msg}";

/// A bar over `rows`.
pub(crate) fn rows(rows: u64) -> ProgressBar {
    let bar = ProgressBar::new(rows);
    if let Ok(style) = ProgressStyle::with_template(BAR) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

/// A line that describes the current work, where there is nothing to count.
pub(crate) fn steps() -> ProgressBar {
    let spinner = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template(SPINNER) {
        spinner.set_style(style.tick_chars("-\\|/ "));
    }
    spinner.enable_steady_tick(Duration::from_millis(120));
    spinner
}

/// A bar over repetitions of a measurement, with the current work.
pub(crate) fn turns() -> ProgressBar {
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template(TURNS) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// Shows on a bar of [`turns`] how far a measurement is.
pub(crate) fn show(bar: &ProgressBar, step: &Step<'_>) {
    bar.set_length(step.total as u64);
    bar.set_position(step.done as u64);
    bar.set_message(step.doing.to_owned());
}

/// A bar over bytes that are checked or rebuilt.
pub(crate) struct Repairing(ProgressBar);

pub(crate) fn repairing(what: &str) -> Repairing {
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template(BYTES) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(what.to_owned());
    Repairing(bar)
}

impl Repairing {
    /// A listener that moves the bar.
    pub(crate) fn listener(&self) -> impl Fn(&RepairProgress) + Sync {
        let bar = self.0.clone();
        move |progress| {
            bar.set_length(progress.bytes_total);
            bar.set_position(progress.bytes_done);
        }
    }

    pub(crate) fn end(&self) {
        self.0.finish_and_clear();
    }
}

/// A bar over requests.
pub(crate) fn requests(requests: u64) -> ProgressBar {
    let bar = ProgressBar::new(requests);
    if let Ok(style) = ProgressStyle::with_template(REQUESTS) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}
