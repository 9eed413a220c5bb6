//! Which merges some text needs, and which tokens merging can reach.
//!
//! A merge is needed if and only if the bytes of its result, alone, merge to it. Nothing crosses the ends of a stretch that
//! becomes a token in some text, so what happens inside the stretch also happens to its bytes alone; it follows that a token
//! always comes from the same two parts.

use super::heap::steps;
use crate::vocab::Vocab;
use crate::vocab::pair_table::{NONE, PairTable};

/// A merge: left symbol, right symbol, resulting symbol.
pub type Merge = (u32, u32, u32);

/// The merges that some text needs, in the order of their ranks.
pub fn live_merges(vocab: &Vocab) -> Vec<Merge> {
    if vocab.is_ranked() {
        let symbols = 256..vocab.symbol_ids().len() as u32;
        return symbols.filter_map(|symbol| last_merge(vocab.pairs(), vocab.symbol(symbol))).collect();
    }
    // With merges before those of their parts, all of them are needed.
    let reachable = match MergeTimes::new(vocab) {
        None => reachable_symbols(vocab.merges(), vocab.pairs()),
        Some(_) => vec![true; vocab.symbol_ids().len()],
    };
    let merges = vocab.merges().iter().zip(256..).map(|(&(left, right), symbol)| (left, right, symbol));
    merges.filter(|(_, _, symbol)| reachable[*symbol as usize]).collect()
}

/// The two symbols that a symbol is made of; `None` for a byte and for a token that merging cannot reach.
pub fn parts(vocab: &Vocab, symbol: u32) -> Option<(u32, u32)> {
    if vocab.is_ranked() {
        return last_merge(vocab.pairs(), vocab.symbol(symbol)).map(|(left, right, _)| (left, right));
    }
    vocab.merges().get(symbol.checked_sub(256)? as usize).copied()
}

/// The tokens with their ids that are neither bytes nor results of the `live` merges.
pub fn unreachable_tokens<'v>(vocab: &'v Vocab, live: &[Merge]) -> Vec<(u32, &'v [u8])> {
    let mut is_merged = vec![false; vocab.n_ids()];
    for &(_, _, symbol) in live {
        // A part of a character has no id of a token.
        if let Some(is_merged) = is_merged.get_mut(vocab.symbol_ids()[symbol as usize] as usize) {
            *is_merged = true;
        }
    }
    let others = vocab.tokens().filter(|(token, id)| token.len() > 1 && !is_merged[*id as usize]);
    others.map(|(token, id)| (id, token)).collect()
}

/// The last merge of a token's own bytes; `None` if they do not merge to one symbol.
pub(crate) fn last_merge(pairs: &PairTable, token: &[u8]) -> Option<Merge> {
    let steps = steps(pairs, token);
    let last = steps.last().filter(|_| steps.len() + 1 == token.len())?;
    Some((last.left, last.right, last.symbol))
}

/// For each symbol, whether its own bytes merge to it.
///
/// Bytes do. A symbol can only come from the one merge of its parts l and r. Before that merge no other one has crossed the
/// ends of l and r, so each came about as if it stood alone. Hence the symbol is reachable if and only if l and r are and no
/// merge crosses the boundary between them before: see [`can_be_adjacent`].
pub(super) fn reachable_symbols(merges: &[(u32, u32)], pairs: &PairTable) -> Vec<bool> {
    let mut reachable = vec![true; 256];
    reachable.reserve(merges.len());
    for &(left, right) in merges {
        let symbol = reachable.len() as u32;
        let is_reachable = reachable[left as usize]
            && reachable[right as usize]
            && can_be_adjacent(|symbol| merges[symbol as usize - 256], pairs, left, right, symbol);
        reachable.push(is_reachable);
    }
    reachable
}

/// Whether two reachable symbols stay as they are when their bytes stand side by side, while merges below `limit` are done.
///
/// Merges happen in the order of their symbols, since the parts of a merge are smaller than its result, and equal ones from
/// left to right. While nothing crosses the boundary, the symbol left of it goes through a chain a₀ < a₁ < … < left, each
/// the right part of the next, and the one right of it through b₀ < b₁ < … < right, each the left part of the next. When aᵢ
/// and bⱼ are neighbours, their merge happens if its turn comes before aᵢ or bⱼ is gone: before aᵢ₊₁ and not after bⱼ₊₁. (If
/// aᵢ₊₁ is the same symbol, its merge lies further left and comes first; if bⱼ₊₁ is, the one across the boundary comes first.)
/// So it is enough to walk through these neighbours, here backwards in time: of aᵢ and bⱼ the greater one came later, and of
/// equal ones the right one. `parts(symbol)` returns the parts of a symbol above 255.
#[inline]
pub fn can_be_adjacent(
    parts: impl Fn(u32) -> (u32, u32),
    pairs: &PairTable,
    mut left: u32,
    mut right: u32,
    mut limit: u32,
) -> bool {
    loop {
        if pairs.get(left, right) < limit {
            return false;
        }
        if left > right && left >= 256 {
            limit = left;
            left = parts(left).1;
        } else if right >= 256 {
            limit = right + 1;
            right = parts(right).0;
        } else {
            return true;
        }
    }
}

/// The merges of a vocabulary that has some before the merges of their parts, all of them needed: when each happens.
///
/// A merge whose priority comes before that of its parts happens as soon as they are there. So the priorities of the merges that
/// make a token do not rise, but their maximum so far does. It divides them into *blocks*: a merge with a new maximum, and what follows
/// up to the next one. Of two stretches side by side, always the lower next merge is done, the left one of equal ones. So blocks are
/// done whole, those of lower maxima first, and of equal ones the left stretch's.
pub struct MergeTimes {
    /// The parts of each symbol; unused for bytes.
    parts: Vec<(u32, u32)>,
    priorities: Vec<u32>,
    /// The highest priority of the merges that make each symbol; 0 for bytes.
    latest: Vec<u32>,
}

impl MergeTimes {
    /// `None` if all merges come after those of their parts, or if there are none.
    pub fn new(vocab: &Vocab) -> Option<Self> {
        let merges = vocab.merges();
        if merges.iter().zip(256..).all(|(&(left, right), symbol)| left.max(right) < symbol) {
            return None;
        }
        let parts = (0..256).map(|byte| (byte, byte)).chain(merges.iter().copied()).collect();
        let n_symbols = vocab.symbol_ids().len() as u32;
        Some(Self::of_parts(parts, (0..n_symbols).collect(), |symbol| vocab.symbol(symbol).len()))
    }

    /// Times from the parts and the priority of each symbol. `n_bytes` is the length of a symbol, above that of its parts.
    pub fn of_parts(parts: Vec<(u32, u32)>, priorities: Vec<u32>, n_bytes: impl Fn(u32) -> usize) -> Self {
        let mut order: Vec<u32> = (256..parts.len() as u32).collect();
        order.sort_by_key(|&symbol| n_bytes(symbol));
        let mut latest = vec![0; parts.len()];
        for symbol in order.into_iter().map(|symbol| symbol as usize) {
            let (left, right) = parts[symbol];
            latest[symbol] = priorities[symbol].max(latest[left as usize]).max(latest[right as usize]);
        }
        Self { parts, priorities, latest }
    }

    /// The highest priority of the merges that make a symbol; 0 for a byte.
    #[inline]
    pub fn latest(&self, symbol: u32) -> u32 {
        self.latest[symbol as usize]
    }

    /// The parts of a symbol above 255.
    #[inline]
    pub fn parts(&self, symbol: u32) -> (u32, u32) {
        self.parts[symbol as usize]
    }

    /// Whether two symbols stay as they are when their bytes stand side by side. `merged(left, right)` returns the symbol that a pair
    /// merges to, or [`NONE`].
    ///
    /// The walk of [`can_be_adjacent`]. A pair across the boundary is merged unless it is above all merges that happen while both
    /// of its symbols are there, up to the one that takes the first of them. The maximum of these is that of the block if the block
    /// begins in that time. Else all of them are of one stretch, and there is only the last one.
    #[inline]
    pub fn can_be_adjacent(&self, merged: impl Fn(u32, u32) -> u32, mut left: u32, mut right: u32) -> bool {
        let (latest, parts) = (|symbol| self.latest(symbol), |symbol| self.parts(symbol));
        let priority = |symbol: u32| self.priorities[symbol as usize];
        let mut limit = u32::MAX;
        loop {
            let joined = merged(left, right);
            if joined != NONE && priority(joined) < limit {
                return false;
            }
            if latest(left) > latest(right) {
                let inner = parts(left).1;
                limit = if latest(left) > latest(inner) { latest(left) } else { priority(left) };
                left = inner;
            } else if right >= 256 {
                // The block of its right part begins after that of the left part if they are equal.
                let (inner, outer) = parts(right);
                let begins = latest(right) > latest(inner) || latest(right) == latest(outer);
                limit = if begins { latest(right) } else { priority(right) } + 1;
                right = inner;
            } else {
                return true;
            }
        }
    }
}

#[cfg(test)]
#[path = "tests/live_merges.rs"]
mod tests;
