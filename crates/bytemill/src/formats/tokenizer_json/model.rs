//! The tokens and merges of a `tokenizer.json` of byte-level BPE.

use super::reader::Contents;
use crate::formats::needed_merges::NeededMerges;
use crate::text::byte_characters::append_bytes;
use crate::vocab::{MergedTokens, TokenList, Vocab};
use hashbrown::HashSet;
use std::collections::HashMap;

/// The bytes that UTF-8 uses: a vocabulary has at least these besides the results of merges.
const N_BYTES: usize = 243;

/// Tokens with the merges of a file in its order, or those that are needed. `None` if they contradict the tokens.
fn with_merges<'m>(
    tokens: TokenList,
    merges: impl Iterator<Item = (&'m str, &'m str)>,
    mut needed: Option<NeededMerges>,
) -> Option<MergedTokens> {
    let mut merged = MergedTokens::new(tokens, "id").ok()?;
    let mut joined = Vec::new();
    for (left, right) in merges {
        let n_left = join(left, right, &mut joined)?;
        match &mut needed {
            Some(needed) => needed.add(&mut merged, &joined, n_left)?,
            None => merged.add(&joined, n_left).ok()?,
        }
    }
    if let Some(needed) = &mut needed {
        needed.end_of_token(&merged)?;
    }
    Some(merged)
}

/// Tokens in the order of their ids, if the merges are all ways to split each of them into two, in that order. Only one split of a
/// token ever happens (`formats::ranks`), so merging by ids is the same, also where a part comes after the token.
fn with_all_splits<'m>(
    mut tokens: TokenList,
    merges: impl ExactSizeIterator<Item = (&'m str, &'m str)>,
) -> Option<MergedTokens> {
    tokens.sort_by_id();
    let mut merged = MergedTokens::new(tokens, "id").ok()?;
    let n_merges = merges.len();
    let (mut seen, mut last, mut joined) = (HashSet::with_capacity(n_merges), 0, Vec::new());
    for (left, right) in merges {
        let n_left = join(left, right, &mut joined)?;
        let position = merged.position(&joined)?;
        let parts = joined.split_at(n_left);
        if position < last || !seen.insert((merged.position(parts.0)?, merged.position(parts.1)?)) {
            return None;
        }
        last = position;
    }
    (merged.n_splits() == n_merges).then_some(merged)
}

/// Sets `joined` to the bytes of two keys and returns how many are the first one's.
fn join(left: &str, right: &str, joined: &mut Vec<u8>) -> Option<usize> {
    joined.clear();
    let is_left_valid = append_bytes(left, joined);
    let n_left = joined.len();
    (is_left_valid && append_bytes(right, joined)).then_some(n_left)
}

/// The tokens and merges of a `tokenizer.json` of byte-level BPE.
#[derive(Debug)]
pub struct TokenizerJson {
    merged: MergedTokens,
    /// The merges are all splits of all tokens in the order of their ids, so that the ids are ranks.
    is_ranked: bool,
    n_merges: usize,
    /// Entries of the vocabulary with characters that stand for no byte.
    foreign: HashMap<String, u32>,
}

impl Contents for TokenizerJson {
    fn append_token(key: &str, bytes: &mut Vec<u8>) -> bool {
        append_bytes(key, bytes)
    }

    fn new<'m>(
        tokens: TokenList,
        foreign: HashMap<String, u32>,
        merges: impl ExactSizeIterator<Item = (&'m str, &'m str)> + Clone,
    ) -> Option<Self> {
        let mut ids: Vec<u32> = tokens.ids().iter().chain(foreign.values()).copied().collect();
        ids.sort_unstable();
        if !ids.is_sorted_by(|one, next| one < next) {
            return None;
        }
        let n_merges = merges.len();
        if n_merges + N_BYTES <= tokens.len() {
            let merged = with_merges(tokens, merges, None)?;
            return Some(Self { merged, is_ranked: false, n_merges, foreign });
        }
        if let Some(merged) = with_merges(tokens.clone(), merges.clone(), Some(NeededMerges::default())) {
            return Some(Self { n_merges: merged.n_merges(), merged, is_ranked: false, foreign });
        }
        Some(Self { merged: with_all_splits(tokens, merges)?, is_ranked: true, n_merges, foreign })
    }
}

impl TokenizerJson {
    /// Number of entries of the vocabulary.
    #[must_use]
    pub fn n_entries(&self) -> usize {
        self.merged.tokens().len() + self.foreign.len()
    }

    /// Number of merges.
    #[must_use]
    pub fn n_merges(&self) -> usize {
        self.n_merges
    }

    /// The id of an entry of the vocabulary, by its key in the file.
    #[must_use]
    pub fn id(&self, key: &str) -> Option<u32> {
        match self.index(key) {
            Some(index) => Some(self.merged.tokens().ids()[index]),
            None => self.foreign.get(key).copied(),
        }
    }

    fn index(&self, key: &str) -> Option<usize> {
        let mut token = Vec::new();
        if append_bytes(key, &mut token) { self.merged.position(&token) } else { None }
    }

    /// The vocabulary with these special tokens and [`Vocab::ignore_merges`].
    ///
    /// A special token that the file lists among its tokens is not an ordinary token, unless it is a single byte or the
    /// result of a merge. Returns `None` if tokens, merges and special tokens contradict each other, if the key of a
    /// special token stands for other bytes that are a merged token, or if the vocabulary has an entry that neither
    /// stands for bytes nor is a special token.
    #[must_use]
    pub fn into_vocab(self, special: Vec<(String, u32)>, ignore_merges: bool) -> Option<Vocab> {
        if self.is_ranked {
            // Ranks look up whole pre-tokens first.
            let is_listed = special.iter().any(|(text, _)| self.index(text).is_some());
            let is_ranked = ignore_merges && !is_listed && self.foreign.is_empty();
            return if is_ranked { self.merged.finish_ranked(special).ok() } else { None };
        }
        let mut special_alone = Vec::new();
        let mut n_foreign = 0;
        for (text, _) in &special {
            if let Some(index) = self.index(text) {
                if !self.merged.is_made(index) {
                    special_alone.push(index);
                } else if self.merged.tokens().token(index) != text.as_bytes() {
                    return None;
                }
            } else if self.foreign.contains_key(text) {
                n_foreign += 1;
            }
        }
        if n_foreign != self.foreign.len() {
            return None;
        }
        Some(self.merged.finish(&special_alone, special).ok()?.with_ignore_merges(ignore_merges))
    }
}
