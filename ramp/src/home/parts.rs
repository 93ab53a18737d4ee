//! How are items divided so that each part fits into a message?

/// Items with their bytes, divided so that each part has at most so many, or is one item; at least
/// one part.
pub(super) fn in_parts<T>(items: impl Iterator<Item = (usize, T)>, bytes_max: usize) -> Vec<Vec<T>> {
    let (mut parts, mut part, mut part_bytes) = (Vec::new(), Vec::new(), 0);
    for (bytes, item) in items {
        if part_bytes + bytes > bytes_max && !part.is_empty() {
            parts.push(std::mem::take(&mut part));
            part_bytes = 0;
        }
        part_bytes += bytes;
        part.push(item);
    }
    parts.push(part);
    parts
}
