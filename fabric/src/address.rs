//! Defines and parses addresses of peers: a wire, and where on that wire the peer listens.
//!
//! Invariants
//! - `Address` and its text form correspond exactly: parsing what `Display` wrote gives an equal
//!   address.

use std::{fmt, path::PathBuf, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::error::AddressError;

/// The kinds of transport. Each has a folder of its own, which contains the files `region`, `queue`
/// and `connect`. Its text form is the one in addresses: `shm`, `tcp`, `verbs`, `sim`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wire {
    /// Shared memory between processes of one user on one machine.
    Shm,
    /// TCP, with a thread on each side that does the work of a network card.
    Tcp,
    /// InfiniBand, RoCE or iWARP through libibverbs (cargo feature `verbs`).
    Verbs,
    /// A simulated network inside one process, for tests ([`crate::sim`]).
    Sim,
}

impl Wire {
    /// Whether a process maps the memory that its peer has registered, and so reads and writes it
    /// with its own loads and stores. Only on `shm`: elsewhere a connection moves copies.
    #[must_use]
    pub fn maps_memory(self) -> bool {
        self == Self::Shm
    }

    /// Whether a connection has resources of an adapter (a queue pair and its scratch memory),
    /// which are allocated at once. Only on `verbs`.
    #[must_use]
    pub fn has_adapter(self) -> bool {
        self == Self::Verbs
    }

    /// Whether a one-sided write alone cannot wake a peer that sleeps, not even with
    /// [`crate::Connection::wake`]. So on `verbs`: the adapter writes without the peer's processor,
    /// and only an immediate or a message causes an event there.
    #[must_use]
    pub fn write_wakes_nobody(self) -> bool {
        self == Self::Verbs
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Shm => "shm",
            Self::Tcp => "tcp",
            Self::Verbs => "verbs",
            Self::Sim => "sim",
        })
    }
}

/// An address to listen at or to connect to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// `shm:/path/to.sock`: a Unix socket through which memory is shared.
    Shm {
        /// Path of the socket.
        path: PathBuf,
    },
    /// `tcp:host:port`; the host may be a name, an IPv4 address or `[IPv6]`. Port 0 lets the
    /// listener choose.
    Tcp {
        /// Host name or address, without brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// `verbs:host:port` or `verbs:device@host:port`: queue pairs are set up over a TCP connection
    /// to that host and port. The device is the one of this side; without a name it is the device
    /// that has the address of the TCP connection.
    Verbs {
        /// Name of the device of this side, as `ibv_devices` prints it.
        device: Option<String>,
        /// Host name or address, without brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// `sim:network/place`: a place in a [`crate::sim::SimNet`] of this process.
    Sim {
        /// Number of the network.
        network: u64,
        /// Name of the place.
        place: String,
    },
}

impl Address {
    /// The wire that the address chooses.
    #[must_use]
    pub fn wire(&self) -> Wire {
        match self {
            Self::Shm { .. } => Wire::Shm,
            Self::Tcp { .. } => Wire::Tcp,
            Self::Verbs { .. } => Wire::Verbs,
            Self::Sim { .. } => Wire::Sim,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shm { path } => write!(f, "shm:{}", path.display()),
            Self::Tcp { host, port } => write!(f, "tcp:{}:{port}", Bracketed(host)),
            Self::Verbs { device: None, host, port } => write!(f, "verbs:{}:{port}", Bracketed(host)),
            Self::Verbs { device: Some(device), host, port } => {
                write!(f, "verbs:{device}@{}:{port}", Bracketed(host))
            }
            Self::Sim { network, place } => write!(f, "sim:{network}/{place}"),
        }
    }
}

/// A host as it is written before a port: IPv6 addresses in brackets.
struct Bracketed<'a>(&'a str);

impl fmt::Display for Bracketed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.contains(':') { write!(f, "[{}]", self.0) } else { f.write_str(self.0) }
    }
}

/// Host and port in `host:port`.
fn host_and_port(place: &str) -> Result<(String, u16), &'static str> {
    let (host, port) = place.rsplit_once(':').ok_or("it has no port")?;
    let port = port.parse().map_err(|_| "the port is not a number from 0 to 65535")?;
    let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if bracketed.is_none() && host.contains(':') {
        return Err("an IPv6 address needs brackets");
    }
    let host = bracketed.unwrap_or(host);
    if host.is_empty() { Err("the host is empty") } else { Ok((host.to_owned(), port)) }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let error = |problem| AddressError { text: text.to_owned(), problem };
        let (wire, place) = text.split_once(':').ok_or_else(|| error("it names no wire"))?;
        match wire {
            "shm" if place.is_empty() => Err(error("the path is empty")),
            "shm" => Ok(Self::Shm { path: PathBuf::from(place) }),
            "tcp" => {
                let (host, port) = host_and_port(place).map_err(error)?;
                Ok(Self::Tcp { host, port })
            }
            "verbs" => {
                let (device, place) = match place.split_once('@') {
                    Some(("", _)) => return Err(error("the device before '@' is empty")),
                    Some((device, place)) => (Some(device.to_owned()), place),
                    None => (None, place),
                };
                let (host, port) = host_and_port(place).map_err(error)?;
                Ok(Self::Verbs { device, host, port })
            }
            "sim" => {
                let (network, place) = place.split_once('/').ok_or_else(|| error("it names no place"))?;
                let network = network.parse().map_err(|_| error("the network is not a number"))?;
                if place.is_empty() {
                    return Err(error("the place is empty"));
                }
                Ok(Self::Sim { network, place: place.to_owned() })
            }
            _ => Err(error("the wire is not known")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_its_text() {
        for text in [
            "shm:/run/a.sock",
            "shm:relative.sock",
            "tcp:node-3:7000",
            "tcp:10.0.0.1:0",
            "tcp:[::1]:9",
            "verbs:node-3:7000",
            "verbs:mlx5_0@10.0.0.1:0",
            "verbs:rxe1@[fe80::1]:9",
            "sim:12/node-3",
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
        }
    }

    #[test]
    fn a_wrong_address_is_named_with_its_fault() {
        for (text, problem) in [
            ("", "it names no wire"),
            ("shm:", "the path is empty"),
            ("tcp:host", "it has no port"),
            ("tcp::80", "the host is empty"),
            ("tcp:host:70000", "the port is not a number from 0 to 65535"),
            ("tcp:::1:80", "an IPv6 address needs brackets"),
            ("verbs:host", "it has no port"),
            ("verbs:@host:1", "the device before '@' is empty"),
            ("sim:x/y", "the network is not a number"),
            ("sim:1", "it names no place"),
            ("sim:1/", "the place is empty"),
            ("rdma:x", "the wire is not known"),
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert_eq!((error.text.as_str(), error.problem), (text, problem));
        }
    }
}
