//! Pre-tokens that the cache does not know.
//!
//! To find out the ids of one is to wait for memory several times over. So they are put off until there are many: then each
//! table is asked ahead of time, and they are merged in lockstep. Until then a question, a number that is no id, stands for the
//! ids of each, among the ids that wait and in the cache too: what comes twice is asked once.
//!
//! Every branch that nobody foresees costs as much as a merge does, so what is decided for each pre-token is decided by numbers.

use super::exchange::Teller;
use super::workspace::Workspace;
use super::{Encoder, Id};
use crate::bpe::{GROUP, merge_group};
use crate::cache::{Cache, SHORT_IDS};
use crate::error::Result;
use crate::hash::Packed;
use crate::huge::unite;
use crate::pulse::Pulse;
use crate::vocab::Vocab;
use std::mem::MaybeUninit;
use std::ops::Range;

/// So many are many: no number from 64 to 1,024 was clearly better.
const MANY: usize = 256;

/// Long pre-tokens of fewer bytes than this are merged in lockstep.
const MEDIUM: usize = 32;

/// From this on numbers are no ids but questions. (Ids are less than sixteen times as many as there are tokens.)
const QUESTION: u32 = 1 << 31;

#[derive(Default)]
pub struct Misses {
    short: Vec<Short>,
    long: Vec<Long>,
    answers: Answers,
    /// Where questions stand among the ids that wait, in this order, and which.
    standing: Vec<(u32, u32)>,
    /// Of `short`, those that may be in a table, and those to be merged; of `long`, those to be merged.
    known: Vec<u32>,
    unknown: Vec<u32>,
    medium: Vec<u32>,
}

struct Short {
    key: Packed,
    hash: u64,
    mixed: u32,
    question: u32,
}

struct Long {
    range: Range<usize>,
    hash: u32,
    question: u32,
}

#[derive(Default)]
struct Answers {
    /// Of each question, where its answer begins in `ids`, and how many ids it has.
    places: Vec<(u32, u32)>,
    /// The answers, in any order.
    ids: Vec<u32>,
}

impl Answers {
    /// A question more.
    fn ask(&mut self) -> u32 {
        self.places.push((0, 0));
        QUESTION | (self.places.len() - 1) as u32
    }

    /// Says that the answer is what stands in `ids` from `start` on.
    fn end(&mut self, question: u32, start: usize) {
        self.places[(question - QUESTION) as usize] = (start as u32, (self.ids.len() - start) as u32);
    }

    /// How many ids the answer has.
    #[inline]
    fn n_ids(&self, question: u32) -> usize {
        self.places[(question - QUESTION) as usize].1 as usize
    }

    /// The answer, with what stands behind it.
    #[inline]
    fn get(&self, question: u32) -> &[u32] {
        &self.ids[self.places[(question - QUESTION) as usize].0 as usize..]
    }
}

/// So many ids are copied at once, also where fewer are wanted: nobody foresees how many are.
const AT_ONCE: usize = 16;

/// The room behind a result.
struct Room<'o, T> {
    spare: &'o mut [MaybeUninit<T>],
    n_filled: usize,
}

impl<T: Id> Room<'_, T> {
    /// Fills it with the first `n` of `ids`, and writes what stands behind them in the room behind.
    ///
    /// # Panics
    /// If there are not so many, or is not so much room.
    #[inline]
    fn fill(&mut self, ids: &[u32], n: usize) {
        let room = &mut self.spare[self.n_filled..];
        let mut done = 0;
        while done < n {
            if let (Some(ids), Some(room)) = (ids[done..].first_chunk::<AT_ONCE>(), room[done..].first_chunk_mut()) {
                *room = ids.map(|id| MaybeUninit::new(T::narrow(id)));
                done += AT_ONCE;
            } else {
                for (place, &id) in room[done..n].iter_mut().zip(&ids[done..n]) {
                    place.write(T::narrow(id));
                }
                break;
            }
        }
        self.n_filled += n;
    }
}

impl Misses {
    /// Notes down a short pre-token and gives the question, which stands in this place among the ids that wait.
    pub fn add_short(&mut self, key: Packed, mixed: u32, hash: u64, place: usize) -> u32 {
        let question = self.answers.ask();
        self.short.push(Short { key, hash, mixed, question });
        self.stands_at(place, question);
        question
    }

    /// Notes down a longer pre-token and gives the question, which stands in this place among the ids that wait.
    pub fn add_long(&mut self, range: Range<usize>, hash: u32, place: usize) -> u32 {
        let question = self.answers.ask();
        self.long.push(Long { range, hash, question });
        self.stands_at(place, question);
        question
    }

    /// Notes down that a question stands in this place too.
    pub fn stands_at(&mut self, place: usize, question: u32) {
        self.standing.push((place as u32, question));
    }

    #[inline]
    pub fn are_many(&self) -> bool {
        self.answers.places.len() >= MANY
    }

    fn clear(&mut self) {
        self.short.clear();
        self.long.clear();
        self.answers.places.clear();
        self.answers.ids.clear();
        self.standing.clear();
    }

    /// Forgets all questions, and has the cache forget them.
    pub fn forget(&mut self, cache: &mut Cache) {
        for Short { key, mixed, .. } in &self.short {
            cache.remove_question(*key, *mixed);
        }
        self.clear();
    }

    /// Finds out which of the short ones may be in a table; the others are to be merged.
    fn tell_apart(&mut self, may_be_known: impl Fn(u64) -> bool) {
        let Self { short, known, unknown, .. } = self;
        known.resize(short.len(), 0);
        unknown.resize(short.len(), 0);
        let (mut n_known, mut n_unknown) = (0, 0);
        for (index, Short { hash, .. }) in (0..).zip(&*short) {
            let may_be_known = may_be_known(*hash);
            known[n_known] = index;
            unknown[n_unknown] = index;
            n_known += usize::from(may_be_known);
            n_unknown += usize::from(!may_be_known);
        }
        known.truncate(n_known);
        unknown.truncate(n_unknown);
    }
}

impl Workspace {
    /// Moves the ids that have waited to `out`, with the answers in the places of the questions. They are of a text of `n_bytes`.
    fn answer<T: Id>(&mut self, n_bytes: usize, out: &mut Vec<T>) {
        let Self { cache, ends, ids, misses, pages, n_before, .. } = self;
        if ids.is_empty() {
            // Nothing waits; and a result that is full already must not be moved to a larger place for nothing.
            return misses.clear();
        }
        let Misses { standing, answers, .. } = misses;
        let n_answered: usize = standing.iter().map(|&(_, question)| answers.n_ids(question)).sum();
        let n_more = ids.len() - standing.len() + n_answered + AT_ONCE;
        if out.capacity() - out.len() < n_more {
            let n_done = ends.last().copied().unwrap_or(n_bytes);
            make_room(out, n_more, out.len() - *n_before, n_done, n_bytes - n_done);
        }
        // Of large pages that are quick to come there are often but some, and the cache gains more by them.
        pages.take(out, n_more, cache.is_grown());
        let n_there = out.len();
        let mut room = Room { spare: out.spare_capacity_mut(), n_filled: 0 };
        let mut from = 0;
        for &(place, question) in &*standing {
            let place = place as usize;
            room.fill(&ids[from..], place - from);
            room.fill(answers.get(question), answers.n_ids(question));
            from = place + 1;
        }
        room.fill(&ids[from..], ids.len() - from);
        let n_filled = room.n_filled;
        // SAFETY: so much has been filled, from the front on.
        unsafe { out.set_len(n_there + n_filled) };
        ids.clear();
        misses.clear();
    }
}

/// Has a result that is full grow, by `n_more` ids and by what the rest of the text will need if it goes on as it began, with `n_ids`
/// for `n_done` bytes: to grow twice is to be moved twice, by a third of the time that encoding takes.
#[cold]
fn make_room<T>(out: &mut Vec<T>, n_more: usize, n_ids: usize, n_done: usize, n_left: usize) {
    let expected = (n_ids + n_more).saturating_mul(n_left) / n_done.max(1);
    let more = n_more + expected + expected / 32;
    unite(out);
    // As when it doubles, what is moved in all is in proportion to what there is.
    if more >= out.len() / 4 {
        out.reserve_exact(more);
    } else {
        out.reserve(n_more);
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
        let Workspace { cache, misses, teller, symbols, .. } = workspace;
        self.find_short(cache, misses, teller);
        self.merge_short(cache, misses, teller);
        self.find_long(cache, misses, text, symbols, pulse)?;
        self.merge_medium(cache, misses, text);
        workspace.answer(text.len(), out);
        self.workspaces.exchange.exchange(&mut workspace.teller, &mut workspace.cache);
        workspace.cache.grow();
        Ok(())
    }

    /// Answers with what tables know of short pre-tokens.
    fn find_short(&self, cache: &mut Cache, misses: &mut Misses, teller: &mut Teller) {
        misses.tell_apart(|hash| self.words.may_hold(hash) | cache.may_be_of_many(hash));
        let Misses { short, answers, known, unknown, .. } = misses;
        for &index in &*known {
            let hash = short[index as usize].hash;
            self.words.prefetch(hash);
            cache.prefetch_many(hash);
        }
        for &index in &*known {
            let Short { key, hash, mixed, question } = short[index as usize];
            let start = answers.ids.len();
            if let Some(id) = self.words.get(key, hash) {
                answers.ids.push(id);
                cache.insert(key, mixed, &[id, 0, 0, 0], 1);
                teller.note(key, &[id, 0, 0, 0], 1);
            } else if let Some(ids) = cache.get_many(key, hash) {
                answers.ids.extend_from_slice(ids);
                cache.remove_question(key, mixed);
            } else {
                unknown.push(index);
            }
            answers.end(question, start);
        }
    }

    /// Merges the short pre-tokens that no table knows, and remembers them.
    fn merge_short(&self, cache: &mut Cache, misses: &mut Misses, teller: &mut Teller) {
        let Misses { short, answers, unknown, .. } = misses;
        // They may have left the near caches since it was asked.
        let prefetcher = cache.prefetcher();
        let bytes = |index: usize, bytes: &mut [u8; 16]| {
            let Short { key, mixed, .. } = short[unknown[index] as usize];
            prefetcher.prefetch(mixed);
            *bytes = key.bytes();
            key.n_bytes()
        };
        merge_group::<16, GROUP, _>(&self.perfect, unknown.len(), bytes, |index, symbols, n_symbols| {
            let Short { key, hash, mixed, question } = short[unknown[index] as usize];
            let (start, first) = keep(&self.vocab, answers, question, symbols, n_symbols);
            // Most words are few symbols, and then this is foreseen.
            if n_symbols <= SHORT_IDS {
                cache.insert(key, mixed, &first, n_symbols);
                teller.note(key, &first, n_symbols);
            } else {
                cache.remove_question(key, mixed);
                cache.insert_many(key, hash, &answers.ids[start..]);
            }
        });
    }

    /// Answers with what tables know of longer pre-tokens, and merges the longest that they do not know.
    fn find_long(
        &self,
        cache: &mut Cache,
        misses: &mut Misses,
        text: &[u8],
        symbols: &mut Vec<u32>,
        pulse: Pulse,
    ) -> Result<()> {
        let Misses { long, answers, medium, .. } = misses;
        medium.clear();
        for (index, Long { range, hash, question }) in (0..).zip(&*long) {
            let start = answers.ids.len();
            if let Some(ids) = cache.get_long(text, range, *hash) {
                answers.ids.extend_from_slice(ids);
            } else if range.len() < MEDIUM && !self.vocab.whole_pretoken_lookup() {
                medium.push(index);
            } else {
                self.encode_pretoken(&text[range.clone()], symbols, &mut answers.ids, pulse)?;
                cache.insert_long(text, range, *hash, &answers.ids[start..]);
            }
            answers.end(*question, start);
        }
        Ok(())
    }

    /// Merges the longer pre-tokens that are left, and remembers them.
    fn merge_medium(&self, cache: &mut Cache, misses: &mut Misses, text: &[u8]) {
        let Misses { long, answers, medium, .. } = misses;
        let bytes = |index: usize, bytes: &mut [u8; MEDIUM]| {
            let pretoken = &text[long[medium[index] as usize].range.clone()];
            bytes[..pretoken.len()].copy_from_slice(pretoken);
            pretoken.len()
        };
        merge_group::<MEDIUM, GROUP, _>(&self.perfect, medium.len(), bytes, |index, symbols, n_symbols| {
            let Long { range, hash, question } = &long[medium[index] as usize];
            let (start, _) = keep(&self.vocab, answers, *question, symbols, n_symbols);
            cache.insert_long(text, range, *hash, &answers.ids[start..]);
        });
    }
}

/// Answers a question with symbols. Gives where the answer begins, and its first ids, or what stands in their place where it has
/// fewer.
#[inline]
fn keep<const LANES: usize>(
    vocab: &Vocab,
    answers: &mut Answers,
    question: u32,
    symbols: &[u32; LANES],
    n_symbols: usize,
) -> (usize, [u32; SHORT_IDS]) {
    let start = answers.ids.len();
    let mut first = [0; SHORT_IDS];
    for (id, &symbol) in first.iter_mut().zip(symbols) {
        *id = vocab.symbol_id(symbol);
    }
    answers.ids.extend_from_slice(&first);
    if n_symbols <= SHORT_IDS {
        answers.ids.truncate(start + n_symbols);
    } else {
        let others = &symbols[SHORT_IDS..n_symbols];
        answers.ids.extend(others.iter().map(|&symbol| vocab.symbol_id(symbol)));
    }
    answers.end(question, start);
    (start, first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_result_grows_once_if_the_text_goes_on_as_it_began() {
        // Full after a third of the text, with an id for each byte.
        let mut out = vec![0u32; 10_000];
        make_room(&mut out, 100, 10_000, 10_000, 20_000);
        assert!((30_000..31_000).contains(&out.capacity()), "{}", out.capacity());
        // The results of texts before it say nothing of this one.
        let mut out = vec![0u32; 10_000];
        make_room(&mut out, 100, 900, 1_000, 20_000);
        assert!((30_000..31_000).contains(&out.capacity()), "{}", out.capacity());
    }

    #[test]
    fn a_result_that_is_full_again_and_again_is_moved_seldom() {
        for n_left in [0, 5, 1 << 20] {
            let mut out: Vec<u32> = Vec::new();
            let mut n_moves = 0;
            for n_ids in 0..1_000 {
                if out.capacity() - out.len() < 10 {
                    n_moves += 1;
                    // Next to nothing is expected, however much is left.
                    make_room(&mut out, 10, n_ids % 2, 1 << 50, n_left);
                    assert!(out.capacity() >= out.len() + 10);
                }
                out.extend([7; 10]);
            }
            assert!(n_moves < 40, "{n_moves}");
        }
    }
}
