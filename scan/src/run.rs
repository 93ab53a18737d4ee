//! Implements the state machine of a segment scan.
//!
//! A segment is scanned in windows of blocks, which are as large as the memory bound allows for the
//! pages of the program's columns. For each window, the scan prunes by zone maps, requests the
//! pages of the filter's columns, selects rows, requests the pages of the output's columns that
//! contain selected rows, and emits batches.
//!
//! Invariants
//! - A page is kept in memory as long as the next block to be emitted, or a later block of the
//!   window, needs it.
//! - A batch covers whole blocks, and the next batch begins where it ends. So a scan can stop after
//!   any batch, and another scan can continue there.

use crate::{
    ScanError, ScanLimits,
    aggregate::{Grouping, Groups, direct::Direct},
    emit,
    error::{Fault, PagePosition},
    limits::{BATCH_ROWS_MIN, GROUPS_SHARE},
    narrow::Buffers,
    pages::{InputPages, InputView, Slot},
    plan::{Plan, check},
    project::BlockPick,
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

/// The state of the scan within its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The window has not been chosen yet.
    Plan,
    /// Waits for the filter's pages.
    Filter,
    /// Waits for the payload pages.
    Payload,
    /// Emits batches.
    Emit,
    /// All batches were emitted.
    Done,
}

/// The scan of one segment by one program. `P` owns the bytes of a page; the scan drops it as soon
/// as it has consumed the page.
pub struct SegmentScan<P> {
    plan: Plan,
    directory: Arc<SegmentDirectory>,
    /// The rows that this scan leaves out; `None` if there are none.
    withheld: Option<Arc<WithheldRows>>,
    limits: ScanLimits,
    schema: SchemaRef,
    inputs: Vec<InputPages<P>>,
    stats: ScanStats,
    phase: Phase,
    window: Range<usize>,
    /// Pages requested in this phase.
    wanted: Vec<PagePosition>,
    /// For each block of the window: whether zone maps allow a matching row, and its selected rows.
    alive: Vec<bool>,
    selections: Vec<Selection>,
    /// For each conjunct and block of the window: whether the conjunct must be evaluated there.
    undecided: Vec<Vec<bool>>,
    /// The first block that was not emitted.
    next_block: usize,
    rows_left: usize,
    groups: Option<(Grouping, Groups)>,
    direct: Option<Direct>,
    /// Blocks before this one cannot use the direct path.
    direct_from: usize,
    /// The first block whose rows are in `groups`.
    groups_from: usize,
    memos: Vec<Option<LeafMemo>>,
    buffers: Buffers,
    meter: Meter,
    /// The first block whose rows or groups were not yielded to the caller.
    first_unyielded_block: usize,
}

impl<P: AsRef<[u8]>> SegmentScan<P> {
    /// A scan of the segment's blocks from `first_block` on.
    ///
    /// # Errors
    /// If program and segment do not belong together, or `first_block` is beyond the segment.
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
            buffers: Buffers::new(Level::chosen()),
            meter: Meter::default(),
            first_unyielded_block: first,
        })
    }

    /// The same scan with the kernels of `level` instead of [`Level::chosen`].
    ///
    /// # Panics
    /// If the scan has begun.
    #[must_use]
    pub fn at_level(mut self, level: Level) -> Self {
        self.expect_not_begun();
        self.buffers = Buffers::new(level);
        self
    }

    /// The same scan without these rows. Rows beyond the segment are ignored; see
    /// [`WithheldRows::verify`].
    ///
    /// # Panics
    /// If the scan has begun: it may have answered some of them.
    #[must_use]
    pub fn withholding(mut self, rows: Arc<WithheldRows>) -> Self {
        self.expect_not_begun();
        self.withheld = Some(rows).filter(|rows| !rows.is_empty());
        self
    }

    /// The same scan with a quota.
    ///
    /// # Panics
    /// If the scan has begun.
    #[must_use]
    pub fn with_quota(mut self, quota: Quota) -> Self {
        self.expect_not_begun();
        self.meter = Meter::new(quota);
        self
    }

    /// A scan that has begun has chosen a window, or is done.
    fn expect_not_begun(&self) {
        let is_new = matches!(self.phase, Phase::Plan) && self.window.is_empty();
        assert!(is_new, "a scan is changed after its first step");
    }

    /// Continues until pages are missing, a batch is ready, or the scan is done. While requested
    /// pages are missing, each call requests them again.
    ///
    /// # Errors
    /// If a page's content is invalid, the computation fails, or the quota is exceeded.
    pub fn step(&mut self) -> Result<Step, ScanError> {
        self.meter.start();
        let step = self.advance();
        self.meter.stop();
        self.stats.blocks_unpacked = self.buffers.scratch.unpacked_blocks();
        self.stats.keys_tested =
            self.buffers.key_filter_uses.iter().map(|key_filter_uses| key_filter_uses.tested).sum();
        self.stats.keys_kept =
            self.buffers.key_filter_uses.iter().map(|key_filter_uses| key_filter_uses.kept).sum();
        if let Ok(Step::Batch(batch)) = &step {
            self.first_unyielded_block = batch.end_block as usize;
        }
        step.map_err(|fault| ScanError::of(fault, &self.directory, |input| self.inputs[input].column))
    }

    /// Takes a requested page and checks its identity and checksum.
    ///
    /// # Errors
    /// If the page is wrong (another copy of it may be supplied then) or was not requested.
    pub fn supply(&mut self, column: ColumnId, page: PageNumber, bytes: P) -> Result<(), ScanError> {
        self.supply_with(column, page, bytes, CheckedPage::open)
    }

    /// Like [`Self::supply`], for bytes that a scan has already checked and that nobody has written
    /// since: the checksum is not computed again.
    ///
    /// # Errors
    /// As [`Self::supply`], except that changed bytes are not detected.
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
        let place = PagePosition { input, page: page.0.into() };
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

    /// Counters of the work so far.
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
                        self.request_filter_pages();
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
                        self.request_payload_pages();
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

    /// Stops a scan that has exceeded, or is about to exceed, its quota.
    fn check_quota(&mut self) -> Result<(), Fault> {
        if let Some(over) = self.meter.over_cpu() {
            return Err(Fault::Bounced(bounced(QuotaKind::Cpu, over, self.first_unyielded_block)));
        }
        let groups = self.groups.as_ref().map_or(0, |(_, groups)| groups.memory_bytes());
        match self.meter.over_memory(self.page_bytes() + groups) {
            Some(over) => Err(Fault::Bounced(bounced(QuotaKind::Memory, over, self.first_unyielded_block))),
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
            buffers: &mut self.buffers,
        };
        for (index, block) in self.window.clone().enumerate() {
            let page_changes =
                |input: &InputPages<P>| index > 0 && input.page_of(block) != input.page_of(block - 1);
            if self.meter.has_clock()
                && self.inputs.iter().any(page_changes)
                && let Some(over) = self.meter.over_cpu()
            {
                return Err(Fault::Bounced(bounced(QuotaKind::Cpu, over, self.first_unyielded_block)));
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

    /// The next batch of the window; `None` if all its rows were emitted.
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

    /// Groups the next run of blocks on their packed values, if possible, and returns the block
    /// after the run.
    fn group_directly(&mut self) -> Result<Option<usize>, Fault> {
        let (Some((_, groups)), Some(direct)) = (&mut self.groups, &mut self.direct) else { return Ok(None) };
        if self.next_block < self.direct_from {
            return Ok(None);
        }
        let blocks = self.next_block..self.window.end;
        let views = views_of(&self.inputs, blocks.clone());
        let (selections, start) = (&self.selections, self.window.start);
        let end =
            direct.add_run(&views, blocks, |block| selections[block - start], groups, &mut self.buffers)?;
        if end.is_none() {
            // The obstacle (a null, a wide key) seldom ends within a window, so the rest of the
            // window takes the general path.
            self.direct_from = self.window.end;
        }
        Ok(end)
    }

    fn take_groups_if_full(&mut self, end: usize) -> Result<Option<ScanBatch>, Fault> {
        let bytes = self.groups.as_ref().map_or(0, |(_, groups)| groups.memory_bytes());
        if bytes > self.limits.memory_bytes / GROUPS_SHARE { self.take_groups(end) } else { Ok(None) }
    }

    /// Blocks from `first_block` on with as many selected rows as a batch can hold, and the block
    /// after them.
    fn picks(&self, first_block: usize) -> (Vec<BlockPick>, usize) {
        let mut picks = Vec::new();
        let mut rows = 0;
        for block in first_block..self.window.end {
            let selection = self.selections[block - self.window.start];
            let here = selection.count();
            if rows + here > self.limits.batch_rows {
                return (picks, block);
            }
            if here > 0 {
                picks.push(BlockPick { block, selection, rows: here });
                rows += here;
            }
        }
        (picks, self.window.end)
    }

    fn emit_picks(
        &mut self,
        picks: &[BlockPick],
        first_block: usize,
        end: usize,
    ) -> Result<Option<ScanBatch>, Fault> {
        if picks.is_empty() {
            return Ok(None);
        }
        let views = views_of(&self.inputs, first_block..end);
        let segment = self.directory.segment;
        let Self { plan, buffers, schema, groups, .. } = self;
        if let Some((grouping, groups)) = groups {
            emit::group(plan, grouping, groups, &views, picks, buffers)?;
            drop(views);
            return self.take_groups_if_full(end);
        }
        let Output::Rows(nodes) = &plan.program().program().output else { return Ok(None) };
        let batch = emit::rows((plan, segment), nodes, schema, &views, picks, buffers)?;
        Ok(Some(ScanBatch { batch, first_block: number(first_block), end_block: number(end) }))
    }

    /// Returns the groups so far as a batch, and starts an empty table.
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

fn number(block: usize) -> u32 {
    u32::try_from(block).expect("the number of a block: the rows of a segment are counted in 32 bits")
}

fn bounced(quota: QuotaKind, (used, allowed): (u64, u64), next_block: usize) -> Bounced {
    Bounced { quota, used, allowed, next_block: number(next_block) }
}
