//! Pre-tokens that the cache does not know.
//!
//! To find out the ids of one is to wait for memory several times over. So they are put off, with the places in the
//! output where their ids belong, until there are many: then each question goes to all of them before the first answer
//! is needed, and they are merged in lockstep. At last what stands behind them in the output makes room.

use super::workspace::Workspace;
use super::{Encoder, Id};
use crate::bpe::{GROUP, merge_group};
use crate::error::Result;
use crate::hash::Packed;
use crate::pulse::Pulse;
use std::ops::Range;

/// So many are many. Twice as many, or half, made no difference.
const MANY: usize = 64;

/// Long pre-tokens of fewer bytes than this are merged in lockstep.
const MEDIUM: usize = 32;

#[derive(Default)]
pub struct Misses {
    all: Vec<Miss>,
    /// The ids that have been found out, miss by miss in any order.
    ids: Vec<u32>,
    /// Misses to be merged: those of up to 15 bytes, and those of up to 31.
    short: Vec<u32>,
    medium: Vec<u32>,
}

struct Miss {
    what: What,
    /// Its place in the output.
    at: usize,
    /// Its ids in `Misses::ids`.
    ids: Range<usize>,
}

enum What {
    Short { key: Packed, hash: u64 },
    Long { range: Range<usize>, place: usize },
}

impl Misses {
    #[inline]
    pub fn add_short(&mut self, at: usize, key: Packed, hash: u64) {
        self.all.push(Miss { what: What::Short { key, hash }, at, ids: 0..0 });
    }

    pub fn add_long(&mut self, at: usize, range: Range<usize>) {
        self.all.push(Miss { what: What::Long { range, place: 0 }, at, ids: 0..0 });
    }

    #[inline]
    pub fn are_many(&self) -> bool {
        self.all.len() >= MANY
    }

    pub fn clear(&mut self) {
        self.all.clear();
    }

    /// Puts all ids where they belong in `out`, from the last miss to the first: what lies behind each is moved once.
    fn insert_into<T: Id>(&mut self, out: &mut Vec<T>) {
        let mut end = out.len();
        let mut to = end + self.ids.len();
        out.resize(to, T::default());
        for miss in self.all.drain(..).rev() {
            let n_behind = end - miss.at;
            out.copy_within(miss.at..end, to - n_behind);
            to -= n_behind + miss.ids.len();
            for (place, &id) in out[to..].iter_mut().zip(&self.ids[miss.ids]) {
                *place = T::narrow(id);
            }
            end = miss.at;
        }
    }
}

impl Encoder {
    /// Finds out the ids of all that the cache did not know, and remembers them.
    #[inline(never)]
    pub(super) fn resolve<T: Id>(
        &self,
        workspace: &mut Workspace,
        text: &[u8],
        out: &mut Vec<T>,
        pulse: Pulse,
    ) -> Result<()> {
        let Workspace { cache, misses, symbols, .. } = workspace;
        if misses.all.is_empty() {
            return Ok(());
        }
        for miss in &mut misses.all {
            match &mut miss.what {
                // Asked for when it was noted down.
                What::Short { .. } => {}
                What::Long { range, place } => *place = cache.prefetch_long(&text[range.clone()]),
            }
        }
        misses.ids.clear();
        misses.short.clear();
        misses.medium.clear();
        for (index, miss) in misses.all.iter_mut().enumerate() {
            let first = misses.ids.len();
            match &miss.what {
                What::Short { key, hash } => {
                    if let Some(id) = self.words.get(*key, *hash) {
                        misses.ids.push(id);
                        cache.insert(*key, *hash, &[id]);
                    } else if let Some(known) = cache.get_many(*key, *hash) {
                        misses.ids.extend_from_slice(known);
                    } else {
                        misses.short.push(index as u32);
                    }
                }
                What::Long { range, place } => {
                    let pretoken = &text[range.clone()];
                    if let Some(known) = cache.get_long(pretoken, *place) {
                        misses.ids.extend_from_slice(known);
                    } else if pretoken.len() < MEDIUM && !self.vocab.whole_pretoken_lookup() {
                        misses.medium.push(index as u32);
                    } else {
                        self.encode_pretoken(pretoken, symbols, &mut misses.ids, pulse)?;
                        cache.insert_long(pretoken, *place, &misses.ids[first..]);
                    }
                }
            }
            miss.ids = first..misses.ids.len();
        }
        self.merge_misses(workspace, text);
        workspace.misses.insert_into(out);
        Ok(())
    }

    /// Merges those that must be, and remembers them.
    fn merge_misses(&self, workspace: &mut Workspace, text: &[u8]) {
        let Workspace { cache, misses: Misses { all, ids, short, medium }, .. } = workspace;
        let symbol_ids = self.vocab.symbol_ids();
        let keep = |ids: &mut Vec<u32>, symbols: &[u32]| {
            let first = ids.len();
            ids.extend(symbols.iter().map(|&symbol| symbol_ids[symbol as usize]));
            first..ids.len()
        };
        for group in short.chunks(MANY) {
            let bytes = |index: usize, bytes: &mut [u8; 16]| match &all[group[index] as usize].what {
                What::Short { key, .. } => {
                    *bytes = key.bytes();
                    key.n_bytes()
                }
                What::Long { .. } => 0,
            };
            let mut found: [Range<usize>; MANY] = [const { 0..0 }; MANY];
            merge_group::<16, GROUP>(&self.pairs, group.len(), bytes, |index, symbols| {
                found[index] = keep(ids, symbols)
            });
            for (&index, found) in group.iter().zip(found) {
                let miss = &mut all[index as usize];
                if let What::Short { key, hash } = &miss.what {
                    cache.insert(*key, *hash, &ids[found.clone()]);
                }
                miss.ids = found;
            }
        }
        for group in medium.chunks(MANY) {
            let bytes = |index: usize, bytes: &mut [u8; 32]| match &all[group[index] as usize].what {
                What::Long { range, .. } => {
                    bytes[..range.len()].copy_from_slice(&text[range.clone()]);
                    range.len()
                }
                What::Short { .. } => 0,
            };
            let mut found: [Range<usize>; MANY] = [const { 0..0 }; MANY];
            merge_group::<32, GROUP>(&self.pairs, group.len(), bytes, |index, symbols| {
                found[index] = keep(ids, symbols)
            });
            for (&index, found) in group.iter().zip(found) {
                let miss = &mut all[index as usize];
                if let What::Long { range, place } = &miss.what {
                    cache.insert_long(&text[range.clone()], *place, &ids[found.clone()]);
                }
                miss.ids = found;
            }
        }
    }
}
