//! The matchers of the named patterns against each other and against a regex engine.

mod automaton;
mod byte_steps;
mod reference;

use super::blocks::Blocks;
use super::classify::InstructionSet;
use super::compile;
use super::custom::CustomPattern;
use super::rules::Rules;
use super::{MAX_ENDS, NAMED, NamedPattern, Pattern, THEN};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::LazyLock;

pub(super) const ENDS: &str = r"\s*[\r\n]+|\s+(?!\S)|\s+";
pub(super) const CONTRACTIONS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)";

/// Expressions and steps with the rules of no named pattern, several of them those of published tokenizers.
fn ruled() -> Vec<Vec<String>> {
    let (upper, lower) = (r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]");
    let lead = r"[^\r\n\p{L}\p{N}]?";
    let deepseek = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"##;
    let marks = format!(r"{lead}[\p{{L}}\p{{M}}]+");
    let named = |name: &str| NamedPattern::find(name).unwrap().expression.to_owned();
    let single = |expression: String| vec![expression];
    let steps = |steps: &[&str]| steps.iter().map(|step| (*step).to_owned()).collect::<Vec<_>>();
    vec![
        single(format!(r"{CONTRACTIONS}|{lead}\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+")),
        single(r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s".to_owned()),
        single(format!(r"{lead}{upper}*{lower}+{CONTRACTIONS}?|{lead}{upper}+{lower}*{CONTRACTIONS}?|\p{{N}}{{1,5}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{ENDS}")),
        // Qwen 3.5
        single(format!(r"{CONTRACTIONS}|{marks}|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{ENDS}")),
        single(format!(r"{marks}| ?\p{{N}}+| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+|\s+(?!\S)|\s+")),
        // StarCoder, SmolLM, Command-R
        vec![r"\p{N}".to_owned(), named("gpt2")],
        vec![r"\p{N}{1,3}".to_owned(), named("o200k")],
        vec![r"\p{N}+".to_owned(), named("llama3")],
        vec![r"[一-龥぀-ゟ゠-ヿ]+".to_owned(), named("llama3")],
        // DeepSeek-V3
        vec![r"\p{N}{1,3}".to_owned(), "[一-龥぀-ゟ゠-ヿ]+".to_owned(), format!("{deepseek}|{ENDS}")],
        vec![r"[\p{Hiragana}・。\x{E000}-\x{E010}\x{1F600}]+".to_owned(), r"\p{N}".to_owned(), format!("{deepseek}|{ENDS}")],
        steps(&[r"[\x{300}-\x{310}’]+", r"\p{N}{1,2}", r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?!\S)|\s+"]),
    ]
}

/// An expression of one variant of each kind, and a step before it.
fn combination(
    (contractions, letters, digits, others, ends, step): (usize, usize, usize, usize, usize, usize),
) -> Vec<String> {
    let (upper, lower) = (r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]");
    let lead = r"[^\r\n\p{L}\p{N}]?";
    let suffix = if contractions == 3 { format!("{CONTRACTIONS}?") } else { String::new() };
    let contractions =
        ["", r"'(?:[sdmt]|ll|ve|re)|", r"'(?i:[sdmt]|ll|ve|re)|", "", r"'s|'t|'re|'ve|'m|'ll|'d|"][contractions];
    let words = [
        r" ?\p{L}+".to_owned(),
        format!(r"{lead}\p{{L}}+"),
        format!(r"{lead}[\p{{L}}\p{{M}}]+"),
        format!("{lead}{upper}*{lower}+{suffix}|{lead}{upper}+{lower}*{suffix}"),
        r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+".to_owned(),
    ];
    let digits = [r"| ?\p{N}+", r"|\p{N}", r"|\p{N}{1,3}", ""][digits];
    let other = [
        r" ?[^\s\p{L}\p{N}]+",
        r" ?[^\s\p{L}\p{N}]+",
        r" ?[^\s\p{L}\p{M}\p{N}]+",
        r" ?[^\s\p{L}\p{N}]+",
        r" ?[\p{P}\p{S}]+",
    ];
    let tail = if letters == 4 { r"[\r\n]*" } else { ["", r"[\r\n]*", r"[\r\n/]*"][others] };
    let ends = [r"\s+(?!\S)|\s+", ENDS, r"\s++$|\s*[\r\n]|\s+(?!\S)|\s"][ends];
    let last = format!("{contractions}{}{digits}|{}{tail}|{ends}", words[letters], other[letters]);
    let step = [None, Some(r"\p{N}{1,3}"), Some("[一-龥ぁ-ゟ・。\u{300}-\u{302}]+")][step];
    step.map(str::to_owned).into_iter().chain([last]).collect()
}

/// A pattern on masks: its name, its expressions, its rules, and what makes blocks of a text.
struct Entry {
    name: String,
    expressions: Vec<String>,
    rules: Rules,
    pattern: Pattern,
}

impl Entry {
    fn blocks<'t>(&'t self, text: &'t str, set: InstructionSet) -> Blocks<'t> {
        match &self.pattern {
            Pattern::Named(named) => named.blocks(text, set),
            Pattern::Ruled(ruled) => ruled.blocks(text, set),
            other => panic!("{other:?} is not on masks"),
        }
    }
}

/// The named patterns and those above.
static ENTRIES: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    let named = NAMED.iter().map(|named| (named.name.to_owned(), vec![named.expression.to_owned()]));
    let ruled = ruled().into_iter().map(|expressions| (expressions.join(THEN), expressions));
    let entry = |(name, expressions): (String, Vec<String>)| {
        let pattern = Pattern::new(Some(&expressions.join(THEN))).unwrap();
        let parts: Vec<&str> = expressions.iter().map(String::as_str).collect();
        let rules = compile::rules(&parts).unwrap_or_else(|| panic!("{name} has no rules"));
        Entry { name, expressions, rules, pattern }
    };
    named.chain(ruled).map(entry).collect()
});

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
    pattern.for_each(text, |pretoken| all.push(std::str::from_utf8(pretoken).unwrap())).unwrap();
    all
}

/// The pre-tokens by the regex engine, one step after the other.
fn by_steps<'t>(expressions: &[String], text: &'t str) -> Vec<&'t str> {
    let Some((first, rest)) = expressions.split_first() else { return vec![text] };
    by_regex(first, text).into_iter().flat_map(|pretoken| by_steps(rest, pretoken)).collect()
}

/// The pre-tokens by blocks.
fn collect(mut blocks: Blocks, text: &'_ str) -> Vec<String> {
    let (mut all, mut ends, mut start) = (Vec::new(), Vec::new(), 0);
    while blocks.fill(&mut ends) {
        assert!(ends.len() <= MAX_ENDS);
        for end in ends.drain(..) {
            all.push(text[start..end].to_owned());
            start = end;
        }
    }
    all
}

/// Compares every instruction set, eight blocks at once and one by one, with the reference implementation.
fn assert_blocks_split_as_the_reference(text: &str) {
    for entry in &*ENTRIES {
        let expected = reference::pretokens(&entry.rules, text);
        for set in InstructionSet::available() {
            for is_wide in [true, false] {
                let split = collect(entry.blocks(text, set).wide(is_wide), text);
                assert_eq!(split, expected, "{} by {set:?}, wide: {is_wide}", entry.name);
            }
        }
    }
}

/// Characters of every class, among them all that the patterns name, and now and then any character at all.
pub(super) fn character() -> impl Strategy<Value = char> {
    let chosen: Vec<char> =
        "aZésSſtTmMdDlLvVrReEkK'’ \t\r\n\u{b}\u{85}\u{a0}\u{180e}\u{2003}\u{2028}\u{3000}019²½٣Ⅷ.,-/!\
        \u{300}\u{301}\u{1f3fb}😀ǅʰªあ一한рЖशि\u{94d}ا\u{200d}\u{200b}_\0\u{7f}ひア・。゛\u{3099}\u{3040}\u{e000}"
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
        "\0\u{7f}\u{200b}\u{e000}aé\u{301}一.1 \n",
        "ひア・。゛\u{3099}\u{3040}一龥龦aé.!1 \n\u{e000}",
        ".!aZé\u{301}_- \n1一ア",
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
    fn blocks_split_as_the_reference(text in long_text()) {
        assert_blocks_split_as_the_reference(&text);
    }

    #[test]
    fn eight_blocks_at_once_split_as_the_reference(text in wide_text()) {
        assert_blocks_split_as_the_reference(&text);
    }

    #[test]
    fn rules_split_as_their_expressions(text in text()) {
        for entry in &*ENTRIES {
            let expected = by_steps(&entry.expressions, &text);
            prop_assert_eq!(&reference::pretokens(&entry.rules, &text), &expected, "{}", entry.name);
            prop_assert_eq!(&pretokens(&entry.pattern, &text), &expected, "{}", entry.name);
        }
    }

    /// Variants in combinations that no published tokenizer has, after a step or none.
    #[test]
    fn whatever_has_rules_splits_as_its_expression(
        choice in (0usize..5, 0usize..5, 0usize..4, 0usize..3, 0usize..3, 0usize..3),
        text in prop_oneof![text(), long_text()],
    ) {
        let expressions = combination(choice);
        let pattern = Pattern::new(Some(&expressions.join(THEN))).unwrap();
        if let Pattern::Named(_) | Pattern::Ruled(_) = pattern {
            let expected = by_steps(&expressions, &text);
            for (set, mut splits) in pattern.splits_by_instruction_set(&text) {
                let (mut found, mut ends, mut start) = (Vec::new(), Vec::new(), 0);
                while splits.fill(&mut ends).unwrap() {
                    for &end in &ends {
                        found.push(&text[start..end]);
                        start = end;
                    }
                }
                prop_assert_eq!(&found, &expected, "{:?} by {}", expressions, set);
            }
        }
    }

    #[test]
    fn cuts_change_no_pretoken(text in text()) {
        for Entry { name, pattern, .. } in &*ENTRIES {
            let whole = pretokens(pattern, &text);
            let mut ceiling = text.len();
            while let Some(cut) = pattern.last_cut(&text, 0, ceiling, |_| true) {
                let mut parts = pretokens(pattern, &text[..cut]);
                parts.extend(pretokens(pattern, &text[cut..]));
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
    let text = "ab 1".repeat(MAX_ENDS);
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
            prop_assert!(matches!(pattern, Pattern::Steps(_) | Pattern::Ruled(_)));
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
