//! Starts a cluster's nodes of this host for a command if they do not run, and shares them with
//! other commands on the same data folder.
//!
//! Invariants
//! - If none of this host's nodes runs, they are started for this command and end with it. Their
//!   standard input is a pipe from this process, so they end even if this process is killed. Nodes
//!   that ran before continue to run.
//! - Concurrent commands on one data folder share these nodes; the command that started the nodes
//!   waits for the other commands before it stops the nodes. Two commands never both start them.

use super::{ClusterFile, Lifelines, STARTING_LOCK, check_members, lock, start_for_command};
use crate::failure::Failure;
use rackscan_format::ids::NodeId;
use std::fs::File;

/// The nodes that were started for this command, if any, and the lock that commands on one data
/// folder share.
pub(crate) struct SharedNodes {
    started: Option<Lifelines>,
    sharing: File,
}

impl SharedNodes {
    /// Starts the nodes of this host that the file lists, unless one of them runs. Up to
    /// `unavailable_max` nodes may fail to start.
    pub(crate) fn start(file: &ClusterFile, unavailable_max: u8) -> Result<Self, Failure> {
        Self::start_to_rebuild(file, unavailable_max, None)
    }

    /// Like [`SharedNodes::start`], to rebuild a node that may have lost its folder.
    pub(crate) fn start_to_rebuild(
        file: &ClusterFile,
        unavailable_max: u8,
        rebuilt: Option<NodeId>,
    ) -> Result<Self, Failure> {
        // Only one command at a time looks for nodes and starts them; this lock ends with this
        // function.
        let _starting = lock(&file.folder, STARTING_LOCK, File::lock)?;
        check_members(file, rebuilt)?;
        // A command that stops its nodes holds this lock exclusively until they have ended.
        let sharing = lock(&file.folder, "sessions.lock", File::lock_shared)?;
        Ok(Self { started: start_for_command(file, unavailable_max)?, sharing })
    }

    /// The process ids of the nodes that were started for this command.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.started.iter().flat_map(Lifelines::pids).collect()
    }

    /// The processes that were started for this command; `None` if the nodes ran before.
    pub(crate) fn started_mut(&mut self) -> Option<&mut Lifelines> {
        self.started.as_mut()
    }

    /// Whether the nodes were started for this command.
    pub(crate) fn are_ours(&self) -> bool {
        self.started.is_some()
    }
}

impl Drop for SharedNodes {
    fn drop(&mut self) {
        if let Some(started) = self.started.take() {
            // Waits until no other command uses the nodes.
            if let Err(error) = self.sharing.unlock().and_then(|()| self.sharing.lock()) {
                tracing::warn!("cannot wait for other commands on this data folder: {error}");
            }
            started.stop();
        }
    }
}
