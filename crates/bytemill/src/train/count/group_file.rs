//! Pre-tokens in files, in groups of equal counts.

use super::PRETOKENS_PER_CHECK;
use super::part::Part;
use super::sorted_merge::{SortedInput, merge_sorted};
use super::stream::{Input, Output};
use crate::error::Result;
use crate::sys::interrupt::Interrupt;
use std::cmp::Ordering;

/// Writes pre-tokens in groups of descending counts: the count, the number of pre-tokens, and the pre-tokens, sorted by
/// bytes. A count of 0 ends the groups.
pub fn write_groups(part: &Part, out: &mut Output, interrupt: Interrupt) -> Result<()> {
    let mut pretokens = part.iter().map(|(pretoken, _)| pretoken);
    for group in &part.groups {
        out.group(group.count, group.n_pretokens as u64)?;
        let mut pretokens: Vec<&[u8]> = pretokens.by_ref().take(group.n_pretokens).collect();
        // Sorted in chunks, so that an interrupt does not wait for a large group.
        for chunk in pretokens.chunks_mut(PRETOKENS_PER_CHECK) {
            interrupt()?;
            chunk.sort_unstable();
        }
        let chunks = pretokens.chunks(PRETOKENS_PER_CHECK).map(|rest| Ok(SortedChunk { pretoken: &[], rest }));
        merge_sorted(chunks, interrupt, |chunk| out.pretoken(chunk.pretoken))?;
    }
    out.number(0)
}

/// Sorted pre-tokens in memory.
struct SortedChunk<'c> {
    pretoken: &'c [u8],
    rest: &'c [&'c [u8]],
}

impl SortedInput for SortedChunk<'_> {
    fn advance(&mut self) -> Result<bool> {
        let Some((pretoken, rest)) = self.rest.split_first() else { return Ok(false) };
        (self.pretoken, self.rest) = (pretoken, rest);
        Ok(true)
    }

    fn compare(&self, other: &Self) -> Ordering {
        self.pretoken.cmp(other.pretoken)
    }
}

/// Reads what [`write_groups`] writes, pre-token by pre-token, and checks it.
pub struct GroupReader {
    input: Input,
    checksum: u32,
    n_left: u64,
    /// Count of the current pre-token.
    pub count: u64,
    /// The current pre-token.
    pub pretoken: Vec<u8>,
}

impl GroupReader {
    /// Reads the rest of `input`, whose checksum must be `checksum`.
    pub fn new(input: Input, checksum: u32) -> Self {
        Self { input, checksum, n_left: 0, count: u64::MAX, pretoken: Vec::new() }
    }
}

impl SortedInput for GroupReader {
    #[inline]
    fn advance(&mut self) -> Result<bool> {
        if self.n_left == 0 {
            let count = self.input.number()?;
            if count == 0 {
                return self.input.check(self.checksum).map(|()| false);
            }
            self.n_left = self.input.number()?;
            if count > self.count || self.n_left == 0 {
                return Err(self.input.damaged());
            }
            self.count = count;
        }
        self.n_left -= 1;
        self.input.pretoken(&mut self.pretoken)?;
        Ok(true)
    }

    fn compare(&self, other: &Self) -> Ordering {
        other.count.cmp(&self.count).then_with(|| self.pretoken.cmp(&other.pretoken))
    }
}
