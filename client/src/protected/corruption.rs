//! Replaces pages that are corrupt at their node, or that the node refuses, by reconstructed ones.
//!
//! | what a read finds | what happens |
//! |---|---|
//! | a page from the node has a wrong checksum or identity | the page is reconstructed, and repaired at the node |
//! | a page from an attached device has a wrong checksum or identity | the same, if its node still has the segment: the reader does not see when the node frees it and uses its space again |
//! | a node cannot read its device | its pages are requested one by one; those that it refuses are reconstructed and repaired |
//! | a node does not know a segment that it must have according to another node's map | the pages are reconstructed; [`Cluster::rebuild`] restores the node |
//!
//! Nothing of this happens for a table that is not protected: the caller gets the page as it was
//! read, or the node's refusal.
//!
//! Invariant: each page is verified once here. The scan need not verify it again.

use std::time::Instant;

use rackscan_format::{
    ids::{NodeId, SegmentId, TableId},
    message::{Refusal, RefusalCode},
    page::PageIdentity,
};
use rackscan_scan::PageWanted;

use tokio::time::timeout;

use crate::{ClientError, Cluster, FetchedPages, PageBuffer, limits::CORRUPT_LOOK_TIME_MAX};

/// A page, and when it was requested if it was read from a device.
type FetchedPage = (PageBuffer, Option<Instant>);

impl Cluster {
    /// Reconstructs pages that a node has refused because they are corrupt or lost there.
    ///
    /// # Errors
    /// The refusal, if it has another reason.
    pub(crate) async fn refused_pages(
        &self,
        node: NodeId,
        (table, segment): (TableId, SegmentId),
        pages: &[PageWanted],
        refused: ClientError,
        fetched: &mut FetchedPages,
    ) -> Result<Vec<FetchedPage>, ClientError> {
        if refused.node() != Some(node) || !self.shared.maps.protects(table) {
            return Err(refused);
        }
        if refused.is_not_found() {
            if !self.must_have(node, table, segment).await.unwrap_or(false) {
                return Err(refused);
            }
            let reconstructed =
                self.reconstruct_for_fetch(node, (table, segment), pages, (refused.clone(), false), fetched);
            // If the pages cannot be reconstructed, the table is being dropped: the refusal was
            // right.
            return reconstructed.await.map_err(|error| match error {
                ClientError::LostPages { .. } => refused,
                error => error,
            });
        }
        if !refused.is_corrupt() {
            return Err(refused);
        }
        let mut reconstructed = Vec::with_capacity(pages.len());
        for page in pages {
            let one = std::slice::from_ref(page);
            let asked = match pages.len() {
                1 => Err(refused.clone()),
                _ => self.request_pages(node, (table, segment), one, None, fetched).await,
            };
            reconstructed.extend(match asked {
                Err(error) if error.is_corrupt() => {
                    self.reconstruct_for_fetch(node, (table, segment), one, (error, true), fetched).await?
                }
                asked => asked?,
            });
        }
        Ok(reconstructed)
    }

    /// Verifies pages of a segment that were read from its node's devices without a request.
    /// Corrupt pages of a protected table are reconstructed, and repaired at the node. Adds the
    /// cost to `fetched`.
    ///
    /// # Errors
    /// Pages that cannot be reconstructed; the node's refusal, if it has no such segment any more,
    /// because the table was replaced while its devices were read.
    pub async fn made_right(
        &self,
        node: NodeId,
        (table, segment): (TableId, SegmentId),
        wanted: &[PageWanted],
        pages: Vec<PageBuffer>,
        fetched: &mut FetchedPages,
    ) -> Result<Vec<PageBuffer>, ClientError> {
        if !self.shared.maps.protects(table) {
            return Ok(pages);
        }
        let mut found: Vec<Option<PageBuffer>> = pages.into_iter().map(Some).collect();
        let mut wrong = Vec::new();
        for (place, (page, found)) in wanted.iter().zip(found.iter_mut().flatten()).enumerate() {
            let identity = PageIdentity { table, segment, column: page.column, page: page.page };
            if found.verify(&identity).is_err() {
                wrong.push((place, *page));
            }
        }
        let Some((_, first)) = wrong.first() else { return Ok(found.into_iter().flatten().collect()) };
        // A node that does not answer soon is taken to have the segment, as one that is lost.
        let asked = self.request_pages(node, (table, segment), std::slice::from_ref(first), None, fetched);
        match timeout(CORRUPT_LOOK_TIME_MAX, asked).await {
            Ok(Err(refused)) if refused.is_not_found() => {
                let pages: Vec<PageWanted> = wrong.iter().map(|(_, page)| *page).collect();
                let right = self.refused_pages(node, (table, segment), &pages, refused, fetched).await?;
                for ((place, _), (page, _)) in wrong.into_iter().zip(right) {
                    found[place] = Some(page);
                }
            }
            _ => self.replace_corrupt(node, (table, segment), wanted, &mut found, fetched).await?,
        }
        Ok(found.into_iter().flatten().collect())
    }

    /// Replaces corrupt pages of a protected table by reconstructed ones.
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
            let mut reconstructed =
                self.reconstruct_for_fetch(node, (table, segment), one, (corrupt, true), fetched).await?;
            *found = reconstructed.pop().map(|(page, _)| page);
        }
        Ok(())
    }

    /// Reconstructs pages, if they are protected, and adds the cost to `fetched`.
    pub(crate) async fn reconstruct_for_fetch(
        &self,
        node: NodeId,
        (table, segment): (TableId, SegmentId),
        pages: &[PageWanted],
        lost: (ClientError, bool),
        fetched: &mut FetchedPages,
    ) -> Result<Vec<FetchedPage>, ClientError> {
        let asked_at = Instant::now();
        let before = fetched.survivor_bytes;
        let reconstructed = self.reconstruct(node, table, segment, pages, lost, fetched).await?;
        fetched.wire_bytes += fetched.survivor_bytes - before;
        fetched.waited += asked_at.elapsed();
        Ok(reconstructed.into_iter().map(|page| (page, Some(asked_at))).collect())
    }

    /// Whether a node refused a scan because pages of the segment are corrupt or lost there, and
    /// the table is protected: then the segment can be fetched instead.
    pub(crate) async fn can_be_reconstructed(
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
