//! Which words does `rackscan lab io` understand?

use clap::{Args, ValueEnum};
use rackscan_format::message::{BridgeKind, IoKind};
use rackscan_lab::{Mode, WireKind};
use std::path::PathBuf;

/// `rackscan lab io`
#[derive(Clone, Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub(crate) struct BenchIo {
    /// Bytes of each read, by comma: multiples of 512 up to 1MiB
    #[arg(long, value_delimiter = ',', value_name = "SIZE", default_value = "512,4KiB,16KiB,64KiB,128KiB",
          value_parser = io_size)]
    pub(crate) sizes: Vec<u32>,
    /// What to measure, by comma
    #[arg(long, value_enum, value_delimiter = ',', default_value = "local,wire,remote")]
    pub(crate) modes: Vec<LabMode>,
    /// Threads that ask, each with a connection of its own, by comma
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "1")]
    pub(crate) connections: Vec<u32>,
    /// Threads of a pool that read and wait (of --bridges static and --io pread), by comma
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "16")]
    pub(crate) io_threads: Vec<u16>,
    /// Reads in flight on each connection, by comma
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "32")]
    pub(crate) depths: Vec<u32>,
    /// Who serves connections in the node and who waits for its device, by comma
    #[arg(long, value_enum, value_delimiter = ',', default_value = "reactor")]
    pub(crate) bridges: Vec<Bridge>,
    /// How reactors and the mode local read, by comma
    #[arg(long, value_enum, value_delimiter = ',', default_value = "uring")]
    pub(crate) io: Vec<ReadsBy>,
    /// Wires to the node, by comma
    #[arg(long, value_enum, value_delimiter = ',', default_value = "shm")]
    pub(crate) wires: Vec<LabWire>,
    /// Where the node listens with --wires verbs; RACKSCAN_VERBS_DEVICE names the adapter of this
    /// side
    #[arg(long, value_name = "DEVICE@ADDRESS")]
    pub(crate) verbs: Option<String>,
    /// Memory of the node that keeps pages, read one-sidedly where that is possible [default: none]
    #[arg(long, value_name = "SIZE", default_value = "0", hide_default_value = true, value_parser = bytes)]
    pub(crate) cache: u64,
    /// Reactors of the node [default: as many as connections, at most half of the cores]
    #[arg(long, value_name = "N")]
    pub(crate) reactors: Option<u16>,
    /// Most reads of one message [default: by the depth]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) batch: Option<u32>,
    /// Pin threads to cores, here and in the node
    #[arg(long)]
    pub(crate) pin: bool,
    /// Reads per second that are intended, whether the device keeps up or not; latencies count from
    /// the intended times
    #[arg(long, value_name = "RATE")]
    pub(crate) open_loop: Option<f64>,
    /// Intended times at equal distances, not as from many users (Poisson)
    #[arg(long, requires = "open_loop")]
    pub(crate) even: bool,
    /// Read popular places more often: 0.99 is usual for caches [default: every place alike]
    #[arg(long, value_name = "SKEW")]
    pub(crate) zipf: Option<f64>,
    /// Seconds of each turn
    #[arg(long, value_name = "N", default_value_t = 3.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Seconds before anything counts, in each turn
    #[arg(long, value_name = "N", default_value_t = 0.5, value_parser = warm_up)]
    pub(crate) warm_up: f64,
    /// End a turn after this many reads on each connection, if that comes first
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Turns of each figure; medians count
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: u32,
    /// Other seeds read other places
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Bytes to read from, which are really written
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = file_size)]
    pub(crate) file_size: u64,
    /// Where the file is made and removed again; on the disk to be measured
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) folder: PathBuf,
    /// Keep the file in the folder, and use the one that is there
    #[arg(long)]
    pub(crate) keep: bool,
    /// Measure fio beside it, if it is installed
    #[arg(long)]
    pub(crate) fio: bool,
    /// Measure the grid behind the paper's figures 4.2 to 4.18, and draw them
    #[arg(long)]
    pub(crate) sweep: bool,
    /// How much of --sweep's grid and time: 1 is usual, 0.01 only shows that it works
    #[arg(long, default_value_t = 1.0, value_parser = super::bench::effort)]
    pub(crate) effort: f64,
    /// Where --sweep puts its page and figures
    #[arg(long, value_name = "DIR", default_value = "lab-report")]
    pub(crate) report: PathBuf,
    /// Append the JSON lines to this file; the table is standard output then
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabMode {
    /// The device, read by this process
    Local,
    /// The wire: the node answers without reading
    Wire,
    /// Both: the node reads for us
    Remote,
}

impl From<LabMode> for Mode {
    fn from(mode: LabMode) -> Self {
        match mode {
            LabMode::Local => Self::Local,
            LabMode::Wire => Self::Wire,
            LabMode::Remote => Self::Remote,
        }
    }
}

/// The bridge of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Bridge {
    /// A few threads, each with many connections and reads in flight
    Reactor,
    /// A poller for each connection with a fixed pool of reading threads
    Static,
    /// A poller for each connection, and a thread for each read
    Dynamic,
}

impl From<Bridge> for BridgeKind {
    fn from(bridge: Bridge) -> Self {
        match bridge {
            Bridge::Reactor => Self::Reactor,
            Bridge::Static => Self::Static,
            Bridge::Dynamic => Self::Dynamic,
        }
    }
}

/// How a device is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReadsBy {
    /// By an `io_uring`
    Uring,
    /// By threads that read and wait
    Pread,
}

impl From<ReadsBy> for IoKind {
    fn from(io: ReadsBy) -> Self {
        match io {
            ReadsBy::Uring => Self::Uring,
            ReadsBy::Pread => Self::Pread,
        }
    }
}

/// The wire to a node of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabWire {
    /// Shared memory
    Shm,
    /// TCP over loopback
    Tcp,
    /// RDMA to the adapter named with --verbs
    Verbs,
}

impl From<LabWire> for WireKind {
    fn from(wire: LabWire) -> Self {
        match wire {
            LabWire::Shm => Self::Shm,
            LabWire::Tcp => Self::Tcp,
            LabWire::Verbs => Self::Verbs,
        }
    }
}

pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let rackscan_storage_node::ByteSize(bytes) = text.parse().map_err(|error| format!("{error}"))?;
    Ok(bytes)
}

fn io_size(text: &str) -> Result<u32, String> {
    use rackscan_lab::limits::{IO_BYTES_LARGEST, IO_BYTES_LEAST};
    let bytes = bytes(text)?;
    match u32::try_from(bytes) {
        Ok(size)
            if (IO_BYTES_LEAST..=IO_BYTES_LARGEST).contains(&size) && size.is_multiple_of(IO_BYTES_LEAST) =>
        {
            Ok(size)
        }
        _ => Err(format!("{bytes} bytes; expected a multiple of 512 from 512 to 1MiB")),
    }
}

pub(super) fn file_size(text: &str) -> Result<u64, String> {
    let bytes = bytes(text)?;
    match bytes {
        0x40_0000..=0x100_0000_0000 if bytes.is_multiple_of(0x10_0000) => Ok(bytes),
        _ => Err(format!("{bytes} bytes; expected whole MiB, from 4MiB to 1TiB")),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.001..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number of seconds from 0.001 to 3600".to_owned()),
    }
}

fn warm_up(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number of seconds from 0 to 3600".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_no_device_reads_are_refused() {
        assert_eq!(io_size("512"), Ok(512));
        assert_eq!(io_size("1MiB"), Ok(1 << 20));
        for wrong in ["0", "100", "513", "1.5KB", "2MiB", "4EiB", "-1", "x"] {
            assert!(io_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn files_too_small_or_absurd_are_refused() {
        assert_eq!(file_size("4GiB"), Ok(4 << 30));
        for wrong in ["0", "1MiB", "4194305", "2TiB"] {
            assert!(file_size(wrong).is_err(), "{wrong}");
        }
        assert!(seconds("0").is_err() && seconds("nan").is_err() && warm_up("-1").is_err());
    }
}
