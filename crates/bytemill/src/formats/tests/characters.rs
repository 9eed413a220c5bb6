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
    let scores: Vec<u32> = (0..pieces.len() as u32).collect();
    reference_with_scores(text, pieces, &scores, fallback)
}

fn reference_with_scores(text: &str, pieces: &[&str], scores: &[u32], fallback: Fallback) -> Vec<u32> {
    let score: HashMap<&str, u32> = pieces.iter().copied().zip(scores.iter().copied()).collect();
    let id: HashMap<&str, u32> = pieces.iter().copied().zip(256..).collect();
    let mut parts: Vec<String> = text.chars().map(String::from).collect();
    loop {
        let pairs = parts.windows(2).enumerate();
        let best = pairs.filter_map(|(at, pair)| Some((*score.get(&*pair.concat())?, at))).min();
        let Some((_, at)) = best else { break };
        let right = parts.remove(at + 1);
        parts[at] += &right;
    }
    let mut ids = Vec::new();
    for part in parts {
        match (id.get(&*part), fallback) {
            (Some(&id), _) => ids.push(id),
            (None, Fallback::Bytes) => ids.extend(part.bytes().map(u32::from)),
            (None, Fallback::Nothing) => {}
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
    let vocab = vocab(pieces, None, fallback).unwrap();
    Encoder::new(vocab, Pattern::new(pattern).unwrap()).unwrap()
}

/// A vocabulary of pieces, best first. `scores` are those of the pieces if some are equal; the lowest is the best.
fn vocab(pieces: &[&str], scores: Option<&[u32]>, fallback: Fallback) -> Result<Vocab> {
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
    let (mut merges, mut ranks) = (Vec::new(), Vec::new());
    for (at, piece) in pieces.iter().enumerate() {
        let splits = piece.char_indices().skip(1).map(|(at, _)| piece.split_at(at));
        let is_known = |part: &str| pieces.contains(&part) || part.chars().nth(1).is_none();
        let known = splits.filter(|(left, right)| is_known(left) && is_known(right));
        merges.extend(known.map(|(left, right)| (left.as_bytes(), right.as_bytes())));
        ranks.resize(merges.len(), scores.map_or(0, |scores| scores[at]));
    }
    Vocab::from_characters(&tokens, aliases, &merges, scores.map(|_| &ranks[..]), Vec::new(), fallback)
}

fn fallback() -> impl Strategy<Value = Fallback> {
    select(vec![Fallback::Bytes, Fallback::Unknown { id: 0, fused: false }, Fallback::Unknown { id: 0, fused: true }])
}

proptest! {
    #[test]
    fn ids_are_those_of_merging_characters(
        pieces in Just(PIECES.to_vec()).prop_shuffle(),
        n_pieces in 0..=PIECES.len(),
        fallback in fallback(),
        text in vec(select("ab  é語日😀✓x\n".chars().collect::<Vec<_>>()), 0..40),
    ) {
        // Parts may come after what is made of them.
        let pieces = &pieces[..n_pieces];
        let text = String::from_iter(text);
        for pattern in [None, Some(" *[^ ]+| +")] {
            let encoder = encoder(pieces, fallback, pattern);
            let mut ids: Vec<u32> = Vec::new();
            encoder.encode(&text, Allowed::None, &mut ids, &no_interrupt).unwrap();
            prop_assert_eq!(&ids, &reference(&text, pieces, fallback));
            let mut narrow: Vec<u16> = Vec::new();
            encoder.encode(&text.repeat(3), Allowed::None, &mut narrow, &no_interrupt).unwrap();
            let wide: Vec<u32> = narrow.into_iter().map(u32::from).collect();
            prop_assert_eq!(&wide, &reference(&text.repeat(3), pieces, fallback));
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

/// Runs of two characters, of which many overlap.
const RUNS: [&str; 14] = ["a", "b", "aa", "ab", "ba", "bb", "aaa", "aab", "abb", "aaaa", "bbb", "aaaaa", "baa", "bab"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn equal_scores_are_refused_or_merged_from_the_left(
        pieces in Just(RUNS.to_vec()).prop_shuffle(),
        n_pieces in 0..=RUNS.len(),
        rises in vec(any::<bool>(), RUNS.len()),
        texts in vec(vec(select(vec!['a', 'b']), 0..40), 20),
    ) {
        let pieces = &pieces[..n_pieces];
        let scores: Vec<u32> = rises.iter().scan(0, |score, rise| { *score += u32::from(*rise); Some(*score) }).collect();
        if let Ok(vocab) = vocab(pieces, Some(&scores), Fallback::Bytes) {
            let encoder = Encoder::new(vocab, Pattern::new(None).unwrap()).unwrap();
            for text in texts.into_iter().map(String::from_iter) {
                let mut ids: Vec<u32> = Vec::new();
                encoder.encode(&text, Allowed::None, &mut ids, &no_interrupt).unwrap();
                prop_assert_eq!(ids, reference_with_scores(&text, pieces, &scores, Fallback::Bytes));
            }
        }
    }
}

#[test]
fn runs_of_spaces_with_one_score_keep_their_order() {
    // As in Llama 2's model, where the runs of 2 to 16 spaces have the score -10⁹.
    let runs: Vec<String> = [1, 2, 4, 8, 5, 16, 6, 12, 13, 10, 14, 3, 9, 7, 11, 15].map(|n| " ".repeat(n)).to_vec();
    let runs: Vec<&str> = runs.iter().map(String::as_str).collect();
    assert!(vocab(&runs, Some(&[0; 16]), Fallback::Bytes).is_ok());
    // Of five spaces the ids make two and three.
    let refused = vocab(&[" ", "  ", "   ", "    "], Some(&[0; 4]), Fallback::Bytes).unwrap_err();
    assert!(refused.to_string().contains("equal scores"), "{refused}");
}

#[test]
fn a_byte_without_a_token_is_an_error() {
    let mut tokens = TokenList::default();
    tokens.push(0, b"a").unwrap();
    let error = Vocab::from_characters(&tokens, Vec::new(), &[], None, Vec::new(), Fallback::Bytes).unwrap_err();
    assert!(error.to_string().contains("all 256 bytes must be"), "{error}");
}
