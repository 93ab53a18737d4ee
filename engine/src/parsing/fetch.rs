//! Rewrites `FETCH FIRST n ROWS ONLY` to `LIMIT n`.
//!
//! FETCH is standard SQL's LIMIT. sqlparser accepts only a constant for `n`, and no OFFSET after
//! it, so the text is rewritten before it is parsed. FETCH with TIES or PERCENT is not rewritten,
//! and is refused later.

use datafusion::sql::sqlparser::{
    keywords::Keyword,
    tokenizer::{Token, TokenWithSpan, Whitespace},
};

use super::words::is_word;

/// Rewrites FETCH to LIMIT.
pub(super) fn as_limit(tokens: &mut Vec<TokenWithSpan>) {
    if !tokens.iter().any(|token| is_word(&token.token, &[Keyword::FETCH])) {
        return;
    }
    let mut written = Vec::with_capacity(tokens.len());
    let mut rest = tokens.as_slice();
    while let Some((token, behind)) = rest.split_first() {
        let found = is_word(&token.token, &[Keyword::FETCH]).then(|| limit(rest)).flatten();
        if let Some(found) = found {
            written.extend(found.limit);
            rest = &rest[found.fetched..];
        } else {
            written.push(token.clone());
            rest = behind;
        }
    }
    *tokens = written;
}

struct Rewritten {
    /// How many tokens FETCH has.
    fetched: usize,
    limit: Vec<TokenWithSpan>,
}

/// The LIMIT of tokens that begin with FETCH, if they are a FETCH that LIMIT can express.
fn limit(tokens: &[TokenWithSpan]) -> Option<Rewritten> {
    let words: Vec<usize> = (0..tokens.len())
        .filter(|at| !matches!(tokens[*at].token, Token::Whitespace(_)))
        .take_while(|at| tokens[*at].token != Token::SemiColon)
        .take(WORDS_MAX)
        .collect();
    let is = |at: usize, keywords: &[Keyword]| {
        words.get(at).is_some_and(|at| is_word(&tokens[*at].token, keywords))
    };
    if !is(1, &[Keyword::FIRST, Keyword::NEXT]) {
        return None;
    }
    let rows = (2..words.len()).find(|at| is(*at, &[Keyword::ROW, Keyword::ROWS]))?;
    if !is(rows + 1, &[Keyword::ONLY]) || is(rows - 1, &[Keyword::PERCENT]) {
        return None;
    }
    let span = tokens[0].span;
    let blank = || TokenWithSpan::new(Token::Whitespace(Whitespace::Space), span);
    let mut limit = vec![TokenWithSpan::new(Token::make_keyword("LIMIT"), span), blank()];
    if rows == 2 {
        limit.push(TokenWithSpan::new(Token::Number("1".to_owned(), false), span));
    }
    limit.extend_from_slice(&tokens[words[1] + 1..words[rows]]);
    limit.push(blank());
    Some(Rewritten { fetched: words[rows + 1] + 1, limit })
}

/// How many words and signs of a FETCH are looked at, so that a text of many FETCHes takes little
/// time.
const WORDS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use crate::parsing::parse;

    #[test]
    fn fetch_is_limit() {
        for (sql, expected) in [
            ("SELECT a FROM t FETCH FIRST 2 ROWS ONLY", "SELECT a FROM t LIMIT 2"),
            ("SELECT a FROM t FETCH NEXT ROW ONLY", "SELECT a FROM t LIMIT 1"),
            ("(SELECT a FROM t FETCH FIRST (1 + 1) ROW ONLY)", "(SELECT a FROM t LIMIT (1 + 1))"),
            ("SELECT a FROM t FETCH FIRST -1 ROWS ONLY; SELECT 1", "SELECT a FROM t LIMIT -1"),
            ("SELECT a FROM t FETCH FIRST 2 ROWS ONLY OFFSET 1", "SELECT a FROM t LIMIT 2 OFFSET 1"),
            (
                "SELECT a FROM t OFFSET 3 ROWS FETCH FIRST 2 ROWS ONLY",
                "SELECT a FROM t LIMIT 2 OFFSET 3 ROWS",
            ),
        ] {
            assert_eq!(parse(sql).unwrap()[0].to_string(), expected);
        }
        assert!(parse("SELECT a FROM t LIMIT 1 FETCH FIRST 2 ROWS ONLY").is_err());
        let ties = "SELECT a FROM t ORDER BY a FETCH FIRST 2 ROWS WITH TIES";
        assert_eq!(parse(ties).unwrap()[0].to_string(), ties);
    }
}
