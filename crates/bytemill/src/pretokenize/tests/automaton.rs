//! The automaton of custom patterns, and of several in a row, against the backtracking engine.

use super::super::automaton::{Automaton, Scan, Stop};
use super::super::custom::CustomPattern;
use super::super::pattern::Steps;
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
        let _built = pattern.has_automaton();
        Pattern::Custom(Box::new(pattern))
    };
    Some((expression, of(CustomPattern::new(expression).ok()?), of(CustomPattern::backtracking(expression).ok()?)))
}

fn has_automaton(expression: &str) -> bool {
    CustomPattern::new(expression).is_ok_and(|pattern| pattern.has_automaton())
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

/// Steps of published tokenizers, and smaller ones that meet in every way.
const STEPS: [&[&str]; 13] = [
    // DeepSeek-V2; its class of letters is longer
    &[
        "[\r\n]",
        r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓͰ-ͳΑ-Ωα-ωЀ-ҁ𐐀-𐑏]+",
        r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
        r"\s+(?=\n|\z)",
        "[一-龥ࠀ-一가-\u{d7ff}]+",
        r"\p{N}",
    ],
    // DeepSeek-Coder
    &["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\u{d7ff}]+", r"\p{N}"],
    // Falcon, without what divides characters
    &[r"[\p{P}]+", r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", "[0-9][0-9][0-9]"],
    &[r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", EXPRESSIONS[2]],
    CLIP,
    &["a", "b"],
    &["ab", "b+", r"\s+(?!\S)|\s+"],
    &[r"a\s|b", r"\s?b|c+", r"\s+(?=\n|\z)"],
    &[r"\s+(?!\S)", r"\s\s", "a|b"],
    &["aab|c", "a*b", r"\s|ac"],
    &[r"[ab]+c", r"a?b", r"(?:ba)+|\s\s\s"],
    &[r"\S+(?=\n|\z)|b", "a{2}|b{3}", "[^a]"],
    &["x|", "a|b|c", "."],
];

const CLIP: &[&str] = &[
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
];

/// The steps by one automaton and one by one.
static STEP_PATTERNS: LazyLock<Vec<(String, Pattern, Pattern)>> =
    LazyLock::new(|| STEPS.iter().map(|steps| both_of_steps(&steps.join(THEN))).collect());

fn both_of_steps(steps: &str) -> (String, Pattern, Pattern) {
    let automaton = Steps::new(steps).unwrap();
    let _built = automaton.matcher();
    let one_by_one = Steps::one_by_one(steps).unwrap();
    (steps.to_owned(), Pattern::Steps(Box::new(automaton)), Pattern::Steps(Box::new(one_by_one)))
}

#[test]
fn all_steps_have_one_automaton() {
    for steps in STEPS {
        assert!(Automaton::new(steps).is_some(), "{steps:?}");
    }
    assert!(Automaton::new(&["a", "(?=a)b"]).is_none());
}

proptest! {
    #[test]
    fn several_steps_at_once_split_as_one_by_one(text in prop::collection::vec(character(), 0..40).prop_map(String::from_iter)) {
        for (steps, automaton, one_by_one) in &*STEP_PATTERNS {
            prop_assert_eq!(pretokens(automaton, &text), pretokens(one_by_one, &text), "{}", steps);
        }
    }

    #[test]
    fn several_steps_at_once_split_short_alphabets_as_one_by_one(text in "[abc \n'1é一.]{0,40}") {
        for (steps, automaton, one_by_one) in &*STEP_PATTERNS {
            prop_assert_eq!(pretokens(automaton, &text), pretokens(one_by_one, &text), "{}", steps);
        }
    }

    /// Runs that are longer than what an automaton remembers, between others.
    #[test]
    fn splits_where_the_automaton_gives_up_are_those_of_the_engine(
        runs in prop::collection::vec(("[abc \n'é]", prop_oneof![3 => 1usize..4, 1 => 25usize..80]), 0..14),
    ) {
        let text: String = runs.iter().map(|(run, n)| run.repeat(*n)).collect();
        for (expression, automaton, engine) in &*PATTERNS {
            prop_assert_eq!(pretokens(automaton, &text), pretokens(engine, &text), "{}", expression);
        }
        for (steps, automaton, one_by_one) in &*STEP_PATTERNS {
            prop_assert_eq!(pretokens(automaton, &text), pretokens(one_by_one, &text), "{}", steps);
        }
    }

    #[test]
    fn random_steps_split_as_one_by_one(
        steps in prop::collection::vec(
            r"([abc ]|\\s|\\S|\[ab\]|\(\?:a\|b\)|\||[abc][+*?]|\\s\?|\\s\+\(\?!\\S\)\||a\{1,2\}){1,5}", 2..4,
        ),
        texts in prop::collection::vec("[abc ]{0,14}", 4),
    ) {
        let expression = steps.join(THEN);
        if Steps::new(&expression).is_ok_and(|steps| steps.matcher() == Matcher::Automaton) {
            let (_, automaton, one_by_one) = both_of_steps(&expression);
            for text in &texts {
                prop_assert_eq!(pretokens(&automaton, text), pretokens(&one_by_one, text), "{}", expression);
            }
        }
    }

    /// Unmatched text is dropped by the automaton where it can occur only after the automaton has given up, else by the engine.
    #[test]
    fn unmatched_text_is_dropped_as_by_the_engine(text in "[ab c\n'.é]{0,60}", n in 0usize..40) {
        let text = [text.as_str(), &"a".repeat(n), &text].concat();
        for (expression, automaton, engine) in &*PATTERNS {
            let [automaton, engine] = [automaton, engine].map(|pattern| pattern.clone().dropping_unmatched(true));
            prop_assert_eq!(pretokens(&automaton, &text), pretokens(&engine, &text), "{}", expression);
        }
    }
}

#[test]
fn steps_continue_at_the_last_cut_before_the_automaton_gives_up() {
    let (_, automaton, one_by_one) = both_of_steps(&CLIP.join(THEN));
    let (mut ends, text) = (Vec::new(), "it's 12 <|startoftext|>");
    let whole = Automaton::new(CLIP).unwrap();
    let mut scan = Scan::new(&whole, text);
    assert_eq!((scan.fill(&mut ends), scan.last_cut), (Stop::Lost, 8));
    for text in [text, "a!<|startoftext|>!b", "<|start<|endoftext|>!! é'll<|endof", "日<|startoftext|>'s<|"] {
        let text = text.repeat(20);
        assert_eq!(pretokens(&automaton, &text), pretokens(&one_by_one, &text));
    }
}

#[test]
fn an_automaton_gives_up_in_long_runs_only() {
    let of = |expression: &str, text: &str| {
        let (automaton, mut ends) = (Automaton::new(&[expression]).unwrap(), Vec::new());
        let stop = Scan::new(&automaton, text).fill(&mut ends);
        (stop, ends)
    };
    assert_eq!(of("a*b", "xxaab"), (Stop::End, vec![2, 5]));
    assert_eq!(of("a*b", "xx"), (Stop::End, vec![2]));
    assert_eq!(of("a*b", &"a".repeat(32)), (Stop::End, vec![32]));
    assert_eq!(of("a*b", &["b", &"a".repeat(33)].concat()), (Stop::Lost, vec![1]));
    let code = format!("x\n{}y", " ".repeat(24));
    assert_eq!(of(r"\S+|\s*\n|\s+(?!\S)|\s+", &code), (Stop::End, vec![1, 2, 25, 26, 27]));
}

/// Versions 0.19 and 0.20 of the crate `fancy-regex` find "c" here.
#[test]
fn the_engine_takes_both_of_two_repetitions() {
    for (text, split) in [("c ", vec!["c "]), ("cc ", vec!["cc", " "])] {
        assert_eq!(pretokens(&Pattern::Custom(Box::new(CustomPattern::backtracking("c+a?c+").unwrap())), text), split);
    }
}

#[test]
fn a_search_in_vain_ends() {
    let text = "a".repeat(1 << 20);
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
