//! Limits the bandwidth of the wire: this command runs in a network namespace of its own, whose
//! loopback interface has a limited rate.
//!
//! Invariants
//! - The network is unnamed: it belongs to the processes in it, and the kernel removes it with the
//!   last of them, however they end.
//! - This process enters the network as a whole, before it has threads or connections.

use std::{env, fs, os::unix::process::CommandExt, process::Command};

/// Environment variable that tells a restarted command that it runs in a network of its own. Its
/// value identifies the original network.
const OUTSIDE: &str = "RACKSCAN_NETWORK_OUTSIDE";
const OWN: &str = "/proc/self/ns/net";
/// Size of a burst in bytes: more than a segment of the loopback, which has up to 64 KiB.
pub(super) const BURST_BYTES: u32 = 128 << 10;
/// Packets that would wait longer are dropped, and sent again.
pub(super) const LATENCY: &str = "50ms";
/// A rate that is set before the measurement, to see whether it is possible.
const TRIED_MB_PER_S: u32 = 100;

/// The loopback of this process's own network.
#[derive(Debug)]
pub(crate) struct NarrowWire(());

impl NarrowWire {
    /// Restarts this command in a network of its own, unless it already runs in one. Returns in the
    /// restarted process; in the original process only on failure.
    pub(crate) fn enter() -> Result<Self, String> {
        own_network()?;
        let wire = Self(());
        wire.set(Some(TRIED_MB_PER_S))?;
        wire.set(None)?;
        Ok(wire)
    }

    /// Limits the loopback to `mb_per_s` MB (10^6 bytes) per second, both directions together;
    /// `None` removes the limit.
    pub(crate) fn set(&self, mb_per_s: Option<u32>) -> Result<(), String> {
        let Some(rate) = mb_per_s else {
            // Deleting the limit would fail if there were none.
            let shown = run("tc", &["qdisc", "show", "dev", "lo"])?;
            return if shown.contains("tbf") {
                run("tc", &["qdisc", "del", "dev", "lo", "root"]).map(drop)
            } else {
                Ok(())
            };
        };
        let (rate, burst) = (format!("{}bit", u64::from(rate) * 8_000_000), BURST_BYTES.to_string());
        let bucket = ["root", "tbf", "rate", &rate, "burst", &burst, "latency", LATENCY];
        run("tc", &[&["qdisc", "replace", "dev", "lo"], bucket.as_slice()].concat()).map(drop)
    }
}

/// Restarts this command in a network of its own with its loopback up, unless it already runs in
/// one. Returns in the restarted process; in the original process only on failure.
pub(super) fn own_network() -> Result<(), String> {
    let here = fs::read_link(OWN).map_err(|error| format!("{OWN}: {error}"))?;
    if let Some(outside) = env::var_os(OUTSIDE)
        && here.as_os_str() != outside
    {
        return run("ip", &["link", "set", "lo", "up"]).map(drop);
    }
    run("ip", &["-V"])?;
    run("tc", &["-V"])?;
    run("unshare", &["--net", "true"]).map_err(|text| format!("{text} (a network of its own needs root)"))?;
    let program =
        env::current_exe().map_err(|error| format!("cannot find the file of this program: {error}"))?;
    let mut again = Command::new("unshare");
    again.args(["--net", "--"]).arg(program).args(env::args_os().skip(1)).env(OUTSIDE, here);
    Err(format!("unshare: {}", again.exec()))
}

/// Runs a program of iproute2 or util-linux to its end. Returns its output.
pub(super) fn run(program: &str, words: &[&str]) -> Result<String, String> {
    let package = if program == "unshare" { "util-linux" } else { "iproute2" };
    let output = Command::new(program).args(words).output();
    let output =
        output.map_err(|error| format!("cannot run {program}: {error}; install the package {package}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program} {}: {}", words.join(" "), said.trim()))
}
