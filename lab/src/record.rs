//! Defines the origin of a figure, which every benchmark line contains so that figures can be
//! traced and compared: command, commit, machine and scale factor.

use serde::Serialize;
use std::fs;

/// The commit this binary was built from, `-dirty` if the tree had changes, `unknown` outside a
/// repository.
pub const COMMIT: &str = env!("RACKSCAN_COMMIT");

/// The fields every benchmark line begins with.
#[derive(Clone, Debug, Serialize)]
pub struct Provenance {
    /// Name of the benchmark.
    pub bench: &'static str,
    /// The command line that made it.
    pub command: String,
    /// See [`COMMIT`].
    pub commit: &'static str,
    /// Description of processor, cores, memory and kernel.
    pub machine: String,
    /// Seconds since 1970-01-01T00:00:00Z.
    pub at_s: u64,
    /// The scale factor of the data.
    pub scale: f64,
}

impl Provenance {
    /// For a benchmark that this process runs now.
    #[must_use]
    pub fn now(bench: &'static str, scale: f64) -> Self {
        let mut words = std::env::args();
        let program = words.next().unwrap_or_default();
        let program =
            std::path::Path::new(&program).file_name().map(|name| name.to_string_lossy().into_owned());
        let command = program.into_iter().chain(words).collect::<Vec<_>>().join(" ");
        let at_s = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        Self { bench, command, commit: COMMIT, machine: machine(), at_s, scale }
    }

    /// When it was measured: `2026-11-29 02:15 UTC`.
    fn date(&self) -> String {
        let at = i64::try_from(self.at_s).ok().and_then(|at_s| chrono::DateTime::from_timestamp(at_s, 0));
        at.map_or_else(|| self.at_s.to_string(), |at| at.format("%Y-%m-%d %H:%M UTC").to_string())
    }

    /// Names and values for a report page; `data` describes the measured data.
    #[must_use]
    pub fn named(&self, data: String) -> Vec<(String, String)> {
        let (command, machine) = (self.command.clone(), self.machine.clone());
        let named = [
            ("command", command),
            ("commit", self.commit.to_owned()),
            ("machine", machine),
            ("measured", self.date()),
            ("data", data),
        ];
        named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// Describes the machine: `AMD EPYC 7B13, 2 cores, 23 GiB, Linux 6.1.0`.
#[must_use]
pub fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let processor = field(&cpuinfo, "model name").unwrap_or("unknown processor");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let meminfo = read("/proc/meminfo");
    let kibibytes = field(&meminfo, "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    let gibibytes = kibibytes.unwrap_or(0) / (1024 * 1024);
    format!(
        "{processor}, {cores} cores, {gibibytes} GiB, Linux {}",
        read("/proc/sys/kernel/osrelease").trim()
    )
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_where_it_comes_from() {
        let provenance = Provenance::now("test", 0.5);
        assert!(!provenance.commit.is_empty() && provenance.machine.contains("cores"));
        assert!(provenance.at_s > 1_700_000_000, "the clock is set");
        let page = Provenance { at_s: 1_795_918_500, ..provenance }.named("1 GiB".to_owned());
        assert!(page.contains(&("measured".to_owned(), "2026-11-29 02:15 UTC".to_owned())), "{page:?}");
    }

    #[test]
    fn fields_of_proc_files_are_found_by_name() {
        assert_eq!(field("a\t: 1\nmodel name\t: X 9\n", "model name"), Some("X 9"));
        assert_eq!(field("a: 1\n", "b"), None);
    }
}
