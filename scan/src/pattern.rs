//! Matches texts against LIKE patterns that contain no `_`.
//!
//! Such a pattern is a sequence of pieces with anything between them: `%special%requests%`. Arrow's
//! kernel compiles patterns of three and more pieces to regular expressions; searching one piece
//! after the other is several times faster. Arrow's kernel is still used for patterns with `_`.
//!
//! Invariant: `Pattern::matches` equals arrow's `like` for every pattern that parses here.

use memchr::memmem::Finder;

/// A pattern as pieces: a match begins with `prefix`, ends with `suffix`, and has the pieces of
/// `middle` in this order between them.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    prefix: Vec<u8>,
    /// `None` if the pattern has no `%`: the text must equal the prefix.
    rest: Option<AfterPrefix>,
}

#[derive(Clone, Debug)]
struct AfterPrefix {
    middle: Vec<Finder<'static>>,
    suffix: Vec<u8>,
}

impl Pattern {
    /// Splits a pattern into its pieces. `None` if it has an unescaped `_`.
    pub(crate) fn parse(pattern: &str) -> Option<Self> {
        let mut pieces: Vec<Vec<u8>> = vec![Vec::new()];
        let mut bytes = pattern.bytes();
        while let Some(byte) = bytes.next() {
            match byte {
                b'_' => return None,
                b'%' => pieces.push(Vec::new()),
                // An escaped character stands for itself, and so does a lone escape at the end, as
                // in arrow.
                b'\\' => pieces.last_mut()?.push(bytes.next().unwrap_or(b'\\')),
                other => pieces.last_mut()?.push(other),
            }
        }
        let suffix = if pieces.len() > 1 { pieces.pop() } else { None };
        let mut pieces = pieces.into_iter();
        let prefix = pieces.next()?;
        let middle =
            pieces.filter(|piece| !piece.is_empty()).map(|piece| Finder::new(&piece).into_owned()).collect();
        Some(Self { prefix, rest: suffix.map(|suffix| AfterPrefix { middle, suffix }) })
    }

    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        let Some(mut text) = text.strip_prefix(self.prefix.as_slice()) else { return false };
        let Some(rest) = &self.rest else { return text.is_empty() };
        for piece in &rest.middle {
            match piece.find(text) {
                Some(at) => text = &text[at + piece.needle().len()..],
                None => return false,
            }
        }
        text.ends_with(&rest.suffix)
    }

    /// The text that every match begins with.
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// A piece that every match contains somewhere, with which many texts can be searched at once.
    pub(crate) fn needle(&self) -> Option<&Finder<'static>> {
        let rest = self.rest.as_ref()?;
        if !self.prefix.is_empty() {
            return None;
        }
        rest.middle.iter().max_by_key(|piece| piece.needle().len())
    }
}
