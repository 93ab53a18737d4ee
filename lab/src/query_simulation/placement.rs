//! Defines the placements that a query simulation compares.

use std::fmt;

use serde::Serialize;

/// Where the pages are read and where they are filtered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// This process reads the devices and filters.
    Local,
    /// The node sends pages, and this process filters them.
    RemoteFetch,
    /// The node reads and filters, and sends the rows that pass.
    RemoteProcess,
}

impl Placement {
    /// All placements.
    pub const ALL: [Self; 3] = [Self::Local, Self::RemoteFetch, Self::RemoteProcess];

    /// Its name for users.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::RemoteFetch => "remote-fetch",
            Self::RemoteProcess => "remote-process",
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}
