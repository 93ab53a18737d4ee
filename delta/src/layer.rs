//! What lies over the segments of a table, for scans?
//!
//! ```text
//! rows that have changed -> [withheld] from segments and older runs
//!                        -> a new run of their newest versions, small ones put together
//! ```
//!
//! Invariants
//! - Every row is in exactly one place that is not withheld: in its segment, if nobody changed it,
//!   or in one run; a deleted one in none.
//! - A view never changes. A query keeps one, whatever is applied meanwhile.
//! - What one application costs follows from how many rows have changed since the last one: a row
//!   is laid out again only when its run is put together with one at least half as long, so a
//!   logarithm of times.

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

/// Rows of the longest run.
pub const RUN_ROWS_MAX: usize = 1 << 16;
/// Bytes of rows, as homes store them, of the longest run: offsets of texts are 32 bits wide.
pub const RUN_BYTES_MAX: usize = 256 << 20;
/// A run that has lost more than half of at least so many rows is laid out again.
const SPARSE_ROWS_MIN: usize = 1024;

/// Changed rows that no scan can be given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayerFault {
    /// They cannot be laid out.
    #[error(transparent)]
    Run(#[from] RunFault),
    /// A row that no segment can have.
    #[error("segment {segment}: {source}")]
    Withheld {
        /// The segment.
        segment: SegmentId,
        /// What is wrong.
        source: WithheldError,
    },
}

/// What a scan is given beside the segments, at one moment.
#[derive(Clone, Debug, Default)]
pub struct LayerView {
    /// Of segments and of runs, the rows that are not there.
    pub withheld: BTreeMap<SegmentId, Arc<WithheldRows>>,
    /// What is to be scanned as well.
    pub runs: Vec<Arc<Run>>,
}

impl LayerView {
    /// Which row of a run, or of a segment, has this place, and the timestamp of its version;
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
    /// Of segments and runs, the rows that are not there.
    gone: BTreeMap<SegmentId, BTreeSet<u32>>,
    withheld: BTreeMap<SegmentId, Arc<WithheldRows>>,
    /// Of segments, the rows that were sealed as not there.
    sealed: Arc<BTreeMap<SegmentId, Arc<WithheldRows>>>,
    /// Where in a run a row is that is in one.
    places: HashMap<RowIdentity, (SegmentId, u32)>,
    next: SegmentId,
}

impl Layer {
    /// Nothing lies over the table, of whose segments these rows are not there already.
    #[must_use]
    pub fn new(
        definition: Arc<TableDefinition>,
        sealed: Arc<BTreeMap<SegmentId, Arc<WithheldRows>>>,
    ) -> Self {
        let (gone, places) = (BTreeMap::new(), HashMap::new());
        let withheld = BTreeMap::clone(&sealed);
        Self { definition, runs: Vec::new(), gone, withheld, sealed, places, next: RUNS_FROM }
    }

    /// What is not there of a segment or run, to be added to.
    fn gone_of(&mut self, segment: SegmentId) -> &mut BTreeSet<u32> {
        let sealed = &self.sealed;
        self.gone
            .entry(segment)
            .or_insert_with(|| sealed.get(&segment).map(|rows| rows.rows().collect()).unwrap_or_default())
    }

    /// What scans are given from now on.
    #[must_use]
    pub fn view(&self) -> LayerView {
        LayerView { withheld: self.withheld.clone(), runs: self.runs.clone() }
    }

    /// Takes what these rows of the table have become.
    ///
    /// # Errors
    /// [`LayerFault`]; the layer is of no use then.
    pub fn apply(
        &mut self,
        rows: &TableRows,
        changed: impl IntoIterator<Item = RowIdentity>,
    ) -> Result<(), LayerFault> {
        let touched = self.take(rows, changed)?;
        self.put_together(rows)?;
        self.withhold(&touched)
    }

    /// The same, but runs are left as they are: `rows` need not know of others than the changed
    /// ones.
    ///
    /// # Errors
    /// [`LayerFault`]; the layer is of no use then.
    pub fn lay_over(
        &mut self,
        rows: &TableRows,
        changed: impl IntoIterator<Item = RowIdentity>,
    ) -> Result<(), LayerFault> {
        let touched = self.take(rows, changed)?;
        self.withhold(&touched)
    }

    /// Withholds what was there of changed rows, and lays out what they are now. Where something is
    /// withheld that was not before.
    fn take(
        &mut self,
        rows: &TableRows,
        changed: impl IntoIterator<Item = RowIdentity>,
    ) -> Result<BTreeSet<SegmentId>, LayerFault> {
        let (mut touched, mut fresh) = (BTreeSet::new(), Vec::new());
        for row in changed {
            if let RowIdentity::Stored { segment, row } = row
                && self.gone_of(segment).insert(row)
            {
                touched.insert(segment);
            }
            if let Some((run, place)) = self.places.remove(&row) {
                self.gone.entry(run).or_default().insert(place);
                touched.insert(run);
            }
            if rows.row(row).is_some_and(|version| version.value.bytes().is_some()) {
                fresh.push(row);
            }
        }
        self.lay_out(rows, &fresh)?;
        Ok(touched)
    }

    /// New runs of these rows.
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

    /// A number that no run has.
    fn number(&mut self) -> SegmentId {
        loop {
            let number = self.next;
            self.next = SegmentId(number.0.checked_add(1).unwrap_or(RUNS_FROM.0));
            if self.runs.iter().all(|run| run.segment() != number) {
                return number;
            }
        }
    }

    /// Rows of a run that are there.
    fn live(&self, run: &Run) -> usize {
        run.rows().len() - self.gone.get(&run.segment()).map_or(0, BTreeSet::len)
    }

    /// Lays runs out again that have become short beside those behind them, or sparse; takes empty
    /// ones away.
    fn put_together(&mut self, rows: &TableRows) -> Result<(), LayerFault> {
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
                // Together they would have too many bytes.
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
            self.gone.remove(&segment);
            self.withheld.remove(&segment);
        }
        self.lay_out(rows, &live)
    }

    fn withhold(&mut self, touched: &BTreeSet<SegmentId>) -> Result<(), LayerFault> {
        for segment in touched {
            // A run may have been put together with others since.
            let Some(rows) = self.gone.get(segment) else { continue };
            let rows = WithheldRows::of(rows.iter().copied())
                .map_err(|source| LayerFault::Withheld { segment: *segment, source })?;
            self.withheld.insert(*segment, Arc::new(rows));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
