//! The matchers of the named patterns against each other and against a regex engine.

mod automaton;
mod reference;

use super::blocks::Blocks;
use super::classify::InstructionSet;
use super::custom::CustomPattern;
use super::named::{Cl100k, Gpt2, Llama3, O200k, Qwen2, Tekken};
use super::rules::{Digits, Rules, Spec};
use super::{BLOCK, NAMED, NamedPattern, Pattern};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::HashMap;

/// An example of another entry of the table: digits one at a time, otherwise as cl100k.
struct SingleDigits;

impl Rules for SingleDigits {
    const SPEC: Spec = Spec { digits: Digits::Groups(1), ..Cl100k::SPEC };
}

static SINGLE_DIGITS: NamedPattern = NamedPattern::new::<SingleDigits>(
    "single-digits",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    &[],
);

/// Digits in groups of five, otherwise as o200k.
struct FiveDigits;

impl Rules for FiveDigits {
    const SPEC: Spec = Spec { digits: Digits::Groups(5), ..O200k::SPEC };
}

static FIVE_DIGITS: NamedPattern = NamedPattern::new::<FiveDigits>(
    "five-digits",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,5}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    &[],
);

type End = fn(&[u8], usize) -> usize;

/// Each entry of the table and the two above, with its reference implementation.
fn entries() -> [(&'static NamedPattern, End); 8] {
    let [gpt2, cl100k, llama3, o200k, qwen2, tekken] = &NAMED;
    [
        (gpt2, reference::end::<Gpt2>),
        (cl100k, reference::end::<Cl100k>),
        (llama3, reference::end::<Llama3>),
        (o200k, reference::end::<O200k>),
        (qwen2, reference::end::<Qwen2>),
        (tekken, reference::end::<Tekken>),
        (&SINGLE_DIGITS, reference::end::<SingleDigits>),
        (&FIVE_DIGITS, reference::end::<FiveDigits>),
    ]
}

/// The pre-tokens by the regex engine.
fn by_regex<'t>(expression: &str, text: &'t str) -> Vec<&'t str> {
    thread_local! {
        static COMPILED: RefCell<HashMap<String, Pattern>> = RefCell::default();
    }
    COMPILED.with_borrow_mut(|compiled| {
        let pattern = compiled
            .entry(expression.to_owned())
            .or_insert_with(|| Pattern::Custom(Box::new(CustomPattern::backtracking(expression).unwrap())));
        pretokens(pattern, text)
    })
}

pub(super) fn pretokens<'t>(pattern: &Pattern, text: &'t str) -> Vec<&'t str> {
    let mut all = Vec::new();
    pattern.for_each(text, |pretoken| all.push(pretoken)).unwrap();
    all
}

/// The pre-tokens by the reference implementation.
fn by_reference(end: End, text: &str) -> Vec<&str> {
    let (mut all, mut at) = (Vec::new(), 0);
    while at < text.len() {
        let end = end(text.as_bytes(), at);
        all.push(&text[at..end]);
        at = end;
    }
    all
}

/// The pre-tokens by blocks.
fn collect(mut blocks: Blocks, text: &'_ str) -> Vec<String> {
    let (mut all, mut ends, mut start) = (Vec::new(), Vec::new(), 0);
    while blocks.fill(&mut ends) {
        assert!(ends.len() <= BLOCK);
        for end in ends.drain(..) {
            all.push(text[start..end].to_owned());
            start = end;
        }
    }
    all
}

/// Compares every instruction set, eight blocks at once and one by one, with the reference implementation.
fn assert_blocks_split_as_the_reference(text: &str) {
    for (named, end) in entries() {
        let expected = by_reference(end, text);
        for set in InstructionSet::available() {
            for is_wide in [true, false] {
                let split = collect(named.blocks(text, set).wide(is_wide), text);
                assert_eq!(split, expected, "{} by {set:?}, wide: {is_wide}", named.name);
            }
        }
    }
}

/// Characters of every class, among them all that the patterns name, and now and then any character at all.
pub(super) fn character() -> impl Strategy<Value = char> {
    let chosen: Vec<char> =
        "aZésSſtTmMdDlLvVrReEkK'’ \t\r\n\u{b}\u{85}\u{a0}\u{180e}\u{2003}\u{2028}\u{3000}019²½٣Ⅷ.,-/!\
        \u{300}\u{301}\u{1f3fb}😀ǅʰªあ一한рЖशि\u{94d}ا\u{200d}\u{200b}_\0\u{7f}"
            .chars()
            .collect();
    prop_oneof![8 => prop::sample::select(chosen), 1 => any::<char>()]
}

fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(character(), 0..40).prop_map(|characters| characters.into_iter().collect())
}

/// Texts of several blocks: runs of one character or of a few that cross block boundaries, in ASCII, in scripts whose characters have
/// two, three and four bytes, and in mixtures of everything.
fn long_text() -> impl Strategy<Value = String> {
    let alphabets = [
        "aBsStlLe' \t\r\n01.!/",
        "aZesStTmMdDlLvVrReE' \t\r\n019.,-/!éКж一ü’。",
        "жЖяЯёІaA' \n1.!/\u{301}\u{a0}²",
        "éÉßſœŒąĄ'sS \n1.«»\u{a0}\u{202f}’…",
        "一龥가힣あァー々ａＡ５aA1's. \n\u{3000}、。！・①Ⅷ",
        "क्षिऍ१२३।a1 \n'\u{200d}\u{94d}\u{a0}.!/",
        "😀❤\u{fe0f}\u{1f3fb}𝐀𐐀𐐨𝟙𠀀aA1' \n/!",
        "01٣٤१२²½𝟙 aA\n",
        "'''''ssSdDmMtTlLvVrReEſéa3$\u{13} ",
        " \t\r\n\u{85}\u{a0}\u{1680}\u{2003}\u{2028}\u{3000}a1!/é一",
        "aAéÉªʰ一\u{301}ǅ's/! \n",
        "!!//\n\r\u{301}\u{fe0f} '",
        "''sSlLdaA一ª\u{301}!",
    ];
    let run = |characters: BoxedStrategy<char>| {
        prop_oneof![
            3 => (characters.clone(), 1usize..4),
            1 => (characters, 1usize..90),
        ]
        .prop_map(|(character, n)| character.to_string().repeat(n))
    };
    let texts_of = move |characters: BoxedStrategy<char>| prop::collection::vec(run(characters), 0..120);
    let one_alphabet = prop::sample::select(alphabets.to_vec())
        .prop_flat_map(move |alphabet| texts_of(prop::sample::select(alphabet.chars().collect::<Vec<_>>()).boxed()));
    prop_oneof![4 => one_alphabet, 1 => texts_of(character().boxed()), 1 => texts_of(any::<char>().boxed())]
        .prop_map(|runs| runs.concat())
}

/// ASCII texts long enough to be split eight blocks at once: words and their surroundings in prose and code, with runs that cross every
/// boundary, and now and then a character outside ASCII.
fn wide_text() -> impl Strategy<Value = String> {
    let fragments = vec![
        " the",
        " Word",
        "'s",
        "'LL",
        "n't ",
        " I'll've",
        "'re''d",
        " x'",
        ". ",
        ", ",
        "\n",
        "\r\n",
        "\n\n",
        ";\n    ",
        " {\n\t\t",
        "\n   \n  ",
        " \t \r\n",
        "/",
        "//\n/\n",
        "!/\r\n/a",
        "12",
        "345",
        " 2026",
        "1234567",
        "a1",
        "camelCaseWORDSand",
        "==",
        " =\n",
        "_x",
        "\x0b",
        "(",
        ")",
        "\0\x7f",
    ];
    let rare = vec!["é", "ÉA", "一", "ªB", "\u{301}", "\u{a0}", "\u{2003}\n", "'ſ", "٣", "’"];
    let fragment = prop_oneof![
        40 => prop::sample::select(fragments).prop_map(str::to_owned),
        20 => "[a-z]{1,9}",
        // Runs of anything, some of them longer than a block, few longer than eight.
        4 => ("[ a\t\nA1./']", 1usize..12).prop_map(|(character, n)| character.repeat(n)),
        1 => ("[ a\t\nA1./']", 1usize..130).prop_map(|(character, n)| character.repeat(n)),
    ];
    let long = (prop::sample::select(vec![" ", "a", "1", "\n", "\t", "!", "/", "'"]), 500usize..1100)
        .prop_map(|(character, n)| character.repeat(n));
    let middle =
        prop_oneof![6 => Just(String::new()), 2 => prop::sample::select(rare).prop_map(str::to_owned), 1 => long];
    let part = (prop::collection::vec(fragment, 1..260), middle).prop_map(|(parts, middle)| parts.concat() + &middle);
    prop::collection::vec(part, 1..5).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn named_patterns_split_as_their_expressions(text in text()) {
        for named in &NAMED {
            for expression in [named.expression].iter().chain(named.synonyms) {
                let pattern = Pattern::new(Some(expression)).unwrap();
                prop_assert!(matches!(pattern, Pattern::Named(found) if found.name == named.name), "{expression}");
                prop_assert_eq!(pretokens(&pattern, &text), by_regex(expression, &text), "{}", named.name);
            }
        }
    }

    #[test]
    fn blocks_split_as_the_reference(text in long_text()) {
        assert_blocks_split_as_the_reference(&text);
    }

    #[test]
    fn eight_blocks_at_once_split_as_the_reference(text in wide_text()) {
        assert_blocks_split_as_the_reference(&text);
    }

    #[test]
    fn reference_implementations_split_as_their_expressions(text in text()) {
        for (named, end) in entries() {
            prop_assert_eq!(by_reference(end, &text), by_regex(named.expression, &text), "{}", named.name);
        }
    }

    #[test]
    fn cuts_change_no_pretoken(text in text()) {
        for (named, _) in entries() {
            let pattern = Pattern::Named(named);
            let whole = pretokens(&pattern, &text);
            let mut ceiling = text.len();
            while let Some(cut) = pattern.last_cut(&text, 0, ceiling, |_| true) {
                let mut parts = pretokens(&pattern, &text[..cut]);
                parts.extend(pretokens(&pattern, &text[cut..]));
                prop_assert_eq!(&parts, &whole, "{} cut at {}", named.name, cut);
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400_000))]

    #[test]
    #[ignore = "takes minutes"]
    fn blocks_split_as_the_reference_on_many_texts(text in long_text()) {
        assert_blocks_split_as_the_reference(&text);
    }

    #[test]
    #[ignore = "takes minutes"]
    fn eight_blocks_at_once_split_as_the_reference_on_many_texts(text in wide_text()) {
        assert_blocks_split_as_the_reference(&text);
    }
}

/// Everything that a rule carries from one block to the next.
#[test]
fn block_boundaries_change_no_pretoken() {
    let fragments = [
        "a", "A", "é", "É", "一", "가", "ª", "𐐀", "𐐨", "\u{301}", "\u{fe0f}", " ", "\u{a0}", "\u{2003}", "\u{3000}",
        "\u{85}", "\n", "\r\n", "1", "12", "²", "१", "①", "𝟙", ".", "。", "😀", "/", "'", "'s", "'LL", "'ſ",
    ];
    let after = " \u{a0}a1A!\n 一A é\u{301}Z";
    for first in fragments {
        for second in fragments {
            for third in ["", "a", "A", "一", " ", "\n", "1", "'s"] {
                let middle = [first, second, third].concat();
                // The second block begins at every byte of the three in turn.
                for padding in 63 - middle.len()..=64 {
                    let before = &"Ab, 12 3\n\n x'y".repeat(5)[..padding];
                    assert_blocks_split_as_the_reference(&[before, &middle, after].concat());
                }
            }
        }
    }
}

#[test]
fn white_space_at_the_end_distinguishes_cl100k_from_llama3() {
    let split = |name| pretokens(&Pattern::new(Some(name)).unwrap(), "a\n  ");
    assert_eq!(split("cl100k"), ["a", "\n  "]);
    assert_eq!(split("llama3"), ["a", "\n", "  "]);
}

#[test]
fn more_pretokens_than_fit_in_a_call_are_all_returned() {
    let text = "ab 1".repeat(BLOCK);
    for named in &NAMED {
        let pattern = Pattern::new(Some(named.name)).unwrap();
        assert_eq!(pretokens(&pattern, &text), by_regex(named.expression, &text), "{}", named.name);
    }
}

#[test]
fn a_pattern_that_does_not_compile_is_reported_with_its_text() {
    let error = Pattern::new(Some("(unclosed")).unwrap_err().to_string();
    assert!(error.contains("(unclosed"), "{error}");
}

proptest! {
    #[test]
    fn with_unmatched_text_dropped_the_pretokens_are_the_matches(
        text in "[ab1 !\n]{0,300}",
        expression in prop::sample::select(vec![r"\w+", "a|b+", r" ?\w+(?!\S)", "!", "(?s).+", "z", r"\w{1,2}|\s"]),
    ) {
        let pattern = Pattern::new(Some(expression)).unwrap().dropping_unmatched(true);
        prop_assert_eq!(
            pretokens(&pattern, &text),
            fancy_regex::Regex::new(expression).unwrap().find_iter(&text).map(|found| found.unwrap().as_str()).collect::<Vec<_>>()
        );
    }
}

mod steps {
    use super::super::THEN;
    use super::*;

    fn owned(pattern: &Pattern, text: &str) -> Vec<String> {
        pretokens(pattern, text).into_iter().map(str::to_owned).collect()
    }

    fn one_after_the_other(steps: &[&str], text: &str) -> Vec<String> {
        let Some((first, rest)) = steps.split_first() else { return vec![text.to_owned()] };
        let first = owned(&Pattern::new(Some(first)).unwrap(), text);
        first.iter().flat_map(|pretoken| one_after_the_other(rest, pretoken)).collect()
    }

    proptest! {
        #[test]
        fn each_step_splits_the_pretokens_of_the_one_before(
            steps in prop::collection::vec(prop::sample::select(vec![r"\p{N}{1,3}", "gpt2", "o200k", r"\s+", "[a-c]"]), 2..5),
            text in prop::collection::vec(
                prop::sample::select(vec!["12345", " word", "ABc", "  ", "\n", "日本", "'s", "1", "!?"]), 0..200,
            ).prop_map(|fragments| fragments.concat()),
        ) {
            let pattern = Pattern::new(Some(&steps.join(THEN))).unwrap();
            prop_assert!(matches!(pattern, Pattern::Steps(_)));
            prop_assert_eq!(owned(&pattern, &text), one_after_the_other(&steps, &text));
            let again = Pattern::new(pattern.expression()).unwrap();
            prop_assert_eq!(again.expression(), pattern.expression());
        }
    }

    #[test]
    fn a_step_that_does_not_compile_is_named() {
        let error = Pattern::new(Some("gpt2(?#then)((")).unwrap_err().to_string();
        assert!(error.contains("((") && !error.contains("then"), "{error}");
    }
}
