//! Summarises how fast a node is rebuilt, next to the time that moving the same bytes takes by
//! itself.
//!
//! Method: in each turn, a node has lost all its data and is rebuilt. Then [`crate::move_bytes`]
//! reads and writes as many bytes as the rebuild, from and to the same devices. The caller removes
//! the data and rebuilds the node.
//!
//! Invariants
//! - A line contains only rebuilds after which a check found all data intact.

use rackscan_stripe::{Geometry, Node, Parity, StripeError};
use serde::Serialize;

use crate::{Provenance, median};

/// Several rebuilds of one node.
#[derive(Clone, Debug, Serialize)]
pub struct RebuildLine {
    /// Source of the figures.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// Number of nodes of the cluster.
    pub nodes: usize,
    /// Name of the tables' parity.
    pub parity: String,
    /// Wire to the nodes.
    pub wire: String,
    /// Who computes the rebuilt cells: `relay`, the nodes; `naive`, the client.
    pub schedule: String,
    /// Limit of the wire in megabytes (10^6 bytes) per second, both directions together; absent
    /// without a limit.
    pub wire_mb_per_s: Option<u32>,
    /// Limit of each node's disk in megabytes (10^6 bytes) per second, for reads and for writes;
    /// absent without a limit.
    pub disk_mb_per_s: Option<u32>,
    /// The node that was lost.
    pub node: u16,
    /// Bytes of pages and parity that were rebuilt.
    pub rebuilt_bytes: u64,
    /// Bytes that other nodes read for them.
    pub survivor_bytes: u64,
    /// Bytes read per byte rebuilt.
    pub read_per_byte: f64,
    /// The same as the geometry predicts, over all rotations of whole stripes.
    pub predicted_per_byte: f64,
    /// Seconds of each rebuild.
    pub seconds: Vec<f64>,
    /// Megabytes (10^6 bytes) rebuilt per second, median.
    pub mb_per_s: f64,
    /// Seconds in which the devices alone read and write as many bytes, in each turn.
    pub devices_seconds: Vec<f64>,
    /// Median of these over the median of the rebuilds: 1 is as fast as the devices.
    pub of_devices: f64,
    /// Bytes of the busiest disk over what its limit allows in the median time. The lost node's
    /// disk writes everything, and the others share the reads. Absent without a limit.
    pub of_disk: Option<f64>,
    /// Bytes that crossed the wire, over all links.
    pub wire_bytes: u64,
    /// The same over what the wire's limit allows in the median time; absent without a limit.
    pub of_wire: Option<f64>,
}

/// Result of one turn.
#[derive(Clone, Copy, Debug)]
pub struct RebuildTurn {
    /// Bytes that were rebuilt.
    pub rebuilt_bytes: u64,
    /// Bytes that other nodes read for it.
    pub survivor_bytes: u64,
    /// Bytes that relays sent to each other for it; 0 if the client computed it: then all bytes
    /// read go to the client, which sends the rebuilt ones.
    pub relayed_bytes: u64,
    /// Seconds of the rebuild.
    pub seconds: f64,
    /// Seconds of the devices alone.
    pub devices_seconds: f64,
}

/// What is the same in all turns.
#[derive(Clone, Debug)]
pub struct RebuildSetting {
    /// The scale factor of the data.
    pub scale: f64,
    /// See [`RebuildLine::nodes`].
    pub nodes: usize,
    /// See [`RebuildLine::wire`].
    pub wire: String,
    /// See [`RebuildLine::schedule`].
    pub schedule: String,
    /// See [`RebuildLine::wire_mb_per_s`].
    pub wire_mb_per_s: Option<u32>,
    /// See [`RebuildLine::disk_mb_per_s`].
    pub disk_mb_per_s: Option<u32>,
    /// See [`RebuildLine::node`].
    pub node: u16,
}

/// The line of these turns; `None` without a turn.
///
/// # Errors
/// There is no geometry of so many nodes.
pub fn line(setting: &RebuildSetting, turns: &[RebuildTurn]) -> Result<Option<RebuildLine>, StripeError> {
    let of = |value: fn(&RebuildTurn) -> f64| turns.iter().map(value).collect::<Vec<f64>>();
    let (seconds, devices_seconds) = (of(|turn| turn.seconds), of(|turn| turn.devices_seconds));
    let (Some(taken), Some(devices)) = (median(seconds.clone()), median(devices_seconds.clone())) else {
        return Ok(None);
    };
    let Some(last) = turns.last() else { return Ok(None) };
    let (rebuilt, read) = (last.rebuilt_bytes as f64, last.survivor_bytes as f64);
    // Survivors read equally much, because the roles of nodes rotate.
    let most_of_a_disk = rebuilt.max(read / (setting.nodes.max(2) - 1) as f64);
    let wire_bytes = match last.relayed_bytes {
        0 => last.rebuilt_bytes + last.survivor_bytes,
        relayed => relayed,
    };
    Ok(Some(RebuildLine {
        provenance: Provenance::now("rebuild", setting.scale),
        nodes: setting.nodes,
        parity: "2d-xor".to_owned(),
        wire: setting.wire.clone(),
        schedule: setting.schedule.clone(),
        wire_mb_per_s: setting.wire_mb_per_s,
        disk_mb_per_s: setting.disk_mb_per_s,
        node: setting.node,
        rebuilt_bytes: last.rebuilt_bytes,
        survivor_bytes: last.survivor_bytes,
        read_per_byte: read / rebuilt.max(1.0),
        predicted_per_byte: predicted_per_byte(setting.nodes)?,
        seconds,
        mb_per_s: rebuilt / 1e6 / taken,
        devices_seconds,
        of_devices: devices / taken,
        of_disk: setting.disk_mb_per_s.map(|rate| most_of_a_disk / (f64::from(rate) * 1e6 * taken)),
        wire_bytes,
        of_wire: setting.wire_mb_per_s.map(|rate| wire_bytes as f64 / (f64::from(rate) * 1e6 * taken)),
    }))
}

/// Cells that are read per rebuilt cell, over as many stripes as there are nodes: then the lost
/// node has had each column once.
///
/// # Errors
/// There is no geometry of so many nodes.
pub fn predicted_per_byte(nodes: usize) -> Result<f64, StripeError> {
    let geometry = Geometry::with_parity(nodes, Parity::TwoD)?;
    let (mut read, mut rebuilt) = (0, 0);
    for stripe in 0..nodes as u64 {
        let plan = geometry.rebuild(geometry.lost_with(stripe, &[Node(0)])?);
        // A repair may pass through a cell that is not lost; with one lost node, none does.
        (read, rebuilt) = (read + plan.reads.len(), rebuilt + plan.repairs.len());
    }
    Ok(read as f64 / rebuilt as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_nodes_read_more_for_a_byte_and_never_a_whole_stripe() {
        let four = predicted_per_byte(4).unwrap();
        let found: Vec<f64> = (4..=9).map(|nodes| predicted_per_byte(nodes).unwrap()).collect();
        assert!(four > 1.0 && found.is_sorted(), "{found:?}");
        assert!(found.iter().zip(4..).all(|(per_byte, nodes)| *per_byte < f64::from(nodes)), "{found:?}");
        assert!(predicted_per_byte(1).is_err());
    }

    #[test]
    fn a_line_has_medians_and_ratios_of_its_turns() {
        let setting = RebuildSetting {
            scale: 1.0,
            nodes: 4,
            wire: "tcp".to_owned(),
            schedule: "naive".to_owned(),
            wire_mb_per_s: Some(100),
            disk_mb_per_s: Some(25),
            node: 1,
        };
        assert!(line(&setting, &[]).unwrap().is_none());
        let turn = |seconds, devices_seconds| RebuildTurn {
            rebuilt_bytes: 100_000_000,
            survivor_bytes: 150_000_000,
            relayed_bytes: 0,
            seconds,
            devices_seconds,
        };
        let line = line(&setting, &[turn(4.0, 1.0), turn(5.0, 2.0), turn(9.0, 8.0)]).unwrap().unwrap();
        assert_eq!((line.read_per_byte, line.mb_per_s, line.of_devices), (1.5, 20.0, 0.4));
        assert_eq!((line.of_wire, line.wire_bytes), (Some(0.5), 250_000_000));
        assert_eq!(line.of_disk, Some(0.8));
        let relayed = RebuildTurn { relayed_bytes: 200_000_000, ..turn(5.0, 2.0) };
        let line = super::line(&setting, &[relayed]).unwrap().unwrap();
        assert_eq!((line.of_wire, line.wire_bytes), (Some(0.4), 200_000_000));
    }
}
