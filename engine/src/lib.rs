//! How does SQL become placed scans?
