//! Where is a peer, and over which wire is it reached?
//!
//! Invariants
//! - `Address` and its text form are the same thing: parsing what `Display` wrote gives an equal address.

use std::{fmt, path::PathBuf, str::FromStr};

use crate::error::AddressError;

/// The kinds of transport. Each has a folder of its own with the files `region`, `queue` and `connect`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wire {
    /// Shared memory between processes of one user on one machine.
    Shm,
    /// TCP, with a thread on each side in the role of the network card.
    Tcp,
}

/// A place to listen at or to connect to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// `shm:/path/to.sock`: a Unix socket through which memory is shared.
    Shm {
        /// Path of the socket.
        path: PathBuf,
    },
    /// `tcp:host:port`; the host may be a name, an IPv4 address or `[IPv6]`. Port 0 lets the listener choose.
    Tcp {
        /// Host name or address, without brackets.
        host: String,
        /// Port.
        port: u16,
    },
}

impl Address {
    /// The wire that the address chooses.
    #[must_use]
    pub fn wire(&self) -> Wire {
        match self {
            Self::Shm { .. } => Wire::Shm,
            Self::Tcp { .. } => Wire::Tcp,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shm { path } => write!(f, "shm:{}", path.display()),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tcp:{host}:{port}"),
        }
    }
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
                let (host, port) = place.rsplit_once(':').ok_or_else(|| error("it has no port"))?;
                let port = port.parse().map_err(|_| error("the port is not a number from 0 to 65535"))?;
                let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
                if bracketed.is_none() && host.contains(':') {
                    return Err(error("an IPv6 address needs brackets"));
                }
                let host = bracketed.unwrap_or(host);
                if host.is_empty() {
                    return Err(error("the host is empty"));
                }
                Ok(Self::Tcp { host: host.to_owned(), port })
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
        for text in
            ["shm:/run/a.sock", "shm:relative.sock", "tcp:node-3:7000", "tcp:10.0.0.1:0", "tcp:[::1]:9"]
        {
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
            ("rdma:x", "the wire is not known"),
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert_eq!((error.text.as_str(), error.problem), (text, problem));
        }
    }
}
