//! Opens the values of a page with the reader of its encoding.

use super::{PageFault, PageView};
use crate::encoding::{
    Encoding, dictionary::DictionaryPage, float::FloatPage, fsst::FsstPage, integer::IntegerPage,
    plain::PlainPage,
};

impl<'p> PageView<'p> {
    /// The page's integers (every column type but floats and text).
    ///
    /// # Errors
    /// When the page holds something else, or its sections do not fit it.
    pub fn integers(&self) -> Result<IntegerPage<'p>, PageFault> {
        self.expect_encoding(Encoding::Integer)?;
        IntegerPage::open(self, self.header.divisor)
    }

    /// The page's floats.
    ///
    /// # Errors
    /// As [`Self::integers`].
    pub fn floats(&self) -> Result<FloatPage<'p>, PageFault> {
        self.expect_encoding(Encoding::Float)?;
        FloatPage::open(self)
    }

    /// The page's texts, when they are stored as codes of a sorted dictionary.
    ///
    /// # Errors
    /// As [`Self::integers`].
    pub fn dictionary(&self) -> Result<DictionaryPage<'p>, PageFault> {
        self.expect_encoding(Encoding::Dictionary)?;
        DictionaryPage::open(self)
    }

    /// The page's texts, when they are compressed with a symbol table.
    ///
    /// # Errors
    /// As [`Self::integers`].
    pub fn fsst(&self) -> Result<FsstPage<'p>, PageFault> {
        self.expect_encoding(Encoding::Fsst)?;
        FsstPage::open(self)
    }

    /// The page's texts, when they are stored uncompressed.
    ///
    /// # Errors
    /// As [`Self::integers`].
    pub fn plain(&self) -> Result<PlainPage<'p>, PageFault> {
        self.expect_encoding(Encoding::Plain)?;
        PlainPage::open(self)
    }

    fn expect_encoding(&self, wanted: Encoding) -> Result<(), PageFault> {
        if self.encoding == wanted {
            return Ok(());
        }
        Err(PageFault::Encoding { wanted: wanted.name(), found: self.header.encoding })
    }
}
