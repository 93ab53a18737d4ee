//! Defines the errors of a node's configuration.

use std::path::PathBuf;

/// Why a node cannot be configured like that.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("configuration {file} could not be read: {source}", file = file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// Not TOML, or a key that is missing, unknown or of another type.
    #[error("configuration {file}: {source}", file = file.display())]
    Parse {
        /// The file.
        file: PathBuf,
        /// What is wrong, and where.
        source: Box<toml::de::Error>,
    },
    /// A value that makes no sense.
    #[error("configuration {file}: {key} is {found}, expected {expected}", file = file.display())]
    Value {
        /// The file.
        file: PathBuf,
        /// The key.
        key: &'static str,
        /// Its value.
        found: String,
        /// What would be right.
        expected: String,
    },
}
