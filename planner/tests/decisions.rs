//! Tests which placement a scan gets in each situation that matters in practice.
//!
//! Method: one table of situations per test; every row states the scan, the cluster and the
//! expected placement.

use rackscan_fabric::Wire;
use rackscan_format::{ids::NodeId, message::LoadReport};
use rackscan_planner::{
    Ahead, Attachment, Calibration, ClusterProfile, Demand, EngineProfile, Feedback, Measured, NodeProfile,
    PageDemand, Placement, PlacementError, Policy, Reason, ScanProfile, SpeedFactors, WhyNot, place, price,
};

const NODE: NodeId = NodeId(3);

/// A segment of 131,072 rows: `filter_kib` of filter columns, `payload_kib` of others, rows of
/// `row_bytes`.
fn scan(filter_kib: u64, payload_kib: u64, selectivity: f64, row_bytes: f64) -> ScanProfile {
    let demand = |kib: u64| PageDemand {
        pages: u32::try_from(kib.div_ceil(128)).expect("few pages"),
        bytes: kib * 1024,
    };
    ScanProfile {
        node: NODE,
        rows: 131_072,
        filter: demand(filter_kib),
        payload: demand(payload_kib),
        selectivity,
        filter_values_per_row: if filter_kib > 0 { 3.0 } else { 0.0 },
        output_values_per_row: 2.0,
        output_rows: 131_072.0 * selectivity,
        output_row_bytes: row_bytes,
        cached: 0.0,
        repeated: false,
        rebuilt_from: 0.0,
        measured: Measured::default(),
    }
}

fn attached() -> Attachment {
    Attachment::Attached
}

fn detached() -> Attachment {
    Attachment::Detached("it runs on another host".to_owned())
}

/// `engine_scans` are of a millisecond each.
fn cluster(wire: Wire, attachment: Attachment, node_scans: u16, engine_scans: u16) -> ClusterProfile {
    let load = LoadReport { scans_running: node_scans, scan_workers: 2, ..LoadReport::default() };
    ClusterProfile {
        engine: EngineProfile {
            cores: 2,
            ahead: Ahead {
                segments: engine_scans.into(),
                demand: Demand { engine_s: f64::from(engine_scans) * 1e-3, ..Demand::default() },
            },
        },
        nodes: [(
            NODE,
            NodeProfile {
                wire,
                attachment,
                load,
                ahead: Ahead::default(),
                speed: SpeedFactors::default(),
                cached: 0.0,
                lost: false,
            },
        )]
        .into(),
    }
}

fn decided(profile: &ScanProfile, cluster: &ClusterProfile) -> Placement {
    place(profile, cluster, &Calibration::default(), Policy::Auto).expect("auto always places").placement
}

#[test]
fn auto_takes_the_cheapest_placement() {
    let selective = scan(300, 400, 0.01, 32.0);
    let everything = scan(0, 1500, 1.0, 120.0);
    let wide_text = scan(0, 400, 1.0, 200.0);
    let rows = [
        ("selective, devices attached", selective, cluster(Wire::Shm, attached(), 0, 0), Placement::Local),
        (
            "selective, another host",
            selective,
            cluster(Wire::Tcp, detached(), 0, 0),
            Placement::RemoteProcess,
        ),
        (
            "everything, another host",
            everything,
            cluster(Wire::Tcp, detached(), 0, 0),
            Placement::RemoteFetch,
        ),
        (
            "text that unpacks to more",
            wide_text,
            cluster(Wire::Tcp, detached(), 0, 0),
            Placement::RemoteFetch,
        ),
        ("selective, node crowded", selective, cluster(Wire::Tcp, detached(), 24, 0), Placement::RemoteFetch),
        (
            "selective, engine crowded",
            selective,
            cluster(Wire::Tcp, detached(), 0, 24),
            Placement::RemoteProcess,
        ),
        (
            "crowded, node on the same cores",
            selective,
            cluster(Wire::Shm, attached(), 0, 24),
            Placement::Local,
        ),
        ("both crowded alike", selective, cluster(Wire::Shm, attached(), 24, 24), Placement::Local),
    ];
    for (situation, profile, cluster, expected) in rows {
        let prices = price(&profile, &cluster, &Calibration::default());
        assert_eq!(decided(&profile, &cluster), expected, "{situation}: {prices:?}");
    }
}

/// Where a segment goes whose node's fetches have all come from devices.
fn scan_from_a_cold_cluster(profile: ScanProfile) -> Placement {
    let mut cluster = cluster(Wire::Shm, attached(), 0, 0);
    cluster.nodes.get_mut(&NODE).expect("it is there").speed.from_disk = Some(1.0);
    decided(&profile, &cluster)
}

#[test]
fn pages_come_from_a_nodes_cache_rather_than_from_a_device() {
    let selective = scan(300, 400, 0.01, 32.0);
    let with = |cached: f64, from_disk: Option<f64>, measured: Option<f64>| {
        let mut cluster = cluster(Wire::Shm, attached(), 0, 0);
        let node = cluster.nodes.get_mut(&NODE).expect("it is there");
        (node.cached, node.speed.from_disk) = (cached, from_disk);
        let measured = Measured { from_disk: measured, ..Measured::default() };
        decided(&ScanProfile { measured, ..selective }, &cluster)
    };
    assert_eq!(with(0.0, None, None), Placement::Local);
    assert_ne!(with(1.0, None, None), Placement::Local, "what the node said");
    assert_eq!(
        with(1.0, Some(1.0), None),
        Placement::Local,
        "what fetches found is better than what it said"
    );
    assert_ne!(with(0.0, Some(0.0), None), Placement::Local);
    assert_eq!(
        with(0.0, Some(0.0), Some(1.0)),
        Placement::Local,
        "and what this scan's found is better still"
    );
    let known = scan_from_a_cold_cluster(ScanProfile { cached: 1.0, ..selective });
    assert_ne!(known, Placement::Local, "but pages that are known to lie there need nobody's guess");
}

#[test]
fn a_node_that_a_quota_holds_back_scans_nothing_that_costs_less_to_send() {
    let selective = scan(150, 0, 0.01, 32.0);
    let with = |cpu_milli: u32| {
        let mut cluster = cluster(Wire::Tcp, detached(), 0, 0);
        let node = cluster.nodes.get_mut(&NODE).expect("it is there");
        (node.load.cpu_milli, node.cached) = (cpu_milli, 1.0);
        decided(&selective, &cluster)
    };
    let placed = [0, 2000, 1000, 250, 100].map(with);
    assert_eq!(placed[..2], [Placement::RemoteProcess; 2], "it has what it needs, or says nothing");
    assert_eq!(placed[3..], [Placement::RemoteFetch; 2]);
}

#[test]
fn a_forced_placement_is_obeyed_whatever_it_costs() {
    let everything = scan(0, 1500, 1.0, 120.0);
    let cluster = cluster(Wire::Tcp, attached(), 99, 0);
    for policy in [Policy::Local, Policy::RemoteFetch, Policy::RemoteProcess] {
        let decision = place(&everything, &cluster, &Calibration::default(), policy).expect("all apply");
        assert_eq!(Some(decision.placement), policy.forced());
    }
}

#[test]
fn a_lost_node_is_done_without_where_its_devices_are_attached() {
    let (profile, calibration) = (scan(300, 400, 0.01, 32.0), Calibration::default());
    let lost = |attachment| {
        // So busy here that everything else would be cheaper.
        let mut cluster = cluster(Wire::Tcp, attachment, 0, 24);
        cluster.nodes.get_mut(&NODE).expect("it is there").lost = true;
        cluster
    };
    let decision = place(&profile, &lost(attached()), &calibration, Policy::Auto).expect("local applies");
    assert_eq!((decision.placement, decision.reason), (Placement::Local, Reason::NodeLost));
    assert_eq!(decision.prices.remote_fetch, Err(WhyNot::NodeLost));
    assert_eq!(decision.prices.remote_process, Err(WhyNot::NodeLost));
    let mut feedback = Feedback::default();
    for left in (0..100).rev() {
        let next = feedback.decide(&profile, &lost(attached()), &calibration, Policy::Auto, left);
        assert_eq!(next.expect("local applies").reason, Reason::NodeLost);
    }
    // Whoever forces it asks the node, and so does who has no other way: it may be there again.
    let forced = place(&profile, &lost(attached()), &calibration, Policy::RemoteFetch).expect("it is tried");
    assert_eq!((forced.placement, forced.reason), (Placement::RemoteFetch, Reason::Forced));
    let nowhere_else = place(&profile, &lost(detached()), &calibration, Policy::Auto).expect("it is tried");
    assert_ne!(nowhere_else.placement, Placement::Local);
    assert_eq!(nowhere_else.reason, Reason::Price);
}

#[test]
fn a_forced_placement_that_cannot_apply_is_refused_with_the_way_out() {
    let profile = scan(300, 400, 0.01, 32.0);
    let mut cluster = cluster(Wire::Tcp, detached(), 0, 0);
    let error = place(&profile, &cluster, &Calibration::default(), Policy::Local).expect_err("not attached");
    assert_eq!(
        error.to_string(),
        "placement local: the devices of node 3 are not attached to this host (it runs on another host); use \
         remote-fetch, remote-process or auto, or run the engine on the node's host"
    );
    cluster.nodes.get_mut(&NODE).expect("it is there").load.scan_workers = 0;
    let error =
        place(&profile, &cluster, &Calibration::default(), Policy::RemoteProcess).expect_err("no workers");
    assert_eq!(error, PlacementError::NoScanWorkers { node: NODE });
    assert_eq!(decided(&profile, &cluster), Placement::RemoteFetch, "auto goes around what cannot apply");
}

#[test]
fn a_lost_node_of_protected_rows_is_fetched_from_the_others_for_more_under_every_policy() {
    let (calibration, there) = (Calibration::default(), cluster(Wire::Tcp, detached(), 0, 0));
    let mut lost = there.clone();
    lost.nodes.get_mut(&NODE).expect("it is there").lost = true;
    let degraded = |rebuilt_from| ScanProfile { rebuilt_from, ..scan(300, 400, 0.01, 32.0) };
    let fetched =
        |profile: &ScanProfile, cluster| price(profile, cluster, &calibration).remote_fetch.expect("applies");
    let [none, three, five] = [0.0, 3.0, 5.0].map(|from| fetched(&degraded(from), &lost));
    assert!(none < three && three < five, "{none} {three} {five}");
    assert!(
        (fetched(&degraded(3.0), &there) - none).abs() < 1e-12,
        "a node that is there costs what it does"
    );
    for (policy, placement) in [
        (Policy::Auto, Placement::RemoteFetch),
        (Policy::Local, Placement::RemoteFetch),
        (Policy::RemoteFetch, Placement::RemoteFetch),
        (Policy::RemoteProcess, Placement::RemoteProcess),
    ] {
        let decision = place(&degraded(3.0), &lost, &calibration, policy).expect("it is placed");
        assert_eq!(decision.placement, placement, "{policy}");
        assert_eq!(decision.prices.local, Err(WhyNot::NodeLost));
        assert_eq!(decision.prices.remote_process, Err(WhyNot::NodeLost));
    }
    let unprotected = place(&degraded(0.0), &lost, &calibration, Policy::Local);
    assert!(matches!(unprotected, Err(PlacementError::NotAttached { .. })), "{unprotected:?}");
}

#[test]
fn a_segment_on_an_unknown_node_is_an_error_under_every_policy() {
    let profile = ScanProfile { node: NodeId(9), ..scan(300, 400, 0.01, 32.0) };
    for policy in Policy::ALL {
        let error = place(&profile, &cluster(Wire::Shm, attached(), 0, 0), &Calibration::default(), policy);
        assert_eq!(error, Err(PlacementError::UnknownNode { node: NodeId(9) }), "{policy}");
    }
}

#[test]
fn every_alternative_has_a_price_or_a_reason() {
    let profile = scan(300, 400, 0.01, 32.0);
    let decision =
        place(&profile, &cluster(Wire::Tcp, detached(), 0, 0), &Calibration::default(), Policy::RemoteFetch)
            .expect("it applies");
    assert_eq!(decision.prices.local, Err(WhyNot::NotAttached("it runs on another host".to_owned())));
    assert!(decision.prices.remote_fetch.is_ok_and(|seconds| seconds > 0.0));
    assert!(decision.prices.remote_process.is_ok_and(|seconds| seconds > 0.0));
}

#[test]
fn prices_never_fall_when_there_is_more_to_do() {
    let cluster = cluster(Wire::Tcp, attached(), 0, 0);
    let calibration = Calibration::default();
    let small = price(&scan(128, 128, 0.1, 32.0), &cluster, &calibration);
    for larger in [scan(4096, 128, 0.1, 32.0), scan(128, 4096, 0.1, 32.0), scan(128, 128, 1.0, 32.0)] {
        let larger = price(&larger, &cluster, &calibration);
        for placement in Placement::ALL {
            let (small, larger) = (small.of(placement).as_ref(), larger.of(placement).as_ref());
            assert!(larger.expect("applies") >= small.expect("applies"), "{placement}");
        }
    }
}

#[test]
fn policies_are_read_by_the_names_they_are_shown_with() {
    for policy in Policy::ALL {
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
    let error = "remote".parse::<Policy>().expect_err("no such policy").to_string();
    assert_eq!(
        error,
        "placement \"remote\" is unknown, expected local, remote-fetch, remote-process or auto"
    );
}
