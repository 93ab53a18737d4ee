//! Defines the placements of a scan, the policies by which one is chosen, and the reasons for a
//! choice.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Where a segment's pages are read and its scan runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// The engine reads devices attached to its own host, and scans.
    Local,
    /// The node reads pages and writes them into the engine's memory; the engine scans.
    RemoteFetch,
    /// The node reads and scans; qualifying rows travel.
    RemoteProcess,
}

impl Placement {
    /// All placements, in the order that breaks ties: the one that usually moves the fewest bytes
    /// first.
    pub const ALL: [Self; 3] = [Self::Local, Self::RemoteProcess, Self::RemoteFetch];

    /// The name users see.
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
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How the placement of a scan's segments is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Always [`Placement::Local`].
    Local,
    /// Always [`Placement::RemoteFetch`].
    RemoteFetch,
    /// Always [`Placement::RemoteProcess`].
    RemoteProcess,
    /// The planner chooses for each segment, by price.
    #[default]
    Auto,
}

impl Policy {
    /// All policies, in the order of the help texts.
    pub const ALL: [Self; 4] = [Self::Local, Self::RemoteFetch, Self::RemoteProcess, Self::Auto];

    /// The placement that the policy forces, if any.
    #[must_use]
    pub fn forced(self) -> Option<Placement> {
        match self {
            Self::Local => Some(Placement::Local),
            Self::RemoteFetch => Some(Placement::RemoteFetch),
            Self::RemoteProcess => Some(Placement::RemoteProcess),
            Self::Auto => None,
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.forced().map_or("auto", Placement::name))
    }
}

/// A name that no policy has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("placement {0:?} is unknown, expected local, remote-fetch, remote-process or auto")]
pub struct UnknownPolicy(pub String);

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let found = Self::ALL.into_iter().find(|policy| policy.to_string() == name);
        found.ok_or_else(|| UnknownPolicy(name.to_owned()))
    }
}

/// Why a segment got its placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The policy forces it.
    Forced,
    /// The segment is expected to end soonest there.
    Price,
    /// The placement had not been measured, and its price was near the best one.
    Explored,
    /// A local scan would end soonest, but the same pages were read past the node's cache before.
    /// This time they are fetched through the cache, so that it keeps them.
    Kept,
    /// The node was lost. Its devices are read without it, or its pages are reconstructed.
    NodeLost,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forced => "forced",
            Self::Price => "price",
            Self::Explored => "explored",
            Self::Kept => "to fill the cache",
            Self::NodeLost => "node lost",
        })
    }
}
