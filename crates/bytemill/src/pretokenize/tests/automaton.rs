//! The automaton of custom patterns against the backtracking engine.

use super::super::automaton::{Automaton, Found};
use super::super::custom::CustomPattern;
use super::super::{Matcher, NAMED, Pattern, THEN};
use super::{character, pretokens};
use proptest::prelude::*;
use std::sync::LazyLock;

/// Expressions of published tokenizers, and smaller ones with every construct. All have an automaton.
const EXPRESSIONS: [&str; 34] = [
    // DeepSeek-V3, three steps
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
    // Qwen 3.5
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    // StarCoder in one step
    r"\p{N}|'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+",
    // BLOOM
    r" ?[^(\s|[.,!?…。，、।۔،])]+",
    // Seed-Coder
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",
    // Kimi K2
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    // DeepSeek-V2
    r"\s+(?=\n|\z)",
    r"[ab]+(?=\n|\z)|a|\s",
    r"\S+(?m:$)|[a-z--b]",
    // Falcon
    r"[0-9][0-9][0-9]",
    r"\s+(?!\S)|\s+",
    r"\s+(?!\S)",
    r"a|\s+(?!\S)|b+|\s",
    r"\s+(?!\S)|\p{L}+|\s\S",
    r"\S+|\s+",
    r"\w+|[^\w\s]+",
    r"(?:[ab]{1,9}c){1,3}",
    r".",
    r"(?:a|ab)(?:c|bcd)?",
    r"a+?b|a*",
    r"a{2,3}|b{2}|c{1,}?",
    r"(a|b)+",
    r"(?i:straße|ſ)|k",
    r"\d+(?:\.\d+)?|[^\d]",
    r"x|",
    r"a*b",
    r"[a-c&&d]|[\[\]|()]+",
    r"\p{Han}+|\p{Lu}\p{Ll}*",
    r"\t|\n|\r|\f|\v|\.|\-|\||\(",
    r"[^a]",
    r"(?:(?:a|b)(?:c|d))+|\p{M}+",
    r"'[^\n]*'|.",
];

/// Expressions that are left to the backtracking engine.
const OTHERS: [&str; 22] = [
    r"a++b",
    r"a*+",
    r"a?+b",
    r"a{1,3}+",
    r"(?=a)b",
    r"(?<!a)b",
    r"a(?!b)",
    r"(?>a)b",
    r"(a)\1",
    r"\ba",
    r"^a",
    r"a$",
    r"\Aa",
    r"\Ga",
    r"(?x)a b",
    r"(?m:^a)",
    r"\s+(?!a)|\s",
    r"\s+(?!\S)|\s+(?!\S)",
    r"[]a]|b",
    r"(?P<n>a)",
    r"\Ka",
    r"(?s:.)",
];

/// Each expression, by the automaton and by the engine.
static PATTERNS: LazyLock<Vec<(&str, Pattern, Pattern)>> =
    LazyLock::new(|| EXPRESSIONS.iter().map(|expression| both(expression).unwrap()).collect());

fn both(expression: &str) -> Option<(&str, Pattern, Pattern)> {
    let of = |pattern: CustomPattern| {
        let _is_built = pattern.is_automaton();
        Pattern::Custom(Box::new(pattern))
    };
    Some((expression, of(CustomPattern::new(expression).ok()?), of(CustomPattern::backtracking(expression).ok()?)))
}

fn has_automaton(expression: &str) -> bool {
    CustomPattern::new(expression).is_ok_and(|pattern| pattern.is_automaton())
}

#[test]
fn known_expressions_have_an_automaton_and_others_do_not() {
    for expression in EXPRESSIONS {
        assert!(has_automaton(expression), "{expression}");
    }
    for expression in OTHERS {
        assert!(!has_automaton(expression), "{expression}");
    }
}

proptest! {
    #[test]
    fn the_automaton_splits_as_the_engine(text in prop::collection::vec(character(), 0..40).prop_map(String::from_iter)) {
        for (expression, automaton, engine) in &*PATTERNS {
            prop_assert_eq!(pretokens(automaton, &text), pretokens(engine, &text), "{}", expression);
        }
    }

    #[test]
    fn the_automaton_splits_short_alphabets_as_the_engine(text in "[ab c\n'.]{0,30}") {
        for (expression, automaton, engine) in &*PATTERNS {
            prop_assert_eq!(pretokens(automaton, &text), pretokens(engine, &text), "{}", expression);
        }
    }

    /// Random expressions over a few characters: whatever has an automaton splits as the engine does.
    #[test]
    fn random_expressions_split_as_the_engine(
        expression in r"([abc ]|\\s|\\S|\[ab\]|\[\^a\]|\(\?:a\|b\)|\(ab\||\)|\||[abc][+*?]|[ab][+*?]\?|\\s\+\(\?!\\S\)\||a\{1,2\}){1,7}",
        texts in prop::collection::vec("[abc ]{0,12}", 4),
    ) {
        if let Some((_, automaton, engine)) = both(&expression) {
            for text in &texts {
                prop_assert_eq!(pretokens(&automaton, text), pretokens(&engine, text), "{}", expression);
            }
        }
    }
}

#[test]
fn named_patterns_without_possessive_quantifiers_have_an_automaton_too() {
    for named in &NAMED {
        assert_eq!(has_automaton(named.expression), !named.expression.contains("++"), "{}", named.name);
    }
}

#[test]
fn a_search_in_vain_ends() {
    let automaton = Automaton::new("a*b").unwrap();
    let text = "a".repeat(1 << 20);
    assert!(matches!(automaton.find(&text, 0), Found::Unknown(at) if at < 100));
    assert_eq!(automaton.find("xxaab", 0), Found::Match(2, 5));
    assert_eq!(automaton.find("xx", 0), Found::None);
    let pattern = Pattern::new(Some("a*b")).unwrap();
    assert_eq!(pretokens(&pattern, &text), [text.as_str()]);
    assert_eq!(pattern.matcher(), Matcher::Automaton);
}

#[test]
fn steps_use_automata() {
    let deepseek = EXPRESSIONS[..3].join(THEN);
    let pattern = Pattern::new(Some(&deepseek)).unwrap();
    let text = "In 12345 days, 中文 und (naïve) words!\n\n  end";
    let split =
        ["In", " ", "123", "45", " days", ",", " ", "中文", " und", " (", "naïve", ")", " words", "!\n\n", " ", " end"];
    assert_eq!(pretokens(&pattern, text), split);
}
