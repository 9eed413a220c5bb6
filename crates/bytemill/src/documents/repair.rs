//! Rewrite what Python's `json` accepts and `serde_json` does not: NaN, Infinity, and halves of surrogate pairs.

/// Replace each NaN and Infinity outside strings by `0`. Returns `None` if there is none.
pub(super) fn without_special_numbers(line: &str) -> Option<String> {
    let mut bytes = line.as_bytes().to_vec();
    let (mut at, mut in_string, mut is_changed) = (0, false, false);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => in_string = !in_string,
            b'\\' if in_string => at += 1,
            b'N' | b'I' if !in_string => {
                let word: &[u8] = if bytes[at] == b'N' { b"NaN" } else { b"Infinity" };
                let before = &bytes[..at];
                let before = if word == b"Infinity" { before.strip_suffix(b"-").unwrap_or(before) } else { before };
                let begins = before.last().is_none_or(|byte| b" \t:,[".contains(byte));
                let ends = bytes.get(at + word.len()).is_none_or(|byte| b" \t\r,]}".contains(byte));
                if begins && ends && bytes[at..].starts_with(word) {
                    bytes[at..at + word.len()].fill(b' ');
                    bytes[at] = b'0';
                    at += word.len() - 1;
                    is_changed = true;
                }
            }
            _ => {}
        }
        at += 1;
    }
    // Valid UTF-8: only whole ASCII words were overwritten, by ASCII.
    is_changed.then(|| String::from_utf8(bytes).ok()).flatten()
}

/// Substitute `replacement` for each half of a surrogate pair that stands alone in the JSON of a string. Returns the JSON
/// and the number of substitutions.
pub(super) fn without_lone_surrogates(string: &str, replacement: &str) -> (String, u64) {
    let mut repaired = String::with_capacity(string.len());
    let (mut rest, mut n_lone) = (string, 0);
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        let (before, escape) = rest.split_at(at);
        repaired.push_str(before);
        let n_bytes = match (surrogate(escape), escape.get(6..).and_then(surrogate)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => 12,
            (Some(_), _) => {
                n_lone += 1;
                repaired.push_str(replacement);
                rest = &escape[6..];
                continue;
            }
            // A backslash and the character that it escapes, which may be another backslash.
            (None, _) => 1 + escape[1..].chars().next().map_or(0, char::len_utf8),
        };
        let (kept, after) = escape.split_at(n_bytes);
        repaired.push_str(kept);
        rest = after;
    }
    repaired.push_str(rest);
    (repaired, n_lone)
}

/// The surrogate whose escape `text` starts with.
fn surrogate(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    u32::from_str_radix(digits, 16).ok().filter(|code| (0xD800..=0xDFFF).contains(code))
}
