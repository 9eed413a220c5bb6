//! tiktoken's rank files, in which each line holds a token in base64, a space, and its rank; vocabularies from ranks, and the merges
//! behind them.

use super::tokenizer_json::read_fields;
use crate::bpe::merge;
use crate::error::{Result, invalid, show};
use crate::sys::interrupt::no_interrupt;
use crate::vocab::{MergedTokens, TokenList, Vocab};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::fmt;

/// The tokens of a rank file, or `None` if a line deviates from the format.
///
/// [`crate::vocab::Vocab::from_ranked`] checks that tokens and ranks are consistent.
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

/// The tokens of Mistral's `tekken.json` by rank, and the document as JSON with an empty `vocab`. `None` if the file is damaged or
/// unusual.
pub fn read_tekken(data: &[u8]) -> Option<(TokenList, String)> {
    let text = simdutf8::basic::from_utf8(data.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(data)).ok()?;
    let mut reader = serde_json::Deserializer::from_str(text);
    let (entries, rest) = reader.deserialize_map(Tekken).ok()?;
    reader.end().ok()?;
    let mut tokens = TokenList::default();
    for Entry { rank, token_bytes } in entries {
        let mut decoded = false;
        tokens.push_with(rank, |bytes| decoded = STANDARD.decode_vec(&*token_bytes, bytes).is_ok()).ok()?;
        if !decoded {
            return None;
        }
    }
    Some((tokens, rest))
}

/// A token of a `tekken.json`.
#[derive(Deserialize)]
struct Entry<'f> {
    rank: u32,
    #[serde(borrow)]
    token_bytes: Cow<'f, str>,
}

struct Tekken;

impl<'de> Visitor<'de> for Tekken {
    type Value = (Vec<Entry<'de>>, String);

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> std::result::Result<Self::Value, A::Error> {
        let mut entries = None;
        let rest = read_fields(map, |key, map| {
            if key != "vocab" {
                return Ok(None);
            }
            let is_repeated = entries.replace(map.next_value()?).is_some();
            if is_repeated { Err(A::Error::custom("unusual")) } else { Ok(Some("[]".to_owned())) }
        })?;
        Ok((entries.ok_or_else(|| A::Error::custom("unusual"))?, rest))
    }
}

/// A 32-bit number of at most ten digits.
fn number(digits: &[u8]) -> Option<u32> {
    // `parse` alone accepts a sign and any number of leading zeros.
    if digits.len() > 10 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

impl Vocab {
    /// A vocabulary from ranks: a token's id is its priority, and any two neighbours whose bytes together are a token may
    /// merge (tiktoken's rule).
    ///
    /// The merges are recovered by encoding each token with the tokens of lower rank. If that leaves two parts of every
    /// token, the recovered merges encode exactly as the ranks do. (Suppose all merges of rank below r are done in a pre-token
    /// and two neighbours x and y form the token t of rank r. No token crosses the ends of that stretch, so the merges inside it
    /// were those of t alone: the stretch is in the state of t encoded with lower ranks, which is the recovered pair.) If a
    /// token is left in one part or in more than two, it cannot be reached in that way; then every split of every token into two
    /// tokens is kept, and whole pre-tokens are looked up first, which is tiktoken's rule word for word.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] as for [`Vocab::from_merges`].
    pub fn from_ranks(ranks: Vec<(Vec<u8>, u32)>, special: Vec<(String, u32)>) -> Result<Self> {
        Self::from_ranked(TokenList::collect(ranks.iter().map(|(token, rank)| (*rank, &token[..])))?, special)
    }

    /// As [`Vocab::from_ranks`], without a copy of every token.
    ///
    /// # Errors
    /// As [`Vocab::from_ranks`].
    pub fn from_ranked(mut tokens: TokenList, special: Vec<(String, u32)>) -> Result<Self> {
        tokens.sort_by_id();
        let ids = tokens.ids();
        if let Some(position) = ids.windows(2).position(|two| two[0] == two[1]) {
            let (one, other) = (show(tokens.token(position)), show(tokens.token(position + 1)));
            return invalid(format!("rank {} belongs to two tokens, {one} and {other}", ids[position]));
        }
        let mut tokens = MergedTokens::new(tokens, "rank")?;
        if recover_merges(&mut tokens)? { tokens.finish(&[], special) } else { tokens.finish_ranked(special) }
    }
}

/// Adds the merges behind tokens in the order of their ranks. Returns false if the tokens before one do not leave it in two parts.
fn recover_merges(tokens: &mut MergedTokens) -> Result<bool> {
    let mut parts = Vec::new();
    for position in 0..tokens.tokens().len() {
        let token = tokens.tokens().token(position);
        if token.len() > 1 {
            parts.clear();
            merge(tokens.pairs(), token, &mut parts, &no_interrupt)?;
            let [left, right] = parts[..] else { return Ok(false) };
            tokens.add_symbols(left, right, position)?;
        }
    }
    Ok(true)
}

#[cfg(test)]
#[path = "tests/rank_file.rs"]
mod tests;
