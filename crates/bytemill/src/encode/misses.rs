//! Pre-tokens that the cache does not know.
//!
//! To find out the ids of one is to wait for memory several times over. So they are put off until there are many: then each
//! table is asked ahead of time, and they are merged in lockstep. Until then a question, a number that is no id, stands for the
//! ids of each, among the ids that wait and in the cache too: what comes twice is asked once.

use super::workspace::Workspace;
use super::{Encoder, Id};
use crate::bpe::{GROUP, merge_group};
use crate::cache::Cache;
use crate::error::Result;
use crate::hash::Packed;
use crate::pulse::Pulse;
use std::ops::Range;

/// So many are many: one in forty pre-tokens of English.
const MANY: usize = 256;

/// Questions of which the tables are asked ahead of time.
const AHEAD: usize = 16;

/// Ids among which questions are looked for at once.
const AT_ONCE: usize = 16;

/// Long pre-tokens of fewer bytes than this are merged in lockstep.
const MEDIUM: usize = 32;

/// From this on numbers are no ids but questions. (Ids are less than sixteen times as many as there are tokens.)
const QUESTION: u32 = 1 << 31;

#[derive(Default)]
pub struct Misses {
    all: Vec<Miss>,
    /// The answers, in any order.
    ids: Vec<u32>,
    /// Misses to be merged: those of up to 15 bytes, and those of up to 31.
    short: Vec<u32>,
    medium: Vec<u32>,
}

struct Miss {
    what: What,
    /// The answer in `Misses::ids`.
    ids: Range<usize>,
}

enum What {
    Short { key: Packed, mixed: u32, hash: u64 },
    Long { range: Range<usize>, place: usize },
}

impl Misses {
    /// Notes down a short pre-token and gives the question.
    pub fn add_short(&mut self, key: Packed, mixed: u32, hash: u64) -> u32 {
        self.add(What::Short { key, mixed, hash })
    }

    /// Notes down a longer pre-token and gives the question.
    pub fn add_long(&mut self, range: Range<usize>) -> u32 {
        self.add(What::Long { range, place: 0 })
    }

    fn add(&mut self, what: What) -> u32 {
        self.all.push(Miss { what, ids: 0..0 });
        QUESTION | (self.all.len() - 1) as u32
    }

    #[inline]
    pub fn are_many(&self) -> bool {
        self.all.len() >= MANY
    }

    /// Appends the answer to a question.
    #[inline]
    fn answer<T: Id>(&self, question: u32, out: &mut Vec<T>) {
        let answer = &self.ids[self.all[(question - QUESTION) as usize].ids.clone()];
        out.extend(answer.iter().map(|&id| T::narrow(id)));
    }

    /// Forgets all questions, and has the cache forget them.
    pub fn forget(&mut self, cache: &mut Cache) {
        for miss in self.all.drain(..) {
            if let What::Short { key, mixed, .. } = miss.what {
                cache.remove(key, mixed);
            }
        }
    }
}

impl Workspace {
    /// Moves the ids that have waited to `out`, with the answers in the places of the questions.
    fn answer<T: Id>(&mut self, out: &mut Vec<T>) {
        let Self { ids, misses, pages, .. } = self;
        pages.take(out, ids.len() + 2 * misses.ids.len());
        out.reserve(ids.len() + 2 * misses.ids.len());
        let mut rest = ids.as_slice();
        while let Some(some) = rest.first_chunk::<AT_ONCE>() {
            out.extend_from_slice(&some.map(T::narrow));
            if some.iter().fold(0, |all, id| all | id) < QUESTION {
                rest = &rest[AT_ONCE..];
                continue;
            }
            let n_known = some.iter().position(|&id| id >= QUESTION).unwrap_or(AT_ONCE - 1);
            out.truncate(out.len() - (AT_ONCE - n_known));
            misses.answer(some[n_known], out);
            rest = &rest[n_known + 1..];
        }
        for &id in rest {
            if id < QUESTION { out.push(T::narrow(id)) } else { misses.answer(id, out) }
        }
        ids.clear();
        misses.all.clear();
    }
}

impl Encoder {
    /// Answers all questions, and moves the ids that have waited for the answers to `out`.
    #[inline(never)]
    pub(super) fn resolve<T: Id>(
        &self,
        workspace: &mut Workspace,
        text: &[u8],
        out: &mut Vec<T>,
        pulse: Pulse,
    ) -> Result<()> {
        let Workspace { cache, misses, symbols, .. } = workspace;
        misses.ids.clear();
        misses.short.clear();
        misses.medium.clear();
        for ahead in 0..misses.all.len() + AHEAD {
            match misses.all.get_mut(ahead).map(|miss| &mut miss.what) {
                Some(What::Short { hash, .. }) => {
                    self.words.prefetch(*hash);
                    cache.prefetch_many(*hash);
                }
                Some(What::Long { range, place }) => *place = cache.prefetch_long(&text[range.clone()]),
                None => {}
            }
            let Some(index) = ahead.checked_sub(AHEAD) else { continue };
            let first = misses.ids.len();
            let miss = &mut misses.all[index];
            match &miss.what {
                What::Short { key, mixed, hash } => {
                    if let Some(id) = self.words.get(*key, *hash) {
                        misses.ids.push(id);
                        cache.replace(*key, *mixed, *hash, &[id]);
                    } else if let Some(known) = cache.get_many(*key, *hash) {
                        misses.ids.extend_from_slice(known);
                        cache.remove(*key, *mixed);
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
        workspace.answer(out);
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
                if let What::Short { key, mixed, hash } = &miss.what {
                    cache.replace(*key, *mixed, *hash, &ids[found.clone()]);
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
