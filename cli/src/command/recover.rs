//! `rackscan recover --node N --accept-loss`: lets a node that has lost its transaction log
//! continue without records that may be missing.
//!
//! Invariants
//! - A node accepts the command only if it refuses requests because records may be missing. The
//!   command prints what may be missing.

use super::cluster::{connect_one, existing};
use crate::{
    args::{Global, Recover},
    failure::Failure,
    session::runtime,
};
use rackscan_format::ids::NodeId;
use std::time::{Duration, Instant};

/// How long the node may take to continue.
const PATIENCE: Duration = Duration::from_secs(60);

/// Tells the node to continue, and waits until it serves its keys.
pub(crate) fn run(global: &Global, asked: &Recover) -> Result<(), Failure> {
    let file = existing(global)?;
    if !asked.accept_loss {
        let text = "expected --accept-loss, which accepts that records of the log may be lost: a log without missing records is restored without this command";
        return Err(Failure::Usage(text.to_owned()));
    }
    let node = NodeId(asked.node);
    let Some(member) = file.members.iter().find(|member| member.config.node == node) else {
        let path = file.path.display();
        return Err(Failure::Usage(format!("{path} has no node {node}; see `rackscan cluster status`")));
    };
    runtime(global)?.block_on(async {
        let line = connect_one(&file, member, global).await?;
        let before = line.status(node).await?.participant_refuses;
        line.accept_loss(node).await?;
        if let Some(before) = before {
            note!("node {node} {before}");
        }
        let deadline = Instant::now() + PATIENCE;
        while let Some(refuses) = line.status(node).await?.participant_refuses {
            if Instant::now() >= deadline {
                return Err(Failure::Runtime(format!(
                    "node {node} was told to continue and still refuses after {PATIENCE:?}: {refuses}; see its node.log"
                )));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        note!("node {node} continues with the records that were found; records that may be missing are lost");
        Ok(())
    })
}
