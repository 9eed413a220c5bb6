use super::*;
use crate::encode::{Allowed, Encoder, no_interrupt};
use crate::pretokenize::Pattern;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::HashMap;

const PIECES: [&str; 16] =
    [" ", "a", "b", "é", "語", "日", " a", "ab", " ab", "語日", "éa", "aa", "  ", "😀", "日語日", "a😀"];

/// What merging characters by priority makes of a text: the best pair, the first of several, again and again. Characters merge
/// even if they are no tokens, as in SentencePiece.
fn reference(text: &str, pieces: &[&str], fallback: Fallback) -> Vec<u32> {
    let rank: HashMap<&str, u32> = pieces.iter().copied().zip(256..).collect();
    let mut parts: Vec<String> = text.chars().map(String::from).collect();
    loop {
        let pairs = parts.windows(2).enumerate();
        let best = pairs.filter_map(|(at, pair)| Some((*rank.get(&*pair.concat())?, at))).min();
        let Some((_, at)) = best else { break };
        let right = parts.remove(at + 1);
        parts[at] += &right;
    }
    let mut ids = Vec::new();
    for part in parts {
        match (rank.get(&*part), fallback) {
            (Some(&id), _) => ids.push(id),
            (None, Fallback::Bytes) => ids.extend(part.bytes().map(u32::from)),
            (None, Fallback::Unknown { id, fused }) => {
                if !(fused && ids.last() == Some(&id)) {
                    ids.push(id);
                }
            }
        }
    }
    ids
}

fn encoder(pieces: &[&str], fallback: Fallback, pattern: Option<&str>) -> Encoder {
    let mut tokens = TokenList::default();
    for (piece, id) in pieces.iter().zip(256..) {
        tokens.push(id, piece.as_bytes()).unwrap();
    }
    let mut aliases = Vec::new();
    if fallback == Fallback::Bytes {
        for byte in 0..=255_u8 {
            if pieces.iter().any(|piece| piece.as_bytes() == [byte]) {
                aliases.push((u32::from(byte), vec![byte]));
            } else {
                tokens.push(u32::from(byte), &[byte]).unwrap();
            }
        }
    }
    let mut merges = Vec::new();
    for piece in pieces {
        let splits = piece.char_indices().skip(1).map(|(at, _)| piece.split_at(at));
        let is_known = |part: &str| pieces.contains(&part) || part.chars().nth(1).is_none();
        let known = splits.filter(|(left, right)| is_known(left) && is_known(right));
        merges.extend(known.map(|(left, right)| (left.as_bytes(), right.as_bytes())));
    }
    let vocab = Vocab::from_characters(&tokens, aliases, &merges, Vec::new(), fallback).unwrap();
    Encoder::new(vocab, Pattern::new(pattern).unwrap()).unwrap()
}

fn fallback() -> impl Strategy<Value = Fallback> {
    select(vec![Fallback::Bytes, Fallback::Unknown { id: 0, fused: false }, Fallback::Unknown { id: 0, fused: true }])
}

proptest! {
    #[test]
    fn ids_are_those_of_merging_characters(
        mask in 0..1_u32 << 16,
        fallback in fallback(),
        text in vec(select("ab  é語日😀✓x\n".chars().collect::<Vec<_>>()), 0..40),
    ) {
        // Characters first: parts come before what is made of them.
        let pieces: Vec<&str> = PIECES.iter().enumerate().filter(|(at, _)| mask >> at & 1 == 1).map(|(_, p)| *p).collect();
        let text = String::from_iter(text);
        for pattern in [None, Some(" *[^ ]+| +")] {
            let encoder = encoder(&pieces, fallback, pattern);
            let mut ids: Vec<u32> = Vec::new();
            encoder.encode(&text, Allowed::None, &mut ids, &no_interrupt).unwrap();
            prop_assert_eq!(&ids, &reference(&text, &pieces, fallback));
            let mut narrow: Vec<u16> = Vec::new();
            encoder.encode(&text.repeat(3), Allowed::None, &mut narrow, &no_interrupt).unwrap();
            let wide: Vec<u32> = narrow.into_iter().map(u32::from).collect();
            prop_assert_eq!(&wide, &reference(&text.repeat(3), &pieces, fallback));
            let mut ranges = Vec::new();
            encoder.spans(&text, Allowed::None, &ids, |range| ranges.push(range)).unwrap();
            prop_assert_eq!(ranges.first().map_or(0, |range| range.start), 0);
            prop_assert_eq!(ranges.last().map_or(0, |range| range.end), text.len());
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
            if fallback == Fallback::Bytes {
                let bytes: Vec<u8> = ids.iter().flat_map(|&id| encoder.vocab().token(id).unwrap().to_vec()).collect();
                prop_assert_eq!(bytes, text.as_bytes());
            }
        }
    }
}

#[test]
fn a_byte_without_a_token_is_an_error() {
    let mut tokens = TokenList::default();
    tokens.push(0, b"a").unwrap();
    let error = Vocab::from_characters(&tokens, Vec::new(), &[], Vec::new(), Fallback::Bytes).unwrap_err();
    assert!(error.to_string().contains("all 256 bytes must be"), "{error}");
}
