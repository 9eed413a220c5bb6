//! tiktoken's rank files: each line holds a token in base64, a space, and its rank.

use crate::vocab::TokenList;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The tokens of a rank file, or `None` if a line deviates from the format.
///
/// [`crate::vocab::Vocab::from_ranked`] checks that tokens and ranks are consistent.
#[must_use]
pub fn read_ranks(data: &[u8]) -> Option<TokenList> {
    let mut tokens = TokenList::default();
    for line in data.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            continue;
        }
        let space = line.iter().position(|&byte| byte == b' ')?;
        let rank = number(&line[space + 1..])?;
        let mut decoded = false;
        let append = |bytes: &mut Vec<u8>| {
            let start = bytes.len();
            decoded = STANDARD.decode_vec(&line[..space], bytes).is_ok() && bytes.len() > start;
        };
        tokens.push_with(rank, append).ok()?;
        if !decoded {
            return None;
        }
    }
    Some(tokens)
}

/// A 32-bit number of at most ten digits.
fn number(digits: &[u8]) -> Option<u32> {
    // `parse` alone accepts a sign and any number of leading zeros.
    if digits.len() > 10 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
#[path = "tests/rank_file.rs"]
mod tests;
