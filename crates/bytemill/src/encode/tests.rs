use super::*;
use crate::bpe;
use crate::count::Counts;
use crate::merges::{Ties, learn};
use crate::special::Segment;
use proptest::prelude::*;

/// A tokenizer with some dozens of merges, learnt from the words themselves.
fn encoder(words: &[&str], n_merges: usize, pattern: &str) -> Encoder {
    let counts = Counts::from_items(words.iter().map(|word| (word.as_bytes().to_vec(), 1))).unwrap();
    let learnt = learn(&counts, n_merges, Ties::Bytes, 1, 1, |_| Ok(())).unwrap();
    let mut tokens: Vec<(u32, Vec<u8>)> = (0..=255).map(|byte| (u32::from(byte), vec![byte])).collect();
    let mut merges = Vec::new();
    for (merge, id) in learnt.iter().zip(256..) {
        let part = |symbol: u32| tokens[symbol as usize].1.clone();
        let (left, right) = (part(merge.left), part(merge.right));
        tokens.push((id, [left.clone(), right.clone()].concat()));
        merges.push((left, right));
    }
    let special = vec![("<s>".to_owned(), 1000), ("<s><e>".to_owned(), 1001)];
    Encoder::new(Vocab::from_merges(tokens, &merges, special).unwrap(), Pattern::new(Some(pattern)).unwrap()).unwrap()
}

/// Pre-token by pre-token, each merged afresh: no blocks, no tables of what was seen.
fn encode_plainly(encoder: &Encoder, text: &str, special: &SpecialTokens) -> Vec<u32> {
    let mut ids = Vec::new();
    special
        .segments(text, &no_pulse, |segment| match segment {
            Segment::Special(id) => {
                ids.push(id);
                Ok(())
            }
            Segment::Text(text) => encoder.pattern.for_each(text, |pretoken| {
                let mut symbols = Vec::new();
                bpe::merge(&encoder.pairs, pretoken.as_bytes(), &mut symbols, &no_pulse).unwrap();
                ids.extend(symbols.iter().map(|&symbol| encoder.vocab.symbol_ids()[symbol as usize]));
            }),
        })
        .unwrap();
    ids
}

#[test]
fn it_is_known_when_the_tables_have_grown() {
    let encoder = encoder(&PIECES, 20, "gpt2");
    // Four bytes are four ids at most, which the table of short pre-tokens takes.
    let letters: Vec<char> = ('a'..='z').chain('A'..='Z').collect();
    let word = |number: usize| [' ', letters[number % 52], letters[number / 52 % 52], letters[number / 2_704 % 52]];
    let encode = |n_words: usize| {
        let text: String = (0..n_words).flat_map(word).collect();
        encoder.encode::<u32>(&text, Allowed::None, &mut Vec::new(), &no_pulse).unwrap();
    };
    encode(1_000);
    assert!(!encoder.tables_have_grown());
    encode(140_000);
    assert!(encoder.tables_have_grown());
}

#[test]
fn tables_grow_at_once_where_much_text_is_to_come() {
    // 600 words, again and again.
    let letters: Vec<char> = ('a'..='z').collect();
    let word = |number: usize| [' ', letters[number % 25], letters[number / 25], 'z'];
    let words: String = (0..600).flat_map(word).collect();
    let has_grown = |n_bytes: usize, n_threads: usize| {
        let text = words.repeat(n_bytes / words.len() + 1);
        let documents = vec![&text[..text.len() / 10]; 10];
        let by_each = [&[text.as_str()][..], &documents].map(|texts| {
            let encoder = encoder(&PIECES, 20, "gpt2");
            encoder.encode_batch::<u32>(texts, Allowed::None, n_threads, &no_pulse).unwrap();
            encoder.tables_have_grown()
        });
        assert_eq!(by_each[0], by_each[1]);
        by_each[0]
    };
    // 16 MB for 4.2 MB and more on a thread.
    assert!(!has_grown(4_000_000, 1));
    assert!(has_grown(4_400_000, 1));
    assert!(!has_grown(8_000_000, 2));
    assert!(has_grown(8_800_000, 2));
}

const PIECES: [&str; 12] =
    ["low", " lower", " newest", " widest", "s", "<s>", "<s><e>", "\n\n", " 123", "é一ü", "zzzzzzzz", "'s"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn encoding_equals_merging_each_pretoken_afresh(
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
                let ids: Vec<u16> = encoder.encode_parallel(text, Allowed::All, n_threads, &no_pulse).unwrap();
                prop_assert_eq!(ids.iter().map(|&id| u32::from(id)).collect::<Vec<_>>(), expected);
                let mut plain: Vec<u32> = Vec::new();
                encoder.encode(text, Allowed::None, &mut plain, &no_pulse).unwrap();
                prop_assert_eq!(plain, encode_plainly(&encoder, text, &SpecialTokens::default()));
            }
        }
    }

    /// Questions come in greater numbers than are asked at once, again before they are answered, and more than a line of the
    /// cache holds.
    #[test]
    fn many_new_words_that_come_again_equal_each_merged_afresh(
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
            encoder.encode(&text, Allowed::None, &mut ids, &no_pulse).unwrap();
            prop_assert!(ids.into_iter().map(u32::from).eq(expected.iter().copied()));
        }
    }

    #[test]
    fn threads_that_tell_each_other_what_is_new_find_the_same(
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
            let all = encoder.encode_pieces::<u32>(&texts, Allowed::None, n_threads, 4_000, &no_pulse).unwrap();
            prop_assert_eq!(&all.ids, &expected.concat());
            let n_ids = [0].iter().chain(&all.ends).zip(&all.ends).map(|(start, end)| end - start);
            prop_assert!(n_ids.eq(expected.iter().map(Vec::len)));
        }
    }

    #[test]
    fn words_of_every_length_keep_all_their_bytes(letters in prop::collection::vec(0usize..4, 1..200)) {
        let encoder = encoder(&["abab", "bcbc", "abcabc"], 5, "gpt2");
        let word: String = letters.iter().map(|&letter| ['a', 'b', 'c', 'z'][letter]).collect();
        let mut ids: Vec<u32> = Vec::new();
        encoder.encode(&word, Allowed::None, &mut ids, &no_pulse).unwrap();
        let mut bytes = Vec::new();
        encoder.vocab().decode(ids, &mut bytes).unwrap();
        prop_assert_eq!(bytes, word.into_bytes());
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
fn an_id_for_each_byte_of_an_endless_word_goes_to_one_place() {
    let encoder = encoder(&PIECES, 0, "gpt2");
    let text = "z".repeat(2 * HUGE);
    let mut ids: Vec<u16> = Vec::new();
    encoder.encode(&text, Allowed::None, &mut ids, &no_pulse).unwrap();
    assert_eq!((ids.len(), ids.capacity()), (text.len(), text.len()));
}

#[test]
fn an_interrupted_text_leaves_nothing_wrong_behind() {
    let encoder = encoder(&PIECES, 20, "gpt2");
    // More than is encoded between two pulses, so that questions are open at the first.
    let text = words(1, 250_000, u64::MAX);
    assert!(text.len() > 2 * PULSE_BYTES);
    let expected = encode_plainly(&encoder, &text, &SpecialTokens::default());
    let mut ids: Vec<u32> = Vec::new();
    encoder.session(text.len(), |session| {
        assert!(session.encode(&text, Allowed::None, &mut ids, &|| Err(Error::Interrupted)).is_err());
        ids.clear();
        session.encode(&text, Allowed::None, &mut ids, &no_pulse).unwrap();
    });
    assert!(ids == expected);
    assert!(encoder.encode(&text, Allowed::None, &mut ids, &|| Err(Error::Interrupted)).is_err());
    ids.clear();
    encoder.encode(&text, Allowed::None, &mut ids, &no_pulse).unwrap();
    assert!(ids == expected);
}

#[test]
fn what_one_thread_has_found_out_another_knows() {
    let encoder = encoder(&PIECES, 20, "gpt2");
    // Words of three letters, by thousands.
    let word = |number: usize| {
        let letter = |place: u32| char::from(b'a' + (number / 26usize.pow(place) % 26) as u8);
        format!(" {}{}{}", letter(0), letter(1), letter(2))
    };
    let text = |thousand: usize| -> String { (1_000 * thousand..1_000 * (thousand + 1)).map(word).collect() };
    let encode = |workspace: &mut Workspace, thousand: usize| {
        encoder.encode_segment(workspace, &text(thousand), &mut Vec::<u32>::new(), &no_pulse).unwrap();
    };
    encoder.with_workspace(0, |first| {
        encoder.with_workspace(0, |second| {
            // Only now is it known that there are two.
            first.teller.set_alone(false);
            encode(first, 1);
            encode(second, 2);
            let n_known = |workspace: &mut Workspace| {
                let known = workspace.cache.first();
                let keys = (1_000..2_000).map(|number| {
                    let key = crate::hash::pack(word(number).as_bytes(), 0, 4);
                    (key, workspace.cache.mixing().mix(key))
                });
                keys.filter(|&(key, mixed)| known.get(key, mixed).is_some()).count()
            };
            assert!(n_known(second) > n_known(first) / 2, "{} and {}", n_known(second), n_known(first));
            let mut ids: Vec<u32> = Vec::new();
            encoder.encode_segment(second, &text(1), &mut ids, &no_pulse).unwrap();
            assert_eq!(ids, encode_plainly(&encoder, &text(1), &SpecialTokens::default()));
        });
    });
}

#[test]
fn a_special_token_that_is_refused_is_named_with_its_place() {
    let encoder = encoder(&PIECES, 10, "gpt2");
    let error = encoder.encode::<u32>("low<s>", Allowed::Refused, &mut Vec::new(), &no_pulse).unwrap_err();
    assert_eq!(error.to_string(), "special token \"<s>\" at byte 3");
}

#[test]
fn bytes_that_are_no_text_are_encoded_too() {
    let encoder = encoder(&PIECES, 10, "gpt2");
    let mut ids = Vec::new();
    encoder.encode_bytes(b"low\xFF\xFElow", &mut ids, &no_pulse).unwrap();
    let mut bytes = Vec::new();
    encoder.vocab().decode(ids.iter().copied(), &mut bytes).unwrap();
    assert_eq!(bytes, b"low\xFF\xFElow");
}
