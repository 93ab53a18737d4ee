//! Hedges reads: when a node is far slower than others, its pages are also reconstructed from the
//! other nodes, and the first result counts.

use std::{pin::pin, time::Instant};

use futures::future::{Either, select};
use rackscan_format::{
    ids::{NodeId, SegmentId, TableId},
    message::Request,
};
use rackscan_scan::PageWanted;

use crate::{
    ClientError, Cluster, FetchedPages, PageBuffer, cluster::Node, driver::Reply, hedge::Hedge, target::Span,
};

/// A page, and when its node was asked for it if it was read from a device.
type FetchedPage = (PageBuffer, Option<Instant>);

impl Cluster {
    /// The nodes whose pages recently came sooner from other nodes.
    pub(crate) fn slow(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.shared.nodes.iter().filter(|node| node.slow.is_slow()).map(|node| node.id)
    }

    /// Sends a request. Gives up waiting for the node if others can make up for it and are far
    /// faster.
    ///
    /// # Errors
    /// [`ClientError::Outpaced`] then.
    pub(crate) async fn ask_unless_outpaced(
        &self,
        node: NodeId,
        request: Request,
        span: Span,
    ) -> Result<Reply, ClientError> {
        if !self.can_go_without(&request) {
            return self.ask(node, request, Some(span)).await;
        }
        let (asked, during) = (Instant::now(), request.name());
        let (race, noticed) = Hedge::of(1);
        let asking = pin!(self.ask_hedged(node, request, Some(span), Some(race)));
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

    /// Reads pages from their node; if that is far slower than others, also reconstructs them from
    /// those, and returns what comes first.
    pub(crate) async fn hedged_pages(
        &self,
        node: &Node,
        of: (TableId, SegmentId),
        pages: &[PageWanted],
        fetched: &mut FetchedPages,
    ) -> Result<Vec<FetchedPage>, ClientError> {
        let asked = Instant::now();
        let outpaced = |asked: Instant| {
            let (node, address) = (node.id, node.address.clone());
            ClientError::Outpaced { node, address, during: "fetch", waited: asked.elapsed() }
        };
        if node.slow.is_slow() {
            let mut from_others = FetchedPages::default();
            let pages_read = self
                .reconstruct_for_fetch(node.id, of, pages, (outpaced(asked), false), &mut from_others)
                .await;
            if pages_read.is_ok() {
                fetched.add(from_others);
                return pages_read;
            }
        }
        let bytes = pages.iter().map(|page| u64::from(page.extent.length_bytes)).sum();
        let (race, noticed) = Hedge::of(bytes);
        let (mut of_node, mut of_others) = (FetchedPages::default(), FetchedPages::default());
        let outcome = {
            let mut asking = pin!(self.request_pages(node.id, of, pages, Some(race), &mut of_node));
            match select(&mut asking, noticed).await {
                Either::Left((pages_read, _)) => pages_read,
                // It has been answered, or is about to be.
                Either::Right((Err(_), _)) => asking.await,
                Either::Right((Ok(()), _)) => {
                    let lost = (outpaced(asked), false);
                    let others = pin!(self.reconstruct_for_fetch(node.id, of, pages, lost, &mut of_others));
                    match select(asking, others).await {
                        Either::Left((Ok(pages_read), _)) => Ok(pages_read),
                        Either::Left((Err(error), others)) => others.await.map_err(|_| error),
                        Either::Right((Ok(pages_read), _)) => {
                            tracing::debug!(node = %node.id, "a node is slow: its pages came sooner from others");
                            node.slow.note();
                            Ok(pages_read)
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
