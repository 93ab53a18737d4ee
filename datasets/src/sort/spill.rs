//! Writes sorted runs that do not fit into memory to files.
//!
//! Invariants
//! - The file of a run never has a name, so nothing is left behind however the process ends.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Seek},
    path::Path,
    sync::Arc,
};

use arrow::{
    array::{ArrayRef, RecordBatch},
    datatypes::{Field, Schema},
    error::ArrowError,
    ipc::{reader::FileReader, writer::FileWriter},
};

use super::run::{Columns, SortedRun};
use crate::LoadError;

/// Writes the batches of a run, at least one, to a nameless file in `folder`.
pub(super) fn spill(
    table: &str,
    folder: &Path,
    mut batches: impl Iterator<Item = Result<Columns, LoadError>>,
) -> Result<SortedRun, LoadError> {
    let refused = |source: io::Error| {
        let action = "spill sorted rows into";
        LoadError::File { action, path: folder.to_owned(), source }
    };
    let fault = |error: ArrowError| match error {
        ArrowError::IoError(_, source) => refused(source),
        source => LoadError::Rows { table: table.to_owned(), action: "spill its sorted rows", source },
    };
    let first = batches.next().unwrap_or_else(|| Ok(Columns::new()))?;
    let field =
        |(number, array): (usize, &ArrayRef)| Field::new(number.to_string(), array.data_type().clone(), true);
    let schema = Arc::new(Schema::new(first.iter().enumerate().map(field).collect::<Vec<_>>()));
    let file = BufWriter::new(tempfile::tempfile_in(folder).map_err(refused)?);
    let mut writer = FileWriter::try_new(file, &schema).map_err(fault)?;
    for columns in std::iter::once(Ok(first)).chain(batches) {
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns?).map_err(fault)?;
        writer.write(&batch).map_err(fault)?;
    }
    let file = writer.into_inner().map_err(fault)?;
    let mut file: File = file.into_inner().map_err(|error| refused(error.into_error()))?;
    file.rewind().map_err(refused)?;
    let reader = FileReader::try_new(BufReader::new(file), None).map_err(fault)?;
    Ok(SortedRun::File(Box::new(reader)))
}
