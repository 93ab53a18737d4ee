//! Turns the rows of a source into the segments of a table, on several threads.
//!
//! ```text
//! every thread: take a piece of the source --> produce its rows --> distribute them to nodes --> append them to the nodes' partitions
//!                                                                                                 | a segment is full
//!                                                                                                 v
//!                                                                                               encode it --> out
//! at the end, every thread: take a node --> its remaining rows (unsorted), or all its rows, merged (sorted) --> encode --> out
//! ```
//!
//! Invariants
//! - Every row of the source is in exactly one segment, on the node of its key.
//! - A node's partition is locked only while rows are appended to it, never while a segment is
//!   encoded.
//! - When the receiver of segments is closed, or a thread fails, all threads end after their
//!   current piece.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
};

use rackscan_format::{
    chunk::ChunkWriter,
    ids::{NodeId, SegmentId},
    schema::TableDefinition,
};
use tokio::sync::mpsc::Sender;

use crate::{
    LoadError, LoadOptions,
    distribute::distribute,
    encode::{EncodedSegment, encode},
    limits::{MERGE_RUNS_MAX, SPILLED_RUNS_MAX},
    segment::SegmentRows,
    sort::{SortPlan, Sorter},
    stored::StoredRows,
};

/// A closure that makes the rows of a piece.
pub(crate) type Piece = Box<dyn FnOnce() -> Result<StoredRows, LoadError> + Send>;
/// The pieces of a source. One thread at a time takes a piece; many threads make the rows of theirs
/// at the same time.
pub(crate) type Pieces = Box<dyn Iterator<Item = Result<Piece, LoadError>> + Send>;

/// What the threads send to the load.
#[derive(Debug)]
pub(crate) enum CutOutput {
    /// Reports that this many more rows were read.
    Read(u64),
    /// A finished segment.
    Segment(EncodedSegment),
}

/// Cuts a table. Returns when every row is in a segment that was sent to `out`, or when `out` is
/// closed.
///
/// # Errors
/// The error of the first thread that failed.
pub(crate) fn cut(
    definition: &TableDefinition,
    pieces: Pieces,
    options: &LoadOptions,
    out: Sender<CutOutput>,
) -> Result<(), LoadError> {
    let segment_bytes = options.segment_bytes(definition.nodes.len());
    let cutter = Cutter {
        definition,
        pieces: Mutex::new(pieces),
        partitions: definition.nodes.iter().map(|_| partition(definition, options, segment_bytes)).collect(),
        segment_bytes,
        segments: AtomicU64::new(0),
        out,
        stopped: AtomicBool::new(false),
    };
    cutter.on_threads(options.threads, |cutter, writer| cutter.distribute_pieces(writer))?;
    let next_node = AtomicUsize::new(0);
    cutter.on_threads(options.threads, |cutter, writer| cutter.finish_nodes(&next_node, writer))
}

fn partition(definition: &TableDefinition, options: &LoadOptions, segment_bytes: usize) -> Mutex<Partition> {
    let Some(column) = definition.sorted_by else {
        return Mutex::new(Partition::Unsorted(new_segment(definition, segment_bytes)));
    };
    let nodes = definition.nodes.len().max(1);
    let sorter = Sorter::new(SortPlan {
        table: definition.name.clone(),
        key: column.index(),
        memory_bytes: options.sort_memory_bytes / nodes,
        runs_max: (SPILLED_RUNS_MAX / nodes).clamp(2, MERGE_RUNS_MAX),
        folder: options.spill_folder.clone(),
    });
    Mutex::new(Partition::Sorted(sorter))
}

fn new_segment(definition: &TableDefinition, bytes_max: usize) -> SegmentRows {
    SegmentRows::new(&definition.columns, definition.segment_rows as usize, bytes_max)
}

/// The rows of one node that are not in a segment yet.
enum Partition {
    Unsorted(SegmentRows),
    Sorted(Sorter),
}

struct Cutter<'d> {
    definition: &'d TableDefinition,
    pieces: Mutex<Pieces>,
    /// In the order of the definition's nodes.
    partitions: Vec<Mutex<Partition>>,
    /// The maximum bytes of the rows of a segment.
    segment_bytes: usize,
    /// The number of segments begun.
    segments: AtomicU64,
    out: Sender<CutOutput>,
    stopped: AtomicBool,
}

impl Cutter<'_> {
    /// Does the same work on several threads. The first error stops all of them.
    fn on_threads(
        &self,
        threads: usize,
        work: impl Fn(&Self, &mut ChunkWriter) -> Result<(), LoadError> + Sync,
    ) -> Result<(), LoadError> {
        let work = || {
            let worked = work(self, &mut ChunkWriter::new());
            if worked.is_err() {
                self.stop();
            }
            worked
        };
        thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let mut worked = work();
            for other in others {
                // Passes a panic on to the task that awaits this load.
                let other = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                worked = worked.and(other);
            }
            worked
        })
    }

    fn new_segment(&self) -> SegmentRows {
        new_segment(self.definition, self.segment_bytes)
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn send(&self, made: CutOutput) {
        if self.out.blocking_send(made).is_err() {
            self.stop();
        }
    }

    fn distribute_pieces(&self, writer: &mut ChunkWriter) -> Result<(), LoadError> {
        let nodes = self.partitions.len();
        while !self.is_stopped() {
            let Some(piece) = lock(&self.pieces).next() else { break };
            let rows = piece?()?;
            self.send(CutOutput::Read(rows.rows as u64));
            let keys = &rows.columns[self.definition.partition_key.index()];
            for (position, chosen) in distribute(keys, nodes).into_iter().enumerate() {
                self.append_rows(position, &rows, &chosen, writer)?;
            }
        }
        Ok(())
    }

    /// Appends rows to a node's partition, and encodes the segments that they fill.
    fn append_rows(
        &self,
        position: usize,
        rows: &StoredRows,
        mut chosen: &[u32],
        writer: &mut ChunkWriter,
    ) -> Result<(), LoadError> {
        while !chosen.is_empty() && !self.is_stopped() {
            let full = match &mut *lock(&self.partitions[position]) {
                Partition::Sorted(sorter) => return sorter.push(rows, chosen),
                Partition::Unsorted(segment) => {
                    let appended = segment.append(rows, chosen);
                    chosen = &chosen[appended..];
                    if !segment.is_full() {
                        continue;
                    }
                    // Numbered under the lock, so that a node's segments have the order of its
                    // rows.
                    (self.next_segment()?, std::mem::replace(segment, self.new_segment()))
                }
            };
            self.encode(position, full, writer)?;
        }
        Ok(())
    }

    fn finish_nodes(&self, next_node: &AtomicUsize, writer: &mut ChunkWriter) -> Result<(), LoadError> {
        while !self.is_stopped() {
            let position = next_node.fetch_add(1, Ordering::Relaxed);
            let Some(partition) = self.partitions.get(position) else { break };
            let left = Partition::Unsorted(self.new_segment());
            match std::mem::replace(&mut *lock(partition), left) {
                Partition::Unsorted(segment) => self.finish_segment(position, segment, writer)?,
                Partition::Sorted(sorter) => self.finish_sorted(position, sorter, writer)?,
            }
        }
        Ok(())
    }

    fn finish_sorted(
        &self,
        position: usize,
        sorter: Sorter,
        writer: &mut ChunkWriter,
    ) -> Result<(), LoadError> {
        let mut segment = self.new_segment();
        for rows in sorter.finish()? {
            let rows = rows?;
            let count = u32::try_from(rows.rows).expect("the rows of a merged batch: at most MERGE_ROWS");
            let chosen: Vec<u32> = (0..count).collect();
            let mut chosen = &chosen[..];
            while !chosen.is_empty() {
                chosen = &chosen[segment.append(&rows, chosen)..];
                if segment.is_full() {
                    let full = std::mem::replace(&mut segment, self.new_segment());
                    self.finish_segment(position, full, writer)?;
                }
            }
            if self.is_stopped() {
                return Ok(());
            }
        }
        self.finish_segment(position, segment, writer)
    }

    fn finish_segment(
        &self,
        position: usize,
        segment: SegmentRows,
        writer: &mut ChunkWriter,
    ) -> Result<(), LoadError> {
        if segment.rows() == 0 {
            return Ok(());
        }
        let number = self.next_segment()?;
        self.encode(position, (number, segment), writer)
    }

    fn encode(
        &self,
        position: usize,
        (segment, rows): (SegmentId, SegmentRows),
        writer: &mut ChunkWriter,
    ) -> Result<(), LoadError> {
        let node: NodeId = self.definition.nodes[position];
        let encoded = encode(self.definition, node, segment, &rows, writer)?;
        drop(rows);
        self.send(CutOutput::Segment(encoded));
        Ok(())
    }

    fn next_segment(&self) -> Result<SegmentId, LoadError> {
        let number = self.segments.fetch_add(1, Ordering::Relaxed);
        let number = u32::try_from(number);
        number.map(SegmentId).map_err(|_| LoadError::Segments { table: self.definition.name.clone() })
    }
}

/// A thread that panicked ends the whole load, so state that it left inconsistent is never used.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::Int64Array;
    use rackscan_format::{
        ids::{ColumnId, TableId},
        schema::{ColumnDefinition, ColumnType},
    };
    use std::sync::{Arc, mpsc};
    use tokio::sync::mpsc::channel;

    fn definition() -> TableDefinition {
        let key = ColumnDefinition { name: "key".into(), column_type: ColumnType::Int64, nullable: false };
        TableDefinition {
            id: TableId(1),
            name: "keys".into(),
            columns: vec![key],
            partition_key: ColumnId(0),
            sorted_by: None,
            page_size: 4096,
            segment_rows: 1024,
            nodes: vec![NodeId(0), NodeId(1)],
            rows: 0,
            source: String::new(),
            succeeds: None,
            derived: Vec::new(),
            protection: None,
        }
    }

    /// Pieces without end, but that the one numbered `failing` is an error.
    fn endless(failing: usize) -> Pieces {
        Box::new((0..).map(move |number: usize| {
            let piece: Piece = Box::new(move || {
                if number == failing {
                    let (what, found, expected) = ("a piece", number.to_string(), "another".into());
                    return Err(LoadError::Option { what, found, expected });
                }
                Ok(StoredRows::new(vec![Arc::new(Int64Array::from_iter_values(0..500))]))
            });
            Ok(piece)
        }))
    }

    fn cut_apart(pieces: Pieces, out: Sender<CutOutput>) -> mpsc::Receiver<Result<(), LoadError>> {
        let (done, outcome) = mpsc::channel();
        let options = LoadOptions { threads: 3, ..LoadOptions::default() };
        thread::spawn(move || done.send(cut(&definition(), pieces, &options, out)));
        outcome
    }

    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

    #[test]
    fn threads_end_when_nobody_takes_what_they_make() {
        let (out, mut made) = channel(2);
        let outcome = cut_apart(endless(usize::MAX), out);
        for _ in 0..20 {
            assert!(made.blocking_recv().is_some());
        }
        drop(made);
        assert!(outcome.recv_timeout(PATIENCE).unwrap().is_ok());
    }

    #[test]
    fn one_error_ends_every_thread_and_is_the_one_that_is_told() {
        let (out, mut made) = channel(2);
        let outcome = cut_apart(endless(30), out);
        while made.blocking_recv().is_some() {}
        let error = outcome.recv_timeout(PATIENCE).unwrap().unwrap_err();
        assert_eq!(error.to_string(), "a piece is 30, expected another");
    }
}
