//! Reads a node's configuration and checks that a node can start with it.
//!
//! Invariants
//! - Every error names the file, the key, what was found and what was expected.
//! - Relative paths in a file are relative to the folder of the file.

use std::path::Path;

use rackscan_cache::limits::{CACHE_BYTES_MAX, CACHE_BYTES_MIN};
use rackscan_fabric::Address;
use rackscan_format::{
    limits::{CLUSTER_NODES_MAX, NODE_DEVICES_MAX, NODE_RELAYS_MAX},
    message::BridgeKind,
};

use super::{Config, ConfigError};
use crate::limits;

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`ConfigError`] names the file and the key.
    pub fn from_file(file: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let file = file.as_ref();
        let read = |source| ConfigError::Read { file: file.to_owned(), source };
        let text = std::fs::read_to_string(file).map_err(read)?;
        let mut config = Self::parse(&text, file)?;
        config.make_relative_to(file.parent().unwrap_or(Path::new("")));
        Ok(config)
    }

    /// Reads and checks a text; relative paths are left unchanged.
    ///
    /// # Errors
    /// [`ConfigError`] names the key.
    #[expect(clippy::should_implement_trait, reason = "a pair with from_file, and without a trait to import")]
    pub fn from_str(text: &str) -> Result<Self, ConfigError> {
        Self::parse(text, Path::new("(text)"))
    }

    /// The configuration as TOML, which [`Config::from_str`] can read.
    ///
    /// # Errors
    /// If a path is not UTF-8.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }

    fn parse(text: &str, file: &Path) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text)
            .map_err(|source| ConfigError::Parse { file: file.to_owned(), source: Box::new(source) })?;
        config.check_as(file)?;
        Ok(config)
    }

    /// Makes relative paths, including those of `shm` addresses, relative to `folder`.
    pub fn make_relative_to(&mut self, folder: &Path) {
        // Joining leaves absolute paths unchanged.
        self.data_dir = folder.join(&self.data_dir);
        self.key_file = folder.join(&self.key_file);
        for device in &mut self.devices {
            device.path = folder.join(&device.path);
        }
        let peers = self.peers.iter_mut().flat_map(|peer| peer.addresses.iter_mut().chain(&mut peer.relay));
        for address in self.listen.iter_mut().chain(&mut self.relay).chain(peers) {
            if let Address::Shm { path } = address {
                *path = folder.join(&*path);
            }
        }
    }

    /// Checks every bound that the node relies on.
    ///
    /// # Errors
    /// [`ConfigError::Value`] with the first key at fault.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.check_as(Path::new("(given by the program)"))
    }

    fn check_as(&self, file: &Path) -> Result<(), ConfigError> {
        let fault = |key: &'static str, found: String, expected: String| {
            Err(ConfigError::Value { file: file.to_owned(), key, found, expected })
        };
        let connections_max = usize::from(self.pollers().max(1)) * limits::CONNECTIONS_PER_REACTOR_MAX;
        let counts: [(&'static str, usize, usize); 9] = [
            ("devices", self.devices.len(), NODE_DEVICES_MAX),
            ("listen", self.listen.len(), limits::LISTENERS_MAX),
            ("reactors", self.reactors.into(), limits::REACTORS_MAX.into()),
            ("pollers", self.pollers.into(), limits::POLLERS_MAX.into()),
            ("io_threads", self.io_threads.into(), limits::IO_THREADS_MAX.into()),
            ("scan_workers", self.scan_workers.into(), limits::SCAN_WORKERS_MAX.into()),
            ("reactor_depth", self.reactor_depth as usize, limits::IO_DEPTH_MAX as usize),
            ("scan_depth", self.scan_depth as usize, limits::IO_DEPTH_MAX as usize),
            // As many as the reactors can tell apart.
            ("connections", self.connections as usize, connections_max),
        ];
        for (key, found, most) in counts {
            if found == 0 || found > most {
                return fault(key, found.to_string(), format!("1 to {most}"));
            }
        }
        if self.scan_queue == 0 || self.scan_queue > limits::SCAN_QUEUE_MAX {
            return fault(
                "scan_queue",
                self.scan_queue.to_string(),
                format!("1 to {}", limits::SCAN_QUEUE_MAX),
            );
        }
        if self.scan_cpu_ms == 0 || self.scan_cpu_ms > limits::SCAN_CPU_MS_MAX {
            let expected = format!("1 to {} milliseconds", limits::SCAN_CPU_MS_MAX);
            return fault("scan_cpu_ms", self.scan_cpu_ms.to_string(), expected);
        }
        if self.scan_memory.0 < limits::SCAN_MEMORY_BYTES_MIN {
            let expected = format!("at least {} bytes", limits::SCAN_MEMORY_BYTES_MIN);
            return fault("scan_memory", self.scan_memory.to_string(), expected);
        }
        if self.private_rings > limits::PRIVATE_RINGS_MAX {
            return fault(
                "private_rings",
                self.private_rings.to_string(),
                format!("0 to {}", limits::PRIVATE_RINGS_MAX),
            );
        }
        let (key, each) = match self.bridge {
            BridgeKind::Dynamic => ("reactor_depth", self.reactor_depth as usize),
            BridgeKind::Reactor | BridgeKind::Static => {
                ("io_threads", usize::from(self.bridge_status().io_threads))
            }
        };
        let (all, most) = (each * usize::from(self.pollers()), limits::IO_THREADS_NODE_MAX);
        if all > most {
            let expected = format!("at most {most} threads that read devices in all, not {all}");
            return fault(key, each.to_string(), expected);
        }
        if let Some(size) = self.scratch
            && size.0 < limits::SCRATCH_BYTES_MIN
        {
            let expected = format!("at least {} bytes", limits::SCRATCH_BYTES_MIN);
            return fault("scratch", size.to_string(), expected);
        }
        self.check_devices(file)?;
        self.check_relays(file)?;
        self.check_transactions(file)?;
        self.check_peers(file)?;
        if let Err(needed) = crate::memory_plan::MemoryPlan::of(self) {
            return fault("memory_budget", self.memory_budget.to_string(), needed.to_string());
        }
        Ok(())
    }

    fn check_relays(&self, file: &Path) -> Result<(), ConfigError> {
        let fault = |key: &'static str, found: String, expected: String| {
            Err(ConfigError::Value { file: file.to_owned(), key, found, expected })
        };
        let of_peers = self.peers.iter().map(|peer| peer.relay.len());
        let most = [self.relay.len()].into_iter().chain(of_peers).max().unwrap_or(0);
        if most > NODE_RELAYS_MAX {
            return fault("relay", format!("{most} addresses"), format!("at most {NODE_RELAYS_MAX}"));
        }
        // Each address has an equal part.
        let (least, most) =
            (limits::RELAY_BYTES_MIN * self.relay.len().max(1) as u64, limits::RELAY_BYTES_MAX);
        if let Some(bytes) = self.relay_memory
            && !(least..=most).contains(&bytes.0)
        {
            let expected = format!("at least {least} bytes, at most {most}");
            return fault("relay_memory", bytes.to_string(), expected);
        }
        Ok(())
    }

    fn check_transactions(&self, file: &Path) -> Result<(), ConfigError> {
        let fault = |key: &'static str, found: String, expected: String| {
            Err(ConfigError::Value { file: file.to_owned(), key, found, expected })
        };
        let (least, most) = (limits::TRANSACTIONS_BYTES_MIN, limits::TRANSACTIONS_BYTES_MAX);
        if let Some(bytes) = self.transactions
            && bytes.0 != 0
            && !(least..=most).contains(&bytes.0)
        {
            return fault("transactions", bytes.to_string(), format!("0, or {least} to {most} bytes"));
        }
        if self.transactions_nice > limits::NICE_MAX {
            let most = limits::NICE_MAX;
            return fault("transactions_nice", self.transactions_nice.to_string(), format!("0 to {most}"));
        }
        let least = limits::TRANSACTIONS_LOG_BYTES_MIN;
        if let Some(bytes) = self.transactions_log
            && bytes.0 < least
        {
            return fault("transactions_log", bytes.to_string(), format!("at least {least} bytes"));
        }
        Ok(())
    }

    /// Checks the other nodes.
    fn check_peers(&self, file: &Path) -> Result<(), ConfigError> {
        let fault = |key: &'static str, found: String, expected: String| {
            Err(ConfigError::Value { file: file.to_owned(), key, found, expected })
        };
        if self.peers.len() > CLUSTER_NODES_MAX {
            return fault(
                "peers",
                self.peers.len().to_string(),
                format!("at most {CLUSTER_NODES_MAX} nodes"),
            );
        }
        let is_member = self.members.is_empty() || self.members.contains(&self.node);
        if !is_member || self.members.len() > CLUSTER_NODES_MAX {
            let expected = format!("at most {CLUSTER_NODES_MAX} nodes, node {} among them", self.node);
            return fault("members", crate::identity::listed(&self.members), expected);
        }
        for (index, peer) in self.peers.iter().enumerate() {
            if self.peers[..index].iter().any(|other| other.node == peer.node) {
                return fault("peers", format!("node {} twice", peer.node), "each once".to_owned());
            }
            if peer.addresses.is_empty() {
                let expected = format!("where node {} listens", peer.node);
                return fault("peers.addresses", "empty".to_owned(), expected);
            }
        }
        let others = self.peers.iter().filter(|peer| peer.node != self.node).count();
        let (found, most) = (self.log_replicas_min(), others.min(limits::LOG_COPIES));
        if found > most {
            let expected = format!("at most {most}: so many other nodes have a replica of the log");
            return fault("log_replicas_min", found.to_string(), expected);
        }
        Ok(())
    }

    /// Checks the devices and the cache.
    fn check_devices(&self, file: &Path) -> Result<(), ConfigError> {
        let fault = |key: &'static str, found: String, expected: String| {
            Err(ConfigError::Value { file: file.to_owned(), key, found, expected })
        };
        for (index, device) in self.devices.iter().enumerate() {
            if self.devices[..index].iter().any(|other| other.path == device.path) {
                return fault("devices", format!("{} twice", device.path.display()), "each once".to_owned());
            }
            if let Some(size) = device.size
                && size.0 < limits::DEVICE_BYTES_MIN
            {
                let expected = format!("at least {} bytes", limits::DEVICE_BYTES_MIN);
                return fault("devices.size", size.to_string(), expected);
            }
        }
        if let Some(cache) = self.cache
            && cache.0 != 0
            && !(CACHE_BYTES_MIN..=CACHE_BYTES_MAX).contains(&cache.0)
        {
            let expected = format!("0, or {CACHE_BYTES_MIN} to {CACHE_BYTES_MAX} bytes");
            return fault("cache", cache.to_string(), expected);
        }
        Ok(())
    }
}

/// Serialises addresses as texts.
pub(super) mod addresses {
    use rackscan_fabric::Address;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(in crate::config) fn serialize<S: Serializer>(
        addresses: &[Address],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(addresses.iter().map(ToString::to_string))
    }

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<Address>, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ByteSize, ClusterId};

    const TEXT: &str = r#"
        node = 3
        cluster = "demo"
        data_dir = "node3"
        devices = [{ path = "node3/device0", size = "1GiB" }, { path = "/dev/nvme9n1" }]
        listen = ["shm:node3/socket", "tcp:127.0.0.1:0"]
        peers = [{ node = 1, addresses = ["shm:node1/socket", "tcp:127.0.0.1:7411"] }]
        key_file = "/etc/rackscan.key"
    "#;

    fn fault(text: &str) -> String {
        Config::from_str(text).unwrap_err().to_string()
    }

    #[test]
    fn a_configuration_survives_its_text() {
        let config = Config::from_str(TEXT).unwrap();
        assert_eq!(config.cluster, ClusterId::of_name("demo"));
        assert_eq!(config.memory_budget, ByteSize(512 << 20));
        assert_eq!(Config::from_str(&config.to_toml().unwrap()).unwrap(), config);
    }

    #[test]
    fn paths_of_a_file_are_relative_to_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("node.toml");
        std::fs::write(&file, TEXT).unwrap();
        let config = Config::from_file(&file).unwrap();
        assert_eq!(config.data_dir, folder.path().join("node3"));
        assert_eq!(config.devices[0].path, folder.path().join("node3/device0"));
        assert_eq!(config.devices[1].path, Path::new("/dev/nvme9n1"));
        assert_eq!(config.listen[0].to_string(), format!("shm:{}/node3/socket", folder.path().display()));
        let peer = config.peers[0].addresses[0].to_string();
        assert_eq!(peer, format!("shm:{}/node1/socket", folder.path().display()));
        assert_eq!(config.key_file, Path::new("/etc/rackscan.key"));
    }

    #[test]
    fn unknown_missing_and_senseless_keys_are_named() {
        assert!(fault(&format!("{TEXT}\nmemory_buget = 1")).contains("memory_buget"));
        assert!(fault("node = 1").contains("cluster"));
        for (extra, parts) in [
            ("reactors = 0", ["reactors is 0", "1 to"]),
            ("memory_budget = \"1MiB\"", ["memory_budget is 1MiB", "at least"]),
            ("bridge = \"bogus\"", ["bogus", "reactor"]),
            ("pollers = 65", ["pollers is 65", "1 to 64"]),
            ("connections = 3841", ["connections is 3841", "1 to 3840"]),
            ("io_threads = 257", ["io_threads is 257", "1 to 256"]),
            ("scratch = 4096", ["scratch is 4KiB", "at least"]),
            ("bridge = \"static\"\npollers = 64\nio_threads = 200", ["io_threads is 200", "12800"]),
            ("bridge = \"dynamic\"\npollers = 64\nreactor_depth = 512", ["reactor_depth is 512", "32768"]),
            ("relay_memory = 4096", ["relay_memory is 4KiB", "at least 4194304"]),
            (
                "relay = [\"shm:a\", \"shm:b\"]\nrelay_memory = \"7MiB\"",
                ["relay_memory is 7MiB", "at least 8388608"],
            ),
            ("relay_memory = \"257GiB\"", ["relay_memory is 257GiB", "at most 274877906944"]),
            ("relay_memory = 18446744073709551615", ["relay_memory", "at most 274877906944"]),
            ("relay = [\"shm:a\"]\nrelay_memory = \"470MiB\"", ["memory_budget is 512MiB", "of relays"]),
            (
                "relay = [\"shm:a\", \"shm:b\", \"shm:c\", \"shm:d\", \"shm:e\"]",
                ["relay is 5 addresses", "at most 4"],
            ),
            ("scan_queue = 65535", ["scan_queue is 65535", "1 to"]),
            ("scan_cpu_ms = 0", ["scan_cpu_ms is 0", "1 to 3600000"]),
            ("scan_memory = 4096", ["scan_memory is 4KiB", "at least 262144"]),
            ("cache = 4096", ["cache is 4KiB", "0, or 65536 to"]),
            ("transactions = 4096", ["transactions is 4KiB", "0, or 1048576 to"]),
            ("peers = [{ node = 1, addresses = [] }]", ["peers.addresses is empty", "node 1"]),
            (
                "peers = [{ node = 1, addresses = [\"shm:a\"] }, { node = 1, addresses = [\"shm:b\"] }]",
                ["peers is node 1 twice", "each once"],
            ),
            ("members = [1, 2]", ["members is 1, 2", "node 3 among them"]),
            ("transactions_log = 4096", ["transactions_log is 4KiB", "at least 1048576"]),
            ("transactions_nice = 20", ["transactions_nice is 20", "0 to 19"]),
            ("cache = \"480MiB\"", ["memory_budget is 512MiB", "beside a cache of 503316480 bytes"]),
        ] {
            let others = TEXT.lines().filter(|line| !(extra.contains("peers") && line.contains("peers")));
            let found = fault(&format!("{}\n{extra}", others.collect::<Vec<_>>().join("\n")));
            assert!(parts.iter().all(|part| found.contains(part)), "{found}");
        }
        let missing = Config::from_file("/nowhere/node.toml").unwrap_err().to_string();
        assert!(missing.contains("/nowhere/node.toml"), "{missing}");
    }
}
