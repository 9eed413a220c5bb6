//! The hand-written matchers against a regex engine.

use super::classify::InstructionSet;
use super::*;
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::HashMap;

/// The pre-tokens by the regex engine alone.
fn by_regex<'t>(expression: &str, text: &'t str) -> Vec<&'t str> {
    thread_local! {
        static COMPILED: RefCell<HashMap<String, Pattern>> = RefCell::default();
    }
    COMPILED.with_borrow_mut(|compiled| {
        let pattern = compiled
            .entry(expression.to_owned())
            .or_insert_with(|| Pattern::Custom(Box::new(CustomPattern::new(expression).unwrap())));
        pretokens(pattern, text)
    })
}

fn pretokens<'t>(pattern: &Pattern, text: &'t str) -> Vec<&'t str> {
    let mut all = Vec::new();
    pattern.for_each(text, |pretoken| all.push(pretoken)).unwrap();
    all
}

const RULES: [(&str, Rules); 4] =
    [("gpt2", Rules::Gpt2), ("cl100k", Rules::Cl100k), ("llama3", Rules::Llama3), ("o200k", Rules::O200k)];

/// The pre-tokens by a scalar matcher alone.
fn by_scalar(rules: Rules, text: &str) -> Vec<&str> {
    let (mut all, mut at) = (Vec::new(), 0);
    while at < text.len() {
        let end = rules.scalar_end(text.as_bytes(), at);
        all.push(&text[at..end]);
        at = end;
    }
    all
}

/// The pre-tokens by blocks, with one classifier, eight blocks at once; the same must come of one after the other.
fn by_blocks(rules: Rules, text: &str, instructions: InstructionSet) -> Vec<&str> {
    let [by_eights, by_ones] = [true, false].map(|in_eights| collect(rules, text, instructions, in_eights));
    assert_eq!(by_eights, by_ones, "{}", instructions.name());
    by_eights
}

fn collect(rules: Rules, text: &str, instructions: InstructionSet, in_eights: bool) -> Vec<&str> {
    let mut blocks = Blocks::new(text.as_bytes(), rules, instructions).in_eights(in_eights);
    let (mut all, mut ends, mut start) = (Vec::new(), Vec::new(), 0);
    while blocks.fill(&mut ends) {
        assert!(ends.len() <= BLOCK);
        for end in ends.drain(..) {
            all.push(&text[start..end]);
            start = end;
        }
    }
    all
}

/// Characters of every class, with all that the patterns name among them, and any character at all now and then.
fn character() -> impl Strategy<Value = char> {
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

/// Texts of several blocks: runs of one character or of a few, so that runs cross the borders of blocks, in ASCII, in
/// scripts whose characters have two, three and four bytes, and in mixtures of everything.
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

/// ASCII of a good eight blocks and more, which is split eight blocks at once: words and what stands around them in prose
/// and code, with runs that cross any border, and now and then a character outside ASCII.
fn wide_text() -> impl Strategy<Value = String> {
    let pieces = vec![
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
    let piece = prop_oneof![
        40 => prop::sample::select(pieces).prop_map(str::to_owned),
        20 => "[a-z]{1,9}",
        // Runs of anything, some of them longer than a block, few longer than eight.
        4 => ("[ a\t\nA1./']", 1usize..12).prop_map(|(character, n)| character.repeat(n)),
        1 => ("[ a\t\nA1./']", 1usize..130).prop_map(|(character, n)| character.repeat(n)),
    ];
    let long = (prop::sample::select(vec![" ", "a", "1", "\n", "\t", "!", "/", "'"]), 500usize..1100)
        .prop_map(|(character, n)| character.repeat(n));
    let middle =
        prop_oneof![6 => Just(String::new()), 2 => prop::sample::select(rare).prop_map(str::to_owned), 1 => long];
    let part = (prop::collection::vec(piece, 1..260), middle).prop_map(|(pieces, middle)| pieces.concat() + &middle);
    prop::collection::vec(part, 1..5).prop_map(|parts| parts.concat())
}

fn assert_blocks_split_as_the_scalar_matchers_do(text: &str) {
    for (name, rules) in RULES {
        let expected = by_scalar(rules, text);
        for set in InstructionSet::available() {
            assert_eq!(by_blocks(rules, text, set), expected, "{name} by {set:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn named_patterns_split_as_their_expressions_do(text in text()) {
        for (name, expression) in NAMED.iter().chain(&SYNONYMS) {
            let pattern = Pattern::new(Some(expression)).unwrap();
            prop_assert!(!matches!(pattern, Pattern::Custom(_)), "{name}");
            prop_assert_eq!(pretokens(&pattern, &text), by_regex(expression, &text), "{}", name);
        }
    }

    #[test]
    fn blocks_split_as_the_scalar_matchers_do(text in long_text()) {
        assert_blocks_split_as_the_scalar_matchers_do(&text);
    }

    #[test]
    fn eight_blocks_at_once_split_as_the_scalar_matchers_do(text in wide_text()) {
        assert_blocks_split_as_the_scalar_matchers_do(&text);
    }

    #[test]
    fn scalar_matchers_split_as_their_expressions_do(text in text()) {
        for (name, rules) in RULES {
            let (_, expression) = NAMED.iter().find(|(known, _)| *known == name).unwrap();
            prop_assert_eq!(by_scalar(rules, &text), by_regex(expression, &text), "{}", name);
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400_000))]

    #[test]
    #[ignore = "takes minutes"]
    fn blocks_split_as_the_scalar_matchers_do_on_many_texts(text in long_text()) {
        assert_blocks_split_as_the_scalar_matchers_do(&text);
    }

    #[test]
    #[ignore = "takes minutes"]
    fn eight_blocks_at_once_split_as_the_scalar_matchers_do_on_many_texts(text in wide_text()) {
        assert_blocks_split_as_the_scalar_matchers_do(&text);
    }
}

/// What stands at the border of two blocks, of which each rule needs to know something.
#[test]
fn borders_of_blocks_change_no_pretoken() {
    let pieces = [
        "a", "A", "é", "É", "一", "가", "ª", "𐐀", "𐐨", "\u{301}", "\u{fe0f}", " ", "\u{a0}", "\u{2003}", "\u{3000}",
        "\u{85}", "\n", "\r\n", "1", "12", "²", "१", "①", "𝟙", ".", "。", "😀", "/", "'", "'s", "'LL", "'ſ",
    ];
    let behind = " \u{a0}a1A!\n 一A é\u{301}Z";
    for first in pieces {
        for second in pieces {
            for third in ["", "a", "A", "一", " ", "\n", "1", "'s"] {
                let middle = [first, second, third].concat();
                // Every byte of the three in turn begins the second block.
                for padding in 63 - middle.len()..=64 {
                    let before = &"Ab, 12 3\n\n x'y".repeat(5)[..padding];
                    assert_blocks_split_as_the_scalar_matchers_do(&[before, &middle, behind].concat());
                }
            }
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
