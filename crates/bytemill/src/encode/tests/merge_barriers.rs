use super::*;
use proptest::prelude::*;

fn barriers_of(tokens: &[&str], text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    MergeBarriers::new(tokens.iter().map(|token| token.as_bytes())).for_each(text.as_bytes(), &mut |at| found.push(at));
    found
}

#[test]
fn barriers_are_where_no_token_crosses() {
    assert_eq!(barriers_of(&["你好", "世界"], "你好世界你好"), [6, 12]);
    assert_eq!(barriers_of(&["你好", "好世", "世界"], "你好世界你好"), [12]);
    assert_eq!(barriers_of(&["é"], "éé"), [2]);
    assert_eq!(barriers_of(&["é", "éé"], "éé"), Vec::<usize>::new());
    assert_eq!(barriers_of(&["ab"], "abab"), Vec::<usize>::new());
}

/// Bytes of few values, so that tokens are met with, among them first bytes of characters.
fn bytes(n: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(vec![0xC3u8, 0xC4, 0xE4, 0x80, 0x81, b'a']), n)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_token_crosses_a_barrier(
        drawn in prop::collection::vec(bytes(2..7), 0..12),
        cut_from_text in prop::collection::vec((0usize..60, 2usize..9), 0..6),
        text in bytes(0..60),
    ) {
        let mut tokens = drawn;
        tokens.extend(cut_from_text.iter().filter_map(|&(from, n)| text.get(from..from + n)).map(<[u8]>::to_vec));
        let mut found = Vec::new();
        MergeBarriers::new(tokens.iter().map(|token| &token[..])).for_each(&text, &mut |at| found.push(at));
        for token in &tokens {
            for start in text.windows(token.len()).enumerate().filter(|(_, part)| part == token).map(|(at, _)| at) {
                let crossed: Vec<_> = found.iter().filter(|&&at| start < at && at < start + token.len()).collect();
                prop_assert!(crossed.is_empty(), "{:?} at {} crosses {:?}", token, start, crossed);
            }
        }
    }
}
