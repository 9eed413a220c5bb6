//! The tokens and merges of a `tokenizer.json`.

use crate::formats::byte_characters::append_bytes;
use crate::vocab::{MergedTokens, TokenList, Vocab};
use std::collections::HashMap;

/// The tokens and merges of a `tokenizer.json`.
#[derive(Debug)]
pub struct TokenizerJson {
    merged: MergedTokens,
    /// Entries of the vocabulary with characters that stand for no byte.
    foreign: HashMap<String, u32>,
}

impl TokenizerJson {
    /// Applies the merges, given by the keys of their parts, to the tokens. `foreign` has the entries that are no tokens.
    /// Returns `None` if an id is repeated or a merge contradicts the tokens.
    pub(super) fn new<'m>(
        tokens: TokenList,
        foreign: HashMap<String, u32>,
        merges: impl Iterator<Item = (&'m str, &'m str)>,
    ) -> Option<Self> {
        let mut ids: Vec<u32> = tokens.ids().iter().chain(foreign.values()).copied().collect();
        ids.sort_unstable();
        if !ids.is_sorted_by(|one, next| one < next) {
            return None;
        }
        let mut merged = MergedTokens::new(tokens, "id").ok()?;
        let mut joined = Vec::new();
        for (left, right) in merges {
            joined.clear();
            let is_left_valid = append_bytes(left, &mut joined);
            let n_left = joined.len();
            if !is_left_valid || !append_bytes(right, &mut joined) {
                return None;
            }
            merged.add(&joined, n_left).ok()?;
        }
        Some(Self { merged, foreign })
    }

    /// Number of entries of the vocabulary.
    #[must_use]
    pub fn n_entries(&self) -> usize {
        self.merged.tokens().len() + self.foreign.len()
    }

    /// Number of merges.
    #[must_use]
    pub fn n_merges(&self) -> usize {
        self.merged.n_merges()
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

    /// The vocabulary with these special tokens.
    ///
    /// A special token that the file lists among its tokens is not an ordinary token, unless it is a single byte or the
    /// result of a merge. Returns `None` if tokens, merges and special tokens contradict each other, if the key of a
    /// special token stands for other bytes that are a merged token, or if the vocabulary has an entry that neither
    /// stands for bytes nor is a special token.
    #[must_use]
    pub fn into_vocab(self, special: Vec<(String, u32)>) -> Option<Vocab> {
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
        self.merged.finish(&special_alone, special).ok()
    }
}
