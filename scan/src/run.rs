//! What does a scan do next?
//!
//! A segment is scanned in windows of blocks, as many as the memory bound lets pages of the
//! program's columns be held. In each window: prune, ask for the filter's pages, select, ask for
//! the payload pages with selected rows, put out.
//!
//! Invariants
//! - A page of a window is held until no block from the one put out next needs it.
//! - A batch covers whole blocks; where one ends the next begins, so a scan can stop there and
//!   another go on.

use crate::{
    ScanError, ScanLimits,
    aggregate::{Grouping, Groups, direct::Direct},
    emit,
    error::{Fault, PageWhere},
    limits::{BATCH_ROWS_MIN, GROUPS_SHARE},
    narrow::Room,
    pages::{InputPages, InputView, Slot},
    plan::{Plan, check},
    project::Pick,
    quota::{Bounced, Meter, Quota, QuotaKind},
    select::Selector,
    selection::Selection,
    step::{ScanBatch, ScanStats, Step},
    text::LeafMemo,
    types::output_schema,
};
use arrow::{array::RecordBatch, datatypes::SchemaRef};
use rackscan_format::{
    ids::{ColumnId, PageNumber},
    limits::BLOCK_ROWS,
    page::{CheckedPage, PageFault, PageIdentity},
    program::{Output, VerifiedProgram},
    segment::SegmentDirectory,
    simd::Level,
    withheld::WithheldRows,
};
use std::{ops::Range, sync::Arc};

mod window;

/// Where in a window the scan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The window is yet to be planned.
    Plan,
    /// The filter's pages are read.
    Filter,
    /// The payload pages are read.
    Payload,
    /// Rows come out.
    Emit,
    /// All is out.
    Done,
}

/// The scan of one segment by one program. `P` owns the bytes of a page and is dropped as soon as
/// they are consumed.
pub struct SegmentScan<P> {
    plan: Plan,
    directory: Arc<SegmentDirectory>,
    /// The rows that are not there for this scan; `None` if all are.
    withheld: Option<Arc<WithheldRows>>,
    limits: ScanLimits,
    schema: SchemaRef,
    inputs: Vec<InputPages<P>>,
    stats: ScanStats,
    phase: Phase,
    window: Range<usize>,
    /// Pages asked for in this phase.
    wanted: Vec<PageWhere>,
    /// For each block of the window, whether it has rows that zone maps do not rule out, and its
    /// selected rows.
    alive: Vec<bool>,
    selections: Vec<Selection>,
    /// For each conjunct and block of the window, whether it must be evaluated there.
    undecided: Vec<Vec<bool>>,
    /// The first block that is not put out.
    next_block: usize,
    rows_left: usize,
    groups: Option<(Grouping, Groups)>,
    direct: Option<Direct>,
    /// Blocks before this one are not for the direct path.
    direct_from: usize,
    /// The first block whose rows are in `groups`.
    groups_from: usize,
    memos: Vec<Option<LeafMemo>>,
    room: Room,
    meter: Meter,
    /// The first block whose rows or groups are not out.
    out_before: usize,
}

impl<P: AsRef<[u8]>> SegmentScan<P> {
    /// A scan of the segment's blocks from `first_block` on.
    ///
    /// # Errors
    /// When program and segment do not belong together, or there is no such block.
    pub fn new(
        program: Arc<VerifiedProgram>,
        directory: Arc<SegmentDirectory>,
        first_block: u32,
        limits: ScanLimits,
    ) -> Result<Self, ScanError> {
        check(&program, &directory)?;
        let SegmentDirectory { table, segment, .. } = *directory;
        let (blocks, first) = (directory.blocks(), first_block as usize);
        if first > blocks {
            let expected = format!("at most {blocks}");
            let found = first_block.to_string();
            return Err(ScanError::Mismatch { table, segment, what: "the first block", found, expected });
        }
        let schema = output_schema(&program);
        let computation = |source| ScanError::Computation { table, segment, source };
        let plan = Plan::new(Arc::clone(&program)).map_err(computation)?;
        let inputs = program.program().inputs.iter().map(|input| {
            let entries = directory.chunk(input.column).map_or(&[][..], |chunk| &chunk.pages);
            InputPages::new(input, entries, blocks)
        });
        let inputs = inputs.collect();
        let groups = match Grouping::of(&program) {
            Some(grouping) => {
                let groups = Groups::new(&program, &grouping).map_err(computation)?;
                Some((grouping, groups))
            }
            None => None,
        };
        let direct = groups
            .as_ref()
            .and_then(|(grouping, _)| Direct::new(&program, grouping, limits.memory_bytes / GROUPS_SHARE));
        let memos = (0..plan.filter.text_leaves).map(|_| None).collect();
        let limits = ScanLimits { batch_rows: limits.batch_rows.max(BATCH_ROWS_MIN), ..limits };
        Ok(Self {
            plan,
            directory,
            withheld: None,
            limits,
            schema,
            inputs,
            stats: ScanStats::default(),
            phase: Phase::Plan,
            window: first..first,
            wanted: Vec::new(),
            alive: Vec::new(),
            selections: Vec::new(),
            undecided: Vec::new(),
            next_block: first,
            rows_left: program.program().limit_rows.map_or(usize::MAX, |rows| rows as usize),
            groups,
            direct,
            direct_from: first,
            groups_from: first,
            memos,
            room: Room::new(Level::chosen()),
            meter: Meter::default(),
            out_before: first,
        })
    }

    /// The same scan with kernels of a level, instead of [`Level::chosen`].
    #[must_use]
    pub fn at_level(mut self, level: Level) -> Self {
        self.room = Room::new(level);
        self
    }

    /// The same scan of a segment that does not have these rows, for a scan that has not begun.
    /// Rows that the segment never had are passed over; see [`WithheldRows::verify`].
    #[must_use]
    pub fn withholding(mut self, rows: Arc<WithheldRows>) -> Self {
        self.withheld = Some(rows).filter(|rows| !rows.is_empty());
        self
    }

    /// The same scan with a quota.
    #[must_use]
    pub fn with_quota(mut self, quota: Quota) -> Self {
        self.meter = Meter::new(quota);
        self
    }

    /// Goes on until pages are missing, rows are there, or all is done. Asks again for pages not
    /// yet supplied.
    ///
    /// # Errors
    /// When a page's content is impossible, the computation fails, or the quota is used up.
    pub fn step(&mut self) -> Result<Step, ScanError> {
        self.meter.start();
        let step = self.advance();
        self.meter.stop();
        self.stats.blocks_unpacked = self.room.scratch.unpacked_blocks();
        self.stats.keys_tested = self.room.searches.iter().map(|searches| searches.tested).sum();
        self.stats.keys_kept = self.room.searches.iter().map(|searches| searches.kept).sum();
        if let Ok(Step::Batch(batch)) = &step {
            self.out_before = batch.end_block as usize;
        }
        step.map_err(|fault| ScanError::of(fault, &self.directory, |input| self.inputs[input].column))
    }

    /// Takes a page that was asked for, and checks its identity and checksum.
    ///
    /// # Errors
    /// When the page is wrong (it may be supplied again, from another copy) or was not asked for.
    pub fn supply(&mut self, column: ColumnId, page: PageNumber, bytes: P) -> Result<(), ScanError> {
        self.supply_with(column, page, bytes, CheckedPage::open)
    }

    /// [`Self::supply`] of a copy of bytes that a scan has found right before, and that nobody has
    /// written since: their checksum is not worked out again.
    ///
    /// # Errors
    /// As [`Self::supply`], but for changed bytes.
    pub fn supply_unchanged(
        &mut self,
        column: ColumnId,
        page: PageNumber,
        bytes: P,
    ) -> Result<(), ScanError> {
        self.supply_with(column, page, bytes, CheckedPage::open_unchanged)
    }

    fn supply_with(
        &mut self,
        column: ColumnId,
        page: PageNumber,
        bytes: P,
        open: impl FnOnce(P, &PageIdentity) -> Result<CheckedPage<P>, PageFault>,
    ) -> Result<(), ScanError> {
        let SegmentDirectory { table, segment, .. } = *self.directory;
        let not_wanted = ScanError::NotWanted { table, segment, column, page };
        let Some(input) = self.inputs.iter().position(|input| input.column == column) else {
            return Err(not_wanted);
        };
        let place = PageWhere { input, page: page.0.into() };
        let entry = self.directory.page(column, page);
        let slot = self.inputs[input].slot_mut(place.page);
        let (Some(entry), Some(slot @ Slot::Wanted)) = (entry, slot) else { return Err(not_wanted) };
        let stored_bytes = bytes.as_ref().len();
        let checked = open(bytes, &self.directory.identity(column, page))
            .and_then(|checked| checked.view().expect_rows(entry.first_row, entry.rows).map(|()| checked));
        match checked {
            Ok(checked) => *slot = Slot::Held(checked),
            Err(fault) => return Err(ScanError::of(place.fault(fault), &self.directory, |_| column)),
        }
        self.stats.pages_read += 1;
        self.stats.bytes_read += stored_bytes as u64;
        Ok(())
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> ScanStats {
        self.stats
    }

    fn advance(&mut self) -> Result<Step, Fault> {
        loop {
            match self.phase {
                Phase::Plan => match self.next_window() {
                    Some(window) => {
                        self.window = window;
                        self.want_filter_pages();
                        self.check_quota()?;
                        self.phase = Phase::Filter;
                    }
                    None => {
                        self.phase = Phase::Done;
                        if let Some(batch) = self.last_groups()? {
                            return Ok(Step::Batch(batch));
                        }
                    }
                },
                Phase::Filter => match self.missing() {
                    Some(pages) => return Ok(Step::Read(pages)),
                    None => {
                        self.select()?;
                        self.want_payload_pages();
                        self.check_quota()?;
                        self.phase = Phase::Payload;
                    }
                },
                Phase::Payload => match self.missing() {
                    Some(pages) => return Ok(Step::Read(pages)),
                    None => self.phase = Phase::Emit,
                },
                Phase::Emit => match self.emit()? {
                    Some(batch) => return Ok(Step::Batch(batch)),
                    None => {
                        self.leave_window();
                        self.phase = Phase::Plan;
                    }
                },
                Phase::Done => return Ok(Step::Done),
            }
        }
    }

    /// Stops a scan that has used, or is about to use, more than it may.
    fn check_quota(&mut self) -> Result<(), Fault> {
        if let Some(over) = self.meter.over_cpu() {
            return Err(Fault::Bounced(bounced(QuotaKind::Cpu, over, self.out_before)));
        }
        let groups = self.groups.as_ref().map_or(0, |(_, groups)| groups.memory_bytes());
        match self.meter.over_memory(self.page_bytes() + groups) {
            Some(over) => Err(Fault::Bounced(bounced(QuotaKind::Memory, over, self.out_before))),
            None => Ok(()),
        }
    }

    /// Evaluates the conjuncts on the window's blocks.
    fn select(&mut self) -> Result<(), Fault> {
        let views = views_of(&self.inputs, self.window.clone());
        let mut selector = Selector {
            expressions: &self.plan.expressions,
            views: &views,
            memos: &mut self.memos,
            room: &mut self.room,
        };
        for (index, block) in self.window.clone().enumerate() {
            let turns = |input: &InputPages<P>| index > 0 && input.page_of(block) != input.page_of(block - 1);
            if self.meter.has_clock()
                && self.inputs.iter().any(turns)
                && let Some(over) = self.meter.over_cpu()
            {
                return Err(Fault::Bounced(bounced(QuotaKind::Cpu, over, self.out_before)));
            }
            let selection = &mut self.selections[index];
            for (conjunct, undecided) in self.plan.filter.conjuncts.iter().zip(&self.undecided) {
                if undecided[index] && !selection.is_empty() {
                    *selection = selector.select(conjunct, block, selection)?;
                }
            }
            if self.rows_left < BLOCK_ROWS {
                selection.truncate(self.rows_left);
            }
            let selected = selection.count();
            self.stats.rows_selected += selected as u64;
            self.rows_left -= selected;
        }
        drop(views);
        for input in (0..self.inputs.len()).filter(|input| !self.plan.payload_inputs.contains(input)) {
            self.inputs[input].consume_before(self.window.end);
        }
        Ok(())
    }

    /// The next batch of the window; `None` when its rows are out.
    fn emit(&mut self) -> Result<Option<ScanBatch>, Fault> {
        while self.next_block < self.window.end {
            self.check_quota()?;
            let first_block = self.next_block;
            let (batch, end) = match self.group_directly()? {
                Some(end) => (self.take_groups_if_full(end)?, end),
                None => {
                    let (picks, end) = self.picks(first_block);
                    (self.emit_picks(&picks, first_block, end)?, end)
                }
            };
            self.next_block = end;
            for input in &mut self.inputs {
                input.consume_before(end);
            }
            if batch.is_some() {
                return Ok(batch);
            }
        }
        Ok(None)
    }

    /// Groups the next run of blocks where they lie, if that can be; says where the run ended.
    fn group_directly(&mut self) -> Result<Option<usize>, Fault> {
        let (Some((_, groups)), Some(direct)) = (&mut self.groups, &mut self.direct) else { return Ok(None) };
        if self.next_block < self.direct_from {
            return Ok(None);
        }
        let blocks = self.next_block..self.window.end;
        let views = views_of(&self.inputs, blocks.clone());
        let (selections, start) = (&self.selections, self.window.start);
        let end =
            direct.add_run(&views, blocks, |block| selections[block - start], groups, &mut self.room)?;
        if end.is_none() {
            // What forbids it (a null, a wide key) seldom ends within a window: do not look for it
            // block after block.
            self.direct_from = self.window.end;
        }
        Ok(end)
    }

    fn take_groups_if_full(&mut self, end: usize) -> Result<Option<ScanBatch>, Fault> {
        let bytes = self.groups.as_ref().map_or(0, |(_, groups)| groups.memory_bytes());
        if bytes > self.limits.memory_bytes / GROUPS_SHARE { self.take_groups(end) } else { Ok(None) }
    }

    /// Blocks from `first_block` on with as many selected rows as a batch takes, and the block
    /// behind them.
    fn picks(&self, first_block: usize) -> (Vec<Pick>, usize) {
        let mut picks = Vec::new();
        let mut rows = 0;
        for block in first_block..self.window.end {
            let selection = self.selections[block - self.window.start];
            let here = selection.count();
            if rows + here > self.limits.batch_rows {
                return (picks, block);
            }
            if here > 0 {
                picks.push(Pick { block, selection, rows: here });
                rows += here;
            }
        }
        (picks, self.window.end)
    }

    fn emit_picks(
        &mut self,
        picks: &[Pick],
        first_block: usize,
        end: usize,
    ) -> Result<Option<ScanBatch>, Fault> {
        if picks.is_empty() {
            return Ok(None);
        }
        let views = views_of(&self.inputs, first_block..end);
        let segment = self.directory.segment;
        let Self { plan, room, schema, groups, .. } = self;
        if let Some((grouping, groups)) = groups {
            emit::group(plan, grouping, groups, &views, picks, room)?;
            drop(views);
            return self.take_groups_if_full(end);
        }
        let Output::Rows(nodes) = &plan.program().program().output else { return Ok(None) };
        let batch = emit::rows((plan, segment), nodes, schema, &views, picks, room)?;
        Ok(Some(ScanBatch { batch, first_block: number(first_block), end_block: number(end) }))
    }

    /// The groups so far as a batch, and an empty table in their place.
    fn take_groups(&mut self, end: usize) -> Result<Option<ScanBatch>, Fault> {
        let Some((grouping, groups)) = self.groups.take() else { return Ok(None) };
        self.groups = Some((grouping.clone(), Groups::new(self.plan.program(), &grouping)?));
        if groups.groups() == 0 {
            return Ok(None);
        }
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), groups.finish()?)?;
        let first_block = std::mem::replace(&mut self.groups_from, end);
        Ok(Some(ScanBatch { batch, first_block: number(first_block), end_block: number(end) }))
    }

    fn last_groups(&mut self) -> Result<Option<ScanBatch>, Fault> {
        self.take_groups(self.window.end)
    }
}

fn views_of<P: AsRef<[u8]>>(inputs: &[InputPages<P>], blocks: Range<usize>) -> Vec<InputView<'_>> {
    inputs.iter().enumerate().map(|(index, input)| input.views(index, blocks.clone())).collect()
}

/// Blocks of a segment are counted in 12 bits (`SEGMENT_ROWS_MAX`).
fn number(block: usize) -> u32 {
    u32::try_from(block).unwrap_or(u32::MAX)
}

fn bounced(quota: QuotaKind, (used, allowed): (u64, u64), next_block: usize) -> Bounced {
    Bounced { quota, used, allowed, next_block: number(next_block) }
}
