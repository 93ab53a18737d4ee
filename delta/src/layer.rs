//! Adds the changed rows of a table to scans of its segments: encodes them as runs, which are
//! segments in memory, and withholds their older versions.
//!
//! ```text
//! rows that have changed -> withheld from segments and older runs
//!                        -> their newest versions in a new run; small runs are merged
//! ```
//!
//! Invariants
//! - Every row is visible in exactly one place: an unchanged row in its segment, a changed one in
//!   one run, a deleted one in none. All other segments and runs that contain it withhold it.
//! - A view never changes. A query uses one view, even if changes are applied meanwhile.
//! - The cost of [`Layer::apply`] depends on the number of rows that have changed since the last
//!   call. A row is encoded again only when its run is merged with one at least half as long, so a
//!   logarithmic number of times.

use crate::{
    identity::RowIdentity,
    replica::TableRows,
    row::{self, Datum},
    run::{RUNS_FROM, Run, RunFault},
};
use rackscan_format::{
    chunk::Effort,
    ids::SegmentId,
    schema::TableDefinition,
    withheld::{WithheldError, WithheldRows},
};
use rackscan_ramp::timestamp::Timestamp;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

/// The maximum number of rows of a run.
pub const RUN_ROWS_MAX: usize = 1 << 16;
/// The maximum bytes of the rows of a run, as participants store them: offsets of texts are 32 bits
/// wide.
pub const RUN_BYTES_MAX: usize = 256 << 20;
/// A run of at least so many rows is written again when more than half of them are withheld.
const SPARSE_ROWS_MIN: usize = 1024;

/// Changed rows that cannot be scanned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayerFault {
    /// They cannot be encoded as a run.
    #[error(transparent)]
    Run(#[from] RunFault),
    /// A row number that no segment can have.
    #[error("the withheld rows of segment {segment} are not valid: {source}")]
    Withheld {
        /// The segment.
        segment: SegmentId,
        /// The reason.
        source: WithheldError,
    },
}

/// What a scan reads beside the segments, as of one point in time.
#[derive(Clone, Debug, Default)]
pub struct LayerView {
    /// For segments and runs, the rows that are withheld.
    pub withheld: BTreeMap<SegmentId, Arc<WithheldRows>>,
    /// The runs to scan as well.
    pub runs: Vec<Arc<Run>>,
}

impl LayerView {
    /// The identity of a row of a run or of a segment, and the timestamp of its version, which is
    /// [`Timestamp::FIRST`] in a segment.
    #[must_use]
    pub fn version(&self, segment: SegmentId, row: u32) -> Option<(RowIdentity, Timestamp)> {
        if segment < RUNS_FROM {
            return Some((RowIdentity::Stored { segment, row }, Timestamp::FIRST));
        }
        self.runs.iter().find(|run| run.segment() == segment)?.version(row)
    }
}

/// The changed rows of a table, ready for scans. Copies share their runs.
#[derive(Clone, Debug)]
pub struct Layer {
    definition: Arc<TableDefinition>,
    runs: Vec<Arc<Run>>,
    /// For segments and runs, the rows that are withheld.
    withheld_rows: BTreeMap<SegmentId, BTreeSet<u32>>,
    withheld: BTreeMap<SegmentId, Arc<WithheldRows>>,
    /// For segments, the rows that the table version withholds by itself.
    flushed: Arc<BTreeMap<SegmentId, Arc<WithheldRows>>>,
    /// For each row in a run, the run and the row number.
    places: HashMap<RowIdentity, (SegmentId, u32)>,
    next: SegmentId,
}

impl Layer {
    /// An empty layer over a table version that withholds these rows of its segments.
    #[must_use]
    pub fn new(
        definition: Arc<TableDefinition>,
        flushed: Arc<BTreeMap<SegmentId, Arc<WithheldRows>>>,
    ) -> Self {
        let (withheld_rows, places) = (BTreeMap::new(), HashMap::new());
        let withheld = BTreeMap::clone(&flushed);
        Self { definition, runs: Vec::new(), withheld_rows, withheld, flushed, places, next: RUNS_FROM }
    }

    /// The withheld rows of a segment or run, to add to.
    fn withheld_of(&mut self, segment: SegmentId) -> &mut BTreeSet<u32> {
        let flushed = &self.flushed;
        self.withheld_rows
            .entry(segment)
            .or_insert_with(|| flushed.get(&segment).map(|rows| rows.rows().collect()).unwrap_or_default())
    }

    /// The view for scans from now on.
    #[must_use]
    pub fn view(&self) -> LayerView {
        LayerView { withheld: self.withheld.clone(), runs: self.runs.clone() }
    }

    /// Applies the new versions of changed rows of the table.
    ///
    /// # Errors
    /// [`LayerFault`]; the layer must not be used then.
    pub fn apply(
        &mut self,
        rows: &TableRows,
        changed: impl IntoIterator<Item = RowIdentity>,
    ) -> Result<(), LayerFault> {
        let touched = self.take(rows, changed)?;
        self.merge_runs(rows)?;
        self.withhold(&touched)
    }

    /// As [`Self::apply`], but merges no runs: so `rows` need not contain other rows than the
    /// changed ones.
    ///
    /// # Errors
    /// [`LayerFault`]; the layer must not be used then.
    pub fn lay_over(
        &mut self,
        rows: &TableRows,
        changed: impl IntoIterator<Item = RowIdentity>,
    ) -> Result<(), LayerFault> {
        let touched = self.take(rows, changed)?;
        self.withhold(&touched)
    }

    /// Withholds the old versions of changed rows, and writes runs of the new ones. Returns the
    /// segments and runs of which more rows are withheld.
    fn take(
        &mut self,
        rows: &TableRows,
        changed: impl IntoIterator<Item = RowIdentity>,
    ) -> Result<BTreeSet<SegmentId>, LayerFault> {
        let (mut touched, mut fresh) = (BTreeSet::new(), Vec::new());
        for row in changed {
            if let RowIdentity::Stored { segment, row } = row
                && self.withheld_of(segment).insert(row)
            {
                touched.insert(segment);
            }
            if let Some((run, place)) = self.places.remove(&row) {
                self.withheld_rows.entry(run).or_default().insert(place);
                touched.insert(run);
            }
            if rows.row(row).is_some_and(|version| version.value.bytes().is_some()) {
                fresh.push(row);
            }
        }
        self.lay_out(rows, &fresh)?;
        Ok(touched)
    }

    /// Adds new runs of these rows.
    fn lay_out(&mut self, rows: &TableRows, fresh: &[RowIdentity]) -> Result<(), LayerFault> {
        let (mut run, mut timestamps, mut bytes) = (Vec::new(), Vec::new(), 0);
        for identity in fresh {
            let Some(version) = rows.row(*identity) else { continue };
            let Some(value) = version.value.bytes() else { continue };
            if run.len() == RUN_ROWS_MAX || bytes + value.len() > RUN_BYTES_MAX {
                self.add(&std::mem::take(&mut run), std::mem::take(&mut timestamps))?;
                bytes = 0;
            }
            let datums = row::decode(&self.definition, value)
                .map_err(|source| RunFault::Row { row: *identity, source })?;
            bytes += value.len();
            run.push((*identity, datums));
            timestamps.push(version.timestamp);
        }
        self.add(&run, timestamps)
    }

    fn add(
        &mut self,
        rows: &[(RowIdentity, Vec<Datum>)],
        timestamps: Vec<Timestamp>,
    ) -> Result<(), LayerFault> {
        if rows.is_empty() {
            return Ok(());
        }
        let segment = self.number();
        let run = Run::encode(&self.definition, segment, rows, Effort::Quick)?.with_timestamps(timestamps);
        self.places.extend(rows.iter().zip(0..).map(|((row, _), place)| (*row, (segment, place))));
        self.runs.push(Arc::new(run));
        Ok(())
    }

    /// An unused number for a run.
    fn number(&mut self) -> SegmentId {
        loop {
            let number = self.next;
            self.next = SegmentId(number.0.checked_add(1).unwrap_or(RUNS_FROM.0));
            if self.runs.iter().all(|run| run.segment() != number) {
                return number;
            }
        }
    }

    /// The number of rows of a run that are not withheld.
    fn live(&self, run: &Run) -> usize {
        run.rows().len() - self.withheld_rows.get(&run.segment()).map_or(0, BTreeSet::len)
    }

    /// Merges runs that have become short relative to the newer one after them, rewrites sparse
    /// ones, and removes empty ones.
    fn merge_runs(&mut self, rows: &TableRows) -> Result<(), LayerFault> {
        let sparse = |layer: &Self, run: &Run| {
            let (live, all) = (layer.live(run), run.rows().len());
            live == 0 || (all >= SPARSE_ROWS_MIN && live < all / 2)
        };
        let (again, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.runs).into_iter().partition(|run| sparse(self, run));
        self.runs = kept;
        self.lay_out_again(rows, &again)?;
        while let [.., older, newer] = self.runs.as_slice() {
            let (one, other, before) = (self.live(older), self.live(newer), self.runs.len());
            if one > 2 * other || one + other > RUN_ROWS_MAX {
                break;
            }
            let pair = self.runs.split_off(before - 2);
            self.lay_out_again(rows, &pair)?;
            if self.runs.len() >= before {
                // Merged, they would have too many bytes for one run.
                break;
            }
        }
        Ok(())
    }

    fn lay_out_again(&mut self, rows: &TableRows, runs: &[Arc<Run>]) -> Result<(), LayerFault> {
        let mut live = Vec::new();
        for run in runs {
            let segment = run.segment();
            let is_there = |row: &&RowIdentity| self.places.get(row).is_some_and(|(run, _)| *run == segment);
            live.extend(run.rows().iter().filter(is_there).copied());
            self.withheld_rows.remove(&segment);
            self.withheld.remove(&segment);
        }
        self.lay_out(rows, &live)
    }

    fn withhold(&mut self, touched: &BTreeSet<SegmentId>) -> Result<(), LayerFault> {
        for segment in touched {
            // The run may have been merged since.
            let Some(rows) = self.withheld_rows.get(segment) else { continue };
            let rows = WithheldRows::of(rows.iter().copied())
                .map_err(|source| LayerFault::Withheld { segment: *segment, source })?;
            self.withheld.insert(*segment, Arc::new(rows));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
