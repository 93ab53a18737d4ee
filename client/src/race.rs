//! What is done about a node that answers, but far more slowly than others?
//!
//! ```text
//! asked of node 2 ---------------------------------------------> outpaced: pages are reconstructed, too -> what comes first counts
//! asked of others ------> answered, three times at least ------> (the like, while node 2 was waited for)
//! ```
//!
//! Invariants
//! - A request is compared with what others did while it was waited for: load that slows all nodes
//!   outpaces none, and there is nothing to configure.
//! - What is not waited for any more keeps its memory until its reply has come, or its connection
//!   has ended.
//! - Nobody does without a slow node who could not do without an unavailable one.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::future::{Either, select};
use rackscan_format::{
    ids::{NodeId, SegmentId, TableId},
    message::Request,
};
use rackscan_scan::PageWanted;
use tokio::sync::oneshot;

use crate::{
    ClientError, Cluster, FetchedPages, PageBuffer,
    cluster::{Node, kind_of},
    driver::Reply,
    limits::{ANSWERS_KEPT, OUTPACED_ADDED, OUTPACED_ANSWERS_MIN, OUTPACED_FACTOR, SLOW_PERIOD},
    target::Span,
};

/// A page, and when its node was asked for it if it was read.
type Came = (PageBuffer, Option<Instant>);

/// What tells a caller that others were faster.
#[derive(Debug)]
pub(crate) struct Race {
    /// How much was asked for: bytes, or 1 if nobody knows.
    pub(crate) weight: u64,
    /// Hears once that the request is outpaced.
    pub(crate) notice: Option<oneshot::Sender<()>>,
}

impl Race {
    pub(crate) fn of(weight: u64) -> (Self, oneshot::Receiver<()>) {
        let (notice, noticed) = oneshot::channel();
        (Self { weight, notice: Some(notice) }, noticed)
    }
}

/// An answer of a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answered {
    /// The node's position.
    pub(crate) node: usize,
    pub(crate) during: &'static str,
    pub(crate) weight: u64,
    pub(crate) asked: Instant,
    pub(crate) ended: Instant,
}

/// What nodes have answered lately.
#[derive(Debug, Default)]
pub(crate) struct Answers(VecDeque<Answered>);

impl Answers {
    pub(crate) fn note(&mut self, answered: Answered) {
        if self.0.len() >= ANSWERS_KEPT {
            self.0.pop_front();
        }
        self.0.push_back(answered);
    }

    /// How long a request may take that has been asked for then; `None` if too little is known.
    pub(crate) fn allow(
        &self,
        node: usize,
        during: &'static str,
        (weight, asked): (u64, Instant),
    ) -> Option<Duration> {
        let alike = self.0.iter().filter(|of| of.node != node && of.during == during && of.ended > asked);
        let scaled = alike.map(|of| {
            let took = of.ended.saturating_duration_since(of.asked);
            let times = weight.div_ceil(of.weight.max(1)).max(1);
            took.saturating_mul(u32::try_from(times).unwrap_or(u32::MAX))
        });
        let (count, longest) =
            scaled.fold((0, Duration::ZERO), |(count, longest), took| (count + 1, longest.max(took)));
        (count >= OUTPACED_ANSWERS_MIN)
            .then(|| longest.saturating_mul(OUTPACED_FACTOR).saturating_add(OUTPACED_ADDED))
    }
}

/// Until when a node is done without because others were faster.
#[derive(Debug, Default)]
pub(crate) struct Slow(Mutex<Option<Instant>>);

impl Slow {
    fn is_slow(&self) -> bool {
        let until = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + SLOW_PERIOD);
    }
}

impl Cluster {
    /// The nodes whose pages came sooner from others a moment ago.
    pub(crate) fn slow(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.shared.nodes.iter().filter(|node| node.slow.is_slow()).map(|node| node.id)
    }

    /// Sends a request whose node is not waited for if others make up for it, and are far faster.
    pub(crate) async fn ask_unless_outpaced(
        &self,
        node: NodeId,
        request: Request,
        span: Span,
    ) -> Result<Reply, ClientError> {
        if !self.goes_without(&request) {
            return self.ask(node, request, Some(span)).await;
        }
        let (asked, during) = (Instant::now(), kind_of(&request));
        let (race, noticed) = Race::of(1);
        let asking = pin!(self.ask_in_race(node, request, Some(span), Some(race)));
        match select(asking, noticed).await {
            Either::Left((reply, _)) => reply,
            // It has been answered, or is about to be.
            Either::Right((Err(_), asking)) => asking.await,
            Either::Right((Ok(()), _)) => {
                let address = self.shared.nodes[self.position(node)?].address.clone();
                Err(ClientError::Outpaced { node, address, during, waited: asked.elapsed() })
            }
        }
    }

    /// Pages from their node or, if that is far slower than others are, from those.
    pub(crate) async fn race_for_pages(
        &self,
        node: &Node,
        of: (TableId, SegmentId),
        pages: &[PageWanted],
        fetched: &mut FetchedPages,
    ) -> Result<Vec<Came>, ClientError> {
        let asked = Instant::now();
        let outpaced = |asked: Instant| {
            let (node, address) = (node.id, node.address.clone());
            ClientError::Outpaced { node, address, during: "fetch", waited: asked.elapsed() }
        };
        if node.slow.is_slow() {
            let mut from_others = FetchedPages::default();
            let came = self.others_give(node.id, of, pages, (outpaced(asked), false), &mut from_others).await;
            if came.is_ok() {
                fetched.add(from_others);
                return came;
            }
        }
        let bytes = pages.iter().map(|page| u64::from(page.extent.length_bytes)).sum();
        let (race, noticed) = Race::of(bytes);
        let (mut of_node, mut of_others) = (FetchedPages::default(), FetchedPages::default());
        let outcome = {
            let mut asking = pin!(self.request_pages(node.id, of, pages, Some(race), &mut of_node));
            match select(&mut asking, noticed).await {
                Either::Left((came, _)) => came,
                // It has been answered, or is about to be.
                Either::Right((Err(_), _)) => asking.await,
                Either::Right((Ok(()), _)) => {
                    let lost = (outpaced(asked), false);
                    let others = pin!(self.others_give(node.id, of, pages, lost, &mut of_others));
                    match select(asking, others).await {
                        Either::Left((Ok(came), _)) => Ok(came),
                        Either::Left((Err(error), others)) => others.await.map_err(|_| error),
                        Either::Right((Ok(came), _)) => {
                            tracing::debug!(node = %node.id, "a node is slow: its pages came sooner from others");
                            node.slow.note();
                            Ok(came)
                        }
                        Either::Right((Err(_), asking)) => asking.await,
                    }
                }
            }
        };
        fetched.add(of_node);
        fetched.add(of_others);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn answers(begun: Instant, took: &[(usize, u64, u32)]) -> Answers {
        let mut answers = Answers::default();
        for (node, weight, ms) in took {
            let (asked, ended) = (begun, begun + *ms * MS);
            answers.note(Answered { node: *node, during: "fetch", weight: *weight, asked, ended });
        }
        answers
    }

    #[test]
    fn a_request_is_outpaced_by_the_longest_of_like_answers_of_others() {
        let begun = Instant::now();
        let answers = answers(begun, &[(0, 100, 10), (2, 100, 30), (3, 100, 20), (1, 100, 9_000)]);
        let allowed = answers.allow(1, "fetch", (100, begun));
        assert_eq!(allowed, Some(30 * MS * OUTPACED_FACTOR + OUTPACED_ADDED));
        assert_eq!(answers.allow(1, "process", (100, begun)), None, "nothing like it was answered");
        assert_eq!(answers.allow(1, "fetch", (100, begun + 25 * MS)), None, "only one ended since");
    }

    #[test]
    fn who_asks_for_more_may_take_longer() {
        let begun = Instant::now();
        let answers = answers(begun, &[(0, 100, 10), (2, 1000, 20), (3, 100, 10)]);
        assert_eq!(
            answers.allow(1, "fetch", (1000, begun)),
            Some(100 * MS * OUTPACED_FACTOR + OUTPACED_ADDED)
        );
    }

    #[test]
    fn answers_that_are_remembered_are_bounded() {
        let begun = Instant::now();
        let many: Vec<_> = (0..1000).map(|_| (0, 1, 10)).collect();
        assert_eq!(answers(begun, &many).0.len(), ANSWERS_KEPT);
    }
}
