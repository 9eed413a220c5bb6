//! The patterns by masks of 64 bytes, with every instruction set, and those by automata, against a regex engine on the same expressions.

use crate::bytes;
use bytemill::pretokenize::{MAX_ENDS, Matcher, NAMED, Pattern, Splits, THEN};
use std::sync::OnceLock;

const CONTRACTIONS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const ENDS: &str = r"\s*[\r\n]+|\s+(?!\S)|\s+";
const WORDS: &str =
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"##;

/// The steps of StarCoder, DeepSeek-V3 and Qwen 3.5, and some that no published tokenizer has.
fn ruled() -> Vec<Vec<String>> {
    let gpt2 = NAMED[0].expression.to_owned();
    let llama3 = NAMED[2].expression.to_owned();
    let marks = format!(
        r"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{ENDS}"
    );
    let deepseek = format!("{WORDS}|{ENDS}");
    vec![
        vec![r"\p{N}".to_owned(), gpt2],
        vec![r"\p{N}{1,3}".to_owned(), "[一-龥\u{3040}-ゟ゠-ヿ]+".to_owned(), deepseek.clone()],
        vec![r"[\p{Hiragana}\x{200B}-\x{200F}\x{300}-\x{303}]+".to_owned(), r"\p{N}".to_owned(), deepseek],
        vec!["[一-龥’]+".to_owned(), llama3],
        vec![marks],
    ]
}

/// The steps of DeepSeek-V2 (with fewer letters) and DeepSeek-Coder, the expression of BLOOM, one like Kimi K2's, and some that no
/// published tokenizer has.
fn automata() -> Vec<Vec<String>> {
    let lines = "[\r\n]";
    let han = "[一-龥ࠀ-一가-\u{d7ff}]+";
    let kimi = format!(
        r"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lo}}\p{{M}}&&[^\p{{Han}}]]*[\p{{Ll}}\p{{Lo}}\p{{M}}&&[^\p{{Han}}]]+{CONTRACTIONS}?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{ENDS}"
    );
    let all: [&[&str]; 7] = [
        &[lines, r"\s?[A-Za-zµÀ-ÖØ-öΑ-ωЀ-ҁ]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+(?=\n|\z)", han, r"\p{N}"],
        &[lines, r"\s?\p{L}+", r"\s?\p{P}+", han, r"\p{N}"],
        &[r" ?[^(\s|[.,!?…。，、।۔،])]+"],
        &[&kimi],
        &["aab|c", "a*b", r"\s|ac"],
        &[r"[ab]+c", r"a?b", r"(?:ba)+|\s\s\s"],
        &[r"\S+(?=\n|\z)|b", "a{2}|b{3}", "[^a]"],
    ];
    all.map(|steps| steps.iter().map(|&step| step.to_owned()).collect()).into()
}

/// Each pattern, and the same expressions in a form that only the engine matches.
fn patterns() -> &'static [(Pattern, Pattern)] {
    static PATTERNS: OnceLock<Vec<(Pattern, Pattern)>> = OnceLock::new();
    PATTERNS.get_or_init(|| {
        let both = |(steps, matcher): (Vec<String>, Matcher)| {
            let pattern = Pattern::new(Some(&steps.join(THEN))).unwrap();
            assert_eq!(pattern.matcher(), matcher);
            let ahead: Vec<String> = steps.iter().map(|step| format!("(?:{step})(?=)")).collect();
            let engine = Pattern::new(Some(&ahead.join(THEN))).unwrap();
            assert_eq!(engine.matcher(), Matcher::Backtracking);
            (pattern, engine)
        };
        let named = NAMED.iter().map(|named| vec![named.expression.to_owned()]);
        let on_masks = named.chain(ruled()).map(|steps| (steps, Matcher::Masks));
        on_masks.chain(automata().into_iter().map(|steps| (steps, Matcher::Automaton))).map(both).collect()
    })
}

fn ends_of(mut splits: Splits) -> bytemill::Result<Vec<usize>> {
    let (mut all, mut ends) = (Vec::new(), Vec::new());
    while splits.fill(&mut ends)? {
        assert!(ends.len() <= MAX_ENDS);
        all.extend_from_slice(&ends);
    }
    Ok(all)
}

/// Pre-tokens of a text are those of the regex engine, whole and cut where cuts are said to change nothing.
///
/// # Panics
/// Where they are not.
pub fn pretokenizer(data: &[u8]) {
    let text = bytes::text(data);
    for (named, engine) in patterns() {
        let ours = ends_of(named.splits(&text)).unwrap();
        for (instructions, splits) in named.splits_by_instruction_set(&text) {
            assert_eq!(ends_of(splits).unwrap(), ours, "{named:?} with {instructions} on {text:?}");
        }
        // The engine may run out of its backtracking allowance, which the hand-written matchers do not know.
        if let Ok(theirs) = ends_of(engine.splits(&text)) {
            assert_eq!(ours, theirs, "{named:?} on {text:?}");
        }
        assert!(ours.is_sorted_by(|a, b| a < b), "{named:?} on {text:?}");
        assert_eq!(ours.last().copied().unwrap_or(0), text.len());
        let Some(cut) = named.last_cut(&text, 0, text.len() * 2 / 3, |_| true) else { continue };
        let mut parts = ends_of(named.splits(&text[..cut])).unwrap();
        parts.extend(ends_of(named.splits(&text[cut..])).unwrap().iter().map(|end| end + cut));
        assert_eq!(ours, parts, "{named:?} on {text:?} cut at {cut}");
    }
}
