//! Lines that Python's `json` reads and `serde_json` does not: with NaN or Infinity, or with half a surrogate pair.

/// The line with `0` in the place of each NaN and Infinity outside strings; None where there is none.
pub(super) fn without_special_numbers(line: &str) -> Option<String> {
    let mut bytes = line.as_bytes().to_vec();
    let mut is_changed = false;
    let (mut place, mut in_string) = (0, false);
    while place < bytes.len() {
        match bytes[place] {
            b'"' => in_string = !in_string,
            b'\\' if in_string => place += 1,
            b'N' | b'I' if !in_string => {
                let word: &[u8] = if bytes[place] == b'N' { b"NaN" } else { b"Infinity" };
                let before = &bytes[..place];
                let before = if word == b"Infinity" { before.strip_suffix(b"-").unwrap_or(before) } else { before };
                let begins = before.last().is_none_or(|byte| b" \t:,[".contains(byte));
                let ends = bytes.get(place + word.len()).is_none_or(|byte| b" \t\r,]}".contains(byte));
                if begins && ends && bytes[place..].starts_with(word) {
                    bytes[place..place + word.len()].fill(b' ');
                    bytes[place] = b'0';
                    place += word.len() - 1;
                    is_changed = true;
                }
            }
            _ => {}
        }
        place += 1;
    }
    // Only whole ASCII words were written over, by ASCII.
    is_changed.then(|| String::from_utf8(bytes).ok()).flatten()
}

/// The JSON of a string with U+FFFD (or nothing) in the place of each half of a surrogate pair that stands alone, and how
/// many there are.
pub(super) fn without_lone_surrogates(string: &str, replacement: &str) -> (String, u64) {
    let mut repaired = String::with_capacity(string.len());
    let (mut rest, mut n_lone) = (string, 0);
    while let Some(place) = memchr::memchr(b'\\', rest.as_bytes()) {
        let (before, escape) = rest.split_at(place);
        repaired.push_str(before);
        let n_bytes = match (surrogate(escape), escape.get(6..).and_then(surrogate)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => 12,
            (Some(_), _) => {
                n_lone += 1;
                repaired.push_str(replacement);
                rest = &escape[6..];
                continue;
            }
            // A backslash and what it escapes, which may be another backslash.
            (None, _) => 1 + escape[1..].chars().next().map_or(0, char::len_utf8),
        };
        let (kept, after) = escape.split_at(n_bytes);
        repaired.push_str(kept);
        rest = after;
    }
    repaired.push_str(rest);
    (repaired, n_lone)
}

/// The half of a surrogate pair that an escape stands for, if it begins `text`.
fn surrogate(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    u32::from_str_radix(digits, 16).ok().filter(|code| (0xD800..=0xDFFF).contains(code))
}
