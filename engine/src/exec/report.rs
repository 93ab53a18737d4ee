//! Builds the report of a scan, for EXPLAIN.
//!
//! The report is computed from directories and counters, and only for EXPLAIN: other queries have
//! no cost for it.

use super::{
    ScanExec,
    profile::{self, rounded},
};
use crate::{
    report::{
        ConjunctZones, PlacementPrice, RuntimeFilterConjunct, RuntimeFilterReport, ScanReport, SegmentCounts,
    },
    runtime_filter::Report,
    sql_text::SqlText,
};
use rackscan_format::{
    ids::NodeId,
    program::{Node, NodeIndex, Output, ScanProgram, VerifiedProgram},
    segment::SegmentDirectory,
};
use rackscan_planner::{Placement, Price, ScanProfile, plan, price_all};
use rackscan_scan::Estimator;
use std::{collections::BTreeMap, sync::Arc};

impl ScanExec {
    /// What EXPLAIN shows of this scan.
    pub(crate) fn report(&self) -> ScanReport {
        let text = SqlText::new(&self.request.program, &self.snapshot.definition);
        let (pushed_aggregates, pushed_keys) = text.groups().unwrap_or_default();
        let (planned, prices) = self.prices();
        ScanReport {
            table: self.request.table.clone(),
            columns: text.columns(),
            pushed_filter: text.filter(),
            remaining_filter: Vec::new(),
            pushed_aggregates,
            pushed_keys,
            policy: self.request.policy,
            segments: self.snapshot.stored().count() as u64,
            partitions: self.request.partitions.len() as u64,
            rows: self.snapshot.rows(),
            rows_withheld: self.snapshot.rows_withheld(),
            rows_beside: self.snapshot.rows_beside(),
            // Zone maps also cover withheld rows.
            estimated_rows: rounded(self.rows_selected()).min(self.snapshot.rows()),
            planned,
            zone_maps: self.zone_maps(&self.program, 0),
            runtime_filter: self.runtime_filter_report(),
            prices,
            actual: self.figures(),
        }
    }

    /// The placements that would be chosen for the segments, and the price of each placement for
    /// all segments: before the scan, and with what was learned since.
    fn prices(&self) -> (SegmentCounts, BTreeMap<Placement, PlacementPrice>) {
        let (idle, calibration) = (self.query.cluster_profile().idle(), &self.query.calibration);
        let estimator = Estimator::new(&self.program);
        let profile = |(node, directory): &(NodeId, Arc<SegmentDirectory>)| {
            let rebuilt_from = self.query.rebuilt_from(&self.snapshot.definition, *node, directory);
            let estimate = estimator.estimate(directory);
            ScanProfile { rebuilt_from, ..profile::profile(&self.program, *node, &estimate, &self.snapshot) }
        };
        let profiles: Vec<ScanProfile> = self.snapshot.stored().map(profile).collect();
        let unknown = idle.unknown();
        let mut planned = SegmentCounts::default();
        // Segments that cannot be placed are missing in the counts; the prices say why.
        for decision in plan(&profiles, &unknown, calibration, self.request.policy).unwrap_or_default() {
            *planned.of_mut(decision.placement) += 1;
        }
        let feedback = self.steering.feedback();
        let corrected: Vec<ScanProfile> =
            profiles.iter().map(|profile| feedback.corrected(profile)).collect();
        let first = price_all(&profiles, &unknown, calibration);
        let last = price_all(&corrected, &idle, calibration);
        let ms = |price: &Price| price.as_ref().ok().map(|seconds| seconds * 1e3);
        let has_run = self.counters.figures().is_some();
        let prices = Placement::ALL.map(|placement| {
            let price = PlacementPrice {
                milliseconds: ms(first.of(placement)),
                corrected_milliseconds: ms(last.of(placement)).filter(|_| has_run),
                why_not: last.of(placement).as_ref().err().map(ToString::to_string),
            };
            (placement, price)
        });
        (planned, prices.into())
    }

    /// How operators above narrowed the scan, and which index was used.
    fn runtime_filter_report(&self) -> RuntimeFilterReport {
        let Report { sources, last, segments, keys_given_up } = self.runtime_filter.report(&self.snapshot);
        let conjuncts = last.map(|(program, conjuncts)| {
            let own = program.program().filter.len() - conjuncts;
            let text = SqlText::new(program.program(), &self.snapshot.definition).filter();
            let zones = self.zone_maps(&program, own);
            let conjunct = |(sql, zone_maps)| RuntimeFilterConjunct { sql, zone_maps };
            text.into_iter().skip(own).zip(zones).map(conjunct).collect()
        });
        let by_index = self.lookup.iter().map(|lookup| format!("index {}", lookup.index()));
        let sources = by_index.chain(sources).collect();
        RuntimeFilterReport { sources, conjuncts: conjuncts.unwrap_or_default(), segments, keys_given_up }
    }

    /// What the zone maps of each conjunct from `first` on rule out by themselves, over all columns
    /// that the scan may read.
    fn zone_maps(&self, program: &VerifiedProgram, first: usize) -> Vec<ConjunctZones> {
        let (key_filters, program) = (program.key_filters(), program.program());
        let columns = (0..).zip(&program.nodes).filter(|(_, node)| matches!(node, Node::Column(_)));
        let columns: Vec<NodeIndex> = columns.map(|(index, _)| index).collect();
        let alone = |&conjunct: &NodeIndex| {
            let output = Output::Rows(columns.clone());
            let alone = ScanProgram { filter: vec![conjunct], output, limit_rows: None, ..program.clone() };
            // A conjunct of a valid program is valid by itself. If it were not, nothing would be
            // reported as ruled out.
            let alone = alone.verify(&self.snapshot.definition);
            let Ok(alone) = alone.and_then(|alone| alone.with_key_filters(key_filters.to_vec())) else {
                return ConjunctZones::default();
            };
            let directories = self.snapshot.segments.values();
            let (mut zones, estimator) = (ConjunctZones::default(), Estimator::new(&Arc::new(alone)));
            for (_, directory) in directories {
                let estimate = estimator.estimate(directory);
                let pages_needed = estimate.pages_filter + estimate.pages_payload;
                zones.rows_ruled_out += estimate.rows_total.saturating_sub(estimate.rows_max);
                zones.pages_ruled_out += estimate.pages_total.saturating_sub(pages_needed);
            }
            zones
        };
        program.filter.iter().skip(first).map(alone).collect()
    }
}
