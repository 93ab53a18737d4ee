//! Reads the JSON lines of experiments, and selects those of a curve.

use std::{
    fs::File,
    io::{BufRead as _, BufReader},
    path::Path,
};

use serde_json::Value;

use super::catalog::{Curve, Quantity};
use crate::median::median;

/// Why the lines of a file cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PointError {
    /// The file cannot be read.
    #[error("cannot read the lines of an experiment: {0}")]
    Read(#[from] std::io::Error),
    /// A line is not JSON.
    #[error("line {number} is not JSON: {source}")]
    Malformed {
        /// Number of the line, from 1.
        number: usize,
        /// The parser's error.
        source: serde_json::Error,
    },
}

/// Lines of experiments.
#[derive(Debug, Clone, Default)]
pub struct Points(pub(super) Vec<Value>);

impl Points {
    /// Reads a file of JSON lines.
    ///
    /// # Errors
    /// The file cannot be read, or a line is not JSON.
    pub fn read(path: &Path) -> Result<Self, PointError> {
        let mut lines = Vec::new();
        for (index, line) in BufReader::new(File::open(path)?).lines().enumerate() {
            let line = line?;
            if line.trim().is_empty() {
                continue;
            }
            let malformed = |source| PointError::Malformed { number: index + 1, source };
            lines.push(serde_json::from_str(&line).map_err(malformed)?);
        }
        Ok(Self(lines))
    }

    /// Adds the lines of another experiment.
    pub(super) fn add(&mut self, other: &Self) {
        self.0.extend(other.0.iter().cloned());
    }

    /// Whether there are no lines.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A field of the first line, as text: `command`, `commit`, `machine`.
    pub(super) fn word(&self, field: &str) -> Option<&str> {
        at(self.0.first()?, field)?.as_str()
    }

    pub(super) fn of<'p>(&'p self, curve: &'p Curve) -> impl Iterator<Item = &'p Value> {
        self.0.iter().filter(|line| curve.filter.iter().all(|(path, wanted)| has(line, path, wanted)))
    }
}

/// The value at a path as `setting.io_threads`; `None` if it is missing or null.
fn at<'l>(line: &'l Value, path: &str) -> Option<&'l Value> {
    path.trim().split('.').try_fold(line, |value, name| value.get(name)).filter(|value| !value.is_null())
}

/// Whether a field has a value, or one of a list of values. A missing field has the value "none".
fn has(line: &Value, path: &str, wanted: &toml::Value) -> bool {
    if let toml::Value::Array(several) = wanted {
        return several.iter().any(|wanted| has(line, path, wanted));
    }
    match (at(line, path), wanted) {
        (None, toml::Value::String(word)) => word == "none",
        (Some(Value::String(found)), toml::Value::String(word)) => found == word,
        (Some(Value::Bool(found)), toml::Value::Boolean(wanted)) => found == wanted,
        (Some(Value::Number(found)), wanted) => {
            let wanted = wanted.as_float().or_else(|| wanted.as_integer().map(|whole| whole as f64));
            found.as_f64().zip(wanted).is_some_and(|(found, wanted)| (found - wanted).abs() < 1e-9)
        }
        _ => false,
    }
}

/// The value of a quantity: of a list, its median; of a product, `None` if a factor is missing.
pub(super) fn value(line: &Value, quantity: &Quantity) -> Option<f64> {
    let mut product = quantity.times;
    for factor in quantity.field.split('*') {
        product *= match at(line, factor)? {
            Value::Number(number) => number.as_f64()?,
            Value::Array(turns) => median(turns.iter().filter_map(Value::as_f64).collect())?,
            _ => return None,
        };
    }
    Some(product)
}

/// The least and the greatest of the values of a field's list, if there are several.
pub(super) fn range(line: &Value, field: &str, times: f64) -> Option<(f64, f64)> {
    let values: Vec<f64> = at(line, field)?.as_array()?.iter().filter_map(Value::as_f64).collect();
    if values.len() < 2 {
        return None;
    }
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Some((least * times, greatest * times))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn quantity(field: &str) -> Quantity {
        Quantity { field: field.to_owned(), label: String::new(), times: 2.0 }
    }

    #[test]
    fn curves_select_lines_by_the_values_of_their_fields() {
        let lines = Points(vec![
            json!({"mode": "local", "size": 512, "bridge": null, "pinned": false}),
            json!({"mode": "remote", "size": 512, "bridge": "static", "pinned": false}),
            json!({"mode": "remote", "size": 4096, "setting": {"threads": 4}, "pinned": true}),
        ]);
        let count = |filter: &str| {
            let curve: Curve = toml::from_str(&format!("name = \"c\"\nwhere = {{ {filter} }}")).unwrap();
            lines.of(&curve).count()
        };
        assert_eq!(count(""), 3);
        assert_eq!(count("mode = \"remote\""), 2);
        assert_eq!(count("mode = [\"local\", \"remote\"], size = 512"), 2);
        assert_eq!(count("bridge = \"none\""), 2);
        assert_eq!(count("\"setting.threads\" = 4, pinned = true"), 1);
        assert_eq!(count("size = \"512\""), 0, "a number is no word");
    }

    #[test]
    fn quantities_are_products_of_fields() {
        let line =
            json!({"connections": 3, "setting": {"threads": 4}, "turns": [2.0, 1.0, 5.0], "name": "x"});
        assert_eq!(value(&line, &quantity("connections * setting.threads")), Some(24.0));
        assert_eq!(value(&line, &quantity("connections * missing")), None);
        assert_eq!(value(&line, &quantity("name")), None);
        assert_eq!(value(&line, &quantity("turns")), Some(4.0), "the median of a list");
        assert_eq!(range(&line, "turns", 10.0), Some((10.0, 50.0)));
        assert_eq!(range(&line, "missing", 1.0), None);
    }
}
