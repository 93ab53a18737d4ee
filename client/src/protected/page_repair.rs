//! How do nodes check and take bytes of stripes?
//!
//! Invariant: what is repaired because a read found it corrupt is not waited for, and at most
//! [`REPAIRS_MAX`] pages at a time are; others are found by the next read.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use rackscan_format::{
    ids::NodeId,
    message::{Answer, Repair, Request, Verified, Verify},
    stripe_set::SetId,
};
use tokio::sync::Semaphore;

use super::stripes::Stripes;
use crate::{
    ClientError, Cluster,
    cluster::{taken, unexpected},
    limits::REPAIRS_MAX,
    status::target_in,
};

/// Pages that reads have found corrupt, since a cluster was connected to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CorruptPages {
    /// Pages that came from others instead.
    pub found: u64,
    /// Those of them that are whole again where they lie.
    pub repaired: u64,
}

/// Repairs on the side.
#[derive(Debug)]
pub(crate) struct Repairing {
    permits: Arc<Semaphore>,
    found: AtomicU64,
    repaired: Arc<AtomicU64>,
}

impl Default for Repairing {
    fn default() -> Self {
        let permits = Arc::new(Semaphore::new(REPAIRS_MAX));
        Self { permits, found: AtomicU64::new(0), repaired: Arc::default() }
    }
}

impl Cluster {
    /// How many pages of protected tables were found corrupt by reads here. See [`Cluster::scrub`]
    /// for who looks for them.
    #[must_use]
    pub fn corrupt_pages(&self) -> CorruptPages {
        let Repairing { found, repaired, .. } = &self.shared.repairing;
        CorruptPages { found: found.load(Relaxed), repaired: repaired.load(Relaxed) }
    }

    /// Has a node take bytes for places of a set.
    pub(super) async fn repair(
        &self,
        node: NodeId,
        set: SetId,
        places: &[(u64, &[u8])],
    ) -> Result<(), ClientError> {
        let during = "repair";
        let length = places.iter().map(|(_, bytes)| bytes.len()).sum();
        let span = self.shared.memory.take(length, "bytes to be repaired").await?;
        let mut offset = 0;
        for (_, bytes) in places {
            let copied = span.copy_in(offset, bytes);
            copied.map_err(|error| ClientError::BadAnswer {
                node,
                during,
                found: error.to_string(),
                expected: "memory for all bytes".to_owned(),
            })?;
            offset += bytes.len();
        }
        let mut source = target_in(&span);
        source.length_bytes = length as u64;
        let places = places.iter().map(|(place, _)| *place).collect();
        let request = Request::Repair(Repair { set, places, source });
        let mut reply = self.ask(node, request, Some(span)).await?;
        match taken(node, during, &mut reply)? {
            Answer::Done => Ok(()),
            other => Err(unexpected(node, during, &other, "done")),
        }
    }

    /// Has a node take a page that a read found corrupt, at some time.
    pub(super) fn repair_later(&self, stripes: &Stripes, node: NodeId, place: u64, bytes: &[u8]) {
        let repairing = &self.shared.repairing;
        repairing.found.fetch_add(1, Relaxed);
        let set = stripes.set.id;
        tracing::warn!(%node, %set, place, "a page was corrupt; others gave it");
        let (Ok(runtime), Ok(permit)) =
            (tokio::runtime::Handle::try_current(), Arc::clone(&repairing.permits).try_acquire_owned())
        else {
            return;
        };
        let (cluster, bytes, repaired) = (self.clone(), bytes.to_vec(), Arc::clone(&repairing.repaired));
        runtime.spawn(async move {
            match cluster.repair(node, set, &[(place, &bytes)]).await {
                Ok(()) => {
                    repaired.fetch_add(1, Relaxed);
                    tracing::info!(%node, %set, place, "a corrupt page was repaired");
                }
                Err(error) => tracing::warn!(%node, %set, place, %error, "a corrupt page was not repaired"),
            }
            drop(permit);
        });
    }

    /// Has a node check places of a set from one on.
    pub(super) async fn verify_places(&self, node: NodeId, wanted: Verify) -> Result<Verified, ClientError> {
        let during = "verify";
        let mut reply = self.ask(node, Request::Verify(wanted), None).await?;
        let found = match taken(node, during, &mut reply)? {
            Answer::Verified(found) => found,
            other => return Err(unexpected(node, during, &other, "what is corrupt")),
        };
        let end = wanted.from.saturating_add(found.places);
        let gets_on = found.next.is_none_or(|next| next > wanted.from && next == end);
        let is_within = found.corrupt.iter().all(|place| (wanted.from..end).contains(place));
        if gets_on && is_within && found.corrupt.is_sorted_by(|a, b| a < b) {
            return Ok(found);
        }
        Err(ClientError::BadAnswer {
            node,
            during,
            found: format!(
                "{} places, {:?} next, {:?} corrupt",
                found.places,
                found.next,
                found.corrupt.first()
            ),
            expected: format!("places from {} on", wanted.from),
        })
    }
}
