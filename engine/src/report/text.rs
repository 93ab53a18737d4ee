//! Writes reports of scans as text.

use super::QueryReport;
use rackscan_planner::Placement;
use std::fmt;

impl QueryReport {
    /// One line, such as `scans: 46 segments remote-process (4 nodes), 0 bounced; 34.5 MB from
    /// disk, 1.2 KB on the wire`.
    #[must_use]
    pub fn summary(&self) -> String {
        let (total, work) = (&self.total, self.total.all_work());
        let counts: Vec<String> = Placement::ALL
            .into_iter()
            .map(|placement| (placement, total.segments.of(placement)))
            .filter(|(_, count)| *count > 0)
            .map(|(placement, count)| format!("{count} {} {placement}", plural(count, "segment")))
            .collect();
        if counts.is_empty() {
            return "scans: none".to_owned();
        }
        format!(
            "scans: {} ({} {}), {} bounced; {} from disk, {} on the wire",
            counts.join(", "),
            total.nodes,
            plural(total.nodes, "node"),
            total.bounced,
            Bytes(work.disk_bytes),
            Bytes(work.wire_bytes),
        )
    }
}

pub(crate) fn plural(count: u64, one: &str) -> String {
    if count == 1 { one.to_owned() } else { format!("{one}s") }
}

/// Bytes in a readable form: three digits, decimal units.
pub(crate) struct Bytes(pub(crate) u64);

impl fmt::Display for Bytes {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.0 as f64;
        let mut unit = "B";
        for larger in ["KB", "MB", "GB", "TB"] {
            if value < 999.5 {
                break;
            }
            value /= 1000.0;
            unit = larger;
        }
        if unit == "B" || value >= 99.95 {
            write!(f, "{value:.0} {unit}")
        } else {
            write!(f, "{value:.1} {unit}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_with_at_most_three_digits() {
        for (bytes, text) in
            [(0, "0 B"), (999, "999 B"), (1234, "1.2 KB"), (34_500_000, "34.5 MB"), (999_600_000, "1.0 GB")]
        {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }
}
