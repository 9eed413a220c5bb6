//! Fixtures of the tests beside this file.

use crate::encode::Encoder;
use crate::pretokenize::Pattern;
use crate::vocab::Vocab;
use proptest::prelude::*;

const SPECIAL: [(&str, u32); 3] = [("<s>", 1000), ("<s><e>", 1001), ("a b", 1002)];

const FRAGMENTS: [&str; 14] =
    ["the", " the", "then", " 12", "\r\n", "\n\n", "é", "一丁", "😀", "<s>", "<s><e>", "a b", "'s", "\u{FEFF}"];

pub fn encoder(pattern: Option<&str>) -> Encoder {
    let mut tokens: Vec<(u32, Vec<u8>)> = (0..=255).map(|byte| (u32::from(byte), vec![byte])).collect();
    tokens.extend([(256, b"th".to_vec()), (257, b"the".to_vec()), (258, b" the".to_vec()), (259, vec![0xE4, 0xB8])]);
    let merges: [(&[u8], &[u8]); 4] = [(b"t", b"h"), (b"th", b"e"), (b" ", b"the"), (&[0xE4], &[0xB8])];
    let merges: Vec<(Vec<u8>, Vec<u8>)> = merges.iter().map(|(l, r)| (l.to_vec(), r.to_vec())).collect();
    let special = SPECIAL.iter().map(|&(text, id)| (text.to_owned(), id)).collect();
    Encoder::new(Vocab::from_merges(tokens, &merges, special).unwrap(), Pattern::new(pattern).unwrap()).unwrap()
}

/// Up to five texts, some of them empty.
pub fn texts() -> impl Strategy<Value = Vec<String>> {
    let text = prop::collection::vec(prop::sample::select(FRAGMENTS.to_vec()), 0..120);
    prop::collection::vec(text.prop_map(|fragments| fragments.concat()), 0..6)
}
