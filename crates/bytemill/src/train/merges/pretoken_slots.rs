//! Pre-tokens in slots of 16 or 32 bits, and how often each one occurs.
//!
//! All unique pre-tokens are stored in one array with one slot per byte and a separator before each. A token takes the
//! slots of the bytes it was merged from: the first holds its symbol, the last (if there are several) its symbol with a
//! flag, the others a filler. The next token is found by the width of this one, the previous token by the slot
//! before, and a merge writes three slots without moving anything.
//!
//! [`PretokenSlots::compact`] gives every token one slot again and drops pre-tokens that have become one token.

use super::base::Base;
use crate::batch::parallel::map_parts;
use crate::error::{Error, Result};
use crate::sys::interrupt::{Interrupt, InterruptPeriod};
use crate::train::count::Counts;
use hashbrown::HashMap;
use std::ops::Range;

/// Slots between two interrupt checks.
const SLOTS_PER_CHECK: usize = if cfg!(test) { 1 << 6 } else { 1 << 20 };

/// Fewer slots than this are not worth a thread.
const MIN_PART_SLOTS: usize = if cfg!(test) { 1 << 4 } else { 1 << 16 };

/// Pre-tokens and their counts, for example in a file that does not fit into memory.
pub trait PretokenSource {
    /// Calls `each` with every pre-token and its count, in any order.
    ///
    /// Learning visits a source twice; both visits must yield the same pre-tokens. Counts of repeated pre-tokens are
    /// added. Empty pre-tokens and counts of zero are ignored.
    ///
    /// # Errors
    /// Errors of `each`, and errors of reading.
    fn visit(&mut self, each: &mut dyn FnMut(&[u8], u64) -> Result<()>) -> Result<()>;
}

impl PretokenSource for &Counts {
    fn visit(&mut self, each: &mut dyn FnMut(&[u8], u64) -> Result<()>) -> Result<()> {
        Counts::visit(self, each)
    }
}

impl PretokenSource for Counts {
    fn visit(&mut self, each: &mut dyn FnMut(&[u8], u64) -> Result<()>) -> Result<()> {
        Counts::visit(self, each)
    }
}

/// Number of slots for each count.
pub struct Sizes {
    slots_of: HashMap<u64, u64>,
    n_slots: u64,
}

impl Sizes {
    /// Visits `source` once.
    pub fn of(source: &mut dyn PretokenSource, interrupt: Interrupt) -> Result<Self> {
        let mut sizes = Self { slots_of: HashMap::default(), n_slots: 1 };
        let mut checks = InterruptPeriod::new(interrupt, SLOTS_PER_CHECK);
        // Counts of adjacent pre-tokens are often equal.
        let (mut last, mut n_last) = (0, 0);
        source.visit(&mut |pretoken, count| {
            if is_counted(pretoken, count) {
                if count != last {
                    sizes.add(last, n_last);
                    (last, n_last) = (count, 0);
                }
                n_last += pretoken.len() as u64 + 1;
                checks.advance(pretoken.len() + 1)?;
            }
            Ok(())
        })?;
        sizes.add(last, n_last);
        Ok(sizes)
    }

    /// The sizes of counts in memory, which are grouped by count already.
    pub fn of_counts(counts: &Counts) -> Self {
        let mut sizes = Self { slots_of: HashMap::default(), n_slots: 1 };
        for group in counts.groups() {
            sizes.add(group.count, (group.n_bytes + group.n_pretokens) as u64);
        }
        sizes
    }

    fn add(&mut self, count: u64, n_slots: u64) {
        if n_slots > 0 {
            *self.slots_of.entry(count).or_insert(0) += n_slots;
            self.n_slots += n_slots;
        }
    }

    pub fn n_slots(&self) -> u64 {
        self.n_slots
    }

    /// Number of different counts.
    pub fn n_groups(&self) -> usize {
        self.slots_of.len()
    }
}

fn is_counted(pretoken: &[u8], count: u64) -> bool {
    !pretoken.is_empty() && count > 0
}

/// Positions are 32-bit numbers, so the slots of all pre-tokens must be fewer than 2³².
pub fn check_n_slots(n_slots: u64) -> Result<usize> {
    match u32::try_from(n_slots) {
        Ok(n_slots) => Ok(n_slots as usize),
        Err(_) => Err(Error::Invalid(format!(
            "the unique pre-tokens take {n_slots} bytes; at most 4 GiB are supported: pass the special tokens that \
             separate documents, or use another pattern"
        ))),
    }
}

/// Unique pre-tokens in slots, the most frequent first.
pub struct PretokenSlots {
    /// The slots, of 16 or 32 bits.
    halves: Vec<u16>,
    is_wide: bool,
    pub groups: Groups,
}

impl PretokenSlots {
    /// The pre-tokens of a source, one slot per byte, grouped by count.
    pub fn new(source: &mut dyn PretokenSource, sizes: &Sizes, interrupt: Interrupt) -> Result<Self> {
        let n_slots = check_n_slots(sizes.n_slots)?;
        let mut by_count: Vec<(u64, u64)> = sizes.slots_of.iter().map(|(&count, &n_slots)| (count, n_slots)).collect();
        by_count.sort_unstable_by_key(|&(count, _)| std::cmp::Reverse(count));
        let mut groups = Groups::with_capacity(by_count.len());
        // The slots of each count that are still free.
        let mut free: HashMap<u64, Range<usize>> = HashMap::default();
        let mut start = 0;
        for (count, n_slots) in by_count {
            groups.push(start, count);
            let end = start + n_slots as usize;
            free.insert(count, start..end);
            start = end;
        }
        groups.set_hints(n_slots);
        let mut halves = vec![0; n_slots];
        let slots = Narrow::view_mut(&mut halves);
        slots[n_slots - 1] = Narrow::SEPARATOR;
        let changed = || Error::Invalid("the counted pre-tokens changed while they were read".to_owned());
        let mut checks = InterruptPeriod::new(interrupt, SLOTS_PER_CHECK);
        let mut n_written = 1;
        let (mut last, mut last_free) = (0, 0..0);
        source.visit(&mut |pretoken, count| {
            if is_counted(pretoken, count) {
                if count != last {
                    let next_free = free.get_mut(&count).ok_or_else(changed)?.clone();
                    free.insert(last, std::mem::replace(&mut last_free, next_free));
                    last = count;
                }
                let end = last_free.start + 1 + pretoken.len();
                if end > last_free.end {
                    return Err(changed());
                }
                write_pretoken(&mut slots[last_free.start..end], pretoken);
                last_free.start = end;
                n_written += 1 + pretoken.len();
                checks.advance(1 + pretoken.len())?;
            }
            Ok(())
        })?;
        if n_written != n_slots {
            return Err(changed());
        }
        Ok(Self { halves, is_wide: false, groups })
    }

    pub fn is_wide(&self) -> bool {
        self.is_wide
    }

    #[inline]
    pub fn slots<S: Slot>(&self) -> &[S] {
        debug_assert_eq!(size_of::<S>(), self.slot_bytes());
        S::view(&self.halves)
    }

    /// The slots for writing, and the groups.
    #[inline]
    pub fn slots_mut<S: Slot>(&mut self) -> (&mut [S], &Groups) {
        debug_assert_eq!(size_of::<S>(), self.slot_bytes());
        (S::view_mut(&mut self.halves), &self.groups)
    }

    pub fn slot_bytes(&self) -> usize {
        if self.is_wide { size_of::<Wide>() } else { size_of::<Narrow>() }
    }

    pub fn n_slots(&self) -> usize {
        self.halves.len() * size_of::<u16>() / self.slot_bytes()
    }

    /// Splits the slots into ranges of whole pre-tokens, one for each thread that is worth its while. Each range begins
    /// with a separator.
    pub fn parts<S: Slot>(&self, n_threads: usize) -> Vec<Range<usize>> {
        let slots = self.slots::<S>();
        let end = slots.len() - 1;
        let part_slots = slots.len().div_ceil(n_threads.max(1)).max(MIN_PART_SLOTS);
        let mut parts = Vec::new();
        let mut start = 0;
        while start < end {
            let wanted = (start + part_slots).min(end);
            let next = (wanted..end).find(|&at| slots[at] == S::SEPARATOR).unwrap_or(end);
            parts.push(start..next);
            start = next;
        }
        parts
    }

    /// Calls `each` with every slot of a part: its index, the slot before it, the slot, and the count of its pre-token.
    ///
    /// Tokens take one slot each. Separators are included.
    pub fn for_each_slot<S: Slot>(
        &self,
        part: Range<usize>,
        interrupt: Interrupt,
        mut each: impl FnMut(usize, S, S, u64),
    ) -> Result<()> {
        let slots = self.slots::<S>();
        let mut before = S::SEPARATOR;
        let mut checks = InterruptPeriod::new(interrupt, SLOTS_PER_CHECK);
        for (group, count) in self.groups.within(part) {
            let mut start = group.start;
            while start < group.end {
                let end = group.end.min(start + SLOTS_PER_CHECK);
                checks.advance(end - start)?;
                for (index, &slot) in (start..).zip(&slots[start..end]) {
                    each(index, before, slot, count);
                    before = slot;
                }
                start = end;
            }
        }
        Ok(())
    }

    /// Gives every token one slot and drops pre-tokens of one token.
    ///
    /// With `merge`, also merges the pair `[left, right]` into a new symbol `[_, _, merged]`. Tokens must then take one
    /// slot each already.
    pub fn compact<S: Slot>(&mut self, merge: Option<[u32; 3]>, n_threads: usize, interrupt: Interrupt) -> Result<()> {
        self.rewrite::<S>(n_threads, interrupt, |slots, group, out| {
            Ok(match merge {
                None => compact_pretokens(slots, group, out),
                Some(merge) => merge_in_pretokens(slots, group, out, merge.map(S::first)),
            })
        })
    }

    /// Replaces bytes by the symbols of a vocabulary, one slot each, and drops pre-tokens of one symbol.
    pub fn segment(&mut self, base: &dyn Base, n_threads: usize, interrupt: Interrupt) -> Result<()> {
        if base.n_symbols() > Narrow::MAX_SYMBOLS {
            self.widen();
            self.rewrite::<Wide>(n_threads, interrupt, |slots, group, out| segment_pretokens(slots, group, out, base))
        } else {
            self.rewrite::<Narrow>(n_threads, interrupt, |slots, group, out| segment_pretokens(slots, group, out, base))
        }
    }

    /// Rewrites the pre-tokens in place. `each` moves those of a range to an index that is not behind them, and returns the end.
    fn rewrite<S: Slot>(
        &mut self,
        n_threads: usize,
        interrupt: Interrupt,
        each: impl Fn(&mut [S], Range<usize>, usize) -> Result<usize> + Sync,
    ) -> Result<()> {
        let parts = self.parts::<S>(n_threads);
        let (slots, groups) = self.slots_mut::<S>();
        let slices = split(slots, parts.iter().map(|part| part.end));
        let compacted = map_parts(slices, n_threads, interrupt, |part, slots, interrupt| {
            let part = parts[part].clone();
            let mut new_groups = Groups::with_capacity(groups.within(part.clone()).count());
            let mut checks = InterruptPeriod::new(interrupt, SLOTS_PER_CHECK);
            let mut out = 0;
            for (group, count) in groups.within(part.clone()) {
                checks.advance(group.len())?;
                let (start, group) = (out, group.start - part.start..group.end - part.start);
                out = each(slots, group, out)?;
                if out > start {
                    new_groups.push(start, count);
                }
            }
            Ok((out, new_groups))
        })?;
        let mut end = 0;
        let mut all = Groups::with_capacity(compacted.iter().map(|(_, groups)| groups.n_groups()).sum());
        for (part, (n_slots, groups)) in parts.iter().zip(compacted) {
            slots.copy_within(part.start..part.start + n_slots, end);
            for (start, count) in groups.iter() {
                all.push(end + start, count);
            }
            end += n_slots;
        }
        slots[end] = S::SEPARATOR;
        self.halves.truncate((end + 1) * self.slot_bytes() / size_of::<u16>());
        self.halves.shrink_to_fit();
        // Free the old groups before the hints are allocated.
        self.groups = Groups::default();
        all.set_hints(end + 1);
        self.groups = all;
        Ok(())
    }

    /// Widens each slot to 32 bits; tokens take one slot each.
    ///
    /// Works in place from the last slot to the first, so that no slot is overwritten before it has moved.
    pub fn widen(&mut self) {
        let n_slots = self.n_slots();
        self.halves.reserve_exact(n_slots);
        self.halves.resize(2 * n_slots, 0);
        for index in (0..n_slots).rev() {
            let narrow = Narrow::view(&self.halves)[index];
            let wide = if narrow == Narrow::SEPARATOR { Wide::SEPARATOR } else { Wide::first(narrow.symbol()) };
            Wide::view_mut(&mut self.halves)[index] = wide;
        }
        self.is_wide = true;
    }
}

/// Writes a separator and the bytes of a pre-token.
fn write_pretoken(slots: &mut [Narrow], pretoken: &[u8]) {
    slots[0] = Narrow::SEPARATOR;
    for (slot, &byte) in slots[1..].iter_mut().zip(pretoken) {
        *slot = Narrow::first(u32::from(byte));
    }
}

/// Moves the tokens of whole pre-tokens to `out`, one slot each, and returns the end.
fn compact_pretokens<S: Slot>(slots: &mut [S], pretokens: Range<usize>, mut out: usize) -> usize {
    let mut start = out;
    for at in pretokens {
        let slot = slots[at];
        if slot == S::SEPARATOR {
            out = without_single_token(start, out);
            start = out;
        }
        // Slots that do not start a token are overwritten by the next one.
        slots[out] = slot;
        out += usize::from(slot.is_start());
    }
    without_single_token(start, out)
}

/// Like [`compact_pretokens`] for tokens of one slot each, and merges a and b into c.
fn merge_in_pretokens<S: Slot>(slots: &mut [S], pretokens: Range<usize>, mut out: usize, [a, b, c]: [S; 3]) -> usize {
    let mut start = out;
    for at in pretokens {
        let slot = slots[at];
        if slot == S::SEPARATOR {
            out = without_single_token(start, out);
            start = out;
        } else if slot == b && slots[out - 1] == a {
            // c differs from a, so the first two of `a a a` are merged.
            slots[out - 1] = c;
            continue;
        }
        slots[out] = slot;
        out += 1;
    }
    without_single_token(start, out)
}

/// Moves pre-tokens of bytes to `out` as the symbols of `base`, and returns the end.
fn segment_pretokens<S: Slot>(
    slots: &mut [S],
    pretokens: Range<usize>,
    mut out: usize,
    base: &dyn Base,
) -> Result<usize> {
    let (mut bytes, mut symbols) = (Vec::new(), Vec::new());
    let mut at = pretokens.start;
    while at < pretokens.end {
        let start = at + 1;
        at = (start..pretokens.end).find(|&at| slots[at] == S::SEPARATOR).unwrap_or(pretokens.end);
        bytes.clear();
        bytes.extend(slots[start..at].iter().map(|slot| slot.symbol() as u8));
        symbols.clear();
        base.segment(&bytes, &mut symbols)?;
        if symbols.len() > 1 {
            slots[out] = S::SEPARATOR;
            for (slot, &symbol) in slots[out + 1..].iter_mut().zip(&symbols) {
                *slot = S::first(symbol);
            }
            out += 1 + symbols.len();
        }
    }
    Ok(out)
}

/// The end of the output if its last pre-token, `start..out`, is dropped when it is a separator and one token.
fn without_single_token(start: usize, out: usize) -> usize {
    if out - start == 2 { start } else { out }
}

/// Splits `slots` at `ends`.
fn split<S>(mut slots: &mut [S], ends: impl Iterator<Item = usize>) -> Vec<&mut [S]> {
    let mut start = 0;
    ends.map(|end| {
        let (part, rest) = std::mem::take(&mut slots).split_at_mut(end - start);
        (slots, start) = (rest, end);
        part
    })
    .collect()
}

// The counts of pre-tokens, by slot.

/// Equally frequent pre-tokens form a group of adjacent slots, the most frequent first.
#[derive(Default)]
pub struct Groups {
    /// First slot of each group, ascending. The number of slots fits into 32 bits.
    starts: Vec<u32>,
    /// Count of each group, descending.
    counts: Vec<u64>,
    /// Group of the first slot of each run of [`SLOTS_PER_HINT`] slots.
    hints: Vec<u32>,
}

/// Bytes per group without hints.
pub const GROUP_BYTES: u64 = 12;
/// Bytes per hint.
pub const HINT_BYTES: u64 = 4;
pub const SLOTS_PER_HINT: usize = 256;

impl Groups {
    pub fn with_capacity(n_groups: usize) -> Self {
        Self { starts: Vec::with_capacity(n_groups), counts: Vec::with_capacity(n_groups), hints: Vec::new() }
    }

    pub fn n_groups(&self) -> usize {
        self.starts.len()
    }

    /// Adds a group, unless the last group has the same count.
    pub fn push(&mut self, start: usize, count: u64) {
        if self.counts.last() != Some(&count) {
            self.starts.push(start as u32);
            self.counts.push(count);
        }
    }

    /// First slots and counts.
    pub fn iter(&self) -> impl Iterator<Item = (usize, u64)> {
        self.starts.iter().map(|&start| start as usize).zip(self.counts.iter().copied())
    }

    /// Builds the hints that [`Groups::at`] needs, once all groups are there.
    pub fn set_hints(&mut self, n_slots: usize) {
        let hinted = (0..n_slots + SLOTS_PER_HINT).step_by(SLOTS_PER_HINT);
        self.hints = Vec::with_capacity(hinted.len());
        let mut group = 0;
        for start in hinted {
            while group + 1 < self.starts.len() && self.starts[group + 1] as usize <= start {
                group += 1;
            }
            self.hints.push(group as u32);
        }
    }

    /// The count of the pre-token at a slot, and the slot where the next group begins.
    #[inline]
    pub fn at(&self, slot: usize) -> (u64, usize) {
        let hint = slot / SLOTS_PER_HINT;
        let (first, last) = (self.hints[hint] as usize, self.hints[hint + 1] as usize);
        let group = first + self.starts[first + 1..=last].partition_point(|&start| start as usize <= slot);
        (self.counts[group], self.starts.get(group + 1).map_or(usize::MAX, |&start| start as usize))
    }

    /// The groups in a range of slots, clipped to the range, with their counts.
    pub fn within(&self, range: Range<usize>) -> impl Iterator<Item = (Range<usize>, u64)> {
        let first = self.starts.partition_point(|&start| start as usize <= range.start).saturating_sub(1);
        (first..self.starts.len())
            .map(move |group| {
                let end = self.starts.get(group + 1).map_or(range.end, |&next| (next as usize).min(range.end));
                ((self.starts[group] as usize).max(range.start)..end, self.counts[group])
            })
            .take_while(|(slots, _)| !slots.is_empty())
    }
}

// The contents of a slot: 16 bits while symbols fit, 32 bits afterwards.

/// A slot of one or two 16-bit halves: [`Narrow`] or [`Wide`].
pub trait Slot: Copy + PartialEq + Send + Sync {
    /// Precedes each pre-token and follows the last one.
    const SEPARATOR: Self;
    /// Fills the slots between the first and the last slot of a token.
    const FILLER: Self;
    /// Number of symbols that a slot can hold.
    const MAX_SYMBOLS: usize;

    /// The first slot of a token.
    fn first(symbol: u32) -> Self;

    /// The last slot of a token that takes at least two slots.
    fn last(symbol: u32) -> Self;

    /// The symbol in the first or last slot of a token. For a separator, a number of at least [`Slot::MAX_SYMBOLS`].
    fn symbol(self) -> u32;

    /// True for the first slot of a token and for separators.
    fn is_start(self) -> bool;

    /// Views stored halves as slots.
    fn view(halves: &[u16]) -> &[Self];

    /// Views stored halves as slots.
    fn view_mut(halves: &mut [u16]) -> &mut [Self];
}

/// For up to 32,766 symbols.
pub type Narrow = [u16; 1];
/// For up to 2,147,483,646 symbols.
pub type Wide = [u16; 2];

/// Flag of the last slot of a token that takes at least two slots. Separator and filler have it, too.
const LAST: u16 = 1 << 15;

/// The low half comes first.
impl<const W: usize> Slot for [u16; W] {
    const SEPARATOR: Self = [u16::MAX; W];
    const FILLER: Self = {
        let mut filler = Self::SEPARATOR;
        filler[0] -= 1;
        filler
    };
    // The two greatest numbers are excluded: with the flag they would equal the separator and the filler.
    const MAX_SYMBOLS: usize = if cfg!(test) && W == 1 { 300 } else { (1 << (16 * W - 1)) - 2 };

    #[inline]
    fn first(symbol: u32) -> Self {
        let mut slot = [0; W];
        for (part, half) in slot.iter_mut().enumerate() {
            *half = (symbol >> (16 * part)) as u16;
        }
        slot
    }

    #[inline]
    fn last(symbol: u32) -> Self {
        let mut slot = Self::first(symbol);
        slot[W - 1] |= LAST;
        slot
    }

    #[inline]
    fn symbol(mut self) -> u32 {
        self[W - 1] &= !LAST;
        self.iter().rev().fold(0, |symbol, &half| symbol << 16 | u32::from(half))
    }

    #[inline]
    fn is_start(self) -> bool {
        self[W - 1] < LAST || self == Self::SEPARATOR
    }

    #[inline]
    fn view(halves: &[u16]) -> &[Self] {
        halves.as_chunks().0
    }

    #[inline]
    fn view_mut(halves: &mut [u16]) -> &mut [Self] {
        halves.as_chunks_mut().0
    }
}

#[cfg(test)]
#[path = "tests/slot.rs"]
mod tests;
