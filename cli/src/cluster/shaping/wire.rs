//! How narrow is the wire? A network of this command alone, whose loopback lets only so many bytes
//! through.
//!
//! Invariants
//! - The network has no name: it belongs to the processes in it, and the kernel removes it with the
//!   last of them, however they end.
//! - This process enters it as a whole, before it has threads or connections.

use std::{env, fs, os::unix::process::CommandExt, process::Command};

/// Tells a command that it has been started anew inside of a network of its own: the network in
/// which it was not.
const OUTSIDE: &str = "RACKSCAN_NETWORK_OUTSIDE";
const OWN: &str = "/proc/self/ns/net";
/// Bytes that go through at once: more than a segment of the loopback, which has up to 64 KiB.
pub(super) const BURST_BYTES: u32 = 128 << 10;
/// What waits longer is dropped, and sent again.
pub(super) const LATENCY: &str = "50ms";
/// A rate that is tried before anything is measured.
const TRIED_MB_PER_S: u32 = 100;

/// The loopback of this process's own network.
#[derive(Debug)]
pub(crate) struct NarrowWire(());

impl NarrowWire {
    /// Starts this command anew inside of a network of its own, unless that has been done. Returns
    /// there; here only when it cannot be.
    pub(crate) fn enter() -> Result<Self, String> {
        own_network()?;
        let wire = Self(());
        wire.set(Some(TRIED_MB_PER_S))?;
        wire.set(None)?;
        Ok(wire)
    }

    /// Lets so many megabytes (10^6) per second through, of both directions together; all that come
    /// if `None`.
    pub(crate) fn set(&self, mb_per_s: Option<u32>) -> Result<(), String> {
        let Some(rate) = mb_per_s else {
            // An error if there is none.
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

/// Starts this command anew inside of a network of its own, whose loopback is up, unless that has
/// been done. Returns there; here only when it cannot be.
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
    let program = env::current_exe().map_err(|error| format!("cannot find myself: {error}"))?;
    let mut again = Command::new("unshare");
    again.args(["--net", "--"]).arg(program).args(env::args_os().skip(1)).env(OUTSIDE, here);
    Err(format!("unshare: {}", again.exec()))
}

/// Runs a program of iproute2 or util-linux to its end; what it printed.
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
