//! A buddy allocator for the pages of a slab.
//!
//! It works on page numbers and allocates no memory after `new`. A range of `n` pages is cut from
//! the smallest free power-of-two block that holds it, and the remainder of the block stays free.
//! So ranges have page granularity, and a range of up to `2^order_max` pages never crosses a
//! multiple of `2^order_max`.
//!
//! Invariants
//! - Bit `i` of `free[k]` is set iff pages `[i << k, (i + 1) << k)` are free as one block of order
//!   `k`.
//! - Two free buddies are merged at once, so no two set bits of an order below the top are buddies.
//! - `free_pages` is the sum over all set bits.

/// Free page ranges of a slab.
#[derive(Debug)]
pub(super) struct Buddy {
    free: Vec<FreeBlocks>,
    free_pages: u32,
}

/// The free blocks of one order.
#[derive(Debug)]
struct FreeBlocks {
    bits: Vec<u64>,
    count: u32,
    /// All words before this one are 0.
    first_word: usize,
}

impl FreeBlocks {
    fn insert(&mut self, block: u32) {
        let word = (block / 64) as usize;
        let mask = 1 << (block % 64);
        assert!(self.bits[word] & mask == 0, "block {block} is freed twice");
        self.bits[word] |= mask;
        self.count += 1;
        self.first_word = self.first_word.min(word);
    }

    fn has(&self, block: u32) -> bool {
        self.bits[(block / 64) as usize] & (1 << (block % 64)) != 0
    }

    /// Removes the block if it is free, and returns whether it was.
    fn remove(&mut self, block: u32) -> bool {
        let word = (block / 64) as usize;
        let mask = 1 << (block % 64);
        let Some(bits) = self.bits.get_mut(word).filter(|bits| **bits & mask != 0) else { return false };
        *bits &= !mask;
        self.count -= 1;
        true
    }

    /// Removes and returns the lowest free block, which keeps high blocks whole for large requests.
    fn pop(&mut self) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        while self.bits[self.first_word] == 0 {
            self.first_word += 1;
        }
        let word = u32::try_from(self.first_word).expect("a word: blocks are numbered by u32");
        let block = word * 64 + self.bits[self.first_word].trailing_zeros();
        self.remove(block).then_some(block)
    }
}

impl Buddy {
    /// An allocator with `pages` free pages; `pages` must be a multiple of `2^order_max`.
    pub(super) fn new(pages: u32, order_max: u32) -> Self {
        assert!(
            pages.is_multiple_of(1 << order_max),
            "{pages} pages are not whole blocks of order {order_max}"
        );
        let blocks = |order: u32| FreeBlocks {
            bits: vec![0; ((pages >> order) as usize).div_ceil(64)],
            count: 0,
            first_word: 0,
        };
        let mut free: Vec<FreeBlocks> = (0..=order_max).map(blocks).collect();
        for block in 0..pages >> order_max {
            free[order_max as usize].insert(block);
        }
        Self { free, free_pages: pages }
    }

    pub(super) fn free_pages(&self) -> u32 {
        self.free_pages
    }

    /// Takes `pages` consecutive pages and returns the first, or `None` if no block is large
    /// enough.
    pub(super) fn take(&mut self, pages: u32) -> Option<u32> {
        let wanted_order = pages.next_power_of_two().trailing_zeros() as usize;
        let (order, block) = (wanted_order..self.free.len()).find_map(|k| Some((k, self.free[k].pop()?)))?;
        let first = block << order;
        self.free_pages -= 1 << order;
        // The pages of the block beyond the request are free again.
        self.give_back(first + pages, (1 << order) - pages);
        Some(first)
    }

    /// Frees `pages` pages that [`Buddy::take`] returned (any part of such a range).
    pub(super) fn give_back(&mut self, first: u32, pages: u32) {
        let (mut at, end) = (first, first + pages);
        while at < end {
            let aligned = if at == 0 { 31 } else { at.trailing_zeros() };
            let fitting = (end - at).ilog2();
            let order = aligned.min(fitting).min(self.order_max());
            self.insert_merging(at >> order, order);
            self.free_pages += 1 << order;
            at += 1 << order;
        }
    }

    fn order_max(&self) -> u32 {
        u32::try_from(self.free.len()).expect("at most 32 orders") - 1
    }

    fn insert_merging(&mut self, mut block: u32, mut order: u32) {
        for above in order + 1..=self.order_max() {
            let around = block >> (above - order);
            assert!(!self.free[above as usize].has(around), "a part of block {around} is freed twice");
        }
        while order < self.order_max() && self.free[order as usize].remove(block ^ 1) {
            block >>= 1;
            order += 1;
        }
        self.free[order as usize].insert(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_takes_never_overlap_and_everything_comes_back_whole() {
        let (pages, order_max) = (1 << 10, 7);
        let mut buddy = Buddy::new(pages, order_max);
        let mut owner = vec![false; pages as usize];
        let mut held: Vec<(u32, u32)> = Vec::new();
        let mut state = 42_u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let draw = u32::try_from(state >> 33).unwrap();
            if draw & 1 == 0 || held.is_empty() {
                let wanted = 1 + (draw >> 1) % 128;
                let Some(first) = buddy.take(wanted) else { continue };
                assert_eq!(first / 128, (first + wanted - 1) / 128, "a range crosses a top-order block");
                for page in &mut owner[first as usize..(first + wanted) as usize] {
                    assert!(!*page, "page handed out twice");
                    *page = true;
                }
                held.push((first, wanted));
            } else {
                let (first, taken) = held.swap_remove(draw as usize % held.len());
                owner[first as usize..(first + taken) as usize].fill(false);
                buddy.give_back(first, taken);
            }
            let used: u32 = held.iter().map(|(_, taken)| taken).sum();
            assert_eq!(buddy.free_pages(), pages - used);
        }
        for (first, taken) in held.drain(..) {
            buddy.give_back(first, taken);
        }
        // The pages have merged to whole blocks of the top order: the largest size can be taken as
        // often as at the start.
        for _ in 0..pages >> order_max {
            assert!(buddy.take(1 << order_max).is_some());
        }
        assert_eq!(buddy.take(1), None);
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn freeing_twice_is_a_crash_not_a_corruption() {
        let mut buddy = Buddy::new(8, 0);
        let first = buddy.take(1).unwrap();
        buddy.give_back(first, 1);
        buddy.give_back(first, 1);
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn freeing_twice_is_seen_after_the_page_has_merged_with_its_neighbours() {
        let mut buddy = Buddy::new(8, 3);
        let first = buddy.take(1).unwrap();
        buddy.give_back(first, 1);
        buddy.give_back(first, 1);
    }
}
