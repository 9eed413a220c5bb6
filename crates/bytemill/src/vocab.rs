//! What a vocabulary is: tokens, their ids, and the merges that make them.
//!
//! Inside, a token is a *symbol*: the bytes are 0 to 255 and merge number k makes symbol 256 + k, so that a symbol
//! is also a priority: of two merges the one whose result is the smaller symbol comes first. Outside, a token has
//! whatever id its file gives it.

mod helper;
mod merge_list;
mod merged;
mod needed;
mod ranks;
mod sorted;
mod tokens;
mod whole;

pub(crate) use helper::{Helper, with_helper};
pub(crate) use merge_list::MergeList;
pub use merged::MergedTokens;
pub use needed::needed_merges;
pub use sorted::SortedTokens;
pub use tokens::TokenList;
pub use whole::Tables;

use crate::error::{Error, Result};
use std::collections::HashSet;
use std::hint::select_unpredictable;
use tokens::TokenIndex;
use whole::Known;

/// Tokens by id and merges by rank, checked against each other.
#[derive(Clone, Debug)]
pub struct Vocab {
    /// All token bytes, one after the other, in the order of the ids.
    bytes: Vec<u8>,
    /// Where the bytes of each id start; one more entry at the end. Ids that no token has are empty.
    starts: Vec<u32>,
    /// Ids of the tokens of the vocabulary as given: the ordinary ones, and special ones where it lists them.
    index: TokenIndex,
    special: Vec<(String, u32)>,
    /// The two symbols that each merge joins, in order of rank.
    merges: Vec<(u32, u32)>,
    /// The id of each symbol.
    symbol_ids: Vec<u32>,
    /// From this symbol on, ids are symbols with this added (which may wrap).
    in_step: (u32, u32),
    /// Pairs of symbols that become a symbol, beyond `merges`: other ways to split a token in two (rank files only).
    other_splits: Vec<(u32, u32, u32)>,
    ranked: bool,
    whole_pretoken_lookup: bool,
    /// What encoding asks for, where it was built on the way and nobody has taken it.
    known: Known,
    /// Each token of the index is known to be what its own bytes merge to.
    all_made_whole: bool,
}

/// Symbols must fit 21 bits, so that a pair and its result fit one word of the pair table.
pub const MAX_SYMBOLS: usize = 1 << 21;

/// The first symbol from which on all ids are symbols with the same number added, and that number.
fn in_step(symbol_ids: &[u32]) -> (u32, u32) {
    let added = |(symbol, id): (usize, &u32)| id.wrapping_sub(symbol as u32);
    let last = symbol_ids.iter().enumerate().next_back().map_or(0, added);
    let n_before = symbol_ids.iter().enumerate().rposition(|both| added(both) != last).map_or(0, |place| place + 1);
    (n_before as u32, last)
}

fn invalid<T>(message: String) -> Result<T> {
    Err(Error::Invalid(message))
}

fn show(bytes: &[u8]) -> String {
    format!("b\"{}\"", bytes.escape_ascii())
}

impl Vocab {
    fn assemble(
        tokens: &TokenList,
        mut index: TokenIndex,
        special: Vec<(String, u32)>,
        merges: Vec<(u32, u32)>,
        symbol_ids: Vec<u32>,
    ) -> Result<Self> {
        // Ids, and places: those of the list, and behind them the special tokens.
        let mut by_id: Vec<(u32, u32)> = Vec::with_capacity(tokens.len() + special.len());
        by_id.extend(
            tokens.ids().iter().copied().zip(0..).filter(|(_, place)| !tokens.token(*place as usize).is_empty()),
        );
        by_id.extend(special.iter().map(|(_, id)| *id).zip(tokens.len() as u32..));
        let bytes_at = |place: u32| match (place as usize).checked_sub(tokens.len()) {
            None => tokens.token(place as usize),
            Some(place) => special[place].0.as_bytes(),
        };
        by_id.sort_unstable_by(|one, other| one.0.cmp(&other.0).then_with(|| bytes_at(one.1).cmp(bytes_at(other.1))));
        // A vocabulary may list its special tokens, with the ids they have.
        by_id.dedup_by(|one, other| one.0 == other.0 && bytes_at(one.1) == bytes_at(other.1));
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
        // A file may name any id; an array over ids must not let one line of it take gigabytes.
        if n_ids > MAX_SYMBOLS.max(16 * by_id.len()) {
            return invalid(format!("the id {} is out of all proportion to {} tokens", n_ids - 1, by_id.len()));
        }
        let n_bytes: usize = by_id.iter().map(|(_, place)| bytes_at(*place).len()).sum();
        if n_bytes > u32::MAX as usize {
            return invalid(format!("the tokens are {n_bytes} bytes together; at most 4 GiB are supported"));
        }
        let mut bytes = Vec::with_capacity(n_bytes);
        let mut starts = Vec::with_capacity(n_ids + 1);
        for &(id, place) in &by_id {
            starts.resize(id as usize + 1, bytes.len() as u32);
            bytes.extend_from_slice(bytes_at(place));
        }
        starts.push(bytes.len() as u32);
        index.renumber(|place| tokens.ids()[place as usize]);
        Ok(Self {
            bytes,
            starts,
            index,
            special,
            merges,
            in_step: in_step(&symbol_ids),
            symbol_ids,
            other_splits: Vec::new(),
            ranked: false,
            whole_pretoken_lookup: false,
            known: Known::default(),
            all_made_whole: false,
        })
    }

    /// Highest id + 1.
    #[must_use]
    pub fn n_ids(&self) -> usize {
        self.starts.len() - 1
    }

    /// The bytes of a token, special ones included; `None` for an id that no token has.
    #[inline]
    #[must_use]
    pub fn token(&self, id: u32) -> Option<&[u8]> {
        let at = id as usize;
        let (start, end) = (*self.starts.get(at)?, *self.starts.get(at + 1)?);
        if start == end { None } else { Some(&self.bytes[start as usize..end as usize]) }
    }

    /// The id of a token of the vocabulary.
    #[must_use]
    pub fn id(&self, token: &[u8]) -> Option<u32> {
        self.index.get(token, |id| self.token(id).unwrap_or_default())
    }

    /// The tokens of the vocabulary and their ids, in the order of the ids.
    pub fn tokens(&self) -> impl Iterator<Item = (&[u8], u32)> {
        let alone: HashSet<u32> = self
            .special
            .iter()
            .filter(|(token, id)| self.id(token.as_bytes()) != Some(*id))
            .map(|(_, id)| *id)
            .collect();
        (0..self.n_ids() as u32)
            .filter_map(|id| Some((self.token(id)?, id)))
            .filter(move |(_, id)| alone.is_empty() || !alone.contains(id))
    }

    /// Special tokens and their ids.
    #[must_use]
    pub fn special(&self) -> &[(String, u32)] {
        &self.special
    }

    /// The pairs of symbols of the merges, in order of rank.
    #[must_use]
    pub fn merges(&self) -> &[(u32, u32)] {
        &self.merges
    }

    /// The id of each symbol.
    #[must_use]
    pub fn symbol_ids(&self) -> &[u32] {
        &self.symbol_ids
    }

    /// The id of one symbol.
    ///
    /// Most vocabularies number all but single bytes in the order of their merges; then no more than the beginning of the table is
    /// read, which as a whole (400 KB for 100,000 tokens) would keep leaving the processor's caches.
    #[inline]
    #[must_use]
    pub fn symbol_id(&self, symbol: u32) -> u32 {
        let (first, added) = self.in_step;
        select_unpredictable(symbol < first, self.symbol_ids[symbol.min(first) as usize], symbol.wrapping_add(added))
    }

    /// The bytes of a symbol.
    #[must_use]
    pub fn symbol(&self, symbol: u32) -> &[u8] {
        self.token(self.symbol_ids[symbol as usize]).unwrap_or_default()
    }

    /// Pairs and results beyond [`Vocab::merges`].
    #[must_use]
    pub fn other_splits(&self) -> &[(u32, u32, u32)] {
        &self.other_splits
    }

    /// True where the ids are priorities that no list of merges stands for.
    #[must_use]
    pub fn is_ranked(&self) -> bool {
        self.ranked
    }

    /// True where a pre-token that is a token is that token even if no merges lead there.
    #[must_use]
    pub fn whole_pretoken_lookup(&self) -> bool {
        self.whole_pretoken_lookup
    }

    /// Sets [`Vocab::whole_pretoken_lookup`].
    #[must_use]
    pub fn with_whole_pretoken_lookup(mut self, yes: bool) -> Self {
        self.whole_pretoken_lookup = yes;
        self
    }
}

#[cfg(test)]
mod tests;
