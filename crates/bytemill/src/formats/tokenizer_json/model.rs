//! The tokens and merges of a `tokenizer.json`.

use crate::bpe::live_merges::can_be_adjacent;
use crate::formats::byte_characters::append_bytes;
use crate::vocab::{MergedTokens, TokenList, Vocab};
use hashbrown::HashSet;
use std::collections::HashMap;

/// Chooses among the merges of a file that lists several for a token, as those do that were converted from ranks.
///
/// A merge is needed if and only if its parts, side by side, stay as they are until its turn comes (`bpe::live_merges`). Once one
/// is, no other merge of the token happens. That includes merges of a part that is made later than the token: where it is made, the
/// bytes of the token are merged already. So the merges of such a token must stand together.
#[derive(Default)]
struct NeededMerges {
    /// Positions of the parts of all merges so far.
    seen: HashSet<(usize, usize)>,
    /// The token that the last merge was of, if one of its merges had a part that was not made yet.
    pending: Option<usize>,
}

impl NeededMerges {
    /// Whether the next merge of the file is needed. `None` if the merges are not in the usual order, or one is there twice.
    fn includes(&mut self, merged: &MergedTokens, joined: &[u8], n_left: usize) -> Option<bool> {
        let (left, right) = joined.split_at(n_left);
        let token = merged.position(joined)?;
        if self.pending != Some(token) {
            self.end_of_token(merged)?;
        }
        if !self.seen.insert((merged.position(left)?, merged.position(right)?)) {
            return None;
        }
        let (Some(left), Some(right)) = (merged.symbol(left), merged.symbol(right)) else {
            self.pending = Some(token);
            return Some(false);
        };
        let parts = |symbol: u32| merged.merges()[symbol as usize - 256];
        let limit = merged.merges().len() as u32 + 256;
        Some(!merged.is_made(token) && can_be_adjacent(parts, merged.pairs(), left, right, limit))
    }

    /// `None` if the token with merges of later parts has not been made.
    fn end_of_token(&mut self, merged: &MergedTokens) -> Option<()> {
        self.pending.take().is_none_or(|token| merged.is_made(token)).then_some(())
    }
}

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
        merges: impl ExactSizeIterator<Item = (&'m str, &'m str)>,
    ) -> Option<Self> {
        let mut ids: Vec<u32> = tokens.ids().iter().chain(foreign.values()).copied().collect();
        ids.sort_unstable();
        if !ids.is_sorted_by(|one, next| one < next) {
            return None;
        }
        let mut merged = MergedTokens::new(tokens, "id").ok()?;
        let mut needed = (merges.len() + 256 > merged.tokens().len()).then(NeededMerges::default);
        let mut joined = Vec::new();
        for (left, right) in merges {
            joined.clear();
            let is_left_valid = append_bytes(left, &mut joined);
            let n_left = joined.len();
            if !is_left_valid || !append_bytes(right, &mut joined) {
                return None;
            }
            if needed.as_mut().map_or(Some(true), |needed| needed.includes(&merged, &joined, n_left))? {
                merged.add(&joined, n_left).ok()?;
            }
        }
        if let Some(needed) = &mut needed {
            needed.end_of_token(&merged)?;
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
