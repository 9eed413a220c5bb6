//! GPT-2's spelling of bytes by printable characters.
//!
//! Bytes that are visible characters of Latin-1 stand for themselves; the other 68 have the characters from U+0100 on, in
//! the order of the bytes.

/// No byte: a character that stands for none.
const FOREIGN: u16 = u16::MAX;

/// One more than the last character that stands for a byte.
const END: usize = 0x100 + 68;

const BYTES: [u16; END] = bytes_of_characters();

const fn bytes_of_characters() -> [u16; END] {
    let mut bytes = [FOREIGN; END];
    let mut replacement = 0x100;
    let mut byte = 0;
    while byte < 256 {
        if matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF) {
            bytes[byte] = byte as u16;
        } else {
            bytes[replacement] = byte as u16;
            replacement += 1;
        }
        byte += 1;
    }
    bytes
}

/// Appends the bytes that `text` spells; false where a character stands for no byte, and then what has been appended is
/// undefined.
pub fn append_spelled(text: &str, out: &mut Vec<u8>) -> bool {
    out.reserve(text.len());
    let mut known = true;
    for character in text.chars() {
        let byte = BYTES.get(character as usize).copied().unwrap_or(FOREIGN);
        known &= byte != FOREIGN;
        out.push(byte as u8);
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_a_character_and_no_other_character_is_taken() {
        let spelled: Vec<(char, u8)> = (0..=0x10_FFFF)
            .filter_map(char::from_u32)
            .filter_map(|character| {
                let mut out = Vec::new();
                append_spelled(&character.to_string(), &mut out).then(|| (character, out[0]))
            })
            .collect();
        assert_eq!(spelled.len(), 256);
        let mut bytes: Vec<u8> = spelled.iter().map(|&(_, byte)| byte).collect();
        bytes.sort_unstable();
        assert!(bytes.into_iter().eq(0..=255));
        for (character, byte) in [('a', b'a'), ('é', 0xE9), ('Ġ', b' '), ('Ċ', b'\n'), ('Ā', 0), ('Ń', 0xAD)] {
            assert!(spelled.contains(&(character, byte)));
        }
    }

    #[test]
    fn a_text_with_a_foreign_character_is_told() {
        let mut out = vec![1];
        assert!(append_spelled("ĠÃ©", &mut out));
        assert_eq!(out, [1, b' ', 0xC3, 0xA9]);
        for text in [" ", "a b", "日", "\u{ad}", "\u{144}", "😀"] {
            assert!(!append_spelled(text, &mut Vec::new()));
        }
    }
}
