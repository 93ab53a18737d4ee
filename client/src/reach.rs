//! How long are nodes waited for when a cluster is connected to?
//!
//! ```text
//! all nodes are dialled at the same time, each by a thread of its own
//! once one has answered:  CONNECT_GRACE, or CONNECT_GRACE_FACTOR times what the slowest took that has  -> the others are unresponsive, as many as may be away
//! their dials go on, and end in the driver
//! ```
//!
//! Invariants
//! - No more nodes than may be away are done without; all others are waited for until their dials
//!   have ended.
//! - If more nodes are missing, the error names all of them that are known to be after the grace.

use std::{sync::Arc, time::Instant};

use futures::future::{Either, select, select_all};
use rackscan_format::ids::NodeId;
use tokio::sync::oneshot;

use crate::{
    ClientError,
    away::Away,
    dial::{Dial, Line},
    driver::apart,
    limits::{CONNECT_GRACE, CONNECT_GRACE_FACTOR},
    members::{leave_out_outdated, listed},
};

type Dialling = oneshot::Receiver<Result<Line, ClientError>>;

/// What has become of a dial.
#[derive(Debug)]
pub(crate) enum Dialled {
    Connected(Box<Line>),
    /// The node cannot be reached.
    Failed,
    /// The node has not answered yet; the line comes later.
    Later {
        since: Instant,
        line: Dialling,
    },
}

/// A node that was dialled.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) dial: Dial,
    pub(crate) line: Dialled,
}

impl Reached {
    pub(crate) fn connected(&self) -> Option<&Line> {
        if let Dialled::Connected(line) = &self.line { Some(line) } else { None }
    }

    /// What is known of the node.
    pub(crate) fn away(&self) -> Arc<Away> {
        match &self.line {
            Dialled::Connected(_) => Away::new(true, None),
            Dialled::Failed => Away::new(false, None),
            Dialled::Later { since, .. } => Away::new(false, Some(*since)),
        }
    }
}

/// Connects on a thread of its own: connecting blocks.
pub(crate) fn dial_apart(dial: Dial) -> Result<Dialling, ClientError> {
    let (done, line) = oneshot::channel();
    // A caller who has left does not mind: the connection is dropped.
    apart(move || drop(done.send(dial.dial())))?;
    Ok(line)
}

/// Waits for all connections that were begun to be made then. As many may not come about, for want
/// of an answer, as may be away; but not all.
pub(crate) async fn reach(
    dialling: Vec<(Dial, Dialling)>,
    begun: Instant,
    away_max: usize,
) -> Result<Vec<Reached>, ClientError> {
    let mut away = Missing { away_max, errors: Vec::new() };
    let (mut reached, mut late): (Vec<Reached>, _) = (Vec::new(), dialling);
    let (mut grace, mut timer) = (CONNECT_GRACE, None);
    while !late.is_empty() {
        let is_any_there = reached.iter().any(|node| node.connected().is_some());
        let may_leave = away.are_too_many() || is_any_there && late.len() + away.errors.len() <= away_max;
        let next = select_all(late.iter_mut().map(|(_, line)| line));
        let (line, at) = if may_leave {
            let ticking = match timer.take() {
                Some(ticking) => ticking,
                None => timer_until(begun + grace)?,
            };
            match select(next, ticking).await {
                Either::Left(((line, at, _), ticking)) => {
                    timer = Some(ticking);
                    (line, at)
                }
                Either::Right(_) if begun.elapsed() < grace => continue,
                Either::Right(_) => break,
            }
        } else {
            let (line, at, _) = next.await;
            (line, at)
        };
        let (dial, _) = late.remove(at);
        let node = away.judge(dial, line)?;
        if node.connected().is_some() {
            grace = grace.max(CONNECT_GRACE_FACTOR * begun.elapsed());
        }
        reached.push(node);
    }
    away.check()?;
    for (dial, line) in late {
        tracing::warn!(node = %dial.node, address = %dial.address, "a node is unresponsive: it does not answer who connects to it");
        reached.push(Reached { dial, line: Dialled::Later { since: begun, line } });
    }
    reached.sort_by_key(|reached| reached.dial.node);
    let mut first: Option<&Line> = None;
    for node in &reached {
        if let Some(line) = node.connected() {
            check_same_cluster(first, &node.dial, line)?;
            first.get_or_insert(line);
        }
    }
    leave_out_outdated(&mut reached, &mut away)?;
    away.check()?;
    let first = reached.iter().find_map(Reached::connected);
    let Some(cluster) = first.map(|line| line.status.cluster) else {
        return Err(away.errors.into_iter().next().unwrap_or(ClientError::Closed));
    };
    reached.iter_mut().for_each(|node| node.dial.cluster = Some(cluster));
    Ok(reached)
}

/// Ends at that instant: whoever connects need not run in a runtime with a timer.
fn timer_until(instant: Instant) -> Result<oneshot::Receiver<()>, ClientError> {
    let (tick, ticking) = oneshot::channel();
    apart(move || {
        std::thread::sleep(instant.saturating_duration_since(Instant::now()));
        // Whoever needs no timer any more does not mind.
        let _ = tick.send(());
    })?;
    Ok(ticking)
}

/// Nodes that cannot be reached.
pub(crate) struct Missing {
    away_max: usize,
    errors: Vec<ClientError>,
}

impl Missing {
    fn judge(
        &mut self,
        dial: Dial,
        line: Result<Result<Line, ClientError>, oneshot::error::RecvError>,
    ) -> Result<Reached, ClientError> {
        let line = match line.map_err(|_| ClientError::Closed)? {
            Ok(line) => Dialled::Connected(Box::new(line)),
            Err(error) => {
                self.leave_out(&dial, error)?;
                Dialled::Failed
            }
        };
        Ok(Reached { dial, line })
    }

    /// Counts a node as missing, if the error permits that. [`Missing::check`] says whether so many
    /// may be.
    pub(crate) fn leave_out(&mut self, dial: &Dial, error: ClientError) -> Result<(), ClientError> {
        if !error.is_node_lost() {
            return Err(error);
        }
        if self.errors.len() < self.away_max {
            tracing::warn!(node = %dial.node, %error, "a node is away");
        }
        self.errors.push(error);
        Ok(())
    }

    fn are_too_many(&self) -> bool {
        self.errors.len() > self.away_max
    }

    /// An error that names all missing nodes, if more are missing than may be away.
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
        Err(ClientError::TooManyAway { found, nodes, away_max: self.away_max, first: Box::new(first) })
    }
}

fn check_same_cluster(first: Option<&Line>, dial: &Dial, line: &Line) -> Result<(), ClientError> {
    let Some(first) = first.filter(|first| first.status.cluster != line.status.cluster) else {
        return Ok(());
    };
    Err(ClientError::WrongNode {
        node: dial.node,
        address: Box::new(dial.address.clone()),
        what: "the cluster it belongs to",
        found: format!("{:#018x}", line.status.cluster),
        expected: format!("{:#018x}, that of node {}", first.status.cluster, first.status.node),
    })
}
