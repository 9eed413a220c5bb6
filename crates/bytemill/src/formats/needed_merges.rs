//! Filter merge lists that name every way to split a token.
//!
//! Files converted from ranks list all splits of a token into two. Only one of them is ever applied: the last merge of
//! the token's own bytes (see [`crate::bpe::live_merges`]). All other merges of that token can go.

use crate::bpe::heap::{Step, merge_with_heap};
use crate::bpe::live_merges::{MergeTimes, can_be_adjacent};
use crate::error::{Error, Result};
use crate::sys::interrupt::no_interrupt;
use crate::vocab::pair_table::NONE;
use crate::vocab::{MergedTokens, TokenIndex, TokenList};
use hashbrown::{HashMap, HashSet};
use std::cell::Cell;

/// Indices of the merges that some text needs, in ascending order. No two of them make the same token.
///
/// # Errors
/// [`Error::Invalid`] if a merge appears twice.
pub fn needed_merges(merges: &[(&[u8], &[u8])]) -> Result<Vec<usize>> {
    Ok(MergeList::new(merges)?.needed(None)?.unwrap_or_default())
}

/// Tokens with merges that may come before those of their parts, all of which are needed; `None` if one is not, or if they
/// contradict the tokens.
pub fn merged_in_any_order(tokens: TokenList, merges: &[(&[u8], &[u8])]) -> Option<MergedTokens> {
    if needed_merges(merges).ok()?.len() != merges.len() {
        return None;
    }
    let mut merged = MergedTokens::new(tokens, "id").ok()?;
    merged.add_in_any_order(merges).ok()?;
    Some(merged)
}

/// Merges with numbers for tokens: those of the 256 bytes are 0 to 255, those of what merges make come after them.
pub(super) struct MergeList {
    tokens: TokenList,
    /// Two symbols -> the index of their merge and the symbol that it makes.
    pairs: HashMap<(u32, u32), (u32, u32)>,
    /// What each merge makes, by index.
    results: Vec<u32>,
}

impl MergeList {
    /// # Errors
    /// As [`needed_merges`].
    pub(super) fn new(merges: &[(&[u8], &[u8])]) -> Result<Self> {
        if merges.len() >= NONE as usize {
            return Err(Error::Invalid("too many merges".to_owned()));
        }
        let (mut tokens, mut index) = (TokenList::default(), TokenIndex::with_capacity(merges.len()));
        for byte in 0..=255_u8 {
            tokens.push(0, &[byte])?;
            index.get_or_insert(&[byte], u32::from(byte), |symbol| tokens.token(symbol as usize));
        }
        let mut results = Vec::with_capacity(merges.len());
        for (left, right) in merges {
            tokens.push_with(0, |bytes| bytes.extend([*left, *right].into_iter().flatten()))?;
            let next = tokens.len() - 1;
            // Files list the merges of a token one after the other.
            let symbol = if tokens.token(next) == tokens.token(next - 1) {
                next as u32 - 1
            } else {
                index.get_or_insert(tokens.token(next), next as u32, |symbol| tokens.token(symbol as usize))
            };
            if symbol as usize != next {
                tokens.pop();
            }
            results.push(symbol);
        }
        let symbol = |part: &[u8]| match part {
            [byte] => Some(u32::from(*byte)),
            _ => index.get(part, |symbol| tokens.token(symbol as usize)),
        };
        let mut pairs = HashMap::with_capacity(merges.len());
        for (at, ((left, right), result)) in (0..).zip(merges.iter().zip(&results)) {
            // A merge of a part that no merge makes is never applied.
            let (Some(l), Some(r)) = (symbol(left), symbol(right)) else { continue };
            if pairs.insert((l, r), (at, *result)).is_some() {
                let (left, right) = (left.escape_ascii(), right.escape_ascii());
                return Err(Error::Invalid(format!("merge {at} (b\"{left}\" b\"{right}\") is there twice")));
            }
        }
        Ok(Self { tokens, pairs, results })
    }

    /// See [`needed_merges`]. `ranks` are those of the merges if some are equal, in ascending order: of these the leftmost in a text
    /// comes first. `None` if the order of the merges cannot replace them.
    pub(super) fn needed(&self, ranks: Option<&[u32]>) -> Result<Option<Vec<usize>>> {
        let shared = ranks.map_or_else(Vec::new, |ranks| self.is_of_shared_rank(ranks));
        let by_order = LastMerges::new(self, |index| index, |index| shared.get(index as usize) == Some(&true))?;
        let made = (256..).zip(&by_order.priorities[256..]).filter(|&(symbol, _)| by_order.is_reachable[symbol]);
        let mut needed: Vec<usize> = made.map(|(_, &index)| index as usize).collect();
        needed.sort_unstable();
        let is_ordered = match ranks {
            Some(ranks) => ranks.is_sorted() && self.equal_ranks_are_in_order(ranks, &shared, by_order)?,
            None => true,
        };
        Ok(is_ordered.then_some(needed))
    }

    /// For each merge whether its rank is *shared*: that of a merge that makes another token.
    fn is_of_shared_rank(&self, ranks: &[u32]) -> Vec<bool> {
        let made: Vec<(u32, u32)> = ranks.iter().copied().zip(self.results.iter().copied()).collect();
        let is_shared = |two: &&[(u32, u32)]| two[0].0 == two[1].0 && two[0].1 != two[1].1;
        let shared: HashSet<u32> = made.windows(2).filter(is_shared).map(|two| two[0].0).collect();
        ranks.iter().map(|rank| shared.contains(rank)).collect()
    }

    /// The last merge of a token's own bytes, or `None` if they do not merge to one symbol. `rank` gives that of a merge, by its index.
    fn last_merge(&self, symbol: usize, rank: impl Fn(u32) -> u32) -> Result<Option<Step>> {
        let token = self.tokens.token(symbol);
        let get = |left, right| self.pairs.get(&(left, right)).map(|&(index, symbol)| (rank(index), symbol));
        if token.len() <= MAX_SCANNED_BYTES {
            return Ok(last_of_few(token, get));
        }
        let (mut symbols, mut last) = (Vec::new(), None);
        merge_with_heap(
            token,
            get,
            &mut symbols,
            |step| {
                last = Some(step);
                true
            },
            &no_interrupt,
        )?;
        Ok(last.filter(|_| symbols.len() == 1))
    }

    /// Whether merges of equal rank may also be done in their order. False if there is too much to compare.
    ///
    /// The ids of a text follow from the tokens that are reachable and from those of them that can be adjacent
    /// (docs/concepts/algorithms.md), so it is enough that both orders agree in these. Tokens that are made without merges of a shared
    /// rank are the same in both orders; neighbours are compared if one of them is not of this kind.
    ///
    /// Until the first merge of a shared rank, or of a later one, both orders do the same. A neighbour that is whole by then, and that
    /// no merge joins to the other one after it, does not need to be compared.
    fn equal_ranks_are_in_order(&self, ranks: &[u32], shared: &[bool], by_order: LastMerges) -> Result<bool> {
        let Some(first) = shared.iter().position(|&is_shared| is_shared).map(|at| ranks[at]) else { return Ok(true) };
        let by_position = by_order.with_ranks(self, ranks)?;
        if by_position.is_reachable != by_order.is_reachable {
            return Ok(false);
        }
        let mut reachable: Vec<u32> =
            (0..self.tokens.len() as u32).filter(|&symbol| by_order.is_reachable[symbol as usize]).collect();
        reachable.sort_by_key(|&symbol| self.tokens.token(symbol as usize).len());
        let mut is_affected = vec![false; self.tokens.len()];
        for symbol in reachable.iter().map(|&symbol| symbol as usize).filter(|&symbol| symbol >= 256) {
            let parts = [by_position.parts[symbol], by_order.parts[symbol]];
            is_affected[symbol] = shared[by_order.priorities[symbol] as usize]
                || parts.iter().any(|&(left, right)| is_affected[left as usize] || is_affected[right as usize]);
        }
        let (by_position, by_order) = (by_position.times(self), by_order.times(self));
        let is_late = |symbol: u32| by_position.latest(symbol) >= first;
        // What is joined to something on its right, and on its left, from the first shared rank on.
        let mut is_joined = [vec![false; self.tokens.len()], vec![false; self.tokens.len()]];
        for (&(left, right), &(index, _)) in &self.pairs {
            let is_after = ranks[index as usize] >= first;
            is_joined[0][left as usize] |= is_after || is_late(right);
            is_joined[1][right as usize] |= is_after || is_late(left);
        }
        let affected: Vec<u32> = reachable.iter().copied().filter(|&symbol| is_affected[symbol as usize]).collect();
        let [before, after] = is_joined.map(|is_joined| -> Vec<u32> {
            reachable.iter().copied().filter(|&symbol| is_late(symbol) || is_joined[symbol as usize]).collect()
        });
        if affected.len().saturating_mul(before.len().max(after.len())) > MAX_COMPARED {
            return Ok(false);
        }
        let agree = |left, right| {
            self.can_be_adjacent(&by_position, left, right) == self.can_be_adjacent(&by_order, left, right)
        };
        Ok(affected
            .iter()
            .all(|&one| before.iter().all(|&other| agree(other, one)) && after.iter().all(|&other| agree(one, other))))
    }

    /// Whether two reachable tokens can be adjacent.
    fn can_be_adjacent(&self, times: &MergeTimes, left: u32, right: u32) -> bool {
        // Of the merges of a token, only the last one of its own bytes happens.
        let merged = |left, right| match self.pairs.get(&(left, right)) {
            Some(&(_, symbol)) if times.parts(symbol) == (left, right) => symbol,
            _ => NONE,
        };
        times.can_be_adjacent(merged, left, right)
    }
}

/// Pairs of tokens that are compared at most: about a second.
const MAX_COMPARED: usize = 1 << 23;

/// Tokens of more bytes are merged with a heap.
const MAX_SCANNED_BYTES: usize = 32;

/// The last merge of a few bytes, or `None` if they do not merge to one symbol. `get` is that of [`merge_with_heap`].
fn last_of_few(token: &[u8], get: impl Fn(u32, u32) -> Option<(u32, u32)>) -> Option<Step> {
    const NEVER: (u32, u32) = (NONE, NONE);
    let mut n = token.len();
    let (mut symbols, mut pairs) = ([0; MAX_SCANNED_BYTES], [NEVER; MAX_SCANNED_BYTES]);
    for (symbol, &byte) in symbols.iter_mut().zip(token) {
        *symbol = u32::from(byte);
    }
    for at in 1..n {
        pairs[at - 1] = get(symbols[at - 1], symbols[at]).unwrap_or(NEVER);
    }
    let mut last = None;
    while n > 1 {
        let (at, &(priority, symbol)) = pairs[..n - 1].iter().enumerate().min_by_key(|(_, pair)| pair.0)?;
        if priority == NONE {
            return None;
        }
        last = Some(Step { priority, symbol, left: symbols[at], right: symbols[at + 1], offset: 0 });
        symbols[at] = symbol;
        symbols.copy_within(at + 2..n, at + 1);
        pairs.copy_within(at + 1..n - 1, at);
        n -= 1;
        if at > 0 {
            pairs[at - 1] = get(symbols[at - 1], symbol).unwrap_or(NEVER);
        }
        if at + 1 < n {
            pairs[at] = get(symbol, symbols[at + 1]).unwrap_or(NEVER);
        }
    }
    last
}

/// The last merge of each token's own bytes, by symbol.
#[derive(Clone)]
struct LastMerges {
    is_reachable: Vec<bool>,
    /// Unused for bytes and for tokens that are not reachable.
    parts: Vec<(u32, u32)>,
    priorities: Vec<u32>,
    /// Whether merges of a shared rank come up among the bytes of the token.
    is_unsure: Vec<bool>,
}

impl LastMerges {
    /// `rank` as for [`MergeList::last_merge`]; `is_shared` tells whether the rank of a merge is shared.
    fn new(list: &MergeList, rank: impl Fn(u32) -> u32, is_shared: impl Fn(u32) -> bool) -> Result<Self> {
        let n = list.tokens.len();
        let mut all = Self {
            is_reachable: vec![true; n],
            parts: vec![(0, 0); n],
            priorities: vec![0; n],
            is_unsure: vec![false; n],
        };
        for symbol in 256..n {
            let is_unsure = Cell::new(false);
            let noted = |index| {
                is_unsure.set(is_unsure.get() | is_shared(index));
                rank(index)
            };
            all.set(symbol, list.last_merge(symbol, noted)?);
            all.is_unsure[symbol] = is_unsure.get();
        }
        Ok(all)
    }

    /// The same in the order of ranks.
    fn with_ranks(&self, list: &MergeList, ranks: &[u32]) -> Result<Self> {
        let mut all = self.clone();
        all.priorities.iter_mut().skip(256).for_each(|priority| *priority = ranks[*priority as usize]);
        for symbol in (256..list.tokens.len()).filter(|&symbol| self.is_unsure[symbol]) {
            all.set(symbol, list.last_merge(symbol, |index| ranks[index as usize])?);
        }
        Ok(all)
    }

    fn set(&mut self, symbol: usize, last: Option<Step>) {
        self.is_reachable[symbol] = last.is_some();
        let last = last.map_or(((0, 0), 0), |step| ((step.left, step.right), step.priority));
        (self.parts[symbol], self.priorities[symbol]) = last;
    }

    fn times(self, list: &MergeList) -> MergeTimes {
        MergeTimes::of_parts(self.parts, self.priorities, |symbol| list.tokens.token(symbol as usize).len())
    }
}

/// Chooses among the merges of a file that lists several for a token, as those do that were converted from ranks.
///
/// A merge is needed if and only if its parts, side by side, stay as they are until its turn comes (`bpe::live_merges`). Once one
/// is, no other merge of the token happens. That includes merges of a part that is made later than the token: where it is made, the
/// bytes of the token are merged already. So the merges of such a token must stand together.
#[derive(Default)]
pub(crate) struct NeededMerges {
    /// Positions of the parts of all merges so far.
    seen: HashSet<(u32, u32)>,
    /// The token that the last merge was of, if one of its merges had a part that was not made yet.
    pending: Option<usize>,
}

impl NeededMerges {
    /// Adds the next merge of the file if it is needed. `None` if the merges are not in the usual order, or one is there twice.
    pub(crate) fn add(&mut self, merged: &mut MergedTokens, joined: &[u8], n_left: usize) -> Option<()> {
        let (left, right) = joined.split_at(n_left);
        let token = merged.result_position(joined)?;
        if self.pending != Some(token) {
            self.end_of_token(merged)?;
        }
        let (left, right) = (merged.position(left)?, merged.position(right)?);
        if !self.seen.insert((left as u32, right as u32)) {
            return None;
        }
        let (Some(left), Some(right)) = (merged.symbol_at(left), merged.symbol_at(right)) else {
            self.pending = Some(token);
            return Some(());
        };
        let parts = |symbol: u32| merged.merges()[symbol as usize - 256];
        let limit = merged.n_merges() as u32 + 256;
        if !merged.is_made(token) && can_be_adjacent(parts, merged.pairs(), left, right, limit) {
            merged.add_symbols(left, right, token).ok()?;
        }
        Some(())
    }

    /// `None` if the token with merges of later parts has not been made.
    pub(crate) fn end_of_token(&mut self, merged: &MergedTokens) -> Option<()> {
        self.pending.take().is_none_or(|token| merged.is_made(token)).then_some(())
    }
}

#[cfg(test)]
#[path = "tests/needed_merges.rs"]
mod tests;
