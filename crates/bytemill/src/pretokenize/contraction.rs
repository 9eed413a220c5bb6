//! The contractions of English after an apostrophe.

use super::rules::Contractions;

/// Length of the contraction whose apostrophe is at `at`, 0 if there is none.
#[inline]
pub fn contraction_bytes(text: &[u8], at: usize, contractions: Contractions) -> usize {
    let any_case = contractions != Contractions::LowerCase;
    let byte = |k: usize| text.get(at + k).map_or(0, |byte| if any_case { byte.to_ascii_lowercase() } else { *byte });
    match byte(1) {
        b's' | b'd' | b'm' | b't' => 2,
        b'l' if byte(2) == b'l' => 3,
        b'v' | b'r' if byte(2) == b'e' => 3,
        // Of these letters only `s` has a case variant outside ASCII: `ſ` (U+017F, two bytes).
        0xC5 if any_case && byte(2) == 0xBF => 3,
        _ => 0,
    }
}
