//! Lists the encodings of pages, with their numbers in page headers.

/// How a page stores its values. The numbers are part of the format and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Encoding {
    /// Integers, dates, timestamps, decimals and booleans.
    Integer = 1,
    /// Doubles.
    Float = 2,
    /// Texts with few distinct values.
    Dictionary = 3,
    /// Texts that have substrings in common.
    Fsst = 4,
    /// Texts that compress badly.
    Plain = 5,
}

impl Encoding {
    /// The encoding with this number, if there is one.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        let all = [Self::Integer, Self::Float, Self::Dictionary, Self::Fsst, Self::Plain];
        all.into_iter().find(|encoding| *encoding as u8 == number)
    }

    /// Its name, for messages.
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
