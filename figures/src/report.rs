//! How do words, tables and charts become a folder that a browser opens from disk?
//!
//! Invariants
//! - Everything is checked and drawn before the first file is written.
//! - `index.html` is written last, so that a page never names a picture that is not there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::chart::Chart;
use crate::error::FigureError;
use crate::page;

/// A page with its figures and the points behind them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// What it is about.
    pub title: String,
    /// Where the numbers come from: name and value, for instance the machine, the commit and the
    /// command.
    pub provenance: Vec<(String, String)>,
    /// What it says.
    pub sections: Vec<Section>,
    /// One JSON value for each line of `points.jsonl`.
    pub points: Vec<Value>,
}

/// A part of the page.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Section {
    /// Its heading.
    pub heading: String,
    /// Its paragraphs.
    pub text: Vec<String>,
    /// Its tables.
    pub tables: Vec<Table>,
    /// Its pictures.
    pub figures: Vec<Figure>,
}

/// A table of words.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    /// What it shows.
    pub caption: String,
    /// The heads of its columns.
    pub head: Vec<String>,
    /// Its rows, each with a cell for each column.
    pub rows: Vec<Vec<String>>,
}

/// A chart with its place in the report.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// The stem of its files, unique in the report: a-z, 0-9, '-', '_' and '.'.
    pub name: String,
    /// What one should see in it.
    pub caption: String,
    /// The picture.
    pub chart: Chart,
}

/// A figure that has been drawn.
pub(crate) struct Drawn<'a> {
    pub(crate) figure: &'a Figure,
    pub(crate) svg: String,
}

impl Report {
    /// Writes the report into `folder`, which is made if it is not there; files of an earlier
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
            written(pictures.join(name), &bytes)?;
        }
        let points: String = self.points.iter().map(|point| format!("{point}\n")).collect();
        written(folder.join("points.jsonl"), points.as_bytes())?;
        written(folder.join("index.html"), page.as_bytes())
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

fn written(path: PathBuf, bytes: &[u8]) -> Result<PathBuf, FigureError> {
    match fs::write(&path, bytes) {
        Ok(()) => Ok(path),
        Err(source) => Err(FigureError::Write { path, source }),
    }
}
