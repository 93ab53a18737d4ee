//! Parses any text into statements, with bounded time and stack.
//!
//! ```text
//! text --> tokens --> refused if they nest too deeply
//!                 --> statements, parsed on a stack that is large enough for their depth
//!                 --> long chains of AND, OR and UNION become balanced trees (`chains`); other long chains are refused
//! ```
//!
//! Invariants
//! - The time is about proportional to the length of the text: no part is parsed twice at each of
//!   many levels.
//! - The depth of a statement is bounded (`depth`), so that all code that walks it needs a bounded
//!   stack.

mod chains;
mod depth;
mod dialect;
mod fetch;
mod with_queries;
mod words;

use std::{collections::VecDeque, panic::catch_unwind};

use datafusion::sql::{
    parser::{DFParserBuilder, Statement},
    sqlparser::{
        keywords::Keyword,
        tokenizer::{Token, TokenWithSpan, Tokenizer},
    },
};

use crate::{
    error::EngineError,
    limits::{
        PARSER_DEPTH_MAX, QUERIES_MAX, REPEATED_TOKENS_MAX, SHALLOW_DEPTH_MAX, SHALLOW_TEXT_BYTES_MAX,
        STACK_BYTES, STACK_BYTES_PER_TEXT_BYTE, STATEMENT_BYTES_MAX, STATEMENT_DEPTH_MAX, WORDS_DEPTH_MAX,
    },
};
pub(crate) use depth::{OnLargeStack, is_deep, with_stack_for};
use dialect::Sql;
use words::{FIRST_NAME, WORDS, is_end, is_word, word_of};

/// The statements of a text.
///
/// # Errors
/// A text that is not SQL, or deeper than [`STATEMENT_DEPTH_MAX`].
pub(crate) fn parse(text: &str) -> Result<VecDeque<Statement>, EngineError> {
    catch_unwind(|| statements(text)).unwrap_or_else(|panic| Err(EngineError::of_panic(panic.as_ref())))
}

fn statements(text: &str) -> Result<VecDeque<Statement>, EngineError> {
    if text.len() > STATEMENT_BYTES_MAX {
        let found = text.len();
        return Err(EngineError::TooDeep(format!(
            "a text of {found} bytes, expected at most {STATEMENT_BYTES_MAX}: send its statements one by one"
        )));
    }
    let tokens = Tokenizer::new(&Sql { no_names: Vec::new() }, text).tokenize_with_location();
    let mut tokens = tokens.map_err(|error| EngineError::Syntax(error.to_string()))?;
    with_queries::leave_hints_out(&mut tokens);
    fetch::as_limit(&mut tokens);
    let depth = Depth::of(&tokens);
    depth.check()?;
    let work = || -> Result<VecDeque<Statement>, EngineError> {
        let dialect = Sql { no_names: depth.no_names() };
        let parser =
            DFParserBuilder::new(tokens).with_dialect(&dialect).with_recursion_limit(PARSER_DEPTH_MAX);
        let parsed = parser.build().and_then(|mut parser| parser.parse_statements());
        let mut statements = parsed.map_err(|error| not_parsed(EngineError::from_datafusion(error)))?;
        statements.iter_mut().try_for_each(chains::balance)?;
        // Statements that are too deep are dropped here, where the stack is large enough.
        statements.iter().try_for_each(depth::check)?;
        statements.iter().try_for_each(with_queries::check)?;
        Ok(statements)
    };
    if text.len() <= SHALLOW_TEXT_BYTES_MAX && depth.deepest <= SHALLOW_DEPTH_MAX {
        return work();
    }
    // Until a chain is balanced, each of its operators is a level.
    stacker::grow(STACK_BYTES + text.len() * STACK_BYTES_PER_TEXT_BYTE, work)
}

/// The error for SQL that sqlparser does not know.
fn not_parsed(error: EngineError) -> EngineError {
    match error {
        EngineError::Syntax(text) if text.to_ascii_lowercase().contains("expected: ), found: exclude ") => {
            EngineError::NotSupported(format!("EXCLUDE in the frame of a window is not supported: {text}"))
        }
        other => other,
    }
}

/// How deep the expressions of a text nest, measured by its tokens.
#[derive(Debug, Default)]
struct Depth {
    deepest: usize,
    /// Brackets, or INTERVAL, directly after each other.
    repeats: usize,
    /// SELECT and JOIN in one statement: the parser takes kilobytes for each.
    queries: usize,
    /// Whether the explained statement is an EXPLAIN itself.
    explains: bool,
    /// For each word: the deepest nesting of the word, and whether it is also used as a name.
    words: [(usize, bool); WORDS.len()],
}

impl Depth {
    fn of(tokens: &[TokenWithSpan]) -> Self {
        let mut depth = Self::default();
        // For each open parenthesis or CASE: its depth, and the word before it.
        let mut open: Vec<(usize, Option<usize>)> = Vec::new();
        let mut within = [0_usize; WORDS.len()];
        // The previous word, and how many signs and NOT precede in a row.
        let (mut last, mut prefixes) = (None::<usize>, 0);
        let (mut before, mut repeats, mut begins_type, mut queries) = (None, 0, false, 0);
        let tokens = tokens.iter().map(|token| &token.token);
        for token in tokens.filter(|token| !matches!(token, Token::Whitespace(_))) {
            let begun = open.last().map_or(0, |(begun, _)| *begun);
            let opens = match token {
                Token::LParen | Token::LBracket | Token::LBrace => true,
                // `ARRAY<`, `STRUCT<` and `MAP<` of a type.
                Token::Lt => begins_type,
                Token::Word(word) => word.quote_style.is_none() && word.keyword == Keyword::CASE,
                _ => false,
            };
            begins_type = is_word(token, &[Keyword::ARRAY, Keyword::STRUCT, Keyword::MAP]);
            repeats = match token {
                Token::RBracket if before == Some(&Token::LBracket) => repeats + 1,
                Token::LBracket if before == Some(&Token::RBracket) => repeats,
                Token::Word(_) if is_word(token, &[Keyword::INTERVAL]) => repeats + 1,
                _ => 0,
            };
            depth.repeats = depth.repeats.max(repeats);
            queries = match token {
                Token::SemiColon => 0,
                _ => queries + usize::from(is_word(token, &[Keyword::SELECT, Keyword::JOIN])),
            };
            depth.queries = depth.queries.max(queries);
            let is_explain = is_word(token, &[Keyword::EXPLAIN]);
            depth.explains |= is_explain && before.is_some_and(|before| is_word(before, &[Keyword::EXPLAIN]));
            before = Some(token);
            if let Some(word) = last.filter(|_| !opens) {
                depth.words[word].1 = true;
            }
            if opens {
                let word = last.or(if matches!(token, Token::Word(_)) { word_of(token) } else { None });
                // `NOT (` is one level.
                open.push((begun + prefixes.max(1), word));
                if let Some(word) = word {
                    within[word] += 1;
                    depth.words[word].0 = depth.words[word].0.max(within[word]);
                }
            } else if is_end(token)
                && let Some((_, Some(word))) = open.pop()
            {
                within[word] -= 1;
            }
            let is_prefix =
                word_of(token) == Some(0) || matches!(token, Token::Minus | Token::Plus | Token::Tilde);
            prefixes = if is_prefix { prefixes + 1 } else { 0 };
            last = if opens { None } else { word_of(token) };
            let now = open.last().map_or(0, |(begun, _)| *begun) + prefixes;
            depth.deepest = depth.deepest.max(now);
        }
        depth
    }

    fn check(&self) -> Result<(), EngineError> {
        if self.deepest > STATEMENT_DEPTH_MAX {
            return Err(EngineError::TooDeep(format!(
                "expressions nested {} levels deep, expected at most {STATEMENT_DEPTH_MAX}: simplify some of them",
                self.deepest
            )));
        }
        if self.repeats > REPEATED_TOKENS_MAX {
            let found = self.repeats;
            return Err(EngineError::TooDeep(format!(
                "{found} opening brackets or words INTERVAL right after each other, expected at most {REPEATED_TOKENS_MAX}"
            )));
        }
        if self.queries > QUERIES_MAX {
            let found = self.queries;
            return Err(EngineError::TooDeep(format!(
                "{found} queries and joins, expected at most {QUERIES_MAX}"
            )));
        }
        if self.explains {
            return Err(EngineError::TooDeep("EXPLAIN of EXPLAIN, expected only one EXPLAIN".to_owned()));
        }
        let is_ambiguous = |at: &usize| self.words[*at].1 && self.words[*at].0 > WORDS_DEPTH_MAX;
        match (FIRST_NAME..WORDS.len()).find(is_ambiguous) {
            None => Ok(()),
            Some(at) => Err(EngineError::TooDeep(format!(
                "the word {:?} both as a name and nested {} levels deep, expected at most {WORDS_DEPTH_MAX} levels: put the name into double quotes",
                WORDS[at], self.words[at].0
            ))),
        }
    }

    /// The words that are nowhere used as names.
    fn no_names(&self) -> Vec<Keyword> {
        let is_none = |at: &usize| *at < FIRST_NAME || !self.words[*at].1;
        (0..WORDS.len()).filter(is_none).map(|at| WORDS[at]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SUBQUERIES_DEPTH_MAX;
    use std::time::{Duration, Instant};

    fn refused(text: &str) -> String {
        parse(text).map(|statements| statements.len()).unwrap_err().to_string()
    }

    #[test]
    fn deep_expressions_are_parsed_and_deeper_ones_refused_with_both_numbers() {
        for (begin, end) in
            [("not (", ")"), ("(", ")"), ("- (", ")"), ("abs(", ")"), ("case when true then ", " end")]
        {
            let nested = |times: usize| format!("select {}1{}", begin.repeat(times), end.repeat(times));
            assert_eq!(parse(&nested(100)).unwrap().len(), 1, "{begin}");
            let message = refused(&nested(5000));
            assert!(message.contains("deep") && message.contains("at most"), "{message}");
        }
        assert!(refused(&format!("select {} true", "not ".repeat(5000))).contains("5000 levels deep"));
    }

    #[test]
    fn deep_expressions_that_are_wrong_are_told_at_once() {
        for begin in
            ["not (", "(", "ceil(", "case when ", "cast(", "substring(", "exists (", "extract(year from "]
        {
            let begun = Instant::now();
            refused(&format!("select {} from from", begin.repeat(100)));
            refused(&format!("select floor, ceil from t where {} 1 1", begin.repeat(100)));
            assert!(begun.elapsed() < Duration::from_secs(20), "{begin}");
        }
    }

    #[test]
    fn subqueries_are_planned_to_a_depth_and_refused_beyond_it() {
        for (begin, end) in [
            ("(select ", ")"),
            ("exists (select 1 where ", ")"),
            ("1 in (select 1 where ", ")"),
            ("1 = any (select 1 where ", ")"),
        ] {
            let nested = |times: usize| format!("select {}true{}", begin.repeat(times), end.repeat(times));
            assert_eq!(parse(&nested(SUBQUERIES_DEPTH_MAX)).unwrap().len(), 1, "{begin}");
            let message = refused(&nested(SUBQUERIES_DEPTH_MAX + 1));
            assert!(message.contains("subqueries nested more than 12 levels deep"), "{begin}: {message}");
        }
        // Beside each other they may be many, and in FROM they are no levels.
        parse(&format!("select 1{}", " + (select 1)".repeat(100))).unwrap();
        parse(&format!("{}select 1 a{}", "select * from (".repeat(40), ") t".repeat(40))).unwrap();
    }

    #[test]
    fn shapes_without_parentheses_are_refused_when_they_are_deep() {
        let deep =
            |begin: &str, link: &str, times: usize, end: &str| format!("{begin}{}{end}", link.repeat(times));
        for text in [
            deep("select 1::int", "[]", 20_000, ""),
            deep("select 1::", "array<", 300_000, "int"),
            deep("", "explain ", 500_000, "select 1"),
            deep("select ", "[", 300_000, "1"),
            deep("select ", "interval ", 400_000, "'1 day'"),
            deep("select a", " = 1 is distinct from a", 9_000, ""),
            deep("select ", "array[", 40, "1 from from"),
            deep("select ", "{a: ", 3000, "1"),
        ] {
            refused(&text);
        }
        let sums = |sum: String, _| format!("a + ({sum}){}", " + a".repeat(300));
        assert!(refused(&format!("select {}", (0..20).fold("a".to_owned(), sums))).contains("deep"));
        let ors = |or: String, _| format!("a = 1 or ({or}){}", " or a = 1".repeat(28));
        assert!(refused(&format!("select {}", (0..100).fold("a".to_owned(), ors))).contains("deep"));
    }

    #[test]
    fn words_are_names_where_they_are_used_as_names() {
        for text in [
            "select floor, ceil(floor), position from t",
            "select cast(a as int) as trim, case when not a then 1 end from t",
            "select \"not\" from t where not \"case\"",
        ] {
            assert_eq!(parse(text).unwrap()[0].to_string().to_lowercase(), text);
        }
    }
}
