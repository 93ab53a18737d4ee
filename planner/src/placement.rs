//! Which placement does a segment's scan get?
//!
//! Invariants
//! - A forced policy is obeyed or refused with the way out, never replaced in silence.
//! - `auto` takes the cheapest placement that applies.
//! - Decisions are per segment, made when its scan begins, with the load reports of that moment and
//!   with what the segments before have taught (see `feedback`).

use crate::{
    calibration::Calibration,
    cost::{Demand, Prices, WhyNot, demand, price},
    profile::{ClusterProfile, ScanProfile},
};
use rackscan_format::ids::NodeId;
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
    /// All, in the order that breaks ties: least travel first.
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

/// Who decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Always [`Placement::Local`].
    Local,
    /// Always [`Placement::RemoteFetch`].
    RemoteFetch,
    /// Always [`Placement::RemoteProcess`].
    RemoteProcess,
    /// The cheapest, segment by segment.
    #[default]
    Auto,
}

impl Policy {
    /// All, in the order help texts list them.
    pub const ALL: [Self; 4] = [Self::Local, Self::RemoteFetch, Self::RemoteProcess, Self::Auto];

    /// The placement that is forced, if one is.
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

/// Why a segment went where it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The policy forces it.
    Forced,
    /// It would end first there.
    Price,
    /// Nothing was known of the placement, and it did not look much dearer.
    Explored,
    /// It would end first in the engine, past the node's cache, as it did before: this time the
    /// cache is to keep its pages.
    Kept,
    /// Its node was lost, and its devices can be read without it, or its pages are reconstructed.
    NodeLost,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forced => "forced",
            Self::Price => "price",
            Self::Explored => "explored",
            Self::Kept => "to be cached",
            Self::NodeLost => "node lost",
        })
    }
}

/// A placement and the prices it was chosen by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// What to do.
    pub placement: Placement,
    /// Why.
    pub reason: Reason,
    /// What it takes.
    pub demand: Demand,
    /// What it and the alternatives would cost.
    pub prices: Prices,
}

/// Why a scan cannot be placed as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// `local` was forced, but the engine cannot read the devices.
    #[error(
        "placement local: the devices of node {node} are not attached to this host ({reason}); use remote-fetch, \
         remote-process or auto, or run the engine on the node's host"
    )]
    NotAttached {
        /// The node.
        node: NodeId,
        /// What stands in the way.
        reason: String,
    },
    /// `remote-process` was forced, but the node does not scan.
    #[error(
        "placement remote-process: node {node} has no scan workers; give it some (`scan_workers` in its \
         configuration), or use remote-fetch, local or auto"
    )]
    NoScanWorkers {
        /// The node.
        node: NodeId,
    },
    /// A segment is on a node that the cluster does not have.
    #[error(
        "a segment is on node {node}, which the cluster does not have; check the cluster's configuration"
    )]
    UnknownNode {
        /// The node.
        node: NodeId,
    },
}

/// Decides where one segment's scan runs.
///
/// # Errors
/// A forced placement that cannot apply, with the way out; a node nobody knows.
pub fn place(
    profile: &ScanProfile,
    cluster: &ClusterProfile,
    calibration: &Calibration,
    policy: Policy,
) -> Result<Decision, PlacementError> {
    let node = profile.node;
    let prices = price(profile, cluster, calibration);
    let Some(placement) = policy.forced().or_else(|| prices.cheapest()) else {
        return Err(PlacementError::UnknownNode { node });
    };
    // Nobody reads devices that are gone, whoever forces it: what is left of them is at other
    // nodes.
    let is_gone = placement == Placement::Local && prices.local == Err(WhyNot::NodeLost);
    let placement = if is_gone { Placement::RemoteFetch } else { placement };
    match prices.of(placement) {
        // A forced placement is tried at a lost node, too: it may be there again, and if not the
        // request says what is wrong.
        Ok(_) | Err(WhyNot::NodeLost) => {
            let Some(at) = cluster.nodes.get(&node) else { return Err(PlacementError::UnknownNode { node }) };
            let reason = match policy {
                Policy::Auto if at.is_done_without() || profile.is_degraded(at) => Reason::NodeLost,
                _ if is_gone => Reason::NodeLost,
                Policy::Auto => Reason::Price,
                _ => Reason::Forced,
            };
            let demand = demand(profile, at, calibration, placement);
            Ok(Decision { placement, reason, demand, prices })
        }
        Err(WhyNot::NotAttached(reason)) => Err(PlacementError::NotAttached { node, reason: reason.clone() }),
        Err(WhyNot::NoScanWorkers) => Err(PlacementError::NoScanWorkers { node }),
        Err(WhyNot::UnknownNode) => Err(PlacementError::UnknownNode { node }),
    }
}
