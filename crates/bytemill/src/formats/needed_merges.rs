//! Filter merge lists that name every way to split a token.
//!
//! Files converted from ranks list all splits of a token into two. Only one of them is ever applied: the last merge of
//! the token's own bytes (see [`crate::bpe::live_merges`]). All other merges of that token can go.

use crate::bpe::heap::merge_with_heap;
use crate::bpe::live_merges::can_be_adjacent;
use crate::error::{Error, Result};
use crate::sys::interrupt::no_interrupt;
use crate::vocab::MergedTokens;
use hashbrown::{HashMap, HashSet};

/// Pair of symbols -> rank of its merge and the symbol that the merge makes.
type Pairs = HashMap<(u32, u32), (u32, u32)>;

/// Indices of the merges that some text needs, in ascending order. No two of them make the same token.
///
/// # Errors
/// [`Error::Invalid`] if a merge appears twice.
pub fn needed_merges(merges: &[(&[u8], &[u8])]) -> Result<Vec<usize>> {
    let mut symbols: HashMap<Vec<u8>, u32> = (0..=255u8).map(|byte| (vec![byte], u32::from(byte))).collect();
    for (left, right) in merges {
        let next = u32::try_from(symbols.len()).map_err(|_| Error::Invalid("too many merges".to_owned()))?;
        symbols.entry([*left, *right].concat()).or_insert(next);
    }
    let mut pairs = Pairs::with_capacity(merges.len());
    for (rank, (left, right)) in (0..).zip(merges) {
        // A merge of a part that no merge makes is never applied.
        let (Some(&l), Some(&r)) = (symbols.get(*left), symbols.get(*right)) else { continue };
        if pairs.insert((l, r), (rank, symbols[&[*left, *right].concat()])).is_some() {
            let (left, right) = (left.escape_ascii(), right.escape_ascii());
            return Err(Error::Invalid(format!("merge {rank} (b\"{left}\" b\"{right}\") is there twice")));
        }
    }
    let mut needed = Vec::new();
    for token in symbols.keys() {
        needed.extend(last_merge(&pairs, token)?.map(|rank| rank as usize));
    }
    needed.sort_unstable();
    Ok(needed)
}

/// Rank of the last merge of a token's own bytes, or `None` if they do not merge to one symbol.
fn last_merge(pairs: &Pairs, token: &[u8]) -> Result<Option<u32>> {
    let (mut symbols, mut last) = (Vec::new(), None);
    let get = |left, right| pairs.get(&(left, right)).copied();
    merge_with_heap(token, get, &mut symbols, |step| last = Some(step.priority), &no_interrupt)?;
    Ok(last.filter(|_| symbols.len() == 1))
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
