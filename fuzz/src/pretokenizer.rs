//! The named patterns by masks of 64 bytes, against a regex engine on the same expressions, with every instruction
//! set.

use crate::bytes;
use bytemill::pretokenize::{BLOCK, NAMED, Pattern, Splits};
use std::sync::OnceLock;

/// Each named pattern, and the same expression in a form that no hand-written matcher is known for.
fn patterns() -> &'static [(Pattern, Pattern)] {
    static PATTERNS: OnceLock<Vec<(Pattern, Pattern)>> = OnceLock::new();
    PATTERNS.get_or_init(|| {
        let by_engine = |expression: &str| {
            let pattern = Pattern::new(Some(&format!("(?:{expression})"))).unwrap();
            assert!(matches!(pattern, Pattern::Custom(_)));
            pattern
        };
        NAMED.iter().map(|named| (Pattern::Named(named), by_engine(named.expression))).collect()
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
