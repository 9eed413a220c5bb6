//! Counts against a reference that looks at every place byte by byte.

use super::{Counts, Marks, Tokens};
use proptest::prelude::*;
use unicode_segmentation::UnicodeSegmentation;

/// Tokens of one byte, with ids 0 to 255, and pairs of text; and ids that spell a text with random cuts.
struct Vocabulary {
    bytes: Vec<u8>,
    offsets: Vec<u32>,
}

impl Vocabulary {
    fn new(pieces: &[&[u8]]) -> Self {
        let mut offsets = vec![0];
        let mut bytes = Vec::new();
        for piece in pieces {
            bytes.extend_from_slice(piece);
            offsets.push(bytes.len() as u32);
        }
        Self { bytes, offsets }
    }

    fn tokens(&self) -> Tokens<'_> {
        Tokens { bytes: &self.bytes, offsets: &self.offsets }
    }
}

fn reference(document: &str, boundaries: &[usize]) -> [i64; 5] {
    let is_cut = |from: usize, to: usize| boundaries.iter().any(|&at| from < at && at < to);
    let whole_words = document.unicode_word_indices().filter(|(at, word)| !is_cut(*at, at + word.len())).count();
    let split = document.char_indices().filter(|(at, c)| is_cut(*at, at + c.len_utf8())).count();
    let bytes = document.as_bytes();
    let (mut short, mut grouped, mut indents) = (0, 0, 0);
    for from in 0..bytes.len() {
        if bytes[from].is_ascii_digit() && (from == 0 || !bytes[from - 1].is_ascii_digit()) {
            let to = (from..bytes.len()).find(|&at| !bytes[at].is_ascii_digit()).unwrap_or(bytes.len());
            short += i64::from(to - from <= 3 && !is_cut(from, to));
            let is_grouped = (from + 1..to).all(|at| boundaries.contains(&at) == ((to - at) % 3 == 0));
            grouped += i64::from(to - from > 3 && is_grouped);
        }
    }
    for line in document.split_inclusive('\n') {
        let from = line.as_ptr() as usize - document.as_ptr() as usize;
        let indent = line.len() - line.trim_start_matches([' ', '\t']).len();
        let is_blank = line.trim_start_matches([' ', '\t']).is_empty() || line[indent..].starts_with(['\n', '\r']);
        if (indent > 1 || line.starts_with('\t')) && !is_blank {
            indents += i64::from(!is_cut(from, from + indent - 1));
        }
    }
    [whole_words as i64, split as i64, short, grouped, indents]
}

proptest! {
    #[test]
    fn counts_are_those_of_a_look_at_every_byte(
        documents in prop::collection::vec("([a-z]{1,4}|[ \t]{1,4}|\n|[0-9]{1,9}|é|日本|👨‍👩‍👧|’s|\\PC){0,8}", 1..4),
        cuts in prop::collection::vec(1usize..5, 1..40),
    ) {
        let text = documents.concat();
        let (mut pieces, mut ids, mut ends, mut id_ends) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut expected = vec![Vec::new(); 5];
        let (mut start, mut cut) = (0, cuts.iter().cycle());
        for document in &documents {
            let mut boundaries = Vec::new();
            let mut at = 0;
            while at < document.len() {
                let to = document.len().min(at + cut.next().unwrap());
                ids.push(pieces.len());
                pieces.push(&document.as_bytes()[at..to]);
                at = to;
                boundaries.push(at);
            }
            boundaries.pop();
            start += document.len();
            ends.push(start);
            id_ends.push(ids.len());
            for (own, n) in expected.iter_mut().zip(reference(document, &boundaries)) {
                own.push(n);
            }
        }
        let vocabulary = Vocabulary::new(&pieces);
        let marks = Marks::new(&text, &ends).unwrap();
        let mut histogram = vec![0; pieces.len()];
        let ids = ids.into_iter();
        let counts =
            Counts::new(&marks, text.as_bytes(), ids, &id_ends, vocabulary.tokens(), &mut histogram).unwrap();
        prop_assert_eq!(&counts.n_whole_words, &expected[0]);
        prop_assert_eq!(&counts.n_split_characters, &expected[1]);
        prop_assert_eq!(&counts.n_whole_short_numbers, &expected[2]);
        prop_assert_eq!(&counts.n_grouped_numbers, &expected[3]);
        prop_assert_eq!(&counts.n_whole_indents, &expected[4]);
        prop_assert_eq!(counts.round_trips, vec![1; documents.len()]);
        prop_assert_eq!(histogram, vec![1; pieces.len()]);
    }
}

#[test]
fn tokens_that_are_not_the_text_have_no_places() {
    let marks = Marks::new("ab cd", &[2, 5]).unwrap();
    let vocabulary = Vocabulary::new(&[b"ab", b" c", b"x"]);
    let mut histogram = vec![0; 3];
    let ids = [0, 1, 2].into_iter();
    let counts = Counts::new(&marks, b"ab cd", ids, &[1, 3], vocabulary.tokens(), &mut histogram).unwrap();
    assert_eq!(counts.round_trips, [1, 0]);
    assert_eq!(counts.n_whole_words, [1, -1]);
    assert_eq!(counts.n_tokens, [1, 2]);
}

#[test]
fn what_does_not_match_is_refused() {
    assert!(Marks::new("é", &[1, 2]).is_err());
    assert!(Marks::new("abc", &[2]).is_err());
    assert!(Marks::new("abc", &[2, 1, 3]).is_err());
    let marks = Marks::new("abc", &[3]).unwrap();
    let vocabulary = Vocabulary::new(&[b"abc"]);
    let count = |ids: Vec<usize>, ends: &[usize], n: usize| {
        Counts::new(&marks, b"abc", ids.into_iter(), ends, vocabulary.tokens(), &mut vec![0; n])
    };
    assert!(count(vec![0], &[1], 1).is_ok());
    assert!(count(vec![1], &[1], 1).is_err());
    assert!(count(vec![0], &[2], 1).is_err());
    assert!(count(vec![0], &[1], 2).is_err());
    assert!(count(vec![0], &[0, 1], 1).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn words_are_those_of_the_unicode_annex(text in prop_oneof![
        prop::collection::vec(prop::sample::select("ab1 2_.:',; \n\r\t-\u{301}\u{200d}é犬’\u{ad}א\"アー👨".chars().collect::<Vec<_>>()), 0..24)
            .prop_map(|characters| characters.into_iter().collect::<String>()),
        any::<String>(),
        "[ -~]{0,40}",
    ]) {
        let mut found = Vec::new();
        super::words::for_each_word(&text, |from, to| found.push((from, to)));
        let expected: Vec<_> = text.unicode_word_indices().map(|(at, word)| (at, at + word.len())).collect();
        prop_assert_eq!(found, expected);
    }
}
