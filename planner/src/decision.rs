//! Chooses the placement of one segment.
//!
//! Invariants
//! - A forced policy is obeyed, or refused with an error that names an alternative. There is one
//!   exception: if `local` is forced, the node and its devices are lost, and its pages can be
//!   reconstructed, then they are fetched from the other nodes ([`Reason::NodeLost`]).
//! - Under `auto`, [`place`] takes the cheapest placement that applies. Queries do not stop there:
//!   if the reason is [`Reason::Price`], `Feedback::decide` chooses again (see `feedback`).
//! - A decision is for one segment. It is made when the segment's scan begins, with the newest load
//!   reports (how busy each node is).

use crate::{
    calibration::Calibration,
    cost::{Prices, WhyNot, demand, price},
    demand::Demand,
    placement::{Placement, Policy, Reason},
    profile::{ClusterProfile, ScanProfile},
};
use rackscan_format::ids::NodeId;
use serde::{Deserialize, Serialize};

/// A placement and the prices it was chosen by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The placement that was chosen.
    pub placement: Placement,
    /// Why it was chosen.
    pub reason: Reason,
    /// What the scan takes under it.
    pub demand: Demand,
    /// The prices of all placements.
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
        /// Why they are not attached.
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
        "a segment is stored on node {node}, which is not a node of this cluster; check the cluster's configuration"
    )]
    UnknownNode {
        /// The node.
        node: NodeId,
    },
}

/// Decides where one segment's scan runs.
///
/// # Errors
/// If a forced placement cannot apply (the error names alternatives), or if the cluster does not
/// have the node.
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
    // The devices of a lost node cannot be read, whatever the policy: its pages are reconstructed
    // from other nodes, which is a fetch.
    let is_lost = placement == Placement::Local && prices.local == Err(WhyNot::NodeLost);
    let placement = if is_lost { Placement::RemoteFetch } else { placement };
    match prices.of(placement) {
        // A forced placement is tried at a lost node, too: the node may be back, and if it is not,
        // the request fails with the reason.
        Ok(_) | Err(WhyNot::NodeLost) => {
            let Some(node_profile) = cluster.nodes.get(&node) else {
                return Err(PlacementError::UnknownNode { node });
            };
            let reason = match policy {
                Policy::Auto if node_profile.is_done_without() || profile.is_degraded(node_profile) => {
                    Reason::NodeLost
                }
                _ if is_lost => Reason::NodeLost,
                Policy::Auto => Reason::Price,
                _ => Reason::Forced,
            };
            let demand = demand(profile, node_profile, calibration, placement);
            Ok(Decision { placement, reason, demand, prices })
        }
        Err(WhyNot::NotAttached(reason)) => Err(PlacementError::NotAttached { node, reason: reason.clone() }),
        Err(WhyNot::NoScanWorkers) => Err(PlacementError::NoScanWorkers { node }),
        Err(WhyNot::UnknownNode) => Err(PlacementError::UnknownNode { node }),
    }
}
