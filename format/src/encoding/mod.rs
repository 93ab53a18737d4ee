//! How do values become few bytes that 1,024 of them unpack in well under a microsecond?
//!
//! | page | holds | file |
//! |---|---|---|
//! | [`Encoding::Integer`] | blocks of packed differences to a reference, or of increments | [`integer`], [`bitpack`], [`delta`] |
//! | [`Encoding::Float`] | the doubles themselves | [`float`] |
//! | [`Encoding::Dictionary`] | sorted distinct texts, and packed codes | [`dictionary`] |
//! | [`Encoding::Fsst`] | texts compressed by a symbol table | [`mod@fsst`] |
//! | [`Encoding::Plain`] | texts as they are | [`plain`] |
//!
//! Invariants
//! - Every page is self-contained: what decoding needs is in it.
//! - A reader checks every offset, width, code and length before it follows it, per block where
//!   that is enough.
//! - Lanes are viewed in place, so the machine must be little-endian, as the format is.

#[cfg(target_endian = "big")]
compile_error!(
    "pages are little-endian and viewed in place: a big-endian target would need swapping readers"
);

pub mod bitpack;
pub mod delta;
pub mod dictionary;
mod distinct;
pub mod float;
pub mod fsst;
pub mod integer;
mod integer_plan;
pub mod plain;
pub mod text;
mod text_plan;
pub mod validity;

pub(crate) use self::{
    float::FloatChunk,
    integer_plan::IntegerChunk,
    text_plan::{TextRoom, choose as choose_text},
};

/// How a page stores its values; part of the format, never renumbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Encoding {
    /// Integers, dates, timestamps, decimals and booleans.
    Integer = 1,
    /// Doubles.
    Float = 2,
    /// Texts, of which few are distinct.
    Dictionary = 3,
    /// Texts that share parts.
    Fsst = 4,
    /// Texts that share nothing.
    Plain = 5,
}

impl Encoding {
    /// The encoding of that number, if there is one.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        let all = [Self::Integer, Self::Float, Self::Dictionary, Self::Fsst, Self::Plain];
        all.into_iter().find(|encoding| *encoding as u8 == number)
    }

    /// Its name, for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Integer => "integer",
            Self::Float => "float",
            Self::Dictionary => "dictionary",
            Self::Fsst => "fsst",
            Self::Plain => "plain",
        }
    }
}
