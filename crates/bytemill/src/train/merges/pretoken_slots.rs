//! Pre-tokens in slots, and how often each one occurs.
//!
//! All unique pre-tokens are stored in one array with one slot per byte and a separator before each. A token takes the
//! slots of the bytes it was merged from: the first holds its symbol, the last (if there are several) its symbol with a
//! flag, the others a filler. The next token is found by the width of this one, the previous token by the slot
//! before, and a merge writes three slots without moving anything.
//!
//! [`PretokenSlots::compact`] gives every token one slot again and drops pre-tokens that have become one token.

use super::groups::Groups;
use super::learn::PretokenSource;
use super::slot::{Narrow, Slot, Wide};
use crate::error::{Error, Result};
use crate::sys::hash::PairBuild;
use crate::sys::interrupt::Interrupt;
use crate::train::count::{Counts, Group};
use crate::train::interrupt_period::InterruptPeriod;
use crate::train::parts::map_parts;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Slots between two interrupt checks.
const SLOTS_PER_CHECK: usize = if cfg!(test) { 1 << 6 } else { 1 << 20 };

/// Fewer slots than this are not worth a thread.
const MIN_PART_SLOTS: usize = if cfg!(test) { 1 << 4 } else { 1 << 16 };

/// Upper bound on the bytes of [`Counts`] per pre-token, in addition to its own bytes.
const PRETOKEN_BYTES: u64 = 24;

/// Number of slots for each count.
#[derive(Default)]
pub struct Sizes {
    slots_of: BTreeMap<u64, u64>,
    /// Bytes of the source that the memory limit includes.
    pub source_bytes: u64,
}

impl Sizes {
    /// Visits `source` once.
    pub fn of(source: &mut dyn PretokenSource, interrupt: Interrupt) -> Result<Self> {
        let mut sizes = Self::default();
        let mut checks = InterruptPeriod::new(interrupt, SLOTS_PER_CHECK);
        source.visit(&mut |pretoken, count| {
            if is_counted(pretoken, count) {
                *sizes.slots_of.entry(count).or_insert(0) += 1 + pretoken.len() as u64;
                checks.advance(1 + pretoken.len())?;
            }
            Ok(())
        })?;
        Ok(sizes)
    }

    /// The sizes of counts in memory, which are grouped by count already.
    pub fn of_counts(counts: &Counts) -> Self {
        let slots_of = |group: &Group| (group.count, (group.n_bytes + group.n_pretokens) as u64);
        let source_bytes = counts.n_unique_bytes() as u64 + PRETOKEN_BYTES * counts.n_unique() as u64;
        Self { slots_of: counts.groups().iter().map(slots_of).collect(), source_bytes }
    }

    /// A slot per byte, a separator before each pre-token and one after the last.
    pub fn n_slots(&self) -> u64 {
        1 + self.slots_of.values().sum::<u64>()
    }

    /// Number of different counts.
    pub fn n_groups(&self) -> u64 {
        self.slots_of.len() as u64
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
        let n_slots = check_n_slots(sizes.n_slots())?;
        let mut groups = Groups::with_capacity(sizes.slots_of.len());
        // The slots of each count that are still free.
        let mut free: HashMap<u64, Range<usize>, PairBuild> = HashMap::default();
        let mut start = 0;
        for (&count, &n_slots) in sizes.slots_of.iter().rev() {
            groups.push(start, count);
            let end = start + n_slots as usize;
            free.insert(count, start..end);
            start = end;
        }
        let mut halves = vec![0; n_slots];
        let slots = Narrow::view_mut(&mut halves);
        slots[n_slots - 1] = Narrow::SEPARATOR;
        let changed = || Error::Invalid("the counted pre-tokens changed while they were read".to_owned());
        let mut checks = InterruptPeriod::new(interrupt, SLOTS_PER_CHECK);
        let mut n_written = 1;
        source.visit(&mut |pretoken, count| {
            if is_counted(pretoken, count) {
                let free = free.get_mut(&count).ok_or_else(changed)?;
                let end = free.start + 1 + pretoken.len();
                if end > free.end {
                    return Err(changed());
                }
                write_pretoken(&mut slots[free.start..end], pretoken);
                free.start = end;
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
        let parts = self.parts::<S>(n_threads);
        let (slots, groups) = self.slots_mut::<S>();
        let mut rest = &mut *slots;
        let slices = parts.iter().filter_map(|part| rest.split_off_mut(..part.len())).collect();
        let compacted = map_parts(slices, n_threads, interrupt, |part, slots, interrupt| {
            let part = parts[part].clone();
            let mut new_groups = Groups::with_capacity(groups.within(part.clone()).count());
            let mut checks = InterruptPeriod::new(interrupt, SLOTS_PER_CHECK);
            let mut out = 0;
            for (group, count) in groups.within(part.clone()) {
                checks.advance(group.len())?;
                let (start, group) = (out, group.start - part.start..group.end - part.start);
                out = compact_pretokens(slots, group, out, merge.map(|merge| merge.map(S::first)));
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

/// Moves the tokens of whole pre-tokens to `out`, one slot each, and returns the end. With `merge`, merges a and b into c.
fn compact_pretokens<S: Slot>(
    slots: &mut [S],
    pretokens: Range<usize>,
    mut out: usize,
    merge: Option<[S; 3]>,
) -> usize {
    let mut start = out;
    for at in pretokens {
        let slot = slots[at];
        if slot == S::SEPARATOR {
            out = without_single_token(start, out);
            start = out;
        } else if let Some([a, b, c]) = merge
            && slot == b
            && slots[out - 1] == a
        {
            // c differs from a, so the first two of `a a a` are merged.
            slots[out - 1] = c;
            continue;
        }
        // Slots that do not start a token are overwritten by the next one.
        slots[out] = slot;
        out += usize::from(slot.is_start());
    }
    without_single_token(start, out)
}

/// The end of the output if its last pre-token, `start..out`, is dropped when it is a separator and one token.
fn without_single_token(start: usize, out: usize) -> usize {
    if out - start == 2 { start } else { out }
}
