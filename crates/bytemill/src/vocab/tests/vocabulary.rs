use super::super::*;
use crate::vocab::{MergedTokens, TokenList};
use proptest::prelude::*;

fn bytes_vocab() -> Vec<(u32, Vec<u8>)> {
    (0..=255u8).map(|byte| (u32::from(byte), vec![byte])).collect()
}

fn with(more: &[(u32, &str)]) -> Vec<(u32, Vec<u8>)> {
    let mut tokens = bytes_vocab();
    tokens.extend(more.iter().map(|(id, token)| (*id, token.as_bytes().to_vec())));
    tokens
}

fn merges(pairs: &[(&str, &str)]) -> Vec<(Vec<u8>, Vec<u8>)> {
    pairs.iter().map(|(left, right)| (left.as_bytes().to_vec(), right.as_bytes().to_vec())).collect()
}

fn refused(tokens: Vec<(u32, Vec<u8>)>, pairs: &[(&str, &str)], special: &[(&str, u32)]) -> String {
    let special = special.iter().map(|(token, id)| ((*token).to_owned(), *id)).collect();
    Vocab::from_merges(tokens, &merges(pairs), special).unwrap_err().to_string()
}

#[test]
fn ids_need_not_follow_merges() {
    let tokens = with(&[(700, "abc"), (600, "ab"), (5_000, "<s>")]);
    let vocab =
        Vocab::from_merges(tokens, &merges(&[("a", "b"), ("ab", "c")]), vec![("<s>".to_owned(), 5_000)]).unwrap();
    assert_eq!(vocab.n_ids(), 5_001);
    assert_eq!(vocab.symbol_ids()[256..], [600, 700]);
    assert_eq!(vocab.token(600), Some(&b"ab"[..]));
    assert_eq!(vocab.token(5_000), Some(&b"<s>"[..]));
    assert_eq!(vocab.token(601), None);
    assert_eq!(vocab.token(5_001), None);
    assert_eq!(vocab.id(b"abc"), Some(700));
    assert_eq!(vocab.id(b"<s>"), Some(5_000));
}

#[test]
fn contradictions_are_named() {
    assert!(refused(with(&[]), &[("a", "b")], &[]).contains("no token b\"ab\""));
    assert!(refused(with(&[(256, "abc")]), &[("a", "bc")], &[]).contains("b\"bc\" is neither a byte nor"));
    assert!(refused(with(&[(256, "ab"), (257, "ab")]), &[("a", "b")], &[]).contains("twice"));
    assert!(refused(with(&[(256, "ab")]), &[("a", "b"), ("a", "b")], &[]).contains("an earlier merge makes"));
    assert!(refused(with(&[(255, "ab")]), &[("a", "b")], &[]).contains("the id 255 belongs to two"));
    assert!(refused(with(&[(256, "<s>")]), &[], &[("<t>", 256)]).contains("the id 256 belongs to two"));
    assert!(refused(with(&[]), &[], &[("<s>", 97)]).contains("the id 97 belongs to two"));
    assert!(refused(with(&[(256, "")]), &[], &[]).contains("empty"));
    assert!(refused(bytes_vocab()[1..].to_vec(), &[], &[]).contains("the byte b\"\\x00\" is no token"));
    assert!(refused(with(&[(u32::MAX - 1, "ab")]), &[("a", "b")], &[]).contains("out of all proportion"));
}

#[test]
fn a_special_token_may_also_be_an_ordinary_one_with_another_id() {
    let vocab = Vocab::from_merges(with(&[(256, "ab")]), &merges(&[("a", "b")]), vec![("ab".to_owned(), 300)]).unwrap();
    assert_eq!(vocab.id(b"ab"), Some(256));
    assert_eq!(vocab.token(300), Some(&b"ab"[..]));
}

#[test]
fn symbol_id_agrees_with_the_table() {
    let all = [(700, "ab"), (701, "cd"), (702, "ef"), (600, "gh"), (290, "ij"), (291, "kl")];
    for n_merges in 0..=all.len() {
        for first in 0..=n_merges {
            let tokens = with(&all[first..n_merges]);
            let pairs: Vec<_> = all[first..n_merges].iter().map(|(_, token)| token.split_at(1)).collect();
            let vocab = Vocab::from_merges(tokens, &merges(&pairs), vec![]).unwrap();
            for (symbol, &id) in (0..).zip(vocab.symbol_ids()) {
                assert_eq!(vocab.symbol_id(symbol), id, "{symbol} of {:?}", &all[first..n_merges]);
            }
        }
    }
}

fn ranks(more: &[&str]) -> Vec<(Vec<u8>, u32)> {
    let mut all: Vec<_> = bytes_vocab().into_iter().map(|(id, token)| (token, id)).collect();
    all.extend(more.iter().zip(256..).map(|(token, rank)| (token.as_bytes().to_vec(), rank)));
    all
}

#[test]
fn merges_are_recovered_from_ranks() {
    let vocab = Vocab::from_ranks(ranks(&["ab", "cd", "abcd", "abc"]), vec![]).unwrap();
    let (a, b, c, d) = (97, 98, 99, 100);
    assert_eq!(vocab.merges(), [(a, b), (c, d), (256, 257), (256, c)]);
    assert!(!vocab.ignore_merges());
}

#[test]
fn tokens_that_no_merge_produces_keep_all_their_splits() {
    let vocab = Vocab::from_ranks(ranks(&["bc", "abcd", "ab", "cd"]), vec![]).unwrap();
    assert!(vocab.ignore_merges());
    assert!(vocab.merges().is_empty());
    let (ab, abcd, cd) = (258, 257, 259);
    assert!(vocab.pairs().get(ab, cd) == abcd);
}

#[test]
fn ranks_that_contradict_each_other_are_refused() {
    let mut twice = ranks(&["ab"]);
    twice.push((b"ab".to_vec(), 300));
    assert!(Vocab::from_ranks(twice, vec![]).unwrap_err().to_string().contains("twice"));
    let mut same_rank = ranks(&["ab"]);
    same_rank.push((b"cd".to_vec(), 256));
    assert!(Vocab::from_ranks(same_rank, vec![]).unwrap_err().to_string().contains("rank 256"));
    assert!(Vocab::from_ranks(ranks(&[])[1..].to_vec(), vec![]).unwrap_err().to_string().contains("\\x00"));
}

/// The vocabulary of these tokens and merges without the tokens at the positions `left_out`, as a file is read.
fn read_from_list(
    tokens: &[(u32, Vec<u8>)],
    merges: &[(Vec<u8>, Vec<u8>)],
    left_out: &[usize],
    special: Vec<(String, u32)>,
) -> Result<Vocab> {
    let mut merged = MergedTokens::new(TokenList::collect(tokens.iter().map(|(id, token)| (*id, &token[..])))?, "id")?;
    for (left, right) in merges {
        merged.add(&[&left[..], right].concat(), left.len())?;
    }
    merged.finish(left_out, special)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn adding_merges_in_bulk_equals_adding_them_one_by_one(
        choices in prop::collection::vec((any::<u32>(), any::<u32>()), 0..60),
        n_letters in 1u32..4,
        n_unmade in 0usize..4,
        leaves_out in any::<bool>(),
        order in any::<u32>(),
        spoilt in prop::option::of((any::<prop::sample::Index>(), any::<prop::sample::Index>())),
    ) {
        let mut known: Vec<Vec<u8>> = (97..97 + n_letters as u8).map(|byte| vec![byte]).collect();
        let mut tokens = bytes_vocab();
        let mut merges = Vec::new();
        for (left, right) in choices {
            let part = |choice: u32| known[choice as usize % known.len()].clone();
            let (left, right) = (part(left), part(right));
            let token = [&left[..], &right[..]].concat();
            if token.len() <= 40 && !known.contains(&token) {
                tokens.push((300 + tokens.len() as u32, token.clone()));
                merges.push((left, right));
                known.push(token);
            }
        }
        if let (Some((one, other)), false) = (spoilt, merges.is_empty()) {
            let (one, other) = (one.index(merges.len()), other.index(merges.len()));
            merges.swap(one, other);
            if one == other {
                merges[one].0 = b"unknown".to_vec();
            }
        }
        // Out of the order of the merges, and with tokens that nothing makes.
        let n_tokens = tokens.len();
        tokens.rotate_left(order as usize % n_tokens);
        tokens.extend((0..n_unmade as u32).map(|n| (5_000 + n, format!("<{n}>").into_bytes())));
        let (left_out, special): (Vec<usize>, _) = if leaves_out && n_unmade > 0 {
            (vec![n_tokens], vec![("<0>".to_owned(), 5_000)])
        } else {
            (vec![], vec![])
        };
        let read = read_from_list(&tokens, &merges, &left_out, special.clone());
        let mut others = tokens.clone();
        left_out.iter().for_each(|&position| drop(others.remove(position)));
        let (read, expected) = match (read, Vocab::from_merges(others, &merges, special)) {
            (Ok(read), Ok(expected)) => (read, expected),
            (read, expected) => {
                prop_assert_eq!(read.err().map(|error| error.to_string()), expected.err().map(|error| error.to_string()));
                return Ok(());
            }
        };
        prop_assert_eq!(read.merges(), expected.merges());
        prop_assert_eq!(read.symbol_ids(), expected.symbol_ids());
        prop_assert_eq!(read.tokens().collect::<Vec<_>>(), expected.tokens().collect::<Vec<_>>());
        let symbols = || (97..97 + n_letters).chain(256..read.symbol_ids().len() as u32);
        for (left, right) in symbols().flat_map(|left| symbols().map(move |right| (left, right))) {
            prop_assert_eq!(read.pairs().get(left, right), expected.pairs().get(left, right));
        }
    }
}
