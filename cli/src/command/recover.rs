//! `rackscan recover --node N --accept-loss`: a node that has lost its log of transactions goes on
//! without records that may be missing.
//!
//! Invariants
//! - Only a node that refuses because records may be missing takes the decision; what may be
//!   missing is printed.

use super::cluster::{connect_one, existing};
use crate::{
    args::{Global, Recover},
    failure::Failure,
    session::runtime,
};
use rackscan_format::ids::NodeId;
use std::time::{Duration, Instant};

/// How long the node may take to go on.
const PATIENCE: Duration = Duration::from_secs(60);

/// Tells the node, and waits until it has its keys.
pub(crate) fn run(global: &Global, asked: &Recover) -> Result<(), Failure> {
    let file = existing(global)?;
    if !asked.accept_loss {
        let text =
            "nothing was decided, expected --accept-loss: a log that lacks nothing comes back by itself";
        return Err(Failure::Usage(text.to_owned()));
    }
    let node = NodeId(asked.node);
    let Some(member) = file.members.iter().find(|member| member.config.node == node) else {
        let path = file.path.display();
        return Err(Failure::Usage(format!("{path} has no node {node}; see `rackscan cluster status`")));
    };
    runtime(global)?.block_on(async {
        let line = connect_one(&file, member, global).await?;
        let before = line.status(node).await?.home_refuses;
        line.accept_loss(node).await?;
        if let Some(before) = before {
            note!("node {node} {before}");
        }
        let deadline = Instant::now() + PATIENCE;
        while let Some(refuses) = line.status(node).await?.home_refuses {
            if Instant::now() >= deadline {
                return Err(Failure::Runtime(format!(
                    "node {node} was told and does not go on within {PATIENCE:?}: {refuses}; see its node.log"
                )));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        note!("node {node} goes on with what was found; what may be missing is lost");
        Ok(())
    })
}
