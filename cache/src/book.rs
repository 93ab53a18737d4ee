//! Stores, at a reader, where pages lie in a node's cache, as the node's replies have reported it.
//! Such an entry may be outdated, so the reader verifies what it reads there.
//!
//! Invariants
//! - The book has at most `pages_max` pages; the page that was entered first is forgotten first.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
};

use foldhash::fast::RandomState;
use rackscan_format::message::CachePlace;

/// The known places of one node's pages.
#[derive(Debug)]
pub struct Book<K> {
    /// The turn at which a page was learned, and its place.
    places: HashMap<K, (u64, CachePlace), RandomState>,
    order: VecDeque<(K, u64)>,
    turn: u64,
    pages_max: usize,
}

impl<K: Copy + Eq + Hash> Book<K> {
    /// An empty book for at most `pages_max` pages.
    #[must_use]
    pub fn new(pages_max: usize) -> Self {
        Self { places: HashMap::default(), order: VecDeque::new(), turn: 0, pages_max }
    }

    /// Number of pages in the book.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether the book is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The place where the page last was, if it is known.
    #[must_use]
    pub fn find(&self, page: &K) -> Option<CachePlace> {
        self.places.get(page).map(|(_, place)| *place)
    }

    /// Records the place of a page.
    pub fn learn(&mut self, page: K, place: CachePlace) {
        if let Some((_, known)) = self.places.get_mut(&page) {
            *known = place;
            return;
        }
        while self.places.len() >= self.pages_max {
            let Some((oldest, turn)) = self.order.pop_front() else { return };
            if self.places.get(&oldest).is_some_and(|(learned, _)| *learned == turn) {
                self.places.remove(&oldest);
            }
        }
        self.turn += 1;
        self.places.insert(page, (self.turn, place));
        self.order.push_back((page, self.turn));
        if self.order.len() > 2 * self.places.len() + 64 {
            let places = &self.places;
            self.order.retain(|(page, turn)| places.get(page).is_some_and(|(learned, _)| learned == turn));
        }
    }

    /// Removes a page that is no longer at its recorded place.
    pub fn forget(&mut self, page: &K) {
        self.places.remove(page);
    }

    /// Removes all pages.
    pub fn clear(&mut self) {
        self.places.clear();
        self.order.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(frame: u32) -> CachePlace {
        CachePlace { frame, version: 2 }
    }

    #[test]
    fn the_page_learned_first_is_forgotten_first_and_the_last_place_counts() {
        let mut book = Book::new(3);
        for page in 0..3 {
            book.learn(page, place(page));
        }
        book.learn(0, place(9));
        book.learn(3, place(3));
        assert_eq!(
            [0, 1, 2, 3].map(|page| book.find(&page).map(|p| p.frame)),
            [None, Some(1), Some(2), Some(3)]
        );
        book.learn(1, place(7));
        assert_eq!((book.find(&1), book.len()), (Some(place(7)), 3));
        book.clear();
        assert!(book.is_empty());
    }

    #[test]
    fn a_book_stays_small_whatever_comes_and_goes() {
        let mut book = Book::new(100);
        for page in 0..10_000 {
            book.learn(page, place(1));
            if page % 3 > 0 {
                book.forget(&page);
            }
        }
        assert!(book.len() <= 100 && book.order.len() <= 300, "{} {}", book.len(), book.order.len());
    }
}
