//! Writes the device reads of queries to a trace file.
//!
//! ```text
//! scans -- bounded channel --> a thread, which sorts the records by time and writes them
//! ```
//!
//! Invariants
//! - No record is lost silently: while the channel is full the scan waits. If the file cannot be
//!   written, the final error reports that, and how many records the file contains.
//! - Memory is bounded, by the channel and by the number of records that wait to be sorted.

use rackscan_trace::{Record, Reorder, TraceError, TraceWriter, WriteFormat, limits::REORDERED_MAX};
use std::{
    path::{Path, PathBuf},
    thread::JoinHandle,
    time::{Duration, Instant},
};
use tokio::sync::mpsc;

/// Maximum parts of scans that wait for the writing thread. A part has as many records as a scan
/// reads pages at a time.
const PARTS_MAX: usize = 64;

/// A trace file in which queries are recorded.
#[derive(Debug)]
pub struct TraceFile {
    path: PathBuf,
    sink: TraceSink,
    thread: JoinHandle<Result<u64, TraceError>>,
}

/// Where scans send the records of their reads.
#[derive(Clone, Debug)]
pub struct TraceSink {
    parts: mpsc::Sender<Part>,
    begun: Instant,
}

#[derive(Debug)]
enum Part {
    Records(Vec<Record>),
    End,
}

impl TraceFile {
    /// Creates the file. The trace's time begins now.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn create(path: &Path, format: WriteFormat) -> Result<Self, TraceError> {
        let writer = TraceWriter::create(path, format)?;
        let (parts, received) = mpsc::channel(PARTS_MAX);
        let thread = std::thread::Builder::new().name("trace".to_owned()).spawn(|| write(writer, received));
        let thread = thread.map_err(|error| TraceError::Open { path: path.to_owned(), error })?;
        Ok(Self { path: path.to_owned(), sink: TraceSink { parts, begun: Instant::now() }, thread })
    }

    /// Where scans send records; see [`Engine::set_trace`](crate::Engine::set_trace).
    #[must_use]
    pub fn sink(&self) -> TraceSink {
        self.sink.clone()
    }

    /// Writes what has been recorded and closes the file. Returns how many records it has. Later
    /// reads are not recorded.
    ///
    /// # Errors
    /// The file could not be written.
    pub async fn finish(self) -> Result<u64, TraceError> {
        let Self { path, sink, thread } = self;
        // The thread takes parts until it gets this one, so it is still running.
        let _ = sink.parts.send(Part::End).await;
        thread.join().unwrap_or_else(|_| {
            let error =
                std::io::Error::other("the thread that writes the trace has panicked; please report this");
            Err(TraceError::Open { path, error })
        })
    }
}

impl TraceSink {
    /// Waits until there is room for the records.
    pub(crate) async fn put(&self, records: Vec<Record>) {
        // After the end of the trace nothing is recorded.
        let _ = self.parts.send(Part::Records(records)).await;
    }

    /// A point in time on the trace's clock.
    pub(crate) fn at(&self, moment: Instant) -> Duration {
        moment.saturating_duration_since(self.begun)
    }
}

/// Writes the parts; after a failure it only counts the records that would have been written.
fn write(mut writer: TraceWriter, mut parts: mpsc::Receiver<Part>) -> Result<u64, TraceError> {
    let mut order = Reorder::new(REORDERED_MAX);
    let (mut failed, mut records_given) = (None, 0_u64);
    while let Some(Part::Records(records)) = parts.blocking_recv() {
        records_given += records.len() as u64;
        for record in records {
            if let Some(next) = order.push(record)
                && failed.is_none()
            {
                failed = writer.write(&next).err();
            }
        }
    }
    while failed.is_none()
        && let Some(next) = order.pop()
    {
        failed = writer.write(&next).err();
    }
    match failed {
        None => writer.finish(),
        Some(TraceError::Write { path, records_written, error, .. }) => {
            Err(TraceError::Write { path, records: records_given, records_written, error })
        }
        Some(error) => Err(error),
    }
}
