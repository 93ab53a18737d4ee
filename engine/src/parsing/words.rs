//! Classifies tokens: keywords, words that slow the parser down when they are nested, and closing
//! brackets.

use datafusion::sql::sqlparser::{keywords::Keyword, tokenizer::Token};

/// Words after which sqlparser tries two alternatives. From [`FIRST_NAME`] on they may be names.
pub(super) const WORDS: [Keyword; 16] = [
    Keyword::NOT,
    Keyword::CASE,
    Keyword::CAST,
    Keyword::TRY_CAST,
    Keyword::SAFE_CAST,
    Keyword::EXISTS,
    Keyword::EXTRACT,
    Keyword::CEIL,
    Keyword::FLOOR,
    Keyword::POSITION,
    Keyword::SUBSTR,
    Keyword::SUBSTRING,
    Keyword::OVERLAY,
    Keyword::TRIM,
    Keyword::CONVERT,
    Keyword::ARRAY,
];

/// The first of [`WORDS`] that may be a name.
pub(super) const FIRST_NAME: usize = 2;

/// The index in [`WORDS`] of a token that is one of them and not quoted.
pub(super) fn word_of(token: &Token) -> Option<usize> {
    let Token::Word(word) = token else { return None };
    WORDS.iter().position(|known| word.quote_style.is_none() && word.keyword == *known)
}

/// Whether a token is one of these keywords and not quoted.
pub(super) fn is_word(token: &Token, words: &[Keyword]) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && words.contains(&word.keyword))
}

/// Whether a token closes what a bracket or CASE opened.
pub(super) fn is_end(token: &Token) -> bool {
    match token {
        Token::RParen | Token::RBracket | Token::RBrace => true,
        Token::Word(word) => word.quote_style.is_none() && word.keyword == Keyword::END,
        _ => false,
    }
}
