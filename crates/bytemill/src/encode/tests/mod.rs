use super::session::NORMALIZED_BYTES;
use super::workspace::BYTES_PER_CHECK;
use super::*;
use crate::bpe;
use crate::bpe::limits::MAX_COLLECTED_BYTES;
use crate::error::Error;
use crate::pretokenize::Pattern;
use crate::special::{Segment, SpecialTokens};
use crate::text::normalize::{Normalizer, Prefix, Step};
use crate::train::count::Counts;
use crate::train::merges::{Ties, learn};
use crate::vocab::Vocab;
use proptest::prelude::*;

/// A tokenizer with some dozens of merges, learned from the words themselves.
pub fn encoder(words: &[&str], n_merges: usize, pattern: &str) -> Encoder {
    let counts = Counts::from_items(words.iter().map(|word| (word.as_bytes().to_vec(), 1))).unwrap();
    let learned = learn(&counts, n_merges, Ties::Bytes, 1, 1, |_| Ok(())).unwrap();
    let mut tokens: Vec<(u32, Vec<u8>)> = (0..=255).map(|byte| (u32::from(byte), vec![byte])).collect();
    let mut merges = Vec::new();
    for (merge, id) in learned.iter().zip(256..) {
        let part = |symbol: u32| tokens[symbol as usize].1.clone();
        let (left, right) = (part(merge.left), part(merge.right));
        tokens.push((id, [left.clone(), right.clone()].concat()));
        merges.push((left, right));
    }
    let special = vec![("<s>".to_owned(), 1000), ("<s><e>".to_owned(), 1001)];
    Encoder::new(Vocab::from_merges(tokens, &merges, special).unwrap(), Pattern::new(Some(pattern)).unwrap()).unwrap()
}

/// Pre-token by pre-token, each merged alone: no blocks, no caches.
fn encode_plainly(encoder: &Encoder, text: &str, special: &SpecialTokens) -> Vec<u32> {
    let mut ids = Vec::new();
    special
        .segments(text, true, &no_interrupt, |segment| match segment {
            Segment::Special(id) => {
                ids.push(id);
                Ok(())
            }
            Segment::Text(text) => encoder.pattern().for_each(text, |pretoken| {
                let mut symbols = Vec::new();
                bpe::merge(encoder.vocab().pairs(), pretoken, &mut symbols, &no_interrupt).unwrap();
                ids.extend(symbols.iter().map(|&symbol| encoder.vocab().symbol_ids()[symbol as usize]));
            }),
        })
        .unwrap();
    ids
}

pub const PIECES: [&str; 12] =
    ["low", " lower", " newest", " widest", "s", "<s>", "<s><e>", "\n\n", " 123", "é一ü", "zzzzzzzz", "'s"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn encoding_equals_merging_each_pretoken_without_caches(
        texts in prop::collection::vec(
            prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..80).prop_map(|pieces| pieces.concat()),
            1..6,
        ),
        n_merges in 0usize..60,
        pattern in prop::sample::select(vec!["gpt2", "cl100k", "o200k", r"\S+"]),
        n_threads in 1usize..4,
    ) {
        let encoder = encoder(&PIECES, n_merges, pattern);
        // Twice, so that the second time finds what the first has left behind.
        for _ in 0..2 {
            for text in &texts {
                let expected = encode_plainly(&encoder, text, encoder.special());
                let ids: Vec<u16> = encoder.encode_parallel(text, Allowed::All, n_threads, &no_interrupt).unwrap();
                prop_assert_eq!(ids.iter().map(|&id| u32::from(id)).collect::<Vec<_>>(), expected);
                let mut plain: Vec<u32> = Vec::new();
                encoder.encode(text, Allowed::None, &mut plain, &no_interrupt).unwrap();
                prop_assert_eq!(plain, encode_plainly(&encoder, text, &SpecialTokens::default()));
            }
        }
    }

    /// More pre-tokens are pending than are resolved at once, they occur again before that, and a set of the cache overflows.
    #[test]
    fn repeated_new_pretokens_equal_merging_each_without_caches(
        seed in any::<u64>(),
        n_words in 1u64..4_000,
        n_different in 1u64..2_000,
        n_merges in 0usize..60,
    ) {
        let encoder = encoder(&PIECES, n_merges, "gpt2");
        let text = words(seed, n_words, n_different);
        let expected = encode_plainly(&encoder, &text, &SpecialTokens::default());
        for _ in 0..2 {
            let mut ids: Vec<u16> = Vec::new();
            encoder.encode(&text, Allowed::None, &mut ids, &no_interrupt).unwrap();
            prop_assert!(ids.into_iter().map(u32::from).eq(expected.iter().copied()));
        }
    }

    #[test]
    fn several_threads_give_the_same_ids(
        seed in any::<u64>(),
        n_words in 1u64..10_000,
        n_different in 1u64..8_000,
        n_threads in 2usize..5,
    ) {
        let encoder = encoder(&PIECES, 30, "gpt2");
        let text = words(seed, n_words, n_different);
        let texts: Vec<&str> = text.split_inclusive("we").collect();
        let expected: Vec<Vec<u32>> =
            texts.iter().map(|text| encode_plainly(&encoder, text, &SpecialTokens::default())).collect();
        for _ in 0..2 {
            let all = encoder.encode_chunks::<u32>(&texts, 0, Allowed::None, n_threads, 4_000, &no_interrupt).unwrap();
            prop_assert_eq!(&all.ids, &expected.concat());
            let n_ids = [0].iter().chain(&all.ends).zip(&all.ends).map(|(start, end)| end - start);
            prop_assert!(n_ids.eq(expected.iter().map(Vec::len)));
        }
    }

    #[test]
    fn pretokens_of_every_length_keep_all_their_bytes(letters in prop::collection::vec(0usize..4, 1..200)) {
        let encoder = encoder(&["abab", "bcbc", "abcabc"], 5, "gpt2");
        let word: String = letters.iter().map(|&letter| ['a', 'b', 'c', 'z'][letter]).collect();
        let mut ids: Vec<u32> = Vec::new();
        encoder.encode(&word, Allowed::None, &mut ids, &no_interrupt).unwrap();
        let mut bytes = Vec::new();
        encoder.vocab().decode(ids, &mut bytes).unwrap();
        prop_assert_eq!(bytes, word.into_bytes());
    }
}

proptest! {
    /// A vocabulary with tokens of all lengths that no merges lead to, among them characters that merge barriers surround.
    #[test]
    fn whole_pretokens_are_looked_up_before_they_are_merged(
        seed in any::<u64>(),
        n_words in 1u64..3_000,
        n_different in 1u64..60,
        ignore_merges in any::<bool>(),
    ) {
        let text = words(seed, n_words, n_different) + " あいうえおかきくけこ あいうえお";
        let pattern = Pattern::new(Some("gpt2")).unwrap();
        let mut tokens: Vec<(u32, Vec<u8>)> = (0..=255).map(|byte| (u32::from(byte), vec![byte])).collect();
        let mut id = 256;
        pattern.for_each(&text, |pretoken| {
            if pretoken.len() > 1 && id % 3 != 0 && tokens.iter().all(|(_, token)| token != pretoken) {
                tokens.push((id, pretoken.to_vec()));
            }
            id += 1;
        }).unwrap();
        for token in ["lo", " l"] {
            if tokens.iter().all(|(_, known)| known != token.as_bytes()) {
                tokens.push((100_000 + tokens.len() as u32, token.as_bytes().to_vec()));
            }
        }
        let merges = [("l", "o"), (" ", "l")].map(|(l, r)| (l.as_bytes().to_vec(), r.as_bytes().to_vec()));
        let vocab = Vocab::from_merges(tokens, &merges, vec![]).unwrap();
        let vocab = vocab.with_ignore_merges(ignore_merges);
        let encoder = Encoder::new(vocab, pattern).unwrap();
        let mut expected: Vec<u32> = Vec::new();
        encoder.pattern().for_each(&text, |pretoken| match encoder.vocab().id(pretoken) {
            Some(id) if ignore_merges => expected.push(id),
            _ => {
                let pretoken = std::str::from_utf8(pretoken).unwrap();
                expected.extend(encode_plainly(&encoder, pretoken, &SpecialTokens::default()));
            }
        }).unwrap();
        for _ in 0..2 {
            let mut ids: Vec<u32> = Vec::new();
            encoder.encode(&text, Allowed::None, &mut ids, &no_interrupt).unwrap();
            prop_assert_eq!(&ids, &expected);
        }
    }
}

/// Words of 1 to 20 letters, and one in sixteen with up to 300 more that mostly make few ids, drawn from so many different ones.
fn words(seed: u64, n_words: u64, n_different: u64) -> String {
    let mix =
        |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    let word = |index: u64| {
        let mut bits = mix((mix(seed ^ index) % n_different) ^ seed);
        let mut letters = String::from(" ");
        for _ in 0..1 + bits % 20 {
            letters.push(['l', 'o', 'w', 'e', 'r', 's', 't', 'd'][(bits >> 60) as usize % 8]);
            bits = mix(bits);
        }
        if bits % 16 == 0 {
            letters.extend(std::iter::repeat_n('z', (bits >> 32) as usize % 300));
        }
        letters
    };
    (0..n_words).map(word).collect()
}

#[test]
fn ids_of_very_long_pretokens_are_written_directly_to_the_output() {
    let encoder = encoder(&PIECES, 0, "gpt2");
    let text = "z".repeat(2 * MAX_COLLECTED_BYTES);
    let mut ids: Vec<u16> = Vec::new();
    encoder.encode(&text, Allowed::None, &mut ids, &no_interrupt).unwrap();
    assert_eq!((ids.len(), ids.capacity()), (text.len(), text.len()));
}

#[test]
fn ids_that_do_not_fit_the_output_are_refused() {
    let mut tokens: Vec<(u32, Vec<u8>)> = (0..=255).map(|byte| (u32::from(byte), vec![byte])).collect();
    tokens.push((1 << 16, b"ab".to_vec()));
    let vocab = Vocab::from_merges(tokens, &[(b"a".to_vec(), b"b".to_vec())], vec![]).unwrap();
    let encoder = Encoder::new(vocab, Pattern::new(Some("gpt2")).unwrap()).unwrap();
    for text in ["ab", "", "x"] {
        let refused = encoder.encode::<u16>(text, Allowed::All, &mut Vec::new(), &no_interrupt).unwrap_err();
        assert_eq!(refused.to_string(), "ids up to 65536 do not fit 16 bits");
    }
    assert!(encoder.encode_bytes::<u16>(b"ab", &mut Vec::new(), &no_interrupt).is_err());
    let mut ids: Vec<u32> = Vec::new();
    encoder.encode("ab", Allowed::All, &mut ids, &no_interrupt).unwrap();
    assert_eq!(ids, [1 << 16]);
    let mut n_ids: Vec<()> = Vec::new();
    encoder.encode("abab", Allowed::All, &mut n_ids, &no_interrupt).unwrap();
    assert_eq!(n_ids.len(), 2);
}

#[test]
fn ids_after_an_interrupted_text_are_right() {
    let encoder = encoder(&PIECES, 20, "gpt2");
    // More than is encoded between two checks, so that pre-tokens are pending at the first.
    let text = words(1, 250_000, u64::MAX);
    assert!(text.len() > 2 * BYTES_PER_CHECK);
    let expected = encode_plainly(&encoder, &text, &SpecialTokens::default());
    let mut ids: Vec<u32> = Vec::new();
    encoder
        .session(|session| {
            assert!(session.encode(&text, 0, Allowed::None, &mut ids, &|| Err(Error::Interrupted)).is_err());
            ids.clear();
            session.encode(&text, 0, Allowed::None, &mut ids, &no_interrupt)
        })
        .unwrap();
    assert!(ids == expected);
    assert!(encoder.encode(&text, Allowed::None, &mut ids, &|| Err(Error::Interrupted)).is_err());
    ids.clear();
    encoder.encode(&text, Allowed::None, &mut ids, &no_interrupt).unwrap();
    assert!(ids == expected);
}

#[test]
fn a_refused_special_token_is_reported_with_its_offset() {
    let encoder = encoder(&PIECES, 10, "gpt2");
    let error = encoder.encode::<u32>("low<s>", Allowed::Refused, &mut Vec::new(), &no_interrupt).unwrap_err();
    assert_eq!(error.to_string(), "special token \"<s>\" at byte 3");
}

#[test]
fn invalid_utf8_is_encoded() {
    let encoder = encoder(&PIECES, 10, "gpt2");
    let mut ids = Vec::new();
    encoder.encode_bytes(b"low\xFF\xFElow", &mut ids, &no_interrupt).unwrap();
    let mut bytes = Vec::new();
    encoder.vocab().decode(ids.iter().copied(), &mut bytes).unwrap();
    assert_eq!(bytes, b"low\xFF\xFElow");
}

#[test]
fn a_long_text_is_normalized_in_pieces_with_the_ids_of_the_whole() {
    let steps = [
        vec![Step::Nfc],
        vec![Step::Replace { from: "ow".to_owned(), to: "1 2".to_owned() }, Step::Nfc],
        vec![Step::Strip { left: true, right: true }],
    ];
    let marks = ["e\u{301}", "\u{212B}", "\u{1100}\u{1161}", "क\u{94d}", " \u{338}"];
    let mut text = String::from("  ");
    for k in 0..40_000_usize {
        text.push_str(PIECES[k * 7919 % 12]);
        if k % 97 == 0 {
            text.push_str(marks[k % 5]);
        }
    }
    for steps in steps {
        let normalizer = Normalizer::new(steps, Some(Prefix::First));
        let encoder = encoder(&PIECES, 40, "cl100k").with_rules(&[], normalizer).unwrap();
        let long = text.repeat(4);
        assert!(long.len() > 4 * NORMALIZED_BYTES);
        for special in [Allowed::All, Allowed::None] {
            let mut ids: Vec<u32> = Vec::new();
            encoder.encode(&long, special, &mut ids, &no_interrupt).unwrap();
            assert_eq!(ids, encode_plainly(&encoder, &long, encoder.recognized(special)));
        }
        let refused = encoder.encode(&long, Allowed::Refused, &mut Vec::<u32>::new(), &no_interrupt);
        let offset = long.find("<s>").unwrap();
        assert!(matches!(refused, Err(Error::SpecialToken { offset: found, .. }) if found == offset));
        let late = format!("{}<s>", "low ".repeat(200_000));
        let refused = encoder.encode(&late, Allowed::Refused, &mut Vec::<u32>::new(), &no_interrupt);
        assert!(matches!(refused, Err(Error::SpecialToken { offset: 800_000, .. })));
    }
}
