//! Tests the corrections that a scan learns from its segments.
//!
//! Goal: measurements replace estimates soon, and no single measurement counts for more than
//! others. Method: segments whose true costs are drawn at random, observed as a cluster would
//! report them.

use proptest::prelude::*;
use rackscan_fabric::Wire;
use rackscan_format::{ids::NodeId, message::LoadReport};
use rackscan_planner::{
    Ahead, Attachment, Calibration, ClusterProfile, Demand, EXPLORE_EVERY, EXPLORE_LEFT_MIN, EngineProfile,
    Feedback, Measured, NodeProfile, NodeSpeed, Observed, PageDemand, Placement, Policy, Reason, ScanProfile,
    SpeedFactors, demand,
};

const NODE: NodeId = NodeId(1);
const ROWS: u64 = 131_072;
const PAGES: PageDemand = PageDemand { pages: 8, bytes: 1 << 20 };

fn expected(selectivity: f64) -> ScanProfile {
    ScanProfile {
        node: NODE,
        rows: ROWS,
        filter: PAGES,
        payload: PageDemand::default(),
        selectivity,
        filter_values_per_row: 4.0,
        output_values_per_row: 2.0,
        output_rows: 131_072.0 * selectivity,
        output_row_bytes: 24.0,
        cached: 0.0,
        repeated: false,
        rebuilt_from: 0.0,
        measured: Measured::default(),
    }
}

fn observed(selected: u64, engine_s: f64) -> Observed {
    Observed {
        rows_scanned: ROWS,
        rows_selected: selected,
        rows_out: selected,
        pages: PAGES,
        disk_bytes: PAGES.bytes,
        engine_s,
        ..Observed::default()
    }
}

fn cluster() -> ClusterProfile {
    let node = NodeProfile {
        wire: Wire::Tcp,
        attachment: Attachment::Detached("elsewhere".to_owned()),
        load: LoadReport { scan_workers: 2, ..LoadReport::default() },
        ahead: Ahead::default(),
        speed: SpeedFactors::default(),
        cached: 0.0,
        lost: false,
    };
    ClusterProfile {
        engine: EngineProfile { cores: 2, ahead: Ahead::default() },
        nodes: [(NODE, node)].into(),
    }
}

fn of(left: f64, right: f64) -> f64 {
    (left / right).max(right / left)
}

proptest! {
    #[test]
    fn whatever_was_estimated_five_segments_correct_it(
        estimated in 0.0001_f64..1.0,
        selected in 1000_u64..ROWS,
        cpu_ratio in 0.1_f64..10.0,
        outlier in 0_usize..5,
        outlier_rows in 0_u64..ROWS,
    ) {
        let calibration = Calibration::default();
        let (profile, node) = (expected(estimated), &cluster().nodes[&NODE]);
        let truth = f64::from(u32::try_from(selected).unwrap()) / 131_072.0;
        let really = ScanProfile { selectivity: truth, output_rows: truth * 131_072.0, ..profile };
        let engine_s = demand(&really, node, &calibration, Placement::RemoteFetch).engine_s * cpu_ratio;
        let mut feedback = Feedback::default();
        for segment in 0..5 {
            let selected = if segment == outlier { outlier_rows } else { selected };
            feedback.observe(&profile, Placement::RemoteFetch, &observed(selected, engine_s), &calibration);
        }
        let corrected = feedback.corrected(&profile);
        prop_assert!(of(corrected.selectivity, truth) < 1.2, "{} is not {truth}", corrected.selectivity);
        prop_assert!(of(corrected.output_rows, truth * 131_072.0) < 1.2);
        // Four of five agree on what it takes to compute; the fifth is off by what its rows were.
        let seconds = demand(&corrected, node, &calibration, Placement::RemoteFetch).engine_s;
        prop_assert!(of(seconds, engine_s) < 1.3, "{seconds} s are not {engine_s} s");
        prop_assert!((corrected.measured.node_cpu - corrected.measured.engine_cpu).abs() < 1e-9, "one program on both sides");
    }

    #[test]
    fn a_corrected_profile_is_a_possible_one(
        estimated in 0.0_f64..=1.0,
        selected in prop::collection::vec(0_u64..=ROWS, 0..12),
        engine_s in prop::num::f64::ANY,
    ) {
        let (calibration, profile) = (Calibration::default(), expected(estimated));
        let mut feedback = Feedback::default();
        for selected in selected {
            feedback.observe(&profile, Placement::Local, &observed(selected, engine_s), &calibration);
        }
        let corrected = feedback.corrected(&profile);
        prop_assert!((0.0..=1.0).contains(&corrected.selectivity));
        prop_assert!((0.0..=131_072.0).contains(&corrected.output_rows));
        let node = &cluster().nodes[&NODE];
        for placement in Placement::ALL {
            let Demand { device_s, wire_s, worker_s, node_s, node_cpu_s, engine_s, latency_s, messages_s } =
                demand(&corrected, node, &calibration, placement);
            for seconds in [device_s, wire_s, worker_s, node_s, node_cpu_s, engine_s, latency_s, messages_s] {
                prop_assert!(seconds.is_finite() && seconds >= 0.0, "{placement}: {seconds}");
            }
        }
    }

    #[test]
    fn work_that_was_added_and_removed_is_gone(seconds in prop::collection::vec(0.0_f64..10.0, 1..20)) {
        let mut ahead = Ahead::default();
        let demands = seconds.iter().map(|&s| Demand { device_s: s, wire_s: s / 3.0, engine_s: 0.1, ..Demand::default() });
        let demands: Vec<Demand> = demands.collect();
        demands.iter().for_each(|demand| ahead.add(demand));
        prop_assert!((ahead.demand.device_s - seconds.iter().sum::<f64>()).abs() < 1e-9);
        demands.iter().for_each(|demand| ahead.remove(demand));
        prop_assert_eq!(ahead, Ahead::default());
    }
}

#[test]
fn a_throttled_node_and_a_shaped_wire_are_seen_and_forgotten() {
    let calibration = Calibration::default();
    let mut speed = NodeSpeed::default();
    for _ in 0..4 {
        let scanned = Observed { node_cpu_s: 0.001, node_s: 0.010, ..observed(10, 0.0) };
        speed.observe(Placement::RemoteProcess, &scanned, Wire::Tcp, &calibration, 0.0);
        // A MiB at 50 MB/s, four at a time, the devices being quick.
        let fetched = Observed {
            wire_bytes: 1 << 20,
            wait_s: 4.0 * 0.021,
            read_s: 0.001,
            waiting: 4,
            ..observed(10, 0.0)
        };
        speed.observe(Placement::RemoteFetch, &fetched, Wire::Tcp, &calibration, 0.0);
    }
    let factors = speed.factors(0.0);
    assert!((9.0..11.0).contains(&factors.cpu), "{factors:?}");
    assert!((27.0..33.0).contains(&factors.wire), "1.5 GB/s were thought: {factors:?}");
    assert!(factors.fetch_known && factors.process_known);
    let later = speed.factors(600.0);
    assert!(later.cpu < 1.1 && later.wire < 1.1 && !later.process_known, "{later:?}");
}

#[test]
fn a_node_that_a_quota_stops_together_with_all_that_is_on_its_way_does_not_make_the_wire_look_narrow() {
    let calibration = Calibration::default();
    let mut speed = NodeSpeed::default();
    for wait_s in [0.001, 0.001, 0.09, 0.09, 0.09, 0.09] {
        let fetched = Observed { wire_bytes: 1 << 20, wait_s, waiting: 1, ..observed(10, 0.0) };
        speed.observe(Placement::RemoteFetch, &fetched, Wire::Tcp, &calibration, 0.0);
    }
    assert!(speed.factors(0.0).wire < 2.0, "{:?}", speed.factors(0.0));
}

#[test]
fn nothing_goes_aside_for_less_than_a_quotas_period_to_a_node_that_it_holds() {
    // Scans wait for the node's workers, and a fetch over the idle wire would end earlier.
    let placement = |cpu_milli| {
        let mut cluster = cluster();
        let node = cluster.nodes.get_mut(&NODE).expect("the node");
        node.load.cpu_milli = cpu_milli;
        node.speed = SpeedFactors { fetch_known: true, process_known: true, ..SpeedFactors::default() };
        node.speed.from_disk = Some(0.0);
        let scans = Demand { worker_s: 0.001, ..Demand::default() };
        (0..16).for_each(|_| node.ahead.add(&scans));
        let (calibration, mut feedback) = (Calibration::default(), Feedback::default());
        let decided = feedback.decide(&expected(0.01), &cluster, &calibration, Policy::Auto, 64);
        decided.expect("it is placed").placement
    };
    assert_eq!([placement(2000), placement(900)], [Placement::RemoteFetch, Placement::RemoteProcess]);
}

#[test]
fn scans_in_a_node_do_not_keep_alive_what_was_known_of_the_way_for_its_pages() {
    let calibration = Calibration::default();
    let mut speed = NodeSpeed::default();
    let fetched = Observed { wire_bytes: 1 << 20, wait_s: 0.021, waiting: 1, ..observed(10, 0.0) };
    let scanned = Observed { node_cpu_s: 0.001, node_s: 0.010, ..observed(10, 0.0) };
    speed.observe(Placement::RemoteFetch, &fetched, Wire::Tcp, &calibration, 0.0);
    for second in 1..=90 {
        speed.observe(Placement::RemoteProcess, &scanned, Wire::Tcp, &calibration, f64::from(second));
    }
    let factors = speed.factors(90.0);
    assert!(factors.process_known && !factors.fetch_known, "{factors:?}");
    assert!(factors.cpu > 9.0 && factors.wire < 2.0, "{factors:?}");
}

#[test]
fn what_fetches_found_in_a_nodes_cache_counts_for_the_scans_after_them_and_says_nothing_of_its_devices() {
    let calibration = Calibration::default();
    let nodes = cluster().nodes;
    let scan = ScanProfile { filter: PAGES, payload: PageDemand::default(), ..expected(1.0) };
    let whole_s = demand(&scan, &nodes[&NODE], &calibration, Placement::Local).device_s;
    let mut speed = NodeSpeed::default();
    assert_eq!(speed.factors(0.0).from_disk, None);
    for _ in 0..4 {
        // A quarter came from devices, which took three times as long as calibrated.
        let (disk_bytes, device_s) = (PAGES.bytes / 4, 3.0 * whole_s / 4.0);
        let fetched = Observed { disk_bytes, device_s, ..observed(10, 0.0) };
        speed.observe(Placement::RemoteFetch, &fetched, Wire::Tcp, &calibration, 0.0);
    }
    let factors = speed.factors(0.0);
    assert!((0.2..0.3).contains(&factors.from_disk.expect("it was measured")), "{factors:?}");
    assert!((2.8..3.2).contains(&factors.device), "{factors:?}");
    assert_eq!(speed.factors(600.0).from_disk, None, "caches change");
}

#[test]
fn a_segment_goes_elsewhere_to_learn_only_now_and_then_and_never_at_the_end() {
    let (calibration, cluster) = (Calibration::default(), cluster());
    let mut feedback = Feedback::default();
    let mut explored = Vec::new();
    for index in 0..200 {
        let decided = feedback.decide(&expected(0.01), &cluster, &calibration, Policy::Auto, 199 - index);
        if decided.expect("it is placed").reason == Reason::Explored {
            explored.push(index);
        }
    }
    // Of two placements that apply one is always tried, so that one is left to be explored, once.
    assert_eq!(explored, [EXPLORE_EVERY as usize]);
    let mut feedback = Feedback::default();
    for index in 0..EXPLORE_LEFT_MIN {
        let decided = feedback.decide(
            &expected(0.01),
            &cluster,
            &calibration,
            Policy::Auto,
            EXPLORE_LEFT_MIN - 1 - index,
        );
        assert_ne!(decided.expect("it is placed").reason, Reason::Explored);
    }
}

#[test]
fn pages_that_are_read_past_a_cache_again_go_through_it_unless_that_is_dear() {
    let (mut calibration, mut cluster) = (Calibration::default(), cluster());
    let node = cluster.nodes.get_mut(&NODE).expect("it is there");
    (node.attachment, node.wire) = (Attachment::Attached, Wire::Shm);
    let decided = |repeated: bool, calibration: &Calibration| {
        let segment = ScanProfile { repeated, ..expected(0.5) };
        let decision = Feedback::default().decide(&segment, &cluster, calibration, Policy::Auto, 3);
        let decision = decision.expect("it is placed");
        (decision.placement, decision.reason)
    };
    assert_eq!(decided(false, &calibration), (Placement::Local, Reason::Price));
    assert_eq!(decided(true, &calibration), (Placement::RemoteFetch, Reason::Kept));
    calibration.shm.bytes_per_s.value /= 100.0;
    assert_eq!(decided(true, &calibration), (Placement::Local, Reason::Price));
}

#[test]
fn a_forced_policy_is_obeyed_whatever_was_learned() {
    let (calibration, cluster) = (Calibration::default(), cluster());
    let mut feedback = Feedback::default();
    for _ in 0..20 {
        feedback.observe(&expected(0.5), Placement::RemoteFetch, &observed(1, 10.0), &calibration);
        let decided = feedback.decide(&expected(0.5), &cluster, &calibration, Policy::RemoteFetch, 100);
        let decided = decided.expect("it applies");
        assert_eq!((decided.placement, decided.reason), (Placement::RemoteFetch, Reason::Forced));
    }
}
