//! The hand-written matchers against a regex engine.

use super::*;
use proptest::prelude::*;

/// The pre-tokens by the regex engine alone.
fn by_regex<'t>(expression: &str, text: &'t str) -> Vec<&'t str> {
    let pattern = Pattern::Custom(Box::new(CustomPattern::new(expression).unwrap()));
    pretokens(&pattern, text)
}

fn pretokens<'t>(pattern: &Pattern, text: &'t str) -> Vec<&'t str> {
    let mut all = Vec::new();
    pattern.for_each(text, |pretoken| all.push(pretoken)).unwrap();
    all
}

/// Characters of every class, with all that the patterns name among them, and any character at all now and then.
fn character() -> impl Strategy<Value = char> {
    let chosen: Vec<char> = "aZésSſtTmMdDlLvVrReEkK'’ \t\r\n\u{b}\u{85}\u{a0}\u{180e}\u{2003}\u{2028}\u{3000}019²½٣Ⅷ.,-/!\
        \u{300}\u{301}\u{1f3fb}😀ǅʰªあ一한рЖशि\u{94d}ا\u{200d}\u{200b}_\0\u{7f}"
        .chars()
        .collect();
    prop_oneof![8 => prop::sample::select(chosen), 1 => any::<char>()]
}

fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(character(), 0..40).prop_map(|characters| characters.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn named_patterns_split_as_their_expressions_do(text in text()) {
        for (name, expression) in NAMED.iter().chain(&SYNONYMS) {
            let pattern = Pattern::new(Some(expression)).unwrap();
            prop_assert!(!matches!(pattern, Pattern::Custom(_)), "{name}");
            prop_assert_eq!(pretokens(&pattern, &text), by_regex(expression, &text), "{}", name);
        }
    }

    #[test]
    fn cuts_change_no_pretoken(text in text()) {
        for (name, _) in NAMED {
            let pattern = Pattern::new(Some(name)).unwrap();
            let whole = pretokens(&pattern, &text);
            let mut ceiling = text.len();
            while let Some(cut) = pattern.last_cut(&text, 0, ceiling, |_| true) {
                let mut parts = pretokens(&pattern, &text[..cut]);
                parts.extend(pretokens(&pattern, &text[cut..]));
                prop_assert_eq!(&parts, &whole, "{} cut at {}", name, cut);
                ceiling = cut - 1;
            }
        }
    }

    #[test]
    fn custom_patterns_lose_no_byte(text in text()) {
        for expression in [r"\S+", "a*", "(?=a)", r"\p{L}+(?=\s)", "x"] {
            prop_assert_eq!(by_regex(expression, &text).concat(), text.clone(), "{}", expression);
        }
    }
}

#[test]
fn white_space_at_the_end_tells_cl100k_from_llama3() {
    let split = |name| pretokens(&Pattern::new(Some(name)).unwrap(), "a\n  ");
    assert_eq!(split("cl100k"), ["a", "\n  "]);
    assert_eq!(split("llama3"), ["a", "\n", "  "]);
}

#[test]
fn more_pretokens_than_a_block_are_all_given() {
    let text = "ab 1".repeat(BLOCK);
    for (name, expression) in NAMED {
        assert_eq!(pretokens(&Pattern::new(Some(name)).unwrap(), &text), by_regex(expression, &text), "{name}");
    }
}

#[test]
fn a_pattern_that_does_not_compile_is_refused_with_its_text() {
    let error = Pattern::new(Some("(unclosed")).unwrap_err().to_string();
    assert!(error.contains("(unclosed"), "{error}");
}
