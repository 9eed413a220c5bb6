//! Filter merge lists that name every way to split a token.
//!
//! Files converted from ranks list all splits of a token into two. Only one of them is ever applied: the last merge of
//! the token's own bytes (see [`crate::bpe::live_merges`]). All other merges of that token can go.

use crate::bpe::heap::merge_with_heap;
use crate::error::{Error, Result};
use crate::sys::interrupt::no_interrupt;
use hashbrown::HashMap;

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

#[cfg(test)]
#[path = "tests/needed_merges.rs"]
mod tests;
