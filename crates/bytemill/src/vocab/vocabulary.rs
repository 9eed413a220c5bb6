//! [`Vocab`]: tokens, their ids, and the merges that make them; [`SortedTokens`]: those with a given prefix.

use super::leftovers::{FIRST_LEFTOVER, Fallback, Leftovers};
use super::pair_table::{MAX_SYMBOLS, PairTable};
use super::tokens::{TokenIndex, TokenList};
use crate::error::{Result, invalid, show};
use std::collections::{HashMap, HashSet};
use std::hint::select_unpredictable;
use std::sync::Arc;

/// Tokens by id and merges by rank, checked against each other.
///
/// Made by [`Vocab::from_merges`] and by [`Vocab::from_ranks`](crate::formats).
#[derive(Clone, Debug)]
pub struct Vocab {
    /// All token bytes, one after the other, in the order of the ids.
    pub(super) bytes: Vec<u8>,
    /// Where the bytes of each id start; one more entry at the end. An id that no token has is empty.
    pub(super) starts: Vec<u32>,
    /// Token bytes → id, for the ordinary tokens and the special ones that the vocabulary lists.
    pub(super) index: TokenIndex,
    pub(super) special: Vec<(String, u32)>,
    /// What decoding gives for special tokens that are found in normalized text, if a normalizer changes them.
    pub(super) normalized: HashMap<u32, String>,
    /// The two symbols that each merge joins, in order of rank.
    pub(super) merges: Vec<(u32, u32)>,
    /// The id of each symbol.
    pub(super) symbol_ids: Vec<u32>,
    /// From this symbol on, an id is the symbol plus this number (wrapping).
    pub(super) offset_from: (u32, u32),
    /// All pairs that merge: those of `merges`, or for a ranked vocabulary every split of a token into two.
    pub(super) pairs: PairTable,
    pub(super) ranked: bool,
    pub(super) ignore_merges: bool,
    /// What stands for symbols that are no token, in a vocabulary of characters.
    pub(super) leftovers: Option<Arc<Leftovers>>,
    /// The ids of the tokens of several bytes that no merges lead to, if they are known already.
    pub(super) unreachable: Option<Box<[u32]>>,
}

/// The first symbol from which on all ids are the symbol plus one number, and that number.
pub(super) fn offset_from(symbol_ids: &[u32]) -> (u32, u32) {
    let offset = |(symbol, id): (usize, &u32)| id.wrapping_sub(symbol as u32);
    let last = symbol_ids.iter().enumerate().next_back().map_or(0, offset);
    let n_before = symbol_ids.iter().enumerate().rposition(|both| offset(both) != last).map_or(0, |index| index + 1);
    (n_before as u32, last)
}

impl Vocab {
    /// Puts the parts together. Empty tokens and those of [`Leftovers`] are left out. `index` gives positions in `tokens`; `aliases`
    /// are further tokens of a vocabulary of characters, which the index does not have; `merges` and `symbol_ids` are in order of rank; `pairs` has all pairs
    /// that merge.
    pub(crate) fn assemble(
        tokens: &TokenList,
        mut index: TokenIndex,
        aliases: Option<Vec<(u32, Vec<u8>)>>,
        special: Vec<(String, u32)>,
        merges: Vec<(u32, u32)>,
        symbol_ids: Vec<u32>,
        pairs: PairTable,
    ) -> Result<Self> {
        // Ids and positions: those in the list, followed by the special tokens and the aliases.
        let is_token = |position: u32| {
            let is_leftover = aliases.is_some() && tokens.ids()[position as usize] >= FIRST_LEFTOVER;
            !tokens.token(position as usize).is_empty() && !is_leftover
        };
        let is_characters = aliases.is_some();
        let others = aliases.as_deref().unwrap_or_default();
        let mut by_id: Vec<(u32, u32)> = Vec::with_capacity(tokens.len() + special.len() + others.len());
        by_id.extend(tokens.ids().iter().copied().zip(0..).filter(|(_, position)| is_token(*position)));
        let other_ids = special.iter().map(|(_, id)| *id).chain(others.iter().map(|(id, _)| *id));
        by_id.extend(other_ids.zip(tokens.len() as u32..));
        let bytes_at = |position: u32| match (position as usize).checked_sub(tokens.len()) {
            None => tokens.token(position as usize),
            Some(position) => match position.checked_sub(special.len()) {
                None => special[position].0.as_bytes(),
                Some(position) => &others[position].1,
            },
        };
        by_id.sort_unstable_by(|one, other| one.0.cmp(&other.0).then_with(|| bytes_at(one.1).cmp(bytes_at(other.1))));
        // A vocabulary may list its special tokens, with the ids they have; those of SentencePiece with "▁" for spaces.
        let is_same = |one: &[u8], other: &[u8]| {
            let spaces = |token: &str| token.replace('▁', " ").as_bytes() == other;
            one == other || is_characters && std::str::from_utf8(one).is_ok_and(spaces)
        };
        by_id.dedup_by(|one, other| one.0 == other.0 && is_same(bytes_at(one.1), bytes_at(other.1)));
        for window in by_id.windows(2) {
            if window[0].0 == window[1].0 {
                return invalid(format!(
                    "the id {} belongs to two tokens, {} and {}",
                    window[0].0,
                    show(bytes_at(window[0].1)),
                    show(bytes_at(window[1].1))
                ));
            }
        }
        let n_ids = by_id.last().map_or(0, |(id, _)| *id as usize + 1);
        // A file may name any id, and one line of it must not make an array over ids take gigabytes.
        if n_ids > MAX_SYMBOLS.max(16 * by_id.len()) {
            return invalid(format!("the id {} is out of all proportion to {} tokens", n_ids - 1, by_id.len()));
        }
        let n_bytes: usize = by_id.iter().map(|(_, position)| bytes_at(*position).len()).sum();
        if n_bytes > u32::MAX as usize {
            return invalid(format!("the tokens are {n_bytes} bytes together; at most 4 GiB are supported"));
        }
        let mut bytes = Vec::with_capacity(n_bytes);
        let mut starts = Vec::with_capacity(n_ids + 1);
        for &(id, position) in &by_id {
            starts.resize(id as usize + 1, bytes.len() as u32);
            bytes.extend_from_slice(bytes_at(position));
        }
        starts.push(bytes.len() as u32);
        index.renumber(|position| is_token(position).then(|| tokens.ids()[position as usize]));
        Ok(Self {
            bytes,
            starts,
            index,
            special,
            normalized: HashMap::new(),
            merges,
            offset_from: offset_from(&symbol_ids),
            symbol_ids,
            pairs,
            ranked: false,
            ignore_merges: false,
            leftovers: None,
            unreachable: None,
        })
    }

    /// Highest id + 1.
    pub fn n_ids(&self) -> usize {
        self.starts.len() - 1
    }

    /// The bytes of a token, special ones included; `None` for an id that no token has.
    #[inline]
    pub fn token(&self, id: u32) -> Option<&[u8]> {
        let at = id as usize;
        let (start, end) = (*self.starts.get(at)?, *self.starts.get(at + 1)?);
        if start == end { None } else { Some(&self.bytes[start as usize..end as usize]) }
    }

    /// What decoding gives for a token: its bytes, or those of the normalized text that it was found in.
    #[inline]
    pub fn decoded(&self, id: u32) -> Option<&[u8]> {
        if self.normalized.is_empty() {
            return self.token(id);
        }
        self.normalized.get(&id).map(String::as_bytes).or_else(|| self.token(id))
    }

    /// Decode some special tokens as other texts.
    pub fn decode_as(&mut self, normalized: HashMap<u32, String>) {
        self.normalized = normalized;
    }

    /// The id of a token of the vocabulary.
    pub fn id(&self, token: &[u8]) -> Option<u32> {
        self.index.get(token, |id| self.token(id).unwrap_or_default())
    }

    /// The tokens of the vocabulary and their ids, in the order of the ids.
    pub fn tokens(&self) -> impl Iterator<Item = (&[u8], u32)> {
        let alone: HashSet<u32> = self
            .special
            .iter()
            .filter(|(token, id)| self.id(token.as_bytes()) != Some(*id) && self.token(*id) == Some(token.as_bytes()))
            .map(|(_, id)| *id)
            .collect();
        (0..self.n_ids() as u32)
            .filter_map(|id| Some((self.token(id)?, id)))
            .filter(move |(_, id)| alone.is_empty() || !alone.contains(id))
    }

    /// Special tokens and their ids.
    pub fn special(&self) -> &[(String, u32)] {
        &self.special
    }

    /// The pairs of symbols of the merges, in order of rank.
    pub fn merges(&self) -> &[(u32, u32)] {
        &self.merges
    }

    /// The id of each symbol.
    pub fn symbol_ids(&self) -> &[u32] {
        &self.symbol_ids
    }

    /// The id of one symbol.
    ///
    /// Most vocabularies number all tokens but single bytes in the order of their merges; then only the start of the table is
    /// read. All of it (400 KB for 100,000 tokens) would not stay in the processor's caches.
    #[inline]
    pub fn symbol_id(&self, symbol: u32) -> u32 {
        let (first, offset) = self.offset_from;
        select_unpredictable(symbol < first, self.symbol_ids[symbol.min(first) as usize], symbol.wrapping_add(offset))
    }

    /// The bytes of a symbol.
    pub fn symbol(&self, symbol: u32) -> &[u8] {
        let id = self.symbol_ids[symbol as usize];
        match &self.leftovers {
            Some(leftovers) if id >= FIRST_LEFTOVER => leftovers.bytes(id),
            _ => self.token(id).unwrap_or_default(),
        }
    }

    /// What stands for symbols that are no token; `None` if the smallest tokens are bytes.
    #[inline]
    pub fn leftovers(&self) -> Option<&Leftovers> {
        self.leftovers.as_deref()
    }

    /// The id that stands for several unknown characters in a row, if there is one.
    pub fn fused_id(&self) -> Option<u32> {
        match self.leftovers()?.fallback() {
            Fallback::Unknown { id, fused: true } => Some(id),
            _ => None,
        }
    }

    /// Makes this a vocabulary of characters.
    pub(crate) fn with_leftovers(self, leftovers: Leftovers) -> Self {
        Self { leftovers: Some(Arc::new(leftovers)), ..self }
    }

    /// Which symbol two symbols merge to.
    #[inline]
    pub fn pairs(&self) -> &PairTable {
        &self.pairs
    }

    /// True if the ids are priorities that no list of merges stands for: then [`Vocab::merges`] is empty.
    pub fn is_ranked(&self) -> bool {
        self.ranked
    }

    /// True if a pre-token that is a token gets its id even if no merges lead to it (Hugging Face: `ignore_merges`).
    pub fn ignore_merges(&self) -> bool {
        self.ignore_merges
    }

    /// The ids of the tokens of several bytes that no merges lead to, if they are known without searching them.
    pub(crate) fn unreachable(&self) -> Option<&[u32]> {
        self.unreachable.as_deref()
    }

    /// Marks the vocabulary as ranked. Whole pre-tokens are looked up first then.
    #[must_use]
    pub(super) fn into_ranked(self) -> Self {
        Self { ranked: true, ignore_merges: true, ..self }
    }

    /// Sets [`Vocab::ignore_merges`].
    #[must_use]
    pub fn with_ignore_merges(self, ignore_merges: bool) -> Self {
        Self { ignore_merges, ..self }
    }
}

/// The ids of the ordinary tokens, in the order of their bytes.
#[derive(Clone, Debug)]
pub struct SortedTokens {
    ids: Vec<u32>,
    longest: usize,
}

impl SortedTokens {
    /// The tokens of a vocabulary, without those that are only special.
    pub fn new(vocab: &Vocab) -> Self {
        let made: HashSet<u32> = vocab.symbol_ids().iter().copied().collect();
        let special: HashSet<u32> = vocab.special().iter().map(|(_, id)| *id).filter(|id| !made.contains(id)).collect();
        let mut tokens: Vec<(&[u8], u32)> = vocab.tokens().filter(|(_, id)| !special.contains(id)).collect();
        tokens.sort_unstable();
        let longest = tokens.iter().map(|(token, _)| token.len()).max().unwrap_or(0);
        Self { ids: tokens.into_iter().map(|(_, id)| id).collect(), longest }
    }

    /// The ids, in the order of the tokens' bytes.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Length of the longest token in bytes.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// The ids of the tokens that start with `prefix`, itself included; `vocab` is the vocabulary that the tokens are from.
    pub fn beginning_with(&self, vocab: &Vocab, prefix: &[u8]) -> &[u32] {
        let token = |id: &u32| vocab.token(*id).unwrap_or_default();
        let from = &self.ids[self.ids.partition_point(|id| token(id) < prefix)..];
        &from[..from.partition_point(|id| token(id).starts_with(prefix))]
    }
}

#[cfg(test)]
#[path = "tests"]
mod tests {
    mod sorted;
    mod vocabulary;
}
