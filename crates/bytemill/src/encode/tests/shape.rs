//! Pre-tokens that change before they are merged, against the same changes made to the text.

use crate::encode::{Allowed, Encoder, Shape, no_interrupt};
use crate::pretokenize::Pattern;
use crate::vocab::Vocab;
use proptest::prelude::*;

/// All bytes but `missing`, then tokens; with a suffix, bytes also at the end of words.
fn encoder(merges: &[(&str, &str)], missing: &[u8], shape: Shape) -> Encoder {
    let mut tokens: Vec<(u32, Vec<u8>)> =
        (0..=255_u8).filter(|byte| !missing.contains(byte)).map(|byte| (u32::from(byte), vec![byte])).collect();
    if let Some(suffix) = &shape.suffix {
        tokens.extend((0..=255_u8).map(|byte| (300 + u32::from(byte), [&[byte], &**suffix].concat())));
    }
    tokens.extend((600..).zip(merges).map(|(id, (left, right))| (id, [*left, *right].concat().into_bytes())));
    let list = crate::vocab::TokenList::collect(tokens.iter().map(|(id, token)| (*id, &token[..]))).unwrap();
    let mut merged = crate::vocab::MergedTokens::with_any_bytes(list, "id").unwrap();
    if let Some(suffix) = &shape.suffix {
        merged.add_ends(suffix, super::END).unwrap();
    }
    for (left, right) in merges {
        merged.add([*left, *right].concat().as_bytes(), left.len()).unwrap();
    }
    let vocab: Vocab = merged.finish(&[], vec![]).unwrap();
    Encoder::new(vocab, Pattern::new(Some(r"\S+|\s+")).unwrap()).unwrap().with_shape(shape)
}

fn ids(encoder: &Encoder, text: &str) -> Vec<u32> {
    let mut out = Vec::new();
    encoder.encode(text, Allowed::All, &mut out, &no_interrupt).unwrap();
    out
}

/// The bytes of tokens, each word by itself.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace()
}

#[test]
fn long_words_end_with_the_suffix_too() {
    let shape = Shape { suffix: Some(b"</w>".as_slice().into()), ..Shape::default() };
    let encoder = encoder(&[("a", "b"), ("ab", "ab"), ("b", "a")], &[], shape);
    for n in [30, 300, 1 << 16, 1 << 17] {
        let word = "ab</w>".repeat(n);
        let tokens = ids(&encoder, &word).into_iter().map(|id| encoder.vocab().token(id).unwrap());
        assert!(tokens.collect::<Vec<_>>().concat() == format!("{word}</w>").into_bytes());
    }
}

#[test]
fn long_words_may_lack_bytes() {
    let merges = [("a", "b"), ("ab", "ab"), ("b", "a")];
    let shape = Shape { drops_unknown: true, ..Shape::default() };
    let (plain, lacking) = (encoder(&merges, &[], Shape::default()), encoder(&merges, b"c\xC0\xFF", shape));
    for n in [30, 1 << 16, 1 << 17] {
        assert!(ids(&lacking, &"abcaab".repeat(n)) == ids(&plain, &"abaab".repeat(n)));
    }
}

proptest! {
    #[test]
    fn spaces_before_words_are_those_of_the_text(text in "[ab \n]{0,60}") {
        let merges = [("a", "b"), (" ", "a"), (" a", "b"), ("b", "b")];
        let shape = Shape { drops_white_space: true, space_before: true, ..Shape::default() };
        let plain = encoder(&merges, &[], Shape::default());
        let expected: Vec<u32> = words(&text)
            .flat_map(|word| {
                let mut out = Vec::new();
                plain.merge_pretoken(format!(" {word}").as_bytes(), &mut Vec::new(), &mut out, &no_interrupt).unwrap();
                out
            })
            .collect();
        prop_assert_eq!(ids(&encoder(&merges, &[], shape), &text), expected);
    }

    #[test]
    fn missing_bytes_vanish_before_merging(text in "[abc \n]{0,60}") {
        let merges = [("a", "b"), ("ab", "a"), ("b", "b")];
        let shape = Shape { drops_unknown: true, drops_white_space: true, ..Shape::default() };
        let plain = encoder(&merges, &[], Shape { drops_white_space: true, ..Shape::default() });
        prop_assert_eq!(ids(&encoder(&merges, b"c", shape), &text), ids(&plain, &text.replace('c', "")));
    }

    #[test]
    fn the_last_byte_of_a_word_is_another_token(text in "[ab \n]{0,60}") {
        let merges = [("a", "b</w>"), ("a", "b"), ("b", "a"), ("ab", "ab</w>"), ("b", "b</w>")];
        let shape = Shape { drops_white_space: true, suffix: Some(b"</w>".as_slice().into()), ..Shape::default() };
        // The reference merges strings.
        let mut expected = Vec::new();
        for word in words(&text) {
            let mut parts: Vec<String> = word.chars().map(String::from).collect();
            parts.last_mut().unwrap().push_str("</w>");
            while let Some((_, at)) = (0..parts.len() - 1)
                .filter_map(|at| {
                    let rank = merges.iter().position(|&(left, right)| left == parts[at] && right == parts[at + 1])?;
                    Some((rank, at))
                })
                .min()
            {
                let right = parts.remove(at + 1);
                parts[at].push_str(&right);
            }
            expected.extend(parts);
        }
        let encoder = encoder(&merges, &[], shape);
        let found: Vec<String> = ids(&encoder, &text)
            .iter()
            .map(|&id| String::from_utf8(encoder.vocab().token(id).unwrap().to_vec()).unwrap())
            .collect();
        prop_assert_eq!(found, expected);
    }
}
