//! Sends the requests by which nodes verify and repair places (pages and parity cells) of a stripe
//! set.
//!
//! Invariant: a corrupt page that a read found is repaired in the background. At most
//! [`crate::limits::REPAIRS_MAX`] such repairs run at a time; the next read finds the other corrupt
//! pages again.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use super::{
    background_repairs::{BackgroundRepairs, CorruptPages},
    stripes::Stripes,
};
use crate::{ClientError, Cluster, message_names::unexpected_answer};
use rackscan_format::{
    ids::NodeId,
    message::{Answer, Repair, Request, Verified, Verify},
    stripe_set::SetId,
};

impl Cluster {
    /// Number of pages of protected tables that reads of this cluster found corrupt.
    /// [`Cluster::scrub`] searches for all of them.
    #[must_use]
    pub fn corrupt_pages(&self) -> CorruptPages {
        let BackgroundRepairs { found, repaired, .. } = &self.shared.repairing;
        CorruptPages { found: found.load(Relaxed), repaired: repaired.load(Relaxed) }
    }

    /// Sends a node the bytes of places of a set; the node verifies and writes them.
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
        let mut source = span.as_target();
        source.length_bytes = length as u64;
        let places = places.iter().map(|(place, _)| *place).collect();
        let request = Request::Repair(Repair { set, places, source });
        let mut reply = self.ask(node, request, Some(span)).await?;
        match reply.take_answer(node, during)? {
            Answer::Done => Ok(()),
            other => Err(unexpected_answer(node, during, &other, "done")),
        }
    }

    /// Repairs a page that a read found corrupt, in the background.
    pub(super) fn repair_later(&self, stripes: &Stripes, node: NodeId, place: u64, bytes: &[u8]) {
        let repairing = &self.shared.repairing;
        repairing.found.fetch_add(1, Relaxed);
        let set = stripes.set.id;
        tracing::warn!(%node, %set, place, "a page was corrupt and was reconstructed from other nodes");
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

    /// Lets a node verify places of a set from `wanted.from` on.
    pub(super) async fn verify_places(&self, node: NodeId, wanted: Verify) -> Result<Verified, ClientError> {
        let during = "verify";
        let mut reply = self.ask(node, Request::Verify(wanted), None).await?;
        let found = match reply.take_answer(node, during)? {
            Answer::Verified(found) => found,
            other => return Err(unexpected_answer(node, during, &other, "what is corrupt")),
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
