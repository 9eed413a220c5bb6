//! Which merges some text needs, and which tokens merging can reach.
//!
//! A merge is needed if and only if the bytes of its result, alone, merge to it. Nothing crosses the ends of a stretch that
//! becomes a token in some text, so what happens inside the stretch also happens to its bytes alone; it follows that a token
//! always comes from the same two parts.

use super::heap::steps;
use crate::vocab::Vocab;
use crate::vocab::pair_table::PairTable;

/// A merge: left symbol, right symbol, resulting symbol.
pub type Merge = (u32, u32, u32);

/// The merges that some text needs, in the order of their ranks.
pub fn live_merges(vocab: &Vocab) -> Vec<Merge> {
    if vocab.is_ranked() {
        let symbols = 256..vocab.symbol_ids().len() as u32;
        return symbols.filter_map(|symbol| last_merge(vocab.pairs(), vocab.symbol(symbol))).collect();
    }
    let reachable = reachable_symbols(vocab.merges(), vocab.pairs());
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
fn last_merge(pairs: &PairTable, token: &[u8]) -> Option<Merge> {
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

#[cfg(test)]
#[path = "tests/live_merges.rs"]
mod tests;
