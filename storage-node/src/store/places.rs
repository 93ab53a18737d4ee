//! Finds the places of a stripe set on this node, and checks bytes for them.
//!
//! A place is a page of the node's stream (the node's data of the set, in order) or a parity cell,
//! at its fixed extent. Places are numbered as in [`rackscan_format::message::Verify`]: first the
//! pages of the stream, then the parity cells.
//!
//! Invariant: bytes for a place are checked against the catalog as a reader checks them: the
//! checksum, identity and rows of a page, the checksum of a parity cell.

use az::SaturatingAs;
use rackscan_format::{
    codec,
    ids::{ColumnId, PageNumber, SegmentId},
    message::{Refusal, RefusalCode},
    page::{PageIdentity, PageView},
    segment::Extent,
    stripe_set::SetId,
};

use super::{Store, held_set::HeldSet};
use std::sync::Arc;

/// A place of a stripe set on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldPlace {
    pub(crate) extent: Extent,
    what: PlaceContent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlaceContent {
    Page { identity: PageIdentity, first_row: u32, rows: u32 },
    Parity { set: SetId, cell: u64, checksum: u32 },
}

impl HeldPlace {
    /// Its name, for messages. The name of a cell is composed like that of a page.
    pub(crate) fn identity(&self) -> PageIdentity {
        match self.what {
            PlaceContent::Page { identity, .. } => identity,
            PlaceContent::Parity { set, cell, .. } => PageIdentity {
                table: set.load,
                segment: SegmentId(cell.saturating_as::<u32>()),
                column: ColumnId(0),
                page: PageNumber(0),
            },
        }
    }

    /// Checks that these are its bytes; the error says why not.
    pub(crate) fn check(&self, bytes: &[u8]) -> Result<(), String> {
        let bytes = bytes.get(..self.extent.length_bytes as usize).unwrap_or_default();
        match self.what {
            PlaceContent::Page { identity, first_row, rows } => PageView::open(bytes, &identity)
                .and_then(|view| view.expect_rows(first_row, rows))
                .map_err(|fault| format!("{identity}: {fault}")),
            PlaceContent::Parity { set, cell, checksum } => match codec::checksum(bytes) {
                found if found == checksum => Ok(()),
                found => Err(format!(
                    "cell {cell} of parity of set {set}: its checksum is {found:08x}, expected {checksum:08x}"
                )),
            },
        }
    }
}

impl HeldSet {
    /// The place with this number; `None` behind the last one.
    pub(crate) fn place(&self, number: u64) -> Option<HeldPlace> {
        let Some((directory, mut within)) = self.page_at(number) else {
            let cell = number.checked_sub(self.pages())?;
            let known = self.cells().get(usize::try_from(cell).ok()?)?;
            let what = PlaceContent::Parity { set: self.id(), cell, checksum: known.checksum };
            return Some(HeldPlace { extent: known.extent, what });
        };
        for (column, chunk) in (0_u16..).zip(&directory.chunks) {
            let Some(entry) = chunk.pages.get(within) else {
                within -= chunk.pages.len();
                continue;
            };
            let identity = directory.identity(ColumnId(column), PageNumber(u16::try_from(within).ok()?));
            let what = PlaceContent::Page { identity, first_row: entry.first_row, rows: entry.rows };
            return Some(HeldPlace { extent: entry.extent, what });
        }
        None
    }
}

impl Store {
    /// The part of a stripe set on this node.
    pub(crate) fn held_set(&self, set: SetId) -> Result<Arc<HeldSet>, Refusal> {
        let published = self.published();
        let mut sets = published.tables.values().flat_map(|table| &table.sets);
        sets.find(|known| known.id() == set).map(Arc::clone).ok_or_else(|| {
            let text = format!("no stripe set {set} here; read the map of the table anew");
            Refusal::new(RefusalCode::NotFound, text)
        })
    }
}
