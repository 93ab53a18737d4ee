//! Checks that names use the words of the glossary.
//!
//! `docs/GLOSSARY.md` has one standard word for each concept. Each word that a standard word
//! replaces has an entry, which says how many names still use it. This number may only shrink,
//! until the word has disappeared from the code.

use std::collections::BTreeMap;

use crate::Violation;
use crate::lex::code_of;

/// A word that must disappear from names.
#[derive(Debug, Clone, Copy)]
pub struct RetiredWord {
    /// The word, in lower case.
    pub word: &'static str,
    /// The word that the glossary uses instead.
    pub instead: &'static str,
    /// The number of uses of the word in names that are left.
    pub left: usize,
}

/// Words that the glossary replaces.
pub const RETIRED_WORDS: &[RetiredWord] = &[
    RetiredWord { word: "away", instead: "unavailable", left: 50 },
    RetiredWord { word: "brim", instead: "queue depth", left: 0 },
    RetiredWord { word: "bringing", instead: "rebuild", left: 0 },
    RetiredWord { word: "brought", instead: "rebuilt", left: 0 },
    RetiredWord { word: "course", instead: "scan feedback", left: 0 },
    RetiredWord { word: "deal", instead: "distribute", left: 0 },
    RetiredWord { word: "dealt", instead: "distributed", left: 0 },
    RetiredWord { word: "fate", instead: "outcome", left: 0 },
    RetiredWord { word: "fates", instead: "outcomes", left: 0 },
    RetiredWord { word: "glance", instead: "poll", left: 0 },
    RetiredWord { word: "home", instead: "participant", left: 0 },
    RetiredWord { word: "homes", instead: "participants", left: 0 },
    RetiredWord { word: "keeper", instead: "log replica", left: 0 },
    RetiredWord { word: "keepers", instead: "log replicas", left: 0 },
    RetiredWord { word: "knock", instead: "wake", left: 0 },
    RetiredWord { word: "mailbox", instead: "queue of messages between threads", left: 0 },
    RetiredWord { word: "mend", instead: "repair", left: 0 },
    RetiredWord { word: "mended", instead: "repaired", left: 0 },
    RetiredWord { word: "mending", instead: "repair", left: 0 },
    RetiredWord { word: "narrowing", instead: "runtime filter", left: 0 },
    RetiredWord { word: "orphan", instead: "in-doubt transaction", left: 0 },
    RetiredWord { word: "orphans", instead: "in-doubt transactions", left: 0 },
    RetiredWord { word: "pace", instead: "speed of a node", left: 75 },
    RetiredWord { word: "parcel", instead: "payload", left: 0 },
    RetiredWord { word: "rot", instead: "corruption", left: 0 },
    RetiredWord { word: "rotten", instead: "corrupt", left: 0 },
    RetiredWord { word: "seal", instead: "flush", left: 15 },
    RetiredWord { word: "sealed", instead: "flushed", left: 1 },
    RetiredWord { word: "sealer", instead: "flush", left: 0 },
    RetiredWord { word: "sealing", instead: "flush", left: 2 },
    RetiredWord { word: "stamp", instead: "timestamp", left: 0 },
    RetiredWord { word: "stamps", instead: "timestamps", left: 0 },
    RetiredWord { word: "succession", instead: "new table version", left: 0 },
    RetiredWord { word: "successor", instead: "new table version", left: 0 },
    RetiredWord { word: "tally", instead: "counters", left: 0 },
];

/// Returns words that more names contain than their entries allow, and entries that are out of
/// date.
pub fn retired_words<'a>(
    files: impl Iterator<Item = (&'a str, &'a str)>,
    words: &[RetiredWord],
) -> Vec<Violation> {
    let mut uses: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for (path, text) in files {
        for part in parts(&code_of(text)) {
            if let Some(retired) = words.iter().find(|retired| retired.word == part) {
                *uses.entry(retired.word).or_default().entry(path).or_default() += 1;
            }
        }
    }
    let judge = |retired: &RetiredWord| {
        let by_file = uses.get(retired.word);
        let found: usize = by_file.map_or(0, |by_file| by_file.values().sum());
        let most = by_file.and_then(|by_file| by_file.iter().max_by_key(|(_, count)| **count));
        let place = most.map_or("tidy/src/words.rs", |(path, _)| path);
        let RetiredWord { word, instead, left } = *retired;
        let what = if found > left {
            format!("{found} names with \"{word}\", at most {left} allowed, most of them here: say {instead}")
        } else {
            format!("{found} names with \"{word}\" are left: lower its entry in RETIRED_WORDS from {left}")
        };
        (found != left).then(|| Violation::of(place, what))
    };
    words.iter().filter_map(judge).collect()
}

/// The words of all names, in lower case: `LogReplica` and `log_replica` have two each.
fn parts(code: &str) -> impl Iterator<Item = String> {
    code.split(|c: char| !c.is_alphanumeric()).flat_map(|name| {
        let mut parts: Vec<String> = Vec::new();
        let mut after_capital = true;
        for c in name.chars() {
            let begins = parts.is_empty() || (c.is_uppercase() && !after_capital);
            if begins {
                parts.push(String::new());
            }
            after_capital = c.is_uppercase();
            parts.last_mut().into_iter().for_each(|part| part.extend(c.to_lowercase()));
        }
        parts
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_counted_by_their_words_and_entries_only_shrink() {
        let text = "fn stamp_of(last: Stamp, TIMESTAMP: u8) { \"stamp\" } // stamp\nconst STAMP_MAX: u8 = 1;";
        let judged = |left| {
            let words = [RetiredWord { word: "stamp", instead: "timestamp", left }];
            retired_words([("a/src/lib.rs", text)].into_iter(), &words)
        };
        assert!(judged(3).is_empty(), "{:?}", judged(3));
        assert!(judged(2)[0].what.contains("at most 2"));
        assert!(judged(4)[0].what.contains("lower its entry"));
    }
}
