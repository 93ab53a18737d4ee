//! Computes the parity over the data of a load, and stores it.
//!
//! If all nodes of the table can relay cells to each other, the nodes compute the parity
//! (`relays`), so that the load sends each byte of its data only once. Otherwise, and for little
//! data, and if relaying fails, the client computes it: it reads the data cells back from their
//! nodes, XORs them and sends the sums to the nodes that store them, several stripes at a time.
//!
//! Invariants
//! - The stored parity and the checksums of cells are computed over the bytes that are on the
//!   devices, not over the bytes that were sent.
//! - The client's memory is bounded, however much is loaded: at most [`PARITY_STRIPES_MAX`] stripes
//!   are computed at a time, with their sums and [`CELLS_READ_MAX`] cells of each.
//! - If a stripe set fails, its number is not used again: cells of it that nodes have stored belong
//!   to no table.

use std::{collections::BTreeMap, sync::Arc};

use futures::{StreamExt, TryStreamExt, future::try_join_all, stream};
use rackscan_format::{
    codec,
    ids::TableId,
    limits::PARITY_CELLS_MAX,
    message::{Answer, AppendParity, Request, ReserveParity},
    schema::Protection,
    segment::Extent,
    stripe_set::{NodeStream, ParityCell, SetId, StripeSet},
};
use rackscan_stripe::{Cell, xor};

use super::{
    relays::{Purpose, Relays},
    streams::Layout,
    stripes::{CellRange, Stripes},
};
use crate::{
    ClientError, Cluster,
    limits::{CELLS_READ_MAX, PARITY_APPEND_BYTES_MAX, PARITY_STRIPES_MAX, RELAYED_BYTES_MIN},
    message_names::unexpected_answer,
};

/// Computes the parity over these streams, and stores it as the load's next set. Returns the set.
pub(super) async fn store(
    cluster: &Cluster,
    (load, number): (TableId, &mut u32),
    protection: Protection,
    streams: Vec<NodeStream>,
) -> Result<StripeSet, ClientError> {
    let mut next = || {
        let id = SetId { load, number: *number };
        *number += 1;
        id
    };
    let id = next();
    let wrong = |problem: String| ClientError::Unprotectable { set: id.to_string(), problem };
    let layout = Layout::new(protection, streams.len()).map_err(|error| wrong(error.to_string()))?;
    let bytes = || streams.iter().map(NodeStream::bytes);
    let cell_bytes = layout.cell_bytes(bytes().max().unwrap_or(0));
    let stripes = layout.stripes(cell_bytes, bytes());
    let total: u64 = bytes().sum();
    let set = StripeSet { id, protection, cell_bytes, stripes, streams };
    let mut stripes = Stripes::unproved(set).map_err(wrong)?;
    if total >= RELAYED_BYTES_MIN {
        let nodes: Vec<_> = stripes.set.streams.iter().map(|stream| stream.node).collect();
        if let Some(relays) = cluster.relays(&nodes).await {
            let shared = Arc::new(stripes);
            match relay(cluster, &relays, &shared).await {
                Ok(set) => return Ok(Stripes::new(set).map_err(wrong)?.set),
                Err(why) => tracing::warn!(set = %id, why, "parity is not relayed; this process computes it"),
            }
            let set = StripeSet { id: next(), ..shared.set.clone() };
            stripes = Stripes::unproved(set).map_err(wrong)?;
        }
    }
    let set = compute(cluster, stripes).await?;
    Ok(Stripes::new(set).map_err(wrong)?.set)
}

/// Lets the nodes compute the parity of a set. Returns the completed set.
async fn relay(cluster: &Cluster, relays: &Relays, stripes: &Arc<Stripes>) -> Result<StripeSet, String> {
    let SetId { load, number } = stripes.set.id;
    let session = relays.open(stripes, Purpose::Parity { load, set: number }).await?;
    let nodes = 0..stripes.set.streams.len();
    let reserved = try_join_all(nodes.map(|node| reserve(cluster, stripes, node))).await;
    let reserved = reserved.map_err(|error| error.to_string())?;
    let mut checksums = BTreeMap::new();
    let numbers = 0..stripes.set.stripes;
    session
        .carry(numbers.map(|number| (number, 0)), None, |relayed| {
            let cells = relayed.checksums.into_iter();
            checksums.extend(cells.map(|(cell, checksum)| ((relayed.stripe, cell), checksum)));
            Ok(())
        })
        .await?;
    let mut set = stripes.set.clone();
    for ((node, stream), extents) in set.streams.iter_mut().enumerate().zip(reserved) {
        let of = |place: Option<(u64, Cell)>| {
            let checksum = place.and_then(|place| checksums.get(&place)).copied();
            checksum.ok_or_else(|| format!("no node reported the checksum of a cell of node {}", stream.node))
        };
        let cells = 0..stream.bytes().div_ceil(set.cell_bytes.into());
        stream.cells =
            cells.map(|index| of(stripes.layout.data_cell(node, index))).collect::<Result<_, _>>()?;
        let parity = (0..).zip(extents).map(|(index, extent)| {
            let checksum = of(stripes.layout.parity_cell(node, index))?;
            Ok(ParityCell { extent, checksum })
        });
        stream.parity = parity.collect::<Result<_, String>>()?;
    }
    Ok(set)
}

/// Lets a node reserve extents for all parity cells that it will keep of a set.
async fn reserve(cluster: &Cluster, stripes: &Stripes, place: usize) -> Result<Vec<Extent>, ClientError> {
    let (during, StripeSet { id, cell_bytes, .. }) = ("reserve parity", &stripes.set);
    let node = stripes.set.streams[place].node;
    let wrong = |problem: String| ClientError::Unprotectable { set: id.to_string(), problem };
    let all = u32::try_from(stripes.layout.parity_cells(place, stripes.set.stripes));
    let all = all.map_err(|_| wrong("too many cells of parity".to_owned()))?;
    let most = u32::try_from(PARITY_CELLS_MAX).expect("PARITY_CELLS_MAX: it fits 32 bits");
    let mut extents = Vec::new();
    for first_cell in (0..all).step_by(PARITY_CELLS_MAX) {
        let cells = most.min(all - first_cell);
        let (load, set, cell_bytes) = (id.load, id.number, *cell_bytes);
        let request = ReserveParity { load, set, first_cell, cells, cell_bytes };
        let mut reply = cluster.ask(node, Request::ReserveParity(request), None).await?;
        match reply.take_answer(node, during)? {
            Answer::ParityPlaced { extents: placed } if placed.len() == cells as usize => {
                extents.extend(placed);
            }
            other => return Err(unexpected_answer(node, during, &other, "a place for each cell")),
        }
    }
    Ok(extents)
}

/// Computes the parity of a set in this process. Returns the completed set.
async fn compute(cluster: &Cluster, mut stripes: Stripes) -> Result<StripeSet, ClientError> {
    let found: Vec<StoredStripe> = stream::iter(0..stripes.set.stripes)
        .map(|stripe| store_stripe(cluster, &stripes, stripe))
        .buffered(PARITY_STRIPES_MAX)
        .try_collect()
        .await?;
    for StoredStripe { data, parity } in found {
        for (node, cells) in parity {
            stripes.set.streams[node].parity.extend(cells);
        }
        for (node, checksum) in data {
            stripes.set.streams[node].cells.push(checksum);
        }
    }
    Ok(stripes.set)
}

/// The checksums and parity cells of a stripe whose parity is stored.
struct StoredStripe {
    /// The checksum of each data cell, with its node's position; in the order of the node's stream.
    data: Vec<(usize, u32)>,
    /// The parity cells that each node keeps, with the node's position.
    parity: Vec<(usize, Vec<ParityCell>)>,
}

/// Stores the parity of one stripe.
async fn store_stripe(
    cluster: &Cluster,
    stripes: &Stripes,
    stripe: u64,
) -> Result<StoredStripe, ClientError> {
    let (sums, data) = sums(cluster, stripes, stripe).await?;
    let mut stored = Vec::new();
    for node in 0..stripes.set.streams.len() {
        let column = stripes.layout.column(stripe, node);
        let cells = column.map_or(&[][..], |column| stripes.layout.parity(column));
        let per_request =
            (PARITY_APPEND_BYTES_MAX / stripes.set.cell_bytes as usize).clamp(1, PARITY_CELLS_MAX);
        for cells in cells.chunks(per_request) {
            let sums: Vec<&[u8]> =
                cells.iter().filter_map(|cell| Some(&sums[stripes.layout.equation(*cell)?][..])).collect();
            stored.push((node, append(cluster, stripes, node, (stripe, cells), &sums).await?));
        }
    }
    Ok(StoredStripe { data, parity: stored })
}

/// The sums of a stripe's equations, and the checksums of its data cells.
async fn sums(
    cluster: &Cluster,
    stripes: &Stripes,
    stripe: u64,
) -> Result<(Vec<Vec<u8>>, Vec<(usize, u32)>), ClientError> {
    let length = stripes.set.cell_bytes as usize;
    let equations = stripes.layout.geometry().equations();
    let mut sums = vec![vec![0; length]; equations.len()];
    let reads = stripes.layout.geometry().data().iter().filter_map(|cell| {
        let range = CellRange { stripe, cell: *cell, from: 0, length: stripes.cell_bytes() };
        let (node, pieces) = stripes.pieces(&range).filter(|(_, pieces)| !pieces.is_empty())?;
        Some((*cell, node, pieces))
    });
    let read = |(cell, node, pieces): (Cell, usize, Vec<_>)| async move {
        let of = stripes.set.streams[node].node;
        Ok::<_, ClientError>((cell, node, cluster.read_pieces(of, &pieces, length).await?))
    };
    let reads: Vec<_> = reads.collect();
    let mut cells = stream::iter(reads).map(read).buffer_unordered(CELLS_READ_MAX);
    let mut checksums = Vec::new();
    while let Some((cell, node, bytes)) = cells.try_next().await? {
        checksums.push((cell, (node, codec::checksum(&bytes))));
        for (equation, sum) in equations.iter().zip(&mut sums) {
            if equation.data.contains(&cell) {
                xor::xor_into(sum, &bytes).map_err(|error| ClientError::Unprotectable {
                    set: stripes.set.id.to_string(),
                    problem: error.to_string(),
                })?;
            }
        }
    }
    // A node's stream has its cells of a stripe in the order of their slots.
    checksums.sort_unstable_by_key(|(cell, _)| *cell);
    Ok((sums, checksums.into_iter().map(|(_, checksum)| checksum).collect()))
}

/// Lets a node keep some neighbouring parity cells.
async fn append(
    cluster: &Cluster,
    stripes: &Stripes,
    node: usize,
    (stripe, cells): (u64, &[Cell]),
    sums: &[&[u8]],
) -> Result<Vec<ParityCell>, ClientError> {
    let (during, StripeSet { id, cell_bytes, .. }) = ("append parity", &stripes.set);
    let wrong = |problem: String| ClientError::Unprotectable { set: id.to_string(), problem };
    let first = cells.first().and_then(|cell| stripes.layout.held(stripe, *cell)).map(|held| held.index);
    let first_cell = first.and_then(|index| u32::try_from(index).ok());
    let first_cell = first_cell.ok_or_else(|| wrong(format!("no place for parity of stripe {stripe}")))?;
    let length = *cell_bytes as usize * sums.len();
    let span = cluster.shared.memory.take(length, "cells of parity").await?;
    for (number, sum) in sums.iter().enumerate() {
        span.copy_in(number * *cell_bytes as usize, sum).map_err(|error| wrong(error.to_string()))?;
    }
    let checksums: Vec<u32> = sums.iter().map(|sum| codec::checksum(sum)).collect();
    let mut source = span.as_target();
    source.length_bytes = length as u64;
    let (load, set, node) = (id.load, id.number, stripes.set.streams[node].node);
    let request =
        AppendParity { load, set, first_cell, cell_bytes: *cell_bytes, checksums: checksums.clone(), source };
    let mut reply = cluster.ask(node, Request::AppendParity(request), Some(span)).await?;
    match reply.take_answer(node, during)? {
        Answer::ParityPlaced { extents } if extents.len() == sums.len() => {
            let cells = extents.into_iter().zip(checksums);
            Ok(cells.map(|(extent, checksum)| ParityCell { extent, checksum }).collect())
        }
        other => Err(unexpected_answer(node, during, &other, "a place for each cell")),
    }
}
