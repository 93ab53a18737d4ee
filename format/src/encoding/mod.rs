//! The encodings of pages: how values become few bytes that are decoded fast (1,024 of them in well
//! under a microsecond).
//!
//! | page | holds | file |
//! |---|---|---|
//! | [`Encoding::Integer`] | blocks of packed differences to a reference, or of increments | [`integer`], [`bitpack`], [`delta`] |
//! | [`Encoding::Float`] | the doubles themselves | [`float`] |
//! | [`Encoding::Dictionary`] | sorted distinct texts, and packed codes | [`dictionary`] |
//! | [`Encoding::Fsst`] | texts compressed by a symbol table | [`mod@fsst`] |
//! | [`Encoding::Plain`] | texts as they are | [`plain`] |
//!
//! These files define and read the pages. `integer_plan` and `text_plan` measure and write chunks
//! of integers and texts, `float` those of doubles; `distinct` finds the distinct texts of a chunk.
//! `encoder` is what all writers have in common, `text` what all pages of texts have in common,
//! `validity` the bitmap of null rows.
//!
//! Invariants
//! - Every page is self-contained: it holds everything that decoding it needs.
//! - A reader checks every offset, width, code and length before it uses it, once per block where
//!   that is enough.
//! - Lanes are viewed in place, so the machine must be little-endian like the format.

#[cfg(target_endian = "big")]
compile_error!(
    "pages are little-endian and viewed in place: a big-endian target would need swapping readers"
);

pub mod bitpack;
pub mod delta;
pub mod dictionary;
mod distinct;
pub(crate) mod encoder;
pub mod float;
pub mod fsst;
pub mod integer;
mod integer_plan;
mod kind;
pub mod plain;
pub mod text;
mod text_plan;
pub mod validity;

pub use kind::Encoding;

pub(crate) use self::{
    encoder::{ChunkEncoder, PageSummary},
    float::FloatChunk,
    integer_plan::IntegerChunk,
    text_plan::{TextScratch, choose as choose_text},
};
