//! Filter merge lists that name every way to split a token.
//!
//! Files converted from ranks list all splits of a token into two. Only one of them is ever applied: the last merge of
//! the token's own bytes (see [`crate::bpe::live_merges`]). All other merges of that token can go.

use crate::bpe::heap::{Step, merge_with_heap};
use crate::bpe::live_merges::{MergeTimes, can_be_adjacent};
use crate::error::{Error, Result};
use crate::sys::interrupt::no_interrupt;
use crate::vocab::pair_table::PairTable;
use crate::vocab::{MergedTokens, TokenList};
use hashbrown::{HashMap, HashSet};

/// Pair of symbols -> rank of its merge and the symbol that the merge makes.
type Pairs = HashMap<(u32, u32), (u32, u32)>;

/// The bytes of what merges make and of the 256 bytes -> their symbols.
type Symbols = HashMap<Vec<u8>, u32>;

/// Indices of the merges that some text needs, in ascending order. No two of them make the same token.
///
/// # Errors
/// [`Error::Invalid`] if a merge appears twice.
pub fn needed_merges(merges: &[(&[u8], &[u8])]) -> Result<Vec<usize>> {
    let symbols = symbols_of(merges)?;
    let pairs = pairs_of(merges, &symbols, 0..)?;
    let mut needed = Vec::new();
    for token in symbols.keys() {
        needed.extend(last_merge(&pairs, token)?.map(|step| step.priority as usize));
    }
    needed.sort_unstable();
    Ok(needed)
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

fn symbols_of(merges: &[(&[u8], &[u8])]) -> Result<Symbols> {
    let mut symbols: Symbols = (0..=255u8).map(|byte| (vec![byte], u32::from(byte))).collect();
    for (left, right) in merges {
        let next = u32::try_from(symbols.len()).map_err(|_| Error::Invalid("too many merges".to_owned()))?;
        symbols.entry([*left, *right].concat()).or_insert(next);
    }
    Ok(symbols)
}

/// The pairs of symbols that merge, with these ranks.
fn pairs_of(merges: &[(&[u8], &[u8])], symbols: &Symbols, ranks: impl Iterator<Item = u32>) -> Result<Pairs> {
    let mut pairs = Pairs::with_capacity(merges.len());
    for (index, (rank, (left, right))) in ranks.zip(merges).enumerate() {
        // A merge of a part that no merge makes is never applied.
        let (Some(&l), Some(&r)) = (symbols.get(*left), symbols.get(*right)) else { continue };
        if pairs.insert((l, r), (rank, symbols[&[*left, *right].concat()])).is_some() {
            let (left, right) = (left.escape_ascii(), right.escape_ascii());
            return Err(Error::Invalid(format!("merge {index} (b\"{left}\" b\"{right}\") is there twice")));
        }
    }
    Ok(pairs)
}

/// The last merge of a token's own bytes, or `None` if they do not merge to one symbol.
fn last_merge(pairs: &Pairs, token: &[u8]) -> Result<Option<Step>> {
    let (mut symbols, mut last) = (Vec::new(), None);
    let get = |left, right| pairs.get(&(left, right)).copied();
    merge_with_heap(token, get, &mut symbols, |step| last = Some(step), &no_interrupt)?;
    Ok(last.filter(|_| symbols.len() == 1))
}

/// Pairs of tokens that are compared at most: about a second.
const MAX_COMPARED: usize = 1 << 23;

/// Whether merges of equal rank, of which the leftmost comes first whatever it makes, may also be done in their order. False if
/// there is too much to compare.
///
/// The ids of a text follow from the tokens that are reachable and from those of them that can be adjacent
/// (docs/concepts/algorithms.md), so it is enough that both orders agree in these. Tokens that are made without merges of a shared rank are
/// the same in both orders; neighbours are compared if one of them is not of this kind.
///
/// # Errors
/// As [`needed_merges`].
pub(super) fn equal_ranks_are_in_order(merges: &[(&[u8], &[u8])], ranks: &[u32]) -> Result<bool> {
    let symbols = symbols_of(merges)?;
    let mut tokens: Vec<&[u8]> = vec![&[]; symbols.len()];
    for (token, &symbol) in &symbols {
        tokens[symbol as usize] = token;
    }
    let by_position = LastMerges::new(&tokens, &pairs_of(merges, &symbols, ranks.iter().copied())?)?;
    let by_order = LastMerges::new(&tokens, &pairs_of(merges, &symbols, 0..)?)?;
    if by_position.is_reachable != by_order.is_reachable {
        return Ok(false);
    }
    let reachable: Vec<u32> =
        (0..tokens.len() as u32).filter(|&symbol| by_order.is_reachable[symbol as usize]).collect();
    let mut n_with_rank: HashMap<u32, usize> = HashMap::new();
    for &symbol in reachable.iter().filter(|&&symbol| symbol >= 256) {
        *n_with_rank.entry(by_position.ranks[symbol as usize]).or_default() += 1;
    }
    let mut by_length = reachable.clone();
    by_length.sort_by_key(|&symbol| tokens[symbol as usize].len());
    let mut is_affected = vec![false; tokens.len()];
    for symbol in by_length.into_iter().map(|symbol| symbol as usize).filter(|&symbol| symbol >= 256) {
        let parts = [by_position.parts[symbol], by_order.parts[symbol]];
        is_affected[symbol] = n_with_rank[&by_position.ranks[symbol]] > 1
            || parts.iter().any(|&(left, right)| is_affected[left as usize] || is_affected[right as usize]);
    }
    let affected: Vec<u32> = reachable.iter().copied().filter(|&symbol| is_affected[symbol as usize]).collect();
    if affected.len().saturating_mul(reachable.len()) > MAX_COMPARED {
        return Ok(false);
    }
    let (by_position, by_order) = (by_position.adjacency(&tokens)?, by_order.adjacency(&tokens)?);
    Ok(affected.iter().all(|&one| {
        let agree = |left, right| by_position(left, right) == by_order(left, right);
        reachable.iter().all(|&other| agree(one, other) && agree(other, one))
    }))
}

/// The last merge of each token's own bytes, by symbol.
struct LastMerges {
    is_reachable: Vec<bool>,
    /// Unused for bytes and for tokens that are not reachable.
    parts: Vec<(u32, u32)>,
    ranks: Vec<u32>,
}

impl LastMerges {
    fn new(tokens: &[&[u8]], pairs: &Pairs) -> Result<Self> {
        let n_tokens = tokens.len();
        let (mut is_reachable, mut parts, mut ranks) =
            (vec![true; n_tokens], vec![(0, 0); n_tokens], vec![0; n_tokens]);
        for (symbol, token) in tokens.iter().enumerate().skip(256) {
            match last_merge(pairs, token)? {
                Some(step) => (parts[symbol], ranks[symbol]) = ((step.left, step.right), step.priority),
                None => is_reachable[symbol] = false,
            }
        }
        Ok(Self { is_reachable, parts, ranks })
    }

    /// Whether two reachable tokens can be adjacent.
    fn adjacency(self, tokens: &[&[u8]]) -> Result<impl Fn(u32, u32) -> bool> {
        let mut pairs = PairTable::new(tokens.len());
        for (symbol, &(left, right)) in
            (0..).zip(&self.parts).skip(256).filter(|(symbol, _)| self.is_reachable[*symbol as usize])
        {
            pairs.insert(left, right, symbol)?;
        }
        let times = MergeTimes::of_parts(self.parts, self.ranks, |symbol| tokens[symbol as usize].len());
        Ok(move |left, right| times.can_be_adjacent(&pairs, left, right))
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
