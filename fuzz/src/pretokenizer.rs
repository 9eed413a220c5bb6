//! The patterns by masks of 64 bytes, against a regex engine on the same expressions, with every instruction
//! set.

use crate::bytes;
use bytemill::pretokenize::{BLOCK, NAMED, Pattern, Splits, THEN};
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

/// Each pattern, and the same expressions in a form that no matcher on masks is known for.
fn patterns() -> &'static [(Pattern, Pattern)] {
    static PATTERNS: OnceLock<Vec<(Pattern, Pattern)>> = OnceLock::new();
    PATTERNS.get_or_init(|| {
        let both = |steps: Vec<String>| {
            let pattern = Pattern::new(Some(&steps.join(THEN))).unwrap();
            assert!(matches!(pattern, Pattern::Named(_) | Pattern::Ruled(_)));
            let grouped: Vec<String> = steps.iter().map(|step| format!("(?:{step})")).collect();
            let engine = Pattern::new(Some(&grouped.join(THEN))).unwrap();
            assert!(matches!(engine, Pattern::Custom(_) | Pattern::Steps(_)));
            (pattern, engine)
        };
        NAMED.iter().map(|named| vec![named.expression.to_owned()]).chain(ruled()).map(both).collect()
    })
}

fn ends_of(mut splits: Splits) -> bytemill::Result<Vec<usize>> {
    let (mut all, mut ends) = (Vec::new(), Vec::new());
    while splits.fill(&mut ends)? {
        assert!(ends.len() <= BLOCK);
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
