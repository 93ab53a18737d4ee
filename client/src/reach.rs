//! Waits for the connections to all nodes of a cluster, and decides how long.
//!
//! ```text
//! all nodes are dialled at the same time, each by a thread of its own
//! once one node has answered, the others get a grace period: CONNECT_GRACE, or CONNECT_GRACE_FACTOR times
//! what the slowest node that has answered took
//!  -> the nodes that have not answered by then are unresponsive, as many as may be unavailable;
//!     their dials continue, and the driver takes over their connections
//! ```
//!
//! Invariants
//! - At most as many nodes are left out as may be unavailable; for all others this waits until
//!   their dials have ended.
//! - If more nodes are missing, the error names all nodes that are known to be missing after the
//!   grace period.

use std::{sync::Arc, time::Instant};

use futures::future::{Either, select, select_all};
use rackscan_format::{ids::NodeId, message::FolderIdentity};
use tokio::sync::oneshot;

use crate::{
    ClientError,
    dial::{Dial, VerifiedConnection, spawn_dial_thread},
    limits::{CONNECT_GRACE, CONNECT_GRACE_FACTOR},
    members::{listed, seen_of},
    node_state::NodeState,
};

type Dialling = oneshot::Receiver<Result<VerifiedConnection, ClientError>>;

/// The outcome of a dial so far.
#[derive(Debug)]
pub(crate) enum DialOutcome {
    Connected(Box<VerifiedConnection>),
    /// The node cannot be reached.
    Failed,
    /// The node has not answered yet; the connection comes later.
    Later {
        since: Instant,
        dialling: Dialling,
    },
}

/// A node that was dialled.
#[derive(Debug)]
pub(crate) struct DialledNode {
    pub(crate) dial: Dial,
    pub(crate) outcome: DialOutcome,
}

impl DialledNode {
    pub(crate) fn connected(&self) -> Option<&VerifiedConnection> {
        if let DialOutcome::Connected(connection) = &self.outcome { Some(connection) } else { None }
    }

    /// The initial state of the node.
    pub(crate) fn state(&self) -> Arc<NodeState> {
        match &self.outcome {
            DialOutcome::Connected(_) => NodeState::new(true, None),
            DialOutcome::Failed => NodeState::new(false, None),
            DialOutcome::Later { since, .. } => NodeState::new(false, Some(*since)),
        }
    }
}

/// Connects on a thread of its own: connecting blocks.
pub(crate) fn dial_apart(dial: Dial) -> Result<Dialling, ClientError> {
    let (done, dialling) = oneshot::channel();
    // If the caller has gone, the connection is dropped.
    spawn_dial_thread(move || drop(done.send(dial.dial())))?;
    Ok(dialling)
}

/// Waits for all connections, whose dials were begun at `begun`. Up to `unavailable_max` nodes may
/// be left out because they do not answer, but not all nodes.
pub(crate) async fn reach(
    dialling: Vec<(Dial, Dialling)>,
    begun: Instant,
    unavailable_max: usize,
) -> Result<Vec<DialledNode>, ClientError> {
    let mut missing = Missing { unavailable_max, errors: Vec::new() };
    let (mut reached, mut late): (Vec<DialledNode>, _) = (Vec::new(), dialling);
    let (mut grace, mut timer) = (CONNECT_GRACE, None);
    while !late.is_empty() {
        let is_any_there = reached.iter().any(|node| node.connected().is_some());
        let may_leave =
            missing.are_too_many() || is_any_there && late.len() + missing.errors.len() <= unavailable_max;
        let next = select_all(late.iter_mut().map(|(_, dialling)| dialling));
        let (result, at) = if may_leave {
            let ticking = match timer.take() {
                Some(ticking) => ticking,
                None => timer_until(begun + grace)?,
            };
            match select(next, ticking).await {
                Either::Left(((result, at, _), ticking)) => {
                    timer = Some(ticking);
                    (result, at)
                }
                Either::Right(_) if begun.elapsed() < grace => continue,
                Either::Right(_) => break,
            }
        } else {
            let (result, at, _) = next.await;
            (result, at)
        };
        let (dial, _) = late.remove(at);
        let node = missing.outcome_of(dial, result)?;
        if node.connected().is_some() {
            grace = grace.max(CONNECT_GRACE_FACTOR * begun.elapsed());
        }
        reached.push(node);
    }
    missing.check()?;
    for (dial, dialling) in late {
        tracing::warn!(node = %dial.node, address = %dial.address, "a node is unresponsive: it does not answer the connection attempt");
        reached.push(DialledNode { dial, outcome: DialOutcome::Later { since: begun, dialling } });
    }
    reached.sort_by_key(|reached| reached.dial.node);
    let mut first: Option<&VerifiedConnection> = None;
    for node in &reached {
        if let Some(connection) = node.connected() {
            check_same_cluster(first, &node.dial, connection)?;
            first.get_or_insert(connection);
        }
    }
    leave_out_outdated(&mut reached, &mut missing)?;
    missing.check()?;
    let first = reached.iter().find_map(DialledNode::connected);
    let Some(cluster) = first.map(|connection| connection.status.cluster) else {
        return Err(missing.errors.into_iter().next().unwrap_or(ClientError::Closed));
    };
    reached.iter_mut().for_each(|node| node.dial.cluster = Some(cluster));
    Ok(reached)
}

/// A receiver that is ready at that instant. It needs a thread, because the caller's runtime may
/// have no timer.
fn timer_until(instant: Instant) -> Result<oneshot::Receiver<()>, ClientError> {
    let (tick, ticking) = oneshot::channel();
    spawn_dial_thread(move || {
        std::thread::sleep(instant.saturating_duration_since(Instant::now()));
        // The caller may not need the timer any more.
        let _ = tick.send(());
    })?;
    Ok(ticking)
}

/// Nodes that cannot be reached.
pub(crate) struct Missing {
    unavailable_max: usize,
    errors: Vec<ClientError>,
}

impl Missing {
    fn outcome_of(
        &mut self,
        dial: Dial,
        result: Result<Result<VerifiedConnection, ClientError>, oneshot::error::RecvError>,
    ) -> Result<DialledNode, ClientError> {
        let outcome = match result.map_err(|_| ClientError::Closed)? {
            Ok(connection) => DialOutcome::Connected(Box::new(connection)),
            Err(error) => {
                self.leave_out(&dial, error)?;
                DialOutcome::Failed
            }
        };
        Ok(DialledNode { dial, outcome })
    }

    /// Counts a node as missing if the error means that it is lost; else returns the error.
    /// [`Missing::check`] tells whether too many are missing.
    pub(crate) fn leave_out(&mut self, dial: &Dial, error: ClientError) -> Result<(), ClientError> {
        if !error.is_node_lost() {
            return Err(error);
        }
        if self.errors.len() < self.unavailable_max {
            tracing::warn!(node = %dial.node, %error, "a node is unavailable");
        }
        self.errors.push(error);
        Ok(())
    }

    fn are_too_many(&self) -> bool {
        self.errors.len() > self.unavailable_max
    }

    /// Returns an error that names all missing nodes if there are more than `unavailable_max`.
    fn check(&mut self) -> Result<(), ClientError> {
        if !self.are_too_many() {
            return Ok(());
        }
        self.errors.sort_by_key(ClientError::node);
        let nodes: Vec<NodeId> = self.errors.iter().filter_map(ClientError::node).collect();
        let first = self.errors.swap_remove(0);
        if nodes.len() < 2 {
            return Err(first);
        }
        let (found, nodes) = (nodes.len(), listed(&nodes));
        Err(ClientError::TooManyUnavailable {
            found,
            nodes,
            unavailable_max: self.unavailable_max,
            first: Box::new(first),
        })
    }
}

fn check_same_cluster(
    first: Option<&VerifiedConnection>,
    dial: &Dial,
    connection: &VerifiedConnection,
) -> Result<(), ClientError> {
    let Some(first) = first.filter(|first| first.status.cluster != connection.status.cluster) else {
        return Ok(());
    };
    Err(ClientError::WrongNode {
        node: dial.node,
        address: Box::new(dial.address.clone()),
        what: "the cluster it belongs to",
        found: format!("{:#018x}", connection.status.cluster),
        expected: format!("{:#018x}, that of node {}", first.status.cluster, first.status.node),
    })
}

/// Leaves out nodes whose data folders are older than other nodes know, at most as many as may be
/// unavailable.
fn leave_out_outdated(reached: &mut [DialledNode], missing: &mut Missing) -> Result<(), ClientError> {
    let told = reached.iter().filter_map(|node| Some(node.connected()?.status.identity.clone()));
    let told: Vec<FolderIdentity> = told.collect();
    for node in reached {
        node.dial.expected.seen = seen_of(&told, node.dial.node);
        let Some(found) = node.connected().map(|connection| connection.status.identity.clone()) else {
            continue;
        };
        // A node that is later rebuilt into another folder is the same node.
        node.dial.expected.folder = None;
        let Err(error) = node.dial.check_folder(&found) else { continue };
        missing.leave_out(&node.dial, error)?;
        node.outcome = DialOutcome::Failed;
    }
    Ok(())
}
