//! Defines a report as data: sections with text, tables and figures.

use serde_json::Value;

use crate::chart::Chart;

/// A report: a page with its figures and the data points behind them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// The title of the page.
    pub title: String,
    /// Where the numbers come from, as names and values: for instance the machine, the commit and
    /// the command.
    pub provenance: Vec<(String, String)>,
    /// The sections of the page.
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
    /// The caption of the table.
    pub caption: String,
    /// The heads of its columns.
    pub head: Vec<String>,
    /// Its rows, each with a cell for each column.
    pub rows: Vec<Vec<String>>,
}

/// A chart with its name and caption.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// The stem of its files, unique in the report: a-z, 0-9, '-', '_' and '.'.
    pub name: String,
    /// What the reader should see in the figure.
    pub caption: String,
    /// The picture.
    pub chart: Chart,
}
