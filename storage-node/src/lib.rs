//! How are pages kept, versioned, protected and served?
