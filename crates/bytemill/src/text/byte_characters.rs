//! GPT-2's mapping between bytes and printable characters (`bytes_to_unicode`).
//!
//! Bytes that are visible Latin-1 characters map to themselves, the other 68 to the characters from U+0100 on, in order.

/// Marks a character that stands for no byte.
const FOREIGN: u16 = u16::MAX;

/// One past the last character that stands for a byte.
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

/// The characters that stand for the bytes.
pub fn characters() -> [char; 256] {
    let mut characters = ['\0'; 256];
    for (character, &byte) in (0_u32..).zip(&BYTES) {
        if let (Some(place), Some(character)) = (characters.get_mut(usize::from(byte)), char::from_u32(character)) {
            *place = character;
        }
    }
    characters
}

/// Append the bytes that the characters of `text` stand for.
///
/// Returns false if a character stands for no byte. The appended bytes are then meaningless.
pub fn append_bytes(text: &str, out: &mut Vec<u8>) -> bool {
    out.reserve(text.len());
    let mut is_valid = true;
    for character in text.chars() {
        let byte = BYTES.get(character as usize).copied().unwrap_or(FOREIGN);
        is_valid &= byte != FOREIGN;
        out.push(byte as u8);
    }
    is_valid
}

#[cfg(test)]
#[path = "tests/byte_characters.rs"]
mod tests;
