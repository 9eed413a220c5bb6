use super::*;
use crate::vocab::TokenList;

#[test]
fn long_tokens_have_all_their_splits() {
    let runs = (2..=300).map(|n| vec![b'a'; n]);
    let all: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).chain(runs).chain([b"xyz".to_vec()]).collect();
    let tokens = TokenList::collect((0..).zip(all.iter().map(|token| &token[..]))).unwrap();
    let mut tokens = MergedTokens::new(tokens, "rank").unwrap();
    tokens.make_all();
    let mut splits = tokens.all_splits();
    splits.sort_unstable();
    let symbol = |n: u32| if n == 1 { 97 } else { 254 + n };
    let mut expected: Vec<(u32, u32, u32)> =
        (2..=300).flat_map(|n| (1..n).map(move |at| (symbol(at), symbol(n - at), symbol(n)))).collect();
    expected.sort_unstable();
    assert_eq!(splits, expected);
}
