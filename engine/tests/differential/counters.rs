//! Counts how often the cases exercise what they are meant to test, such as pushed filters, bounced
//! segments and pruned pages.
//!
//! A fuzzer that no longer exercises one of them would find no fault and pass. So every count must
//! grow.

use crate::{rows::Answer, ways::Ended};
use rackscan_engine::{QueryReport, ScanReason, ScanReport};
use std::{collections::BTreeMap, fmt};

/// What happened in all cases so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) cases: u64,
    ways: u64,
    rows: u64,
    errors_agreed: u64,
    errors_of_some: u64,
    met: BTreeMap<&'static str, u64>,
}

/// What each run must meet, if it is not very short.
const TO_MEET: [&str; 14] = [
    "filter in the scan",
    "filter above the scan",
    "aggregate in the scan",
    "keys in the scan",
    "rows in the answer",
    "no rows in the answer",
    "pages skipped by zone maps",
    "pages skipped by selection",
    "several segments",
    "bounced",
    "bounced: queue",
    "bounced: CPU or memory quota",
    "two scans",
    "placed by price",
];

/// What a run of so many cases must meet besides: one in a hundred or fewer does.
const TO_MEET_IN_LONG: [&str; 2] = ["narrowed by operators above", "keys looked up in a filter"];
const LONG_CASES: u64 = 10_000;

impl Counters {
    /// A case that ended as it should.
    pub(crate) fn add(&mut self, expected: &Result<Answer, String>, ways: &[Ended]) {
        self.cases += 1;
        self.ways += ways.len() as u64 + 1;
        match expected {
            Ok(answer) => {
                self.errors_of_some += u64::from(ways.iter().any(|way| way.answer.is_err()));
                self.rows += answer.rows() as u64;
                self.meet(
                    if answer.rows() > 0 { "rows in the answer" } else { "no rows in the answer" },
                    true,
                );
            }
            Err(_) if ways.iter().all(|way| way.answer.is_err()) => self.errors_agreed += 1,
            Err(_) => self.errors_of_some += 1,
        }
        let mut here = Self::default();
        ways.iter().for_each(|way| here.look(&way.report, &way.scans));
        for what in here.met.into_keys() {
            self.meet(what, true);
        }
    }

    fn meet(&mut self, what: &'static str, is_met: bool) {
        if is_met {
            *self.met.entry(what).or_default() += 1;
        }
    }

    fn look(&mut self, report: &QueryReport, scans: &[ScanReport]) {
        self.meet("two scans", scans.len() > 1);
        for scan in scans {
            self.meet("filter in the scan", !scan.pushed_filter.is_empty());
            self.meet("filter above the scan", !scan.remaining_filter.is_empty());
            self.meet("aggregate in the scan", !scan.pushed_aggregates.is_empty());
            self.meet("keys in the scan", !scan.pushed_keys.is_empty());
            self.meet("several segments", scan.segments > 1);
            self.meet("narrowed by operators above", scan.runtime_filter.segments > 0);
        }
        let total = &report.total;
        self.meet("pages skipped by zone maps", total.work.pages_skipped_by_zone > 0);
        self.meet("pages skipped by selection", total.work.pages_skipped_by_selection > 0);
        self.meet("keys looked up in a filter", total.work.keys_tested > 0);
        self.meet("bounced", total.bounced > 0);
        for count in &total.reasons {
            match count.reason {
                ScanReason::BouncedQueue => self.meet("bounced: queue", true),
                ScanReason::BouncedCpuQuota | ScanReason::BouncedMemoryQuota => {
                    self.meet("bounced: CPU or memory quota", true);
                }
                ScanReason::Price => self.meet("placed by price", true),
                _ => {}
            }
        }
    }

    /// What no case met.
    pub(crate) fn missed(&self) -> Vec<&'static str> {
        let in_long = TO_MEET_IN_LONG.into_iter().filter(|_| self.cases >= LONG_CASES);
        TO_MEET.into_iter().chain(in_long).filter(|what| !self.met.contains_key(what)).collect()
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.cases += other.cases;
        self.ways += other.ways;
        self.rows += other.rows;
        self.errors_agreed += other.errors_agreed;
        self.errors_of_some += other.errors_of_some;
        for (what, count) in &other.met {
            *self.met.entry(what).or_default() += count;
        }
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cases, ways, rows, errors_agreed, errors_of_some, met } = self;
        write!(
            f,
            "{cases} cases, {ways} answers, {rows} rows, {errors_agreed} errors agreed, {errors_of_some} errors of some ways"
        )?;
        let share = |count: u64| count * 100 / (*cases).max(1);
        met.iter().try_for_each(|(what, count)| write!(f, "; {what} {} %", share(*count)))
    }
}
