//! Writes a report as a folder that a browser opens from disk.
//!
//! Invariants
//! - Everything is checked and drawn before the first file is written.
//! - `index.html` is written last, so that the page never refers to a picture that does not exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::FigureError;
use crate::page::{self, Drawn};
use crate::report::Report;

impl Report {
    /// Writes the report into `folder`, which is created if it does not exist; files of an earlier
    /// report with the same names are replaced. Returns the path of the page.
    ///
    /// # Errors
    /// A chart, a name or a table is wrong (then nothing was written), or a file could not be
    /// written.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, FigureError> {
        self.check()?;
        let mut sections = Vec::with_capacity(self.sections.len());
        let mut files = Vec::new();
        for section in &self.sections {
            let mut drawn = Vec::with_capacity(section.figures.len());
            for figure in &section.figures {
                let svg = figure.chart.svg()?;
                files.push((format!("{}.png", figure.name), figure.chart.png()?));
                files.push((format!("{}.svg", figure.name), svg.clone().into_bytes()));
                drawn.push(Drawn { figure, svg });
            }
            sections.push((section, drawn));
        }
        let page = page::html(self, &sections);
        let pictures = folder.join("figures");
        fs::create_dir_all(&pictures)
            .map_err(|source| FigureError::Write { path: pictures.clone(), source })?;
        for (name, bytes) in files {
            write_file(pictures.join(name), &bytes)?;
        }
        let points: String = self.points.iter().map(|point| format!("{point}\n")).collect();
        write_file(folder.join("points.jsonl"), points.as_bytes())?;
        write_file(folder.join("index.html"), page.as_bytes())
    }

    fn check(&self) -> Result<(), FigureError> {
        let mut names = BTreeSet::new();
        for section in &self.sections {
            for figure in &section.figures {
                if !is_file_stem(&figure.name) {
                    return Err(FigureError::BadName { name: figure.name.clone() });
                }
                if !names.insert(figure.name.as_str()) {
                    return Err(FigureError::NameTwice { name: figure.name.clone() });
                }
            }
            for table in &section.tables {
                let ragged = table.rows.iter().position(|row| row.len() != table.head.len());
                if let Some(row) = ragged {
                    return Err(FigureError::RaggedTable {
                        section: section.heading.clone(),
                        row,
                        found: table.rows[row].len(),
                        expected: table.head.len(),
                    });
                }
            }
        }
        Ok(())
    }
}

fn is_file_stem(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() <= 100
        && name.starts_with(plain)
        && name.chars().all(|c| plain(c) || matches!(c, '-' | '_' | '.'))
}

fn write_file(path: PathBuf, bytes: &[u8]) -> Result<PathBuf, FigureError> {
    match fs::write(&path, bytes) {
        Ok(()) => Ok(path),
        Err(source) => Err(FigureError::Write { path, source }),
    }
}
