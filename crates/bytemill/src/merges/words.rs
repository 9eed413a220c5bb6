//! The words that merges are made in: slots, and how often each word occurs.

use super::WordSource;
use super::groups::Groups;
use super::parts::for_each_part;
use super::slot::{Narrow, Slot, Wide};
use crate::count::Counts;
use crate::error::{Error, Result};
use crate::hash::PairBuild;
use crate::pulse::Pulse;
use std::collections::HashMap;
use std::ops::Range;

/// Slots of a pass between two questions to the caller whether to go on.
pub const SLOTS_A_PULSE: usize = if cfg!(test) { 1 << 6 } else { 1 << 20 };

/// Fewer slots than this are not worth a thread.
const SLOTS_A_PART: usize = if cfg!(test) { 1 << 4 } else { 1 << 16 };

/// Unique pre-tokens, the most frequent first, in slots.
pub struct Words {
    /// The slots, of 16 or 32 bits.
    stored: Vec<u16>,
    is_wide: bool,
    pub groups: Groups,
}

/// How many words there are of each count.
pub struct Sizes {
    /// Slots of the words of each count.
    slots_of: HashMap<u64, u64, PairBuild>,
    n_slots: u64,
}

impl Sizes {
    /// The sizes of what `source` gives.
    pub fn of(source: &mut dyn WordSource, pulse: Pulse) -> Result<Self> {
        let mut sizes = Self { slots_of: HashMap::default(), n_slots: 1 };
        let mut next_pulse = 0;
        source.visit(&mut |word, count| {
            if is_needed(word, count) {
                let n_slots = word.len() as u64 + 1;
                *sizes.slots_of.entry(count).or_insert(0) += n_slots;
                sizes.n_slots += n_slots;
                if sizes.n_slots >= next_pulse {
                    pulse()?;
                    next_pulse = sizes.n_slots + SLOTS_A_PULSE as u64;
                }
            }
            Ok(())
        })?;
        Ok(sizes)
    }

    pub fn n_slots(&self) -> u64 {
        self.n_slots
    }

    pub fn n_groups(&self) -> usize {
        self.slots_of.len()
    }
}

/// False of words without a pair.
fn is_needed(word: &[u8], count: u64) -> bool {
    word.len() > 1 && count > 0
}

impl Words {
    /// The words of `counts`, a slot a byte.
    pub fn new(counts: &Counts, n_threads: usize, pulse: Pulse) -> Result<Self> {
        let n_slots = check_n_slots(super::n_slots(counts))?;
        let mut groups = Groups::with_capacity(n_groups(counts));
        let part_slots = part_slots(n_slots, n_threads);
        let mut part_starts = vec![(0, 0)];
        let mut start = 0;
        for (index, (word, count)) in counts.iter().enumerate() {
            if start >= part_slots * part_starts.len() {
                part_starts.push((index, start));
            }
            groups.push(start, count);
            start += 1 + word.len();
        }
        groups.set_hints(n_slots);
        let mut stored = vec![0; n_slots];
        Narrow::of_mut(&mut stored)[n_slots - 1] = Narrow::SEPARATOR;
        part_starts.push((counts.n_unique(), n_slots - 1));
        let ends = part_starts[1..].iter().map(|&(_, start)| start);
        for_each_part(split(Narrow::of_mut(&mut stored), ends), n_threads, pulse, |part, slots, pulse| {
            let (words, mut at) = (part_starts[part].0..part_starts[part + 1].0, 0);
            let mut next_pulse = SLOTS_A_PULSE;
            for (word, _) in counts.range(words) {
                if at >= next_pulse {
                    pulse()?;
                    next_pulse = at + SLOTS_A_PULSE;
                }
                let end = at + 1 + word.len();
                write_word(&mut slots[at..end], word);
                at = end;
            }
            Ok(())
        })?;
        Ok(Self { stored, is_wide: false, groups })
    }

    /// The words of `source`, whose sizes are known: each goes behind those of the same count that came before it.
    pub fn from_source(source: &mut dyn WordSource, sizes: Sizes, pulse: Pulse) -> Result<Self> {
        let n_slots = check_n_slots(sizes.n_slots)?;
        let mut groups = Groups::with_capacity(sizes.n_groups());
        let mut by_count: Vec<(u64, u64)> = sizes.slots_of.into_iter().collect();
        by_count.sort_unstable_by_key(|&(count, _)| std::cmp::Reverse(count));
        // Where the next word of each count goes, and where those of the count end.
        let mut free: HashMap<u64, Range<usize>, PairBuild> = HashMap::default();
        let mut start = 0;
        for (count, slots) in by_count {
            groups.push(start, count);
            let end = start + slots as usize;
            free.insert(count, start..end);
            start = end;
        }
        groups.set_hints(n_slots);
        let mut stored = vec![0; n_slots];
        let slots = Narrow::of_mut(&mut stored);
        slots[n_slots - 1] = Narrow::SEPARATOR;
        let changed = || Error::Invalid("the counted pre-tokens were changed while they were read".to_owned());
        let (mut n_written, mut next_pulse) = (1, 0);
        source.visit(&mut |word, count| {
            if is_needed(word, count) {
                let free = free.get_mut(&count).filter(|free| free.len() > word.len()).ok_or_else(changed)?;
                let end = free.start + 1 + word.len();
                write_word(&mut slots[free.start..end], word);
                free.start = end;
                n_written += 1 + word.len();
                if n_written >= next_pulse {
                    pulse()?;
                    next_pulse = n_written + SLOTS_A_PULSE;
                }
            }
            Ok(())
        })?;
        if n_written != n_slots {
            return Err(changed());
        }
        Ok(Self { stored, is_wide: false, groups })
    }

    pub fn is_wide(&self) -> bool {
        self.is_wide
    }

    #[inline]
    pub fn slots<S: Slot>(&self) -> &[S] {
        debug_assert_eq!(size_of::<S>(), self.slot_bytes());
        S::of(&self.stored)
    }

    /// The slots, and with them the groups, which stay as they are.
    #[inline]
    pub fn slots_mut<S: Slot>(&mut self) -> (&mut [S], &Groups) {
        debug_assert_eq!(size_of::<S>(), self.slot_bytes());
        (S::of_mut(&mut self.stored), &self.groups)
    }

    pub fn slot_bytes(&self) -> usize {
        if self.is_wide { size_of::<Wide>() } else { size_of::<Narrow>() }
    }

    pub fn n_slots(&self) -> usize {
        self.stored.len() * size_of::<u16>() / self.slot_bytes()
    }

    /// Ranges of whole words, for each of which a thread is worth while; each begins with a separator.
    pub fn parts<S: Slot>(&self, n_threads: usize) -> Vec<Range<usize>> {
        let slots = self.slots::<S>();
        let (end, part_slots) = (slots.len() - 1, part_slots(slots.len(), n_threads));
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

    /// Calls `each` with every slot but the first of a part: its place, the slot before it, itself, and its word's count.
    ///
    /// Tokens have one slot each; separators are among what `each` sees.
    pub fn for_each_slot<S: Slot>(
        &self,
        part: Range<usize>,
        pulse: Pulse,
        mut each: impl FnMut(usize, S, S, u64),
    ) -> Result<()> {
        let slots = self.slots::<S>();
        let mut before = S::SEPARATOR;
        let mut since_pulse = 0;
        for (group, count) in self.groups.within(part) {
            let mut start = group.start;
            while start < group.end {
                let end = group.end.min(start + SLOTS_A_PULSE);
                since_pulse += end - start;
                if since_pulse >= SLOTS_A_PULSE {
                    pulse()?;
                    since_pulse = 0;
                }
                for (place, &slot) in (start..).zip(&slots[start..end]) {
                    each(place, before, slot, count);
                    before = slot;
                }
                start = end;
            }
        }
        Ok(())
    }

    /// Gives every token one slot and drops words that are one token, in which nothing is left to merge.
    ///
    /// Joins a pair on the way, where one is given with the symbol that it becomes; then tokens have one slot already.
    pub fn compact<S: Slot>(&mut self, join: Option<[u32; 3]>, n_threads: usize, pulse: Pulse) -> Result<()> {
        let parts = self.parts::<S>(n_threads);
        let (slots, groups) = self.slots_mut::<S>();
        let slices = split(slots, parts.iter().map(|part| part.end));
        let compacted = for_each_part(slices, n_threads, pulse, |part, slots, pulse| {
            let base = parts[part].start;
            let mut new_groups = Groups::with_capacity(groups.within(parts[part].clone()).count());
            let (mut out, mut since_pulse) = (0, 0);
            for (group, count) in groups.within(parts[part].clone()) {
                since_pulse += group.len();
                if since_pulse >= SLOTS_A_PULSE {
                    pulse()?;
                    since_pulse = 0;
                }
                let (start, group) = (out, group.start - base..group.end - base);
                out = match join {
                    None => compact_words(slots, group, out),
                    Some(join) => join_in_words(slots, group, out, join.map(S::first)),
                };
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
        self.stored.truncate((end + 1) * self.slot_bytes() / size_of::<u16>());
        self.stored.shrink_to_fit();
        self.groups = Groups::default();
        all.set_hints(end + 1);
        self.groups = all;
        Ok(())
    }

    /// Gives each slot 32 bits; tokens have one slot each.
    ///
    /// The slots are moved within the memory that they have and as much again: the last first, so none is overwritten before it
    /// has moved.
    pub fn widen(&mut self) {
        let n_slots = self.n_slots();
        self.stored.reserve_exact(n_slots);
        self.stored.resize(2 * n_slots, 0);
        for place in (0..n_slots).rev() {
            let narrow = Narrow::of(&self.stored)[place];
            let wide = if narrow == Narrow::SEPARATOR { Wide::SEPARATOR } else { Wide::first(narrow.symbol()) };
            Wide::of_mut(&mut self.stored)[place] = wide;
        }
        self.is_wide = true;
    }
}

/// Number of different counts.
pub fn n_groups(counts: &Counts) -> usize {
    let mut last = None;
    counts.iter().filter(|&(_, count)| last.replace(count) != Some(count)).count()
}

fn check_n_slots(n_slots: u64) -> Result<usize> {
    match u32::try_from(n_slots) {
        Ok(n_slots) => Ok(n_slots as usize),
        Err(_) => Err(Error::Invalid(format!(
            "the unique pre-tokens are {n_slots} bytes together; at most 4 GiB are supported: give special tokens that \
             separate the documents, or another pattern"
        ))),
    }
}

/// Puts a word, a separator before it, into slots of its own.
fn write_word(slots: &mut [Narrow], word: &[u8]) {
    slots[0] = Narrow::SEPARATOR;
    for (slot, &byte) in slots[1..].iter_mut().zip(word) {
        *slot = Narrow::first(u32::from(byte));
    }
}

/// Moves the tokens of whole words to `out` and on, one slot each; gives where they end.
fn compact_words<S: Slot>(slots: &mut [S], words: Range<usize>, mut out: usize) -> usize {
    let mut word_start = out;
    for at in words {
        let slot = slots[at];
        if slot == S::SEPARATOR {
            // A separator and one token: that word is done with.
            if out - word_start == 2 {
                out = word_start;
            }
            word_start = out;
        }
        // The first slot of a token goes on; what follows in it is overwritten.
        slots[out] = slot;
        out += usize::from(slot.stays());
    }
    if out - word_start == 2 { word_start } else { out }
}

/// As [`compact_words`] of tokens that have one slot each, and joins a to b on the way, which is c.
fn join_in_words<S: Slot>(slots: &mut [S], words: Range<usize>, mut out: usize, [a, b, c]: [S; 3]) -> usize {
    let mut word_start = out;
    for at in words {
        let slot = slots[at];
        if slot == S::SEPARATOR {
            if out - word_start == 2 {
                out = word_start;
            }
            word_start = out;
        } else if slot == b && slots[out - 1] == a {
            // Neither is c, so of `a a a` the first two are joined.
            slots[out - 1] = c;
            continue;
        }
        slots[out] = slot;
        out += 1;
    }
    if out - word_start == 2 { word_start } else { out }
}

fn part_slots(n_slots: usize, n_threads: usize) -> usize {
    n_slots.div_ceil(n_threads.max(1)).max(SLOTS_A_PART)
}

/// The slices of `slots` that end at `ends`.
fn split<S>(mut slots: &mut [S], ends: impl Iterator<Item = usize>) -> Vec<&mut [S]> {
    let mut start = 0;
    ends.map(|end| {
        let (part, rest) = std::mem::take(&mut slots).split_at_mut(end - start);
        (slots, start) = (rest, end);
        part
    })
    .collect()
}
