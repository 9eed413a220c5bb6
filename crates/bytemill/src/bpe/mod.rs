//! Merging one pre-token: the lowest-ranked pair of neighbours first, the leftmost of equals.

mod backtrack;
mod lockstep;
mod long;
mod memo;
mod merger;
#[cfg(test)]
mod tests;
mod trie;

use crate::error::Result;
use crate::pairs::PairTable;
use crate::pulse::Pulse;
use long::merge_long;

pub use backtrack::Backtracker;
pub use lockstep::{GROUP, merge_group};
pub use long::{Step, steps};
pub use merger::Merger;

/// Up to this many bytes, each merge looks through all pairs: no memory but the stack, and no slower than the queue.
const SHORT: usize = 63;

/// Appends the symbols of a pre-token to `out`.
///
/// # Errors
/// What `pulse` gives; it is asked only for long pre-tokens.
pub fn merge(table: &PairTable, pretoken: &[u8], out: &mut Vec<u32>, pulse: Pulse) -> Result<()> {
    match pretoken {
        [] => {}
        [byte] => out.push(u32::from(*byte)),
        _ if pretoken.len() <= SHORT => merge_short(table, pretoken, out),
        _ => return merge_long(table, pretoken, out, |_| {}, pulse),
    }
    Ok(())
}

fn merge_short(table: &PairTable, pretoken: &[u8], out: &mut Vec<u32>) {
    match pretoken.len() {
        ..16 => merge_one::<16>(table, pretoken, out),
        16..32 => merge_one::<32>(table, pretoken, out),
        _ => merge_one::<64>(table, pretoken, out),
    }
}

fn merge_one<const LANES: usize>(table: &PairTable, pretoken: &[u8], out: &mut Vec<u32>) {
    let bytes = |_, lanes: &mut [u8; LANES]| {
        lanes[..pretoken.len()].copy_from_slice(pretoken);
        pretoken.len()
    };
    merge_group::<LANES, 1, _>(table, 1, bytes, |_, symbols, n| out.extend_from_slice(&symbols[..n]));
}
