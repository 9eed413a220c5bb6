//! Normalizers: the same text whether or not the origin of characters is kept, in pieces, and for any compiled rules.

use crate::bytes;
use bytemill::encode::no_interrupt;
use bytemill::text::normalize::aligned::{plain, unchanged};
use bytemill::text::normalize::{CharsMap, Normalizer, Prefix, Step};
use std::sync::Arc;

fn step(byte: u8) -> Step {
    let replace = |from: &str, to: &str| Step::Replace { from: from.to_owned(), to: to.to_owned() };
    match byte % 14 {
        0 => Step::Nfc,
        1 => Step::Nfd,
        2 => Step::Nfkc,
        3 => Step::Nfkd,
        4 => Step::Lowercase,
        5 => Step::StripAccents,
        6 => replace(" ", "\u{2581}"),
        7 => replace("aa", ""),
        8 => replace("é", "e\u{301}"),
        9 => Step::Prepend("\u{2581}".to_owned()),
        10 => Step::JoinSpaces,
        11 => Step::TrimSpaces { left: byte & 16 == 0 },
        _ => Step::Strip { left: byte & 16 == 0, right: byte & 32 == 0 },
    }
}

/// Up to three steps and a text; or compiled rules and a text.
///
/// # Panics
/// Where the text differs with the origins of its characters, or divided where it may be cut.
pub fn normalizer(data: &[u8]) {
    let Some((&kind, data)) = data.split_first() else { return };
    let Some((&size, data)) = data.split_first() else { return };
    let (head, rest) = data.split_at(data.len().min(if kind & 1 == 0 { usize::from(size) } else { 3 }));
    let text = bytes::text(rest);
    let steps = if kind & 1 == 1 {
        head.iter().map(|&byte| step(byte)).collect()
    } else {
        // The size of the trie, which most random bytes would not be, comes first.
        let n_units = head.len() / 8;
        let block = [&(4 * n_units as u32).to_le_bytes()[..], head].concat();
        match CharsMap::new(&block) {
            Ok(rules) => {
                assert_eq!(CharsMap::new(&rules.to_bytes()).unwrap(), rules);
                vec![Step::CharsMap(Arc::new(rules))]
            }
            Err(_) => return,
        }
    };
    let prefix = [None, Some(Prefix::Always), Some(Prefix::First)][usize::from(kind >> 1) % 3];
    let normalizer = Normalizer::new(steps, prefix);
    let is_start = kind & 128 == 0;
    let whole = normalizer.normalize(&text, is_start, &no_interrupt).unwrap();
    let aligned = normalizer.normalize_aligned(unchanged(&text, 0), is_start);
    assert_eq!(plain(&aligned), whole.as_ref(), "{normalizer:?} of {text:?}");
    for both in aligned.windows(2) {
        assert!(both[0].origin.start <= both[1].origin.start, "{normalizer:?} of {text:?}");
    }
    for at in (1..text.len()).filter(|&at| text.is_char_boundary(at)) {
        if normalizer.is_stable_about(&text, at, usize::from(size) % 6) {
            let left = normalizer.normalize(&text[..at], is_start, &no_interrupt).unwrap();
            let right = normalizer.normalize(&text[at..], false, &no_interrupt).unwrap();
            assert_eq!([left, right].concat(), whole.as_ref(), "{normalizer:?} of {text:?} cut at {at}");
        }
    }
}
