//! What becomes of pages that their node has, but not as they were?
//!
//! | what a read finds | what becomes of it |
//! |---|---|
//! | a page that arrives, or was read from an attached device, with a wrong checksum or identity | reconstructed, and repaired there |
//! | a node that cannot read its device | its pages are asked for one by one; those that it does not give are reconstructed, and repaired |
//! | a node that does not know a segment which it must have, as another node says | reconstructed; the node is for [`Cluster::rebuild`] |
//!
//! Of a table that is not protected everything is as it was: the page as it came, or the node's
//! refusal.
//!
//! Invariant: pages are checked once. Who scans them need not do it again.

use std::time::Instant;

use rackscan_format::{
    ids::{NodeId, SegmentId, TableId},
    message::{Refusal, RefusalCode},
    page::PageIdentity,
};
use rackscan_scan::PageWanted;

use crate::{ClientError, Cluster, FetchedPages, PageBuffer};

/// A page, and when its node was asked for it if it was read.
type Came = (PageBuffer, Option<Instant>);

impl Cluster {
    /// Pages that a node has refused, from others; or the refusal, if it is not about what is
    /// corrupt or lost there.
    pub(crate) async fn refused_pages(
        &self,
        node: NodeId,
        (table, segment): (TableId, SegmentId),
        pages: &[PageWanted],
        refused: ClientError,
        fetched: &mut FetchedPages,
    ) -> Result<Vec<Came>, ClientError> {
        if refused.node() != Some(node) || !self.shared.maps.protects(table) {
            return Err(refused);
        }
        if refused.is_not_found() {
            if !self.must_have(node, table, segment).await.unwrap_or(false) {
                return Err(refused);
            }
            let came = self.others_give(node, (table, segment), pages, (refused.clone(), false), fetched);
            // What does not come right is not what was asked for any more: the table is being
            // dropped.
            return came.await.map_err(|error| match error {
                ClientError::LostPages { .. } => refused,
                error => error,
            });
        }
        if !refused.is_corrupt() {
            return Err(refused);
        }
        let mut came = Vec::with_capacity(pages.len());
        for page in pages {
            let one = std::slice::from_ref(page);
            let asked = match pages.len() {
                1 => Err(refused.clone()),
                _ => self.request_pages(node, (table, segment), one, None, fetched).await,
            };
            came.extend(match asked {
                Err(error) if error.is_corrupt() => {
                    self.others_give(node, (table, segment), one, (error, true), fetched).await?
                }
                asked => asked?,
            });
        }
        Ok(came)
    }

    /// Pages of a segment that were read from its node's devices without it; of a protected table
    /// those that are not what was stored there are replaced by what others have, and the node is
    /// told. `fetched` learns what that took.
    ///
    /// # Errors
    /// Pages that do not come back.
    pub async fn made_right(
        &self,
        node: NodeId,
        (table, segment): (TableId, SegmentId),
        wanted: &[PageWanted],
        pages: Vec<PageBuffer>,
        fetched: &mut FetchedPages,
    ) -> Result<Vec<PageBuffer>, ClientError> {
        let mut found: Vec<Option<PageBuffer>> = pages.into_iter().map(Some).collect();
        self.replace_corrupt(node, (table, segment), wanted, &mut found, fetched).await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Puts what others have in the place of pages of a protected table that did not arrive as they
    /// were stored.
    pub(crate) async fn replace_corrupt(
        &self,
        node: NodeId,
        (table, segment): (TableId, SegmentId),
        wanted: &[PageWanted],
        pages: &mut [Option<PageBuffer>],
        fetched: &mut FetchedPages,
    ) -> Result<(), ClientError> {
        if !self.shared.maps.protects(table) {
            return Ok(());
        }
        for (page, found) in wanted.iter().zip(pages) {
            let identity = PageIdentity { table, segment, column: page.column, page: page.page };
            let Some(Err(fault)) = found.as_mut().map(|found| found.verify(&identity)) else { continue };
            let corrupt = Refusal::new(RefusalCode::Storage, format!("{identity} as fetched: {fault}"));
            let corrupt = ClientError::Refused { node, during: "fetch", refusal: Box::new(corrupt) };
            let one = std::slice::from_ref(page);
            let mut came = self.others_give(node, (table, segment), one, (corrupt, true), fetched).await?;
            *found = came.pop().map(|(page, _)| page);
        }
        Ok(())
    }

    /// Has pages reconstructed, if they are protected.
    pub(crate) async fn others_give(
        &self,
        node: NodeId,
        (table, segment): (TableId, SegmentId),
        pages: &[PageWanted],
        lost: (ClientError, bool),
        fetched: &mut FetchedPages,
    ) -> Result<Vec<Came>, ClientError> {
        let asked_at = Instant::now();
        let before = fetched.survivor_bytes;
        let came = self.reconstruct(node, table, segment, pages, lost, fetched).await?;
        fetched.wire_bytes += fetched.survivor_bytes - before;
        fetched.waited += asked_at.elapsed();
        Ok(came.into_iter().map(|page| (page, Some(asked_at))).collect())
    }

    /// Whether a scan that a node refused is one of a segment whose pages others make up for: then
    /// it is to be fetched.
    pub(crate) async fn is_made_up_for(
        &self,
        node: NodeId,
        table: TableId,
        segment: SegmentId,
        refusal: &Refusal,
    ) -> bool {
        match refusal.code {
            _ if !self.shared.maps.protects(table) => false,
            RefusalCode::Storage => true,
            RefusalCode::NotFound => self.must_have(node, table, segment).await.unwrap_or(false),
            _ => false,
        }
    }
}
