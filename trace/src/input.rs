//! Reads a file whose beginning was already read to recognize its format.
//!
//! Invariants
//! - Only the beginning and one buffer of the file are in memory.

use std::{
    borrow::Cow,
    fs::File,
    io::{self, Chain, Cursor, Read},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{TraceError, line::LineReader};

/// A file whose head has been read.
pub(crate) struct Input {
    pub(crate) path: Arc<PathBuf>,
    /// The first bytes of the file, or all bytes of a short file.
    pub(crate) head: Vec<u8>,
    rest: Box<dyn Read + Send>,
    /// Whether the head is the whole file.
    pub(crate) is_whole: bool,
    pub(crate) progress: Arc<Progress>,
}

/// How many bytes of the files of a trace have been read.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    read_bytes: AtomicU64,
    total_bytes: AtomicU64,
}

impl Progress {
    pub(crate) fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of all files, 0 if unknown.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.total_bytes.load(Ordering::Relaxed)
    }
}

/// All bytes of an input, head included.
pub(crate) struct InputReader {
    bytes: Chain<Cursor<Vec<u8>>, Box<dyn Read + Send>>,
    progress: Arc<Progress>,
}

impl Input {
    /// Opens a file and reads its head.
    pub(crate) fn open(
        path: &Path,
        head_bytes_max: usize,
        progress: Arc<Progress>,
    ) -> Result<Self, TraceError> {
        let failed = |error| TraceError::Open { path: path.to_owned(), error };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Err(failed(io::Error::other("it is a folder, expected a file")));
        }
        progress.total_bytes.fetch_add(metadata.len(), Ordering::Relaxed);
        Self::over(path, Box::new(file), head_bytes_max, progress)
    }

    /// Reads the head of `rest`; `path` is its name in errors.
    pub(crate) fn over(
        path: &Path,
        mut rest: Box<dyn Read + Send>,
        head_bytes_max: usize,
        progress: Arc<Progress>,
    ) -> Result<Self, TraceError> {
        let mut head = Vec::new();
        let read = rest.by_ref().take(head_bytes_max as u64).read_to_end(&mut head);
        read.map_err(|error| TraceError::Read {
            path: path.to_owned(),
            position_bytes: head.len() as u64,
            error,
        })?;
        if head.is_empty() {
            return Err(TraceError::Empty { path: path.to_owned() });
        }
        let is_whole = head.len() < head_bytes_max;
        Ok(Self { path: Arc::new(path.to_owned()), head, rest, is_whole, progress })
    }

    /// The complete lines of the head, at most `lines_max`.
    pub(crate) fn head_lines(&self, lines_max: usize) -> Vec<String> {
        let mut lines = Vec::new();
        let end = if self.is_whole {
            self.head.len()
        } else {
            self.head.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1)
        };
        let mut reader = LineReader::new(&self.head[..end]);
        while lines.len() < lines_max
            && let Ok(Some(line)) = reader.next()
        {
            // A refused line counts as an empty one.
            lines.push(line.map(Cow::into_owned).unwrap_or_default());
        }
        lines
    }

    pub(crate) fn into_reader(self) -> InputReader {
        InputReader { bytes: Cursor::new(self.head).chain(self.rest), progress: self.progress }
    }
}

impl Read for InputReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.bytes.read(into)?;
        self.progress.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}
