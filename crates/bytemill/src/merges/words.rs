//! The words that merges are made in: slots, and how often each word occurs.

use super::parts::for_each_part;
use crate::count::Counts;
use crate::error::{Error, Result};
use crate::pulse::Pulse;
use std::ops::Range;

/// Stands before each word and behind the last.
pub const SEPARATOR: u32 = u32::MAX;
/// Stands between the first and the last slot of a token.
pub const FILLER: u32 = u32::MAX - 1;
/// Marks the last slot of a token of two slots or more; separator and filler have it too.
pub const LAST: u32 = 1 << 31;

/// Slots of a pass between two questions to the caller whether to go on.
pub const SLOTS_A_PULSE: usize = if cfg!(test) { 1 << 6 } else { 1 << 20 };

/// Fewer slots than this are not worth a thread.
const SLOTS_A_PART: usize = if cfg!(test) { 1 << 4 } else { 1 << 16 };

/// Unique pre-tokens, the most frequent first, in slots.
pub struct Words {
    pub slots: Vec<u32>,
    pub groups: Groups,
}

/// Where the words of each count begin.
#[derive(Default)]
pub struct Groups {
    /// First slot of the words of each count, ascending.
    starts: Vec<u32>,
    /// The counts, falling.
    counts: Vec<u64>,
    /// For each run of 256 slots, the place in `starts` of its first slot.
    hints: Vec<u32>,
}

impl Groups {
    fn push(&mut self, start: usize, count: u64) {
        if self.counts.last() != Some(&count) {
            self.starts.push(start as u32);
            self.counts.push(count);
        }
    }

    fn set_hints(&mut self, n_slots: usize) {
        self.hints.clear();
        let mut hint = 0;
        for start in (0..n_slots + 256).step_by(256) {
            while hint + 1 < self.starts.len() && self.starts[hint + 1] as usize <= start {
                hint += 1;
            }
            self.hints.push(hint as u32);
        }
    }

    /// How often the word at a place occurs, and the place where words that occur less often begin.
    #[inline]
    pub fn at(&self, place: usize) -> (u64, usize) {
        let (first, last) = (self.hints[place >> 8] as usize, self.hints[(place >> 8) + 1] as usize);
        let group = first + self.starts[first + 1..=last].partition_point(|&start| start as usize <= place);
        (self.counts[group], self.starts.get(group + 1).map_or(usize::MAX, |&start| start as usize))
    }

    /// The groups that lie in a range of slots, cut to the range, with their counts.
    fn within(&self, range: Range<usize>) -> impl Iterator<Item = (Range<usize>, u64)> {
        let first = self.starts.partition_point(|&start| start as usize <= range.start).saturating_sub(1);
        (first..self.starts.len())
            .map(move |group| {
                let end = self.starts.get(group + 1).map_or(range.end, |&next| (next as usize).min(range.end));
                ((self.starts[group] as usize).max(range.start)..end, self.counts[group])
            })
            .take_while(|(slots, _)| !slots.is_empty())
    }
}

impl Words {
    /// The words of `counts`, a slot a byte.
    pub fn new(counts: &Counts, n_threads: usize, pulse: Pulse) -> Result<Self> {
        let n_slots = counts.n_unique_bytes() + counts.n_unique() + 1;
        if n_slots > u32::MAX as usize {
            return Err(Error::Invalid(format!(
                "the unique pre-tokens are {} bytes together; at most 4 GiB are supported: give special tokens that \
                 separate the documents, or another pattern",
                counts.n_unique_bytes()
            )));
        }
        let mut groups = Groups::default();
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
        let mut slots = vec![0; n_slots];
        slots[n_slots - 1] = SEPARATOR;
        part_starts.push((counts.n_unique(), n_slots - 1));
        let ends = part_starts[1..].iter().map(|&(_, start)| start);
        for_each_part(split(&mut slots, ends), n_threads, pulse, |part, slots, pulse| {
            let (words, mut at) = (part_starts[part].0..part_starts[part + 1].0, 0);
            let mut next_pulse = SLOTS_A_PULSE;
            for (word, _) in counts.range(words) {
                if at >= next_pulse {
                    pulse()?;
                    next_pulse = at + SLOTS_A_PULSE;
                }
                slots[at] = SEPARATOR;
                let end = at + 1 + word.len();
                for (slot, &byte) in slots[at + 1..end].iter_mut().zip(word) {
                    *slot = u32::from(byte);
                }
                at = end;
            }
            Ok(())
        })?;
        Ok(Self { slots, groups })
    }

    /// Ranges of whole words, for each of which a thread is worth while; each begins with a separator.
    pub fn parts(&self, n_threads: usize) -> Vec<Range<usize>> {
        let (end, part_slots) = (self.slots.len() - 1, part_slots(self.slots.len(), n_threads));
        let mut parts = Vec::new();
        let mut start = 0;
        while start < end {
            let wanted = (start + part_slots).min(end);
            let next = (wanted..end).find(|&at| self.slots[at] == SEPARATOR).unwrap_or(end);
            parts.push(start..next);
            start = next;
        }
        parts
    }

    /// Calls `each` with every slot but the first of a part, the one before it, its place, and its word's count.
    ///
    /// Tokens have one slot each; separators are among what `each` sees.
    pub fn for_each_slot(
        &self,
        part: Range<usize>,
        pulse: Pulse,
        mut each: impl FnMut(usize, u32, u32, u64),
    ) -> Result<()> {
        let mut before = SEPARATOR;
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
                for (place, &symbol) in (start..).zip(&self.slots[start..end]) {
                    each(place, before, symbol, count);
                    before = symbol;
                }
                start = end;
            }
        }
        Ok(())
    }

    /// Gives every token one slot and drops words that are one token, in which nothing is left to merge.
    pub fn compact(&mut self, n_threads: usize, pulse: Pulse) -> Result<()> {
        let parts = self.parts(n_threads);
        let groups = &self.groups;
        let slices = split(&mut self.slots, parts.iter().map(|part| part.end));
        let compacted = for_each_part(slices, n_threads, pulse, |part, slots, pulse| {
            let base = parts[part].start;
            let mut new_groups = Groups::default();
            let (mut out, mut since_pulse) = (0, 0);
            for (group, count) in groups.within(parts[part].clone()) {
                since_pulse += group.len();
                if since_pulse >= SLOTS_A_PULSE {
                    pulse()?;
                    since_pulse = 0;
                }
                let start = out;
                out = compact_words(slots, group.start - base..group.end - base, out);
                if out > start {
                    new_groups.push(start, count);
                }
            }
            Ok((out, new_groups))
        })?;
        let mut end = 0;
        let mut all = Groups::default();
        for (part, (n_slots, groups)) in parts.iter().zip(compacted) {
            self.slots.copy_within(part.start..part.start + n_slots, end);
            for (start, count) in groups.starts.iter().zip(groups.counts) {
                all.push(end + *start as usize, count);
            }
            end += n_slots;
        }
        self.slots[end] = SEPARATOR;
        self.slots.truncate(end + 1);
        self.slots.shrink_to_fit();
        all.set_hints(self.slots.len());
        self.groups = all;
        Ok(())
    }
}

/// Moves the tokens of whole words to `out` and on, one slot each; gives where they end.
fn compact_words(slots: &mut [u32], words: Range<usize>, mut out: usize) -> usize {
    let mut word_start = out;
    for at in words {
        let slot = slots[at];
        if slot == SEPARATOR {
            // A separator and one token: that word is done with.
            if out - word_start == 2 {
                out = word_start;
            }
            word_start = out;
        }
        // The first slot of a token goes on; what follows in it is overwritten.
        slots[out] = slot;
        out += usize::from(slot < LAST || slot == SEPARATOR);
    }
    if out - word_start == 2 { word_start } else { out }
}

fn part_slots(n_slots: usize, n_threads: usize) -> usize {
    n_slots.div_ceil(n_threads.max(1)).max(SLOTS_A_PART)
}

/// The slices of `slots` that end at `ends`.
fn split(mut slots: &mut [u32], ends: impl Iterator<Item = usize>) -> Vec<&mut [u32]> {
    let mut start = 0;
    ends.map(|end| {
        let (part, rest) = std::mem::take(&mut slots).split_at_mut(end - start);
        (slots, start) = (rest, end);
        part
    })
    .collect()
}
