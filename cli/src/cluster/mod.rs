//! Describes the nodes that a command uses, and starts and stops their processes on this host.
//!
//! ```text
//! file.rs, members.rs      the cluster file, and its check against the data folders of this host
//! embedded.rs              creates the cluster of a new data folder
//! process.rs               starts and stops node processes
//! shared.rs                nodes that commands on one data folder share
//! overrides.rs             starts shared nodes with changed settings
//! relocate.rs              moves a node to a new folder
//! own_folder.rs            the folder of nodes that belong to one command
//! ephemeral.rs             nodes that belong to one command
//! transaction_nodes.rs     ephemeral nodes to measure transactions on
//! relays.rs                ephemeral nodes to measure relays of stripes on
//! loaded.rs, scratch.rs    a node with lineitem, or with a raw file
//! placement_nodes.rs       nodes with lineitem to measure placements on
//! shaping.rs, shaping/     limits of the nodes' processor time, disks and bandwidth
//! replay_devices.rs        the nodes or devices of a replay
//! cluster_node.rs          a node of a cluster that an experiment reads
//! ```

mod cluster_node;
mod embedded;
mod ephemeral;
mod file;
mod loaded;
mod members;
mod overrides;
mod own_folder;
mod placement_nodes;
mod process;
mod relays;
mod relocate;
mod replay_devices;
mod scratch;
mod shaping;
mod shared;
mod transaction_nodes;

pub(crate) use cluster_node::ClusterNode;
pub(crate) use embedded::{Shape, create, find_or_create, find_or_create_shaped};
pub(crate) use ephemeral::EphemeralNodes;
pub(crate) use file::{ClusterFile, Member, STARTING_LOCK, lock, node_config, read_key};
pub(crate) use loaded::{LoadedNodes, LoadedOptions};
pub(crate) use members::{check_members, folder_ids};
pub(crate) use overrides::{check_page_cache, page_cache, start_with_overrides};
pub(crate) use own_folder::own_folder;
pub(crate) use placement_nodes::{PlacementNodes, PlacementNodesOptions};
pub(crate) use process::{
    ENDING_TIME_MAX, Lifelines, STOP_TIME_MAX, embedding_command, is_running, outdated, owner,
    start_for_command, start_one, start_to_stay, wait_until_gone,
};
pub(crate) use relays::RelayOptions;
pub(crate) use relocate::move_node;
pub(crate) use replay_devices::{ReplayDevices, ReplayDevicesOptions};
pub(crate) use scratch::{ScratchNodes, ScratchOptions};
pub(crate) use shaping::{ClientLink, NarrowWire, Quota, ResourceLimits, SlowDisks};
pub(crate) use shared::SharedNodes;
pub(crate) use transaction_nodes::{TransactionNodes, TransactionNodesOptions};
