//! Merging one pre-token: the lowest-ranked pair of neighbours first, the leftmost of equals.

mod backtrack;
mod long;
mod merger;
mod short;
#[cfg(test)]
mod tests;
mod trie;

use crate::error::Result;
use crate::pairs::PairTable;
use crate::pulse::Pulse;
use long::merge_long;
use short::{SHORT, merge_short};

pub use backtrack::Backtracker;
pub use long::{Step, steps};
pub use merger::Merger;

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
