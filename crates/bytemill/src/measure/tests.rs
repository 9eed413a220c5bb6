//! Counts against a reference that looks at every span byte by byte.

use super::{Counts, Marks, Tokens};
use proptest::prelude::*;
use unicode_segmentation::UnicodeSegmentation;

fn tokens_of(pieces: &[&[u8]]) -> Tokens {
    let ends = pieces.iter().scan(0, |end, piece| {
        *end += piece.len() as u32;
        Some(*end)
    });
    Tokens::new(pieces.concat(), std::iter::once(0).chain(ends).collect()).unwrap()
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
        cuts in prop::collection::vec(prop_oneof![4 => 1usize..5, 1 => 12usize..40], 1..40),
    ) {
        let text = documents.concat();
        let (mut pieces, mut ids, mut ends, mut id_ends) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut expected, mut n_boundaries) = (vec![Vec::new(); 5], 0);
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
            n_boundaries += boundaries.len() as u64;
            start += document.len();
            ends.push(start);
            id_ends.push(ids.len());
            for (own, n) in expected.iter_mut().zip(reference(document, &boundaries)) {
                own.push(n);
            }
        }
        let vocabulary = tokens_of(&pieces);
        let marks = Marks::new(&text, &ends).unwrap();
        let mut histogram = vec![0; pieces.len()];
        let ids = ids.into_iter();
        let (counts, found) =
            Counts::new(&marks, text.as_bytes(), ids, &id_ends, &vocabulary, &mut histogram).unwrap();
        prop_assert_eq!(&counts.n_whole_words, &expected[0]);
        prop_assert_eq!(&counts.n_split_characters, &expected[1]);
        prop_assert_eq!(&counts.n_whole_short_numbers, &expected[2]);
        prop_assert_eq!(&counts.n_grouped_numbers, &expected[3]);
        prop_assert_eq!(&counts.n_whole_indents, &expected[4]);
        prop_assert_eq!(counts.round_trips, vec![1; documents.len()]);
        prop_assert_eq!(found.n(), n_boundaries);
        let (_, all) = Counts::new(
            &marks,
            text.as_bytes(),
            text.bytes().map(usize::from),
            &ends,
            &tokens_of(&(0..=255).map(|byte| vec![byte]).collect::<Vec<_>>().iter().map(Vec::as_slice).collect::<Vec<_>>()),
            &mut [0; 256],
        ).unwrap();
        prop_assert_eq!(all.n_shared(&found), n_boundaries);
        prop_assert_eq!(histogram, vec![1; pieces.len()]);
    }
}

#[test]
fn tokens_that_are_not_the_text_have_no_places() {
    let marks = Marks::new("ab cd", &[2, 5]).unwrap();
    let vocabulary = tokens_of(&[b"ab", b" c", b"x"]);
    let mut histogram = vec![0; 3];
    let ids = [0, 1, 2].into_iter();
    let (counts, _) = Counts::new(&marks, b"ab cd", ids, &[1, 3], &vocabulary, &mut histogram).unwrap();
    assert_eq!(counts.round_trips, [1, 0]);
    assert_eq!(counts.n_whole_words, [1, -1]);
    assert_eq!(counts.n_tokens, [1, 2]);
}

#[test]
fn a_space_before_a_document_is_not_part_of_it() {
    let marks = Marks::new("ab cd", &[2, 5]).unwrap();
    let vocabulary = tokens_of(&[b" ab", b" ", b" cd", b"  cd"]).adding_space(true);
    let count = |ids: &[usize]| {
        let counts = Counts::new(&marks, b"ab cd", ids.iter().copied(), &[1, ids.len()], &vocabulary, &mut [0; 4]);
        counts.unwrap().0.round_trips
    };
    assert_eq!(count(&[0, 1, 2]), [1, 1]);
    assert_eq!(count(&[0, 3]), [1, 1]);
    assert_eq!(count(&[0, 2]), [1, 1], "no space is added to a text that begins with one");
    assert_eq!(count(&[2, 2]), [0, 1]);
}

#[test]
fn long_tokens_are_compared_to_their_end() {
    let pieces: [&[u8]; 3] = [b"0123456789abcdefgh", b"0123456789abcdefgX", b"0123456789abcdeX"];
    let text = pieces[0].repeat(2);
    let marks = Marks::new(std::str::from_utf8(&text).unwrap(), &[18, 36]).unwrap();
    for (id, round_trips) in [(0, [1, 1]), (1, [1, 0]), (2, [1, 0])] {
        let counts = Counts::new(&marks, &text, [0, id].into_iter(), &[1, 2], &tokens_of(&pieces), &mut [0; 3]);
        assert_eq!(counts.unwrap().0.round_trips, round_trips);
    }
}

#[test]
fn what_does_not_match_is_refused() {
    assert!(Tokens::new(b"abc".to_vec(), vec![0, 2]).is_err());
    assert!(Tokens::new(b"abc".to_vec(), vec![0, 2, 1, 3]).is_err());
    assert!(Tokens::new(b"abc".to_vec(), vec![0, 9, 3]).is_err());
    assert!(Tokens::new(b"abc".to_vec(), vec![]).is_err());
    assert!(Marks::new("é", &[1, 2]).is_err());
    assert!(Marks::new("abc", &[2]).is_err());
    assert!(Marks::new("abc", &[2, 1, 3]).is_err());
    let marks = Marks::new("abc", &[3]).unwrap();
    let vocabulary = tokens_of(&[b"abc"]);
    let count = |ids: Vec<usize>, ends: &[usize], n: usize| {
        Counts::new(&marks, b"abc", ids.into_iter(), ends, &vocabulary, &mut vec![0; n])
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
        super::marks::for_each_word(&text, |from, to| found.push((from, to)));
        let expected: Vec<_> = text.unicode_word_indices().map(|(at, word)| (at, at + word.len())).collect();
        prop_assert_eq!(found, expected);
    }
}
