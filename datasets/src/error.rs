//! Why did a load fail? Whatever the reason, nothing of it has been published.

use std::path::PathBuf;

use rackscan_client::ClientError;

/// Why a load failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The cluster.
    #[error(transparent)]
    Cluster(#[from] ClientError),
    /// The system refused something.
    #[error("could not {action} {path}: {source}", path = path.display())]
    File {
        /// What was attempted.
        action: &'static str,
        /// With which file or folder.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
}
