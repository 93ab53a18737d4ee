//! Stores the pages of the program's columns during a scan, and maps blocks to pages.
//!
//! Invariants
//! - A page is `Held` only after its header, identity, checksum and row count were checked.
//! - Page `page_of_block[b]` of an input contains block `b`; a block never spans two pages.

use crate::error::{Fault, PagePosition};
use rackscan_format::{
    encoding::{
        Encoding,
        dictionary::DictionaryPage,
        fsst::FsstPage,
        integer::{IntegerBlock, IntegerPage},
    },
    ids::{ColumnId, PageNumber},
    limits::BLOCK_ROWS,
    page::{CheckedPage, PageFault, PageView},
    program::Input,
    schema::ColumnType,
    segment::{PageEntry, SegmentDirectory},
    zone::Zone,
};
use std::ops::Range;

/// The state of a page.
#[derive(Debug)]
pub(crate) enum Slot<P> {
    Unread,
    Wanted,
    Held(CheckedPage<P>),
    Consumed,
}

/// The pages of one input of the program.
pub(crate) struct InputPages<P> {
    pub(crate) column: ColumnId,
    pub(crate) column_type: ColumnType,
    page_of_block: Vec<u16>,
    first_block: Vec<usize>,
    slots: Vec<Slot<P>>,
}

impl<P: AsRef<[u8]>> InputPages<P> {
    /// The pages of `input`; the caller has checked that its chunk exists and covers the segment's
    /// rows.
    pub(crate) fn new(input: &Input, entries: &[PageEntry], blocks: usize) -> Self {
        let mut page_of_block = vec![0; blocks];
        let mut first_block = Vec::with_capacity(entries.len());
        for (page, entry) in (0_u16..).zip(entries) {
            let first = entry.first_row as usize / BLOCK_ROWS;
            let end = (entry.first_row as usize + entry.rows as usize).div_ceil(BLOCK_ROWS).min(blocks);
            first_block.push(first);
            page_of_block[first.min(end)..end].fill(page);
        }
        let slots = entries.iter().map(|_| Slot::Unread).collect();
        Self { column: input.column, column_type: input.column_type, page_of_block, first_block, slots }
    }

    pub(crate) fn page_of(&self, block: usize) -> usize {
        usize::from(self.page_of_block[block])
    }

    /// The first block of each page.
    pub(crate) fn first_blocks(&self) -> impl Iterator<Item = usize> {
        self.first_block.iter().copied()
    }

    /// The pages that hold at least one of these blocks.
    pub(crate) fn pages_of(&self, blocks: Range<usize>) -> Range<usize> {
        if blocks.is_empty() {
            return 0..0;
        }
        self.page_of(blocks.start)..self.page_of(blocks.end - 1) + 1
    }

    pub(crate) fn slots(&self) -> &[Slot<P>] {
        &self.slots
    }

    pub(crate) fn slot_mut(&mut self, page: usize) -> Option<&mut Slot<P>> {
        self.slots.get_mut(page)
    }

    /// Drops the pages that hold only blocks before `next`.
    pub(crate) fn consume_before(&mut self, next: usize) {
        let keep = if next < self.page_of_block.len() { self.page_of(next) } else { self.slots.len() };
        for slot in &mut self.slots[..keep] {
            if matches!(slot, Slot::Held(_)) {
                *slot = Slot::Consumed;
            }
        }
    }

    /// A view of the held pages of these blocks.
    pub(crate) fn views(&self, input: usize, blocks: Range<usize>) -> InputView<'_> {
        let pages = self.pages_of(blocks);
        let views = self.slots[pages.clone()].iter().map(|slot| match slot {
            Slot::Held(page) => {
                let view = page.view();
                Some(OpenPage { view, content: Content::of(&view) })
            }
            _ => None,
        });
        InputView {
            input,
            column_type: self.column_type,
            page_of_block: &self.page_of_block,
            first_block: &self.first_block,
            first_page: pages.start,
            views: views.collect(),
        }
    }
}

/// The pages of one input, for some range of blocks.
pub(crate) struct InputView<'a> {
    input: usize,
    pub(crate) column_type: ColumnType,
    page_of_block: &'a [u16],
    first_block: &'a [usize],
    first_page: usize,
    views: Vec<Option<OpenPage<'a>>>,
}

/// A page whose content was checked once, not for every block.
struct OpenPage<'a> {
    view: PageView<'a>,
    content: Content<'a>,
}

/// The decoded structure of a page that is needed block by block.
enum Content<'a> {
    Integers(IntegerPage<'a>),
    Dictionary(DictionaryPage<'a>),
    Compressed(FsstPage<'a>),
    /// Another encoding, or invalid content; the caller gets the reason by opening the page again.
    Other,
}

impl<'a> Content<'a> {
    fn of(view: &PageView<'a>) -> Self {
        match view.encoding() {
            Encoding::Dictionary => view.dictionary().map_or(Self::Other, Self::Dictionary),
            Encoding::Fsst => view.fsst().map_or(Self::Other, Self::Compressed),
            Encoding::Integer => view.integers().map_or(Self::Other, Self::Integers),
            Encoding::Float | Encoding::Plain => Self::Other,
        }
    }
}

/// A block within its page.
#[derive(Clone, Copy)]
pub(crate) struct PageBlock<'v, 'a> {
    pub(crate) view: &'v PageView<'a>,
    content: &'v Content<'a>,
    pub(crate) place: PagePosition,
    /// The block, counted within the page.
    pub(crate) block: usize,
}

impl<'a> InputView<'a> {
    #[inline]
    pub(crate) fn page_of(&self, block: usize) -> usize {
        usize::from(self.page_of_block[block])
    }

    #[inline]
    pub(crate) fn locate(&self, block: usize) -> Result<PageBlock<'_, 'a>, Fault> {
        let page = self.page_of(block);
        let place = PagePosition { input: self.input, page };
        let view = page.checked_sub(self.first_page).and_then(|index| self.views.get(index)?.as_ref());
        match view {
            Some(OpenPage { view, content }) => {
                Ok(PageBlock { view, content, place, block: block - self.first_block[page] })
            }
            // A scan requests every page that it needs, so this is a bug of this crate; it becomes
            // an error instead of a crash.
            None => Err(place.fault("the scan needs this page, but it was not read")),
        }
    }
}

impl<'v, 'a> PageBlock<'v, 'a> {
    /// The block as integers.
    #[inline]
    pub(crate) fn integer_block(&self) -> Result<IntegerBlock<'a>, Fault> {
        let page = match self.content {
            Content::Integers(page) => *page,
            // Opening the page again yields the reason why it has no integers.
            _ => self.view.integers().map_err(self.fault())?,
        };
        page.block(self.block).map_err(self.fault())
    }

    /// Whether the page has a dictionary.
    pub(crate) fn has_dictionary(&self) -> bool {
        self.view.encoding() == Encoding::Dictionary
    }

    /// The page as codes and their dictionary.
    pub(crate) fn dictionary(&self) -> Result<DictionaryPage<'a>, Fault> {
        match self.content {
            Content::Dictionary(page) => Ok(*page),
            _ => self.view.dictionary().map_err(self.fault()),
        }
    }

    /// The page as FSST-compressed texts, if it is encoded so.
    pub(crate) fn compressed(&self) -> Option<&'v FsstPage<'a>> {
        match self.content {
            Content::Compressed(page) => Some(page),
            _ => None,
        }
    }

    /// Rows of the block.
    pub(crate) fn rows(&self) -> usize {
        (self.view.rows() - self.block * BLOCK_ROWS).min(BLOCK_ROWS)
    }

    pub(crate) fn first_row(&self) -> usize {
        self.block * BLOCK_ROWS
    }

    /// Converts rows of the block to rows of the page.
    pub(crate) fn in_page(&self, rows: &[u32]) -> Vec<u32> {
        let first = u32::try_from(self.first_row());
        let first = first.expect("the first row of a block: the rows of a page are counted in 32 bits");
        rows.iter().map(|row| first.saturating_add(*row)).collect()
    }

    pub(crate) fn fault(&self) -> impl Fn(PageFault) -> Fault + use<> {
        let place = self.place;
        move |fault| place.fault(fault)
    }
}

/// The zone map and the row count of a page of `column`; an empty zone map proves nothing.
pub(crate) fn zone_of(directory: &SegmentDirectory, column: ColumnId, page: usize) -> Option<(&Zone, u32)> {
    let number = PageNumber(u16::try_from(page).ok()?);
    directory.page(column, number).map(|entry| (&entry.zone, entry.rows))
}
