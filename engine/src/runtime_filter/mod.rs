//! Narrows the scans of a running query: adds conditions to a scan's filter for rows that joins and
//! top-k operators above it would drop.
//!
//! ```text
//! HashJoinExec --- KeyTapExec: keys of the build side --> KeySketch --+
//!      | DynamicFilterPhysicalExpr, pushed down by DataFusion          |
//! SortExec(TopK): threshold so far ---------------------------------> Narrowing --> the program of the next segment
//! ```
//!
//! DataFusion's dynamic filters connect an operator with the column of a scan that it filters,
//! through projections, other joins and aggregations. The condition of a top-k is read from its
//! filter. The condition of a join comes from a sketch, which is a summary of its keys, because
//! DataFusion's own hash tables can neither be sent to nodes nor be compared with zone maps.
//!
//! Invariants
//! - A narrowed program keeps every row that the operators above would keep: it consists of the
//!   scan's own filter and conjuncts of theirs.
//! - A segment is scanned by one program from its beginning to its end, under any placement.
//! - A condition that cannot be translated narrows no scan. Neither does a filter that
//!   `rules/key_filters` has not armed: DataFusion passes filters down by the names of columns, and
//!   only that rule knows whether a filter arrived at the right column.

mod sketch;
mod tap;

pub(crate) use sketch::{KeySketch, Keys};
pub(crate) use tap::KeyTapExec;

use crate::visitors::Tree;
use crate::{
    limits::{KEYS_AWAITED_MAX, KEYS_JUDGED, KEYS_KEPT_MAX},
    pushdown::{ProgramBuilder, Untranslatable},
    snapshot::TableSnapshot,
};
use datafusion::{
    common::tree_node::Transformed,
    physical_expr::{
        PhysicalExpr,
        expressions::{Column, DynamicFilterPhysicalExpr, Literal},
        split_conjunction,
    },
    scalar::ScalarValue,
};
use rackscan_client::{Cluster, OfferedProgram};
use rackscan_format::{
    ids::ColumnId,
    program::{Node, Output, ScanProgram, VerifiedProgram},
    segment::SegmentDirectory,
};
use rackscan_scan::{Estimator, ScanEstimate};
use std::{
    any::Any,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

/// A dynamic filter over columns of the scanned table that reached the scan. Or a filter over
/// columns of several tables, which reaches no scan, but restricts one column of this table.
#[derive(Clone, Debug)]
struct Pushed {
    /// `None` if the filter is over columns of several tables.
    filter: Option<Arc<DynamicFilterPhysicalExpr>>,
    /// The columns of the filter's children, in order; `None` for expressions and for columns of
    /// other tables.
    columns: Vec<Option<ColumnId>>,
    /// Set once it is known that the filter is meant for these columns.
    armed: Arc<OnceLock<Source>>,
}

/// Where the content of a filter comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// The keys of a join's build side.
    Join {
        /// The keys.
        sketch: Arc<KeySketch>,
        /// Whether the build side ends so soon that a scan waits for the keys.
        is_quick: bool,
    },
    /// The threshold of a top-k: the filter itself.
    Threshold,
}

/// A program, and the form in which it is offered to nodes.
#[derive(Debug)]
pub(crate) struct Narrowed {
    pub(crate) program: Arc<VerifiedProgram>,
    /// How many conjuncts are not the scan's own.
    conjuncts: usize,
    offered: OnceLock<Arc<OfferedProgram>>,
    estimator: OnceLock<Estimator>,
}

impl Narrowed {
    fn of(program: Arc<VerifiedProgram>, conjuncts: usize) -> Arc<Self> {
        Arc::new(Self { program, conjuncts, offered: OnceLock::new(), estimator: OnceLock::new() })
    }

    /// What a scan of the segment would read and return.
    pub(crate) fn estimate(&self, directory: &SegmentDirectory) -> ScanEstimate {
        self.estimator.get_or_init(|| Estimator::new(&self.program)).estimate(directory)
    }
}

/// The filters of one scan, and the program that follows from them.
#[derive(Debug)]
pub(crate) struct RuntimeFilter {
    plain: Arc<Narrowed>,
    pushed: Vec<Pushed>,
    /// The filters that [`Self::tell`] added.
    told: Arc<Mutex<Vec<Pushed>>>,
    /// The last program, and the generations of the filters it was made from.
    last: Mutex<Option<(Vec<u64>, Arc<Narrowed>)>>,
    keys_tested: AtomicU64,
    keys_kept: AtomicU64,
    segments: AtomicU64,
    /// Set when the first segment begins.
    await_until: OnceLock<Instant>,
}

impl RuntimeFilter {
    /// For a scan by `program` without filters.
    pub(crate) fn none(program: Arc<VerifiedProgram>) -> Self {
        Self::by(program, Vec::new())
    }

    fn by(program: Arc<VerifiedProgram>, pushed: Vec<Pushed>) -> Self {
        Self {
            plain: Narrowed::of(program, 0),
            pushed,
            told: Arc::default(),
            last: Mutex::default(),
            keys_tested: AtomicU64::new(0),
            keys_kept: AtomicU64::new(0),
            segments: AtomicU64::new(0),
            await_until: OnceLock::new(),
        }
    }

    /// The same filters, for a scan by another program over the same rows.
    pub(crate) fn of_program(&self, program: Arc<VerifiedProgram>) -> Self {
        Self { told: Arc::clone(&self.told), ..Self::by(program, self.pushed.clone()) }
    }

    /// The same filters and another one over the output of the scan; `None` if it is not a filter
    /// for this scan.
    pub(crate) fn with(
        &self,
        filter: &Arc<dyn PhysicalExpr>,
        program: &ScanProgram,
        snapshot: &TableSnapshot,
    ) -> Option<Self> {
        let filter = downcast(Arc::clone(filter))?;
        // A filter would change which rows come first.
        if program.limit_rows.is_some() {
            return None;
        }
        let children = filter.children().into_iter();
        let children: Vec<_> =
            children.map(|child| over_table(child, program, snapshot)).collect::<Option<_>>()?;
        let columns = children.iter().map(|child| {
            let column = child.downcast_ref::<Column>()?;
            u16::try_from(column.index()).ok().map(ColumnId)
        });
        let columns = columns.collect();
        let filter = downcast((filter as Arc<dyn PhysicalExpr>).with_new_children(children).ok()?)?;
        let mut pushed = self.pushed.clone();
        pushed.push(Pushed { filter: Some(filter), columns, armed: Arc::default() });
        Some(Self { told: Arc::clone(&self.told), ..Self::by(Arc::clone(&self.plain.program), pushed) })
    }

    /// Whether there is any filter.
    pub(crate) fn is_any(&self) -> bool {
        !self.pushed.is_empty() || !self.told().is_empty()
    }

    /// The filters, for DataFusion to find.
    pub(crate) fn filters(&self) -> impl Iterator<Item = Arc<dyn PhysicalExpr>> + '_ {
        self.pushed.iter().filter_map(|pushed| pushed.filter.clone().map(|filter| filter as _))
    }

    /// Whether the filter of this id is here and is over these columns. Each child of the filter
    /// must be one of the given candidates.
    pub(crate) fn is_about(&self, id: u64, columns: &[Vec<ColumnId>]) -> bool {
        let same = |pushed: &Pushed| {
            let each = || pushed.columns.iter().zip(columns);
            pushed.columns.len() == columns.len()
                && each().all(|(here, meant)| here.is_some_and(|here| meant.contains(&here)))
        };
        self.of_id(id).any(same)
    }

    /// From now on the filter of this id is used; with the keys of a sketch, if it is a join's.
    pub(crate) fn arm(&self, id: u64, source: &Source) {
        for pushed in self.of_id(id) {
            pushed.armed.get_or_init(|| source.clone());
        }
    }

    /// Adds that a join of several keys drops rows whose `column` is not among its keys at
    /// `position`.
    pub(crate) fn tell(&self, column: ColumnId, position: usize, source: Source) {
        let columns = (0..=position).map(|at| (at == position).then_some(column)).collect();
        let armed = Arc::new(OnceLock::from(source));
        self.told().push(Pushed { filter: None, columns, armed });
    }

    fn told(&self) -> MutexGuard<'_, Vec<Pushed>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the keys of joins whose build sides end soon, for a limited time: the scan is
    /// correct without them.
    pub(crate) async fn awaited(&self) {
        let deadline = *self.await_until.get_or_init(|| Instant::now() + KEYS_AWAITED_MAX);
        let told = self.told().clone();
        for pushed in self.pushed.iter().chain(&told) {
            if let Some(Source::Join { sketch, is_quick: true }) = pushed.armed.get()
                && sketch.keys().is_none()
                && tokio::time::timeout_at(deadline.into(), sketch.ended()).await.is_err()
            {
                tracing::debug!("the keys of a join were not complete in time to narrow a scan");
            }
        }
    }

    fn of_id(&self, id: u64) -> impl Iterator<Item = &Pushed> {
        let id_of = |pushed: &Pushed| pushed.filter.as_ref().and_then(|filter| filter.expression_id());
        self.pushed.iter().filter(move |pushed| id_of(pushed) == Some(id))
    }

    /// The scan's own program.
    pub(crate) fn plain(&self) -> Arc<Narrowed> {
        Arc::clone(&self.plain)
    }

    /// The program of the next segment.
    pub(crate) fn now(&self, snapshot: &TableSnapshot) -> Arc<Narrowed> {
        if !self.is_any() {
            return Arc::clone(&self.plain);
        }
        let generations = self.generations();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let narrowed = match &*last {
            Some((made_of, narrowed)) if *made_of == generations => Arc::clone(narrowed),
            _ => {
                let narrowed = self.make(snapshot);
                *last = Some((generations, Arc::clone(&narrowed)));
                narrowed
            }
        };
        if narrowed.conjuncts > 0 {
            self.segments.fetch_add(1, Ordering::Relaxed);
        }
        narrowed
    }

    /// The form in which nodes are asked to run it. If its filters do not fit into the memory that
    /// nodes can read, the scan's own program is used.
    pub(crate) fn offered(&self, narrowed: &Arc<Narrowed>, cluster: &Cluster) -> Arc<OfferedProgram> {
        let plain = || {
            let plain = || Arc::new(OfferedProgram::plain(Arc::clone(&self.plain.program)));
            Arc::clone(self.plain.offered.get_or_init(plain))
        };
        if narrowed.conjuncts == 0 {
            return plain();
        }
        if let Some(offered) = narrowed.offered.get() {
            return Arc::clone(offered);
        }
        match cluster.offer(Arc::clone(&narrowed.program)) {
            Some(offered) => Arc::clone(narrowed.offered.get_or_init(|| Arc::new(offered))),
            None => plain(),
        }
    }

    /// Adds how many rows were tested by key filters, and how many those kept.
    pub(crate) fn searched(&self, tested: u64, kept: u64) {
        self.keys_tested.fetch_add(tested, Ordering::Relaxed);
        self.keys_kept.fetch_add(kept, Ordering::Relaxed);
    }

    /// Whether key filters keep so many rows that testing them does not pay.
    fn keys_given_up(&self) -> bool {
        let (tested, kept) =
            (self.keys_tested.load(Ordering::Relaxed), self.keys_kept.load(Ordering::Relaxed));
        tested >= KEYS_JUDGED && kept / KEYS_KEPT_MAX.0 > tested / KEYS_KEPT_MAX.1
    }

    /// Numbers that change whenever the program would.
    fn generations(&self) -> Vec<u64> {
        let of = |pushed: &Pushed| match pushed.armed.get() {
            Some(Source::Join { sketch, .. }) => u64::from(sketch.keys().is_some()),
            Some(Source::Threshold) => {
                pushed.filter.as_ref().map_or(0, |filter| filter.snapshot_generation())
            }
            None => 0,
        };
        let given_up = u64::from(self.keys_given_up());
        self.pushed.iter().chain(self.told().iter()).map(of).chain([given_up]).collect()
    }

    fn make(&self, snapshot: &TableSnapshot) -> Arc<Narrowed> {
        let mut builder = ProgramBuilder::runtime_filter(&snapshot.definition, self.plain.program.program());
        for pushed in self.pushed.iter().chain(self.told().iter()) {
            match pushed.armed.get() {
                Some(Source::Join { sketch, .. }) => self.add_keys(&mut builder, pushed, sketch),
                Some(Source::Threshold) => add_current(&mut builder, pushed),
                None => {}
            }
        }
        let own = self.plain.program.program().filter.len();
        let program = builder.finish_narrowed(self.plain.program.program().output.clone());
        match program {
            Ok(program) if program.program().filter.len() > own => {
                let conjuncts = program.program().filter.len() - own;
                Narrowed::of(Arc::new(program), conjuncts)
            }
            Ok(_) => Arc::clone(&self.plain),
            Err(reason) => {
                tracing::debug!(reason = reason.0, "a scan is not narrowed");
                Arc::clone(&self.plain)
            }
        }
    }

    fn add_keys(&self, builder: &mut ProgramBuilder<'_>, pushed: &Pushed, sketch: &KeySketch) {
        let Some(keys) = sketch.keys() else { return };
        for (column, keys) in pushed.columns.iter().zip(keys) {
            let (Some(column), Some(keys)) = (column, keys) else { continue };
            let added = match keys {
                Keys::None => builder.keep_nothing(),
                Keys::Few(keys) => builder.keep_keys(*column, keys),
                Keys::Many(filter) if !self.keys_given_up() => builder.search(*column, filter),
                Keys::Many(filter) => {
                    let name = filter.name();
                    builder.keep_between(*column, name.low, name.high)
                }
                Keys::Between(low, high) => builder.keep_between(*column, *low, *high),
            };
            if let Err(Untranslatable(reason)) = added {
                tracing::debug!(reason, "keys do not narrow a scan");
            }
        }
    }

    /// What EXPLAIN shows of the filters.
    pub(crate) fn report(&self, snapshot: &TableSnapshot) -> Report {
        let name = |column: &Option<ColumnId>| {
            let column = column.and_then(|column| snapshot.definition.columns.get(column.index()));
            column.map_or_else(|| "an expression".to_owned(), |column| column.name.clone())
        };
        let told = self.told();
        let sources = self.pushed.iter().chain(told.iter()).filter_map(|pushed| {
            let is_own = |column: &&Option<ColumnId>| pushed.filter.is_some() || column.is_some();
            let columns: Vec<String> = pushed.columns.iter().filter(is_own).map(name).collect();
            let what = match pushed.armed.get()? {
                Source::Join { .. } => "the keys of a join",
                Source::Threshold => "a threshold",
            };
            Some(format!("{what} on {}", columns.join(", ")))
        });
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let last = last.as_ref().map(|(_, narrowed)| narrowed).filter(|narrowed| narrowed.conjuncts > 0);
        Report {
            sources: sources.collect(),
            last: last.map(|narrowed| (Arc::clone(&narrowed.program), narrowed.conjuncts)),
            segments: self.segments.load(Ordering::Relaxed),
            keys_given_up: self.keys_given_up(),
        }
    }
}

/// How a scan was narrowed.
pub(crate) struct Report {
    /// The operators and columns from which filters come.
    pub(crate) sources: Vec<String>,
    /// The last program, and how many conjuncts at the end of its filter are not the scan's own.
    pub(crate) last: Option<(Arc<VerifiedProgram>, usize)>,
    /// Segments that were scanned by narrowed programs.
    pub(crate) segments: u64,
    /// Whether key filters were given up.
    pub(crate) keys_given_up: bool,
}

fn downcast(expression: Arc<dyn PhysicalExpr>) -> Option<Arc<DynamicFilterPhysicalExpr>> {
    Arc::downcast(expression as Arc<dyn Any + Send + Sync>).ok()
}

/// Adds the present conjuncts of a filter. Those that a scan cannot compute are left to the
/// operator.
fn add_current(builder: &mut ProgramBuilder<'_>, pushed: &Pushed) {
    let Some(Ok(current)) = pushed.filter.as_ref().map(|filter| filter.current()) else { return };
    let is_true = |conjunct: &&Arc<dyn PhysicalExpr>| {
        let literal = conjunct.downcast_ref::<Literal>();
        literal.is_some_and(|literal| *literal.value() == ScalarValue::Boolean(Some(true)))
    };
    for conjunct in split_conjunction(&current).into_iter().filter(|conjunct| !is_true(conjunct)) {
        if let Err(Untranslatable(reason)) = builder.filter(conjunct) {
            tracing::trace!(reason, %conjunct, "a threshold does not narrow a scan");
        }
    }
}

/// An expression over the output of a program as one over the columns of its table; `None` if it
/// uses a computed column.
fn over_table(
    expression: &Arc<dyn PhysicalExpr>,
    program: &ScanProgram,
    snapshot: &TableSnapshot,
) -> Option<Arc<dyn PhysicalExpr>> {
    let outputs = match &program.output {
        Output::Rows(outputs) => outputs,
        Output::Groups { keys, .. } => keys,
    };
    let column_of = |column: &Column| {
        let node = program.nodes.get(usize::from(*outputs.get(column.index())?))?;
        let Node::Column(input) = node else { return None };
        let index = program.inputs.get(usize::from(*input))?.column.index();
        Some(Column::new(snapshot.schema.field(index).name(), index))
    };
    let mut all_known = true;
    let rewritten = Arc::clone(expression).transform_up(|expression| {
        let Some(column) = expression.downcast_ref::<Column>() else {
            return Ok(Transformed::no(expression));
        };
        match column_of(column) {
            Some(column) => Ok(Transformed::yes(Arc::new(column) as Arc<dyn PhysicalExpr>)),
            None => {
                all_known = false;
                Ok(Transformed::no(expression))
            }
        }
    });
    rewritten.ok().filter(|_| all_known).map(|rewritten| rewritten.data)
}
