//! Vocabularies whose smallest tokens are characters, as SentencePiece makes them.
//!
//! Merging works on bytes all the same. The merges begin with those that put the characters of the vocabulary together, byte by byte:
//! UTF-8 is self-synchronizing, so no such merge crosses the bounds of a character, and once they are done the symbols are characters.
//! Bytes that are left over belong to characters that are no tokens. What stands for them is in [`Leftovers`].

use super::needed_merges::MergeList;
use crate::error::{Result, invalid, show};
use crate::vocab::{Fallback, Leftovers, META, MergedTokens, TokenList, Vocab};
use hashbrown::HashSet;
use std::collections::BTreeSet;

impl Vocab {
    /// A vocabulary of characters and an ordered list of merges, each given by the bytes of its two parts.
    ///
    /// `tokens` are UTF-8, but for single bytes with [`Fallback::Bytes`]: then every byte that is no character of the vocabulary
    /// must be there. `aliases` are further tokens that no text encodes to; they may have the bytes of other ones. The merges may
    /// name every way to split a token, as in files converted from SentencePiece, also with single characters that are no tokens.
    /// `ranks` are those of the merges if some are equal: of these the leftmost in a text comes first.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] as [`Vocab::from_merges`], but a merge may come before those of its parts; and for equal
    /// ranks that their order cannot replace.
    pub fn from_characters(
        tokens: &TokenList,
        aliases: Vec<(u32, Vec<u8>)>,
        merges: &[(&[u8], &[u8])],
        ranks: Option<&[u32]>,
        special: Vec<(String, u32)>,
        fallback: Fallback,
    ) -> Result<Self> {
        let mut all = tokens.clone();
        let mut leftovers = Leftovers::new(fallback);
        let mut has_token = [false; 256];
        let mut byte_ids = [0; 256];
        for (id, token) in tokens.iter() {
            if let [byte] = token {
                (has_token[usize::from(*byte)], byte_ids[usize::from(*byte)]) = (true, id);
            }
        }
        for byte in (0..=255_u8).filter(|&byte| !has_token[usize::from(byte)]) {
            let ids = match fallback {
                // The first byte of a character stands for it.
                Fallback::Unknown { .. } if (0x80..0xC0).contains(&byte) => vec![],
                Fallback::Unknown { id, .. } => vec![id],
                Fallback::Nothing => vec![],
                Fallback::Bytes if byte == b' ' && aliases.iter().any(|(_, token)| token == b" ") => {
                    META.map(|byte| byte_ids[usize::from(byte)]).to_vec()
                }
                Fallback::Bytes => {
                    return invalid(format!("the byte {} is no token: all 256 bytes must be", show(&[byte])));
                }
            };
            leftovers.add(&mut all, &[byte], ids)?;
        }
        let listed: HashSet<&[u8]> = tokens.iter().map(|(_, token)| token).collect();
        let merged = merges.iter().flat_map(|&(left, right)| [left, right]);
        let characters: BTreeSet<&[u8]> = listed.iter().copied().chain(merged).filter(|token| is_wide(token)).collect();
        let starts: BTreeSet<&[u8]> =
            characters.iter().flat_map(|character| (2..character.len()).map(|end| &character[..end])).collect();
        // Parts of characters, and whole ones that merges need although they are no tokens.
        for symbol in starts.iter().chain(characters.iter().filter(|character| !listed.contains(*character))) {
            let ids = match fallback {
                Fallback::Bytes => symbol.iter().map(|&byte| byte_ids[usize::from(byte)]).collect(),
                Fallback::Unknown { id, .. } => vec![id],
                Fallback::Nothing => vec![],
            };
            leftovers.add(&mut all, symbol, ids)?;
        }
        let composed = starts.iter().chain(&characters).map(|made| made.split_at(made.len() - 1));
        let mut ordered: Vec<(&[u8], &[u8])> = composed.collect();
        ordered.sort_by_key(|(left, _)| left.len());
        let n_composed = ordered.len() as u32;
        ordered.extend_from_slice(merges);
        let mut merged = MergedTokens::new(all, "id")?;
        let list = MergeList::new(&ordered)?;
        let ranks: Option<Vec<u32>> =
            ranks.map(|ranks| (0..n_composed).chain(ranks.iter().map(|rank| n_composed + rank)).collect());
        let is_complete = ranks.as_ref().is_none_or(|ranks| ranks.len() == ordered.len());
        let Some(needed) = (if is_complete { list.needed(ranks.as_deref())? } else { None }) else {
            return invalid(
                "tokens have equal scores, so that their order depends on where they are in a text".to_owned(),
            );
        };
        let needed: Vec<_> = needed.into_iter().map(|index| ordered[index]).collect();
        merged.add_in_any_order(&needed)?;
        merged.finish_characters(aliases, special, leftovers)
    }
}

/// True if a token is one character of several bytes.
fn is_wide(token: &[u8]) -> bool {
    matches!(token.len(), 2..=4) && std::str::from_utf8(token).is_ok_and(|token| token.chars().nth(1).is_none())
}

#[cfg(test)]
#[path = "tests/characters.rs"]
mod tests;
