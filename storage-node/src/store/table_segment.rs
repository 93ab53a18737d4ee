//! A segment as a part of one table: the stored segment, which other versions of the table may
//! share, and the rows of it that this table withholds.

use std::sync::Arc;

use rackscan_format::{segment::SegmentDirectory, withheld::WithheldRows};

use super::{
    allocate::{MetadataShare, StoredSegment},
    error::MetadataFull,
};

static NO_ROWS: WithheldRows = WithheldRows::NONE;

/// A segment as one table has it.
#[derive(Debug, Clone)]
pub(crate) struct TableSegment {
    stored: Arc<StoredSegment>,
    /// Absent if the table wrote the segment itself and withholds nothing.
    kept: Option<Arc<Kept>>,
}

/// What a table adds to a stored segment.
#[derive(Debug)]
struct Kept {
    withheld: WithheldRows,
    _memory: MetadataShare,
}

impl TableSegment {
    /// A segment that was written for the table.
    pub(crate) fn written(stored: Arc<StoredSegment>) -> Self {
        Self { stored, kept: None }
    }

    /// A segment that the table keeps without these rows. Allocates memory for them, and for
    /// another copy of the directory in the encoded catalog.
    pub(crate) fn kept(stored: Arc<StoredSegment>, withheld: WithheldRows) -> Result<Self, MetadataFull> {
        let memory = stored.share_for(&withheld)?;
        Ok(Self { stored, kept: Some(Arc::new(Kept { withheld, _memory: memory })) })
    }

    /// The stored segment.
    pub(crate) fn stored(&self) -> &Arc<StoredSegment> {
        &self.stored
    }

    /// Its directory.
    pub(crate) fn directory(&self) -> &Arc<SegmentDirectory> {
        self.stored.directory()
    }

    /// The rows that the table withholds.
    pub(crate) fn withheld(&self) -> &WithheldRows {
        self.kept.as_deref().map_or(&NO_ROWS, |kept| &kept.withheld)
    }
}
