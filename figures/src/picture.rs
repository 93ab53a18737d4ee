//! Draws a chart as SVG text or as the bytes of a PNG file.

use crate::chart::Chart;
use crate::error::FigureError;
use crate::{draw, png, svg};

impl Chart {
    /// The picture as SVG text.
    ///
    /// # Errors
    /// A value has no place on its axis, or the chart exceeds a limit.
    pub fn svg(&self) -> Result<String, FigureError> {
        self.check()?;
        Ok(svg::to_text(&self.title, &draw::shapes(self)))
    }

    /// The same picture as the bytes of a PNG file.
    ///
    /// # Errors
    /// As [`Chart::svg`], or the picture could not be painted.
    pub fn png(&self) -> Result<Vec<u8>, FigureError> {
        self.check()?;
        png::to_bytes(&self.title, &draw::shapes(self))
    }
}
