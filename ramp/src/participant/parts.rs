//! Divides the items of a reply into several messages, so that each is within the limit.

/// Divides items, given with their sizes, into parts of at most `bytes_max` bytes. A larger item is
/// a part of its own. Returns at least one part, which may be empty.
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
