use super::*;

#[test]
fn the_byte_alphabet_has_256_characters() {
    let mapped: Vec<(char, u8)> = (0..=0x10_FFFF)
        .filter_map(char::from_u32)
        .filter_map(|character| {
            let mut out = Vec::new();
            append_bytes(&character.to_string(), &mut out).then(|| (character, out[0]))
        })
        .collect();
    assert_eq!(mapped.len(), 256);
    let mut bytes: Vec<u8> = mapped.iter().map(|&(_, byte)| byte).collect();
    bytes.sort_unstable();
    assert!(bytes.into_iter().eq(0..=255));
    assert!((0..=255).all(|byte| mapped.contains(&(characters()[usize::from(byte)], byte))));
    for (character, byte) in [('a', b'a'), ('é', 0xE9), ('Ġ', b' '), ('Ċ', b'\n'), ('Ā', 0), ('Ń', 0xAD)] {
        assert!(mapped.contains(&(character, byte)));
    }
}

#[test]
fn a_token_with_a_character_outside_the_byte_alphabet_is_refused() {
    let mut out = vec![1];
    assert!(append_bytes("ĠÃ©", &mut out));
    assert_eq!(out, [1, b' ', 0xC3, 0xA9]);
    for text in [" ", "a b", "日", "\u{ad}", "\u{144}", "😀"] {
        assert!(!append_bytes(text, &mut Vec::new()));
    }
}
