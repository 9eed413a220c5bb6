//! Places in a pre-token that no token crosses.
//!
//! A merge makes a token out of neighbouring bytes. Where no token of the vocabulary could lie across a place, whatever
//! it were merged from, the bytes on both sides never meet, and they can be encoded apart: long runs of
//! letters without blanks (Chinese, Japanese, Thai) fall into pieces of a few characters, which are seen again and again.

use crate::hash::fold;

/// Which neighbourhoods of a place some token covers.
///
/// A token that crosses the place between b and c in `a b c d` covers `b c` alone, or begins with `b c d`, or ends with
/// `a b c`, or holds all four. There is a set for each; those of three and four bytes are hashed to bits, where two
/// neighbourhoods that share a bit cost a cut and no more.
pub struct Seams {
    pairs: Box<[u64]>,
    wider: Box<[u64]>,
}

/// 2²⁰ bits, 128 KB: cl100k has 88,000 neighbourhoods, o200k 155,000.
const WIDER_LOG2: u32 = 20;

#[derive(Clone, Copy)]
enum Kind {
    Begins = 1,
    Ends,
    Holds,
}

#[inline]
fn bit_of(bytes: u32, kind: Kind) -> usize {
    (fold(u64::from(bytes) | (kind as u64) << 32, 0x9E37_79B9_7F4A_7C15) >> (64 - WIDER_LOG2)) as usize
}

fn set(bits: &mut [u64], bit: usize) {
    bits[bit / 64] |= 1 << (bit % 64);
}

#[inline]
fn has(bits: &[u64], bit: usize) -> bool {
    bits[bit / 64] >> (bit % 64) & 1 == 1
}

#[inline]
fn word(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |word, &byte| word << 8 | u32::from(byte))
}

impl Seams {
    /// The seams that `tokens` leave.
    pub fn new<'t>(tokens: impl Iterator<Item = &'t [u8]>) -> Self {
        let mut seams = Self {
            pairs: vec![0; (1 << 16) / 64].into_boxed_slice(),
            wider: vec![0; (1 << WIDER_LOG2) / 64].into_boxed_slice(),
        };
        for token in tokens {
            if let &[left, right] = token {
                set(&mut seams.pairs, usize::from(left) << 8 | usize::from(right));
            }
            if let (Some(first), Some(last)) = (token.first_chunk::<3>(), token.last_chunk::<3>()) {
                set(&mut seams.wider, bit_of(word(first), Kind::Begins));
                set(&mut seams.wider, bit_of(word(last), Kind::Ends));
            }
            for four in token.windows(4) {
                set(&mut seams.wider, bit_of(word(four), Kind::Holds));
            }
        }
        seams
    }

    /// Calls `each` with the places before characters outside ASCII that no token crosses, in order.
    ///
    /// (Between ASCII characters seams are rare; inside a character of several bytes rarer still.)
    pub fn for_each(&self, pretoken: &[u8], each: &mut dyn FnMut(usize)) {
        for at in 1..pretoken.len() {
            if pretoken[at] >= 0xC0 && self.is_seam(pretoken, at) {
                each(at);
            }
        }
    }

    /// True where no token that lies in `text` crosses the place before `text[at]`.
    #[inline]
    fn is_seam(&self, text: &[u8], at: usize) -> bool {
        let (Some(&left), Some(&right)) = (text.get(at.wrapping_sub(1)), text.get(at)) else { return true };
        let pair = u32::from(left) << 8 | u32::from(right);
        let before = text.get(at.wrapping_sub(2)).map(|&byte| u32::from(byte) << 16);
        let behind = text.get(at + 1).map(|&byte| u32::from(byte));
        !(has(&self.pairs, pair as usize)
            || behind.is_some_and(|behind| has(&self.wider, bit_of(pair << 8 | behind, Kind::Begins)))
            || before.is_some_and(|before| has(&self.wider, bit_of(before | pair, Kind::Ends)))
            || before
                .zip(behind)
                .is_some_and(|(before, behind)| has(&self.wider, bit_of((before | pair) << 8 | behind, Kind::Holds))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seams_of(tokens: &[&str], text: &str) -> Vec<usize> {
        let mut found = Vec::new();
        Seams::new(tokens.iter().map(|token| token.as_bytes())).for_each(text.as_bytes(), &mut |at| found.push(at));
        found
    }

    #[test]
    fn a_text_falls_apart_where_its_tokens_end() {
        assert_eq!(seams_of(&["你好", "世界"], "你好世界你好"), [6, 12]);
        assert_eq!(seams_of(&["你好", "好世", "世界"], "你好世界你好"), [12]);
        assert_eq!(seams_of(&["é"], "éé"), [2]);
        assert_eq!(seams_of(&["é", "éé"], "éé"), Vec::<usize>::new());
        assert_eq!(seams_of(&["ab"], "abab"), Vec::<usize>::new());
    }

    /// Bytes of few values, so that tokens are met with, among them first bytes of characters.
    fn bytes(n: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(vec![0xC3u8, 0xC4, 0xE4, 0x80, 0x81, b'a']), n)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn no_token_crosses_a_seam(
            drawn in prop::collection::vec(bytes(2..7), 0..12),
            cut_from_text in prop::collection::vec((0usize..60, 2usize..9), 0..6),
            text in bytes(0..60),
        ) {
            let mut tokens = drawn;
            tokens.extend(cut_from_text.iter().filter_map(|&(from, n)| text.get(from..from + n)).map(<[u8]>::to_vec));
            let mut found = Vec::new();
            Seams::new(tokens.iter().map(|token| &token[..])).for_each(&text, &mut |at| found.push(at));
            for token in &tokens {
                for start in text.windows(token.len()).enumerate().filter(|(_, part)| part == token).map(|(at, _)| at) {
                    let crossed: Vec<_> = found.iter().filter(|&&at| start < at && at < start + token.len()).collect();
                    prop_assert!(crossed.is_empty(), "{:?} at {} crosses {:?}", token, start, crossed);
                }
            }
        }
    }
}
