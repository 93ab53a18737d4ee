//! The nodes that a command uses: their description, and their processes on this host.
//!
//! ```text
//! file.rs, members.rs      the cluster file, and its check against the data folders of this host
//! embedded.rs              creates the cluster of a new data folder
//! process.rs               starts and stops node processes
//! onto.rs                  moves a node to a new folder
//! otherwise.rs             starts nodes with changed settings for one command
//! own.rs                   nodes that belong to one command
//! homes.rs, relays.rs      such nodes for transactions, and for relays of stripes
//! loaded.rs, scratch.rs    a node with lineitem, or with a raw file
//! shaped.rs, shaping/      nodes with limited processor time and bandwidth
//! stage.rs                 the nodes or devices of a replay
//! ```

mod embedded;
mod file;
mod homes;
mod loaded;
mod members;
mod onto;
pub(crate) mod otherwise;
mod own;
mod process;
mod relays;
mod scratch;
mod shaped;
mod shaping;
mod stage;

pub(crate) use embedded::{Shape, create};
pub(crate) use file::{ClusterFile, Member, STARTING_LOCK, lock, node_config, read_key};
pub(crate) use homes::HomeOptions;
pub(crate) use loaded::{LoadedNodes, LoadedOptions};
pub(crate) use members::{check_members, folder_ids};
pub(crate) use onto::move_node;
pub(crate) use own::OwnNodes;
pub(crate) use process::{
    ENDING_TIME_MAX, Lifelines, STOP_TIME_MAX, is_running, outdated, owner, start_for_command, start_one,
    start_to_stay, wait_until_gone,
};
pub(crate) use relays::RelayOptions;
pub(crate) use scratch::{ScratchNodes, ScratchOptions};
pub(crate) use shaped::{ShapedNodes, ShapedOptions};
pub(crate) use shaping::{ClientLink, NarrowWire, Quota, Shaped, SlowDisks};
pub(crate) use stage::{Stage, StageOptions};
