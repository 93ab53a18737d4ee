//! Contains the state of all tables that readers see.

use std::sync::Arc;

use rackscan_format::{
    codec::{self, CodecError, Envelope},
    ids::NodeId,
};

use super::table::{SegmentHolders, Tables, catalog_of, segment_holders};

/// The state that readers see; it is replaced as a whole.
#[derive(Debug)]
pub(super) struct Published {
    pub(super) tables: Tables,
    pub(super) holders: SegmentHolders,
    /// The encoded catalog for readers.
    pub(super) encoded: Arc<Vec<u8>>,
    pub(super) generation: u64,
}

impl Published {
    pub(super) fn new(node: NodeId, tables: Tables, generation: u64) -> Result<Self, CodecError> {
        let encoded = Self::encode(node, &tables)?;
        Ok(Self::of(tables, encoded, generation))
    }

    /// The encoded catalog for readers.
    pub(super) fn encode(node: NodeId, tables: &Tables) -> Result<Vec<u8>, CodecError> {
        codec::encode_envelope(Envelope::CatalogReply, &catalog_of(node, tables))
    }

    /// The state of these tables, already encoded.
    pub(super) fn of(tables: Tables, encoded: Vec<u8>, generation: u64) -> Self {
        Self { holders: segment_holders(&tables), tables, encoded: Arc::new(encoded), generation }
    }
}
