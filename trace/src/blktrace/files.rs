//! Finds the files that belong to one trace of blktrace, which writes one file per processor.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{TraceError, limits::PROCESSORS_MAX};

const MIDDLE: &str = ".blktrace.";

/// The files of the trace that `path` names: the files of all processors if it is one of them
/// (`sda.blktrace.0`) or their common prefix (`sda`, `sda.blktrace`), otherwise the file itself.
pub(crate) fn files_of(path: &Path) -> Result<Vec<PathBuf>, TraceError> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let prefix = if let Some((prefix, processor)) = name.rsplit_once(MIDDLE)
        && processor.parse::<u32>().is_ok()
    {
        prefix
    } else if path.exists() {
        return Ok(vec![path.to_owned()]);
    } else {
        name.strip_suffix(MIDDLE.trim_end_matches('.')).unwrap_or(&name)
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let processor = name.to_str().and_then(|name| name.strip_prefix(prefix)?.strip_prefix(MIDDLE));
        if let Some(processor) = processor.and_then(|processor| processor.parse::<u32>().ok()) {
            files.push((processor, folder.join(name)));
        }
    }
    if files.is_empty() {
        return Ok(vec![path.to_owned()]);
    }
    if files.len() > PROCESSORS_MAX {
        let error = io::Error::other(format!(
            "the trace has {} files, one per processor, and the maximum is {PROCESSORS_MAX}",
            files.len()
        ));
        return Err(TraceError::Open { path: path.to_owned(), error });
    }
    files.sort();
    Ok(files.into_iter().map(|(_, file)| file).collect())
}
