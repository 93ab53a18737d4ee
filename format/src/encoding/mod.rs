//! Encodes the values of pages in few bytes, and decodes them fast (1,024 values in well under a
//! microsecond).
//!
//! | type of page | contents | file |
//! |---|---|---|
//! | [`Encoding::Integer`] | blocks of bit-packed differences to a reference value, or of increments | [`integer`], [`bitpack`], [`delta`] |
//! | [`Encoding::Float`] | the doubles themselves | [`float`] |
//! | [`Encoding::Dictionary`] | sorted distinct texts, and a bit-packed code for each row | [`dictionary`] |
//! | [`Encoding::Fsst`] | texts compressed by a table of symbols | [`mod@fsst`] |
//! | [`Encoding::Plain`] | texts as they are | [`plain`] |
//!
//! | other file | contents |
//! |---|---|
//! | `integer_plan`, `text_plan` | measure and write chunks of integers and texts (`float` does this for doubles) |
//! | `distinct` | finds the distinct texts of a chunk |
//! | `encoder` | the interface of all writers |
//! | `text` | what all pages of texts have in common |
//! | `validity` | the bitmap of null rows |
//!
//! Invariants
//! - Every page is self-contained: everything that decoding it needs is in the page.
//! - A reader checks every offset, width, code and length before it uses it, once per block where
//!   that is enough.
//! - Packed integers are read in place, so the machine must be little-endian like the format.

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
