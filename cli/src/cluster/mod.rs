//! The nodes a command talks to: their description, and their processes on this host.

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
