//! How do tables get in?
