//! Words: what UAX #29 puts between word boundaries, if it has a letter or digit.
//!
//! Spaces and line feeds separate words whatever stands around them, unless a mark follows that combines with them. So a text is
//! cut there into chunks. Those of ASCII follow a few rules; the others are left to the crate unicode-segmentation.

use unicode_segmentation::UnicodeSegmentation;

/// Calls `found` with the start and end of each word.
pub(super) fn for_each_word(text: &str, mut found: impl FnMut(usize, usize)) {
    let bytes = text.as_bytes();
    let mut start = 0;
    while start < bytes.len() {
        let (end, is_ascii) = chunk_end(bytes, start);
        let chunk = &text[start..end];
        if is_ascii {
            ascii_words(chunk.as_bytes(), |from, to| found(start + from, start + to));
        } else {
            chunk.unicode_word_indices().for_each(|(from, word)| found(start + from, start + from + word.len()));
        }
        start = end + 1;
    }
}

/// The end of the chunk at `start`, and whether it is ASCII.
fn chunk_end(bytes: &[u8], start: usize) -> (usize, bool) {
    let mut all = 0;
    for (at, &byte) in bytes.iter().enumerate().skip(start) {
        if (byte == b' ' || byte == b'\n') && bytes.get(at + 1).is_some_and(u8::is_ascii) {
            return (at, all < 0x80);
        }
        all |= byte;
    }
    (bytes.len(), all < 0x80)
}

/// Words of ASCII without spaces: letters, digits and underscores (rules WB5, WB8 to WB10, WB13), with `:`, `.` or `'` between letters
/// (WB6, WB7), and `,`, `;`, `.` or `'` between digits (WB11, WB12).
fn ascii_words(chunk: &[u8], mut found: impl FnMut(usize, usize)) {
    let class = |at: usize| chunk.get(at).map_or(Class::Other, |&byte| CLASSES[byte as usize]);
    let mut at = 0;
    while at < chunk.len() {
        let start = at;
        let mut has_letter_or_digit = false;
        loop {
            match class(at) {
                Class::Other if at > start => {
                    let (before, after) = (class(at - 1), class(at + 1));
                    let joins = match chunk.get(at) {
                        Some(b'.' | b'\'') => before == after && before != Class::Underscore,
                        Some(b':') => before == Class::Letter && after == Class::Letter,
                        Some(b',' | b';') => before == Class::Digit && after == Class::Digit,
                        _ => false,
                    };
                    if !joins || after == Class::Other {
                        break;
                    }
                }
                Class::Other => break,
                Class::Underscore => {}
                Class::Letter | Class::Digit => has_letter_or_digit = true,
            }
            at += 1;
        }
        if has_letter_or_digit {
            found(start, at);
        }
        at = at.max(start + 1);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Letter,
    Digit,
    Underscore,
    Other,
}

/// The class of each byte.
static CLASSES: [Class; 256] = {
    let mut classes = [Class::Other; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = Class::of(byte as u8);
        byte += 1;
    }
    classes
};

impl Class {
    const fn of(byte: u8) -> Self {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => Self::Letter,
            b'0'..=b'9' => Self::Digit,
            b'_' => Self::Underscore,
            _ => Self::Other,
        }
    }
}
