//! What a thread needs to encode, and the two passes that most pre-tokens need: hash, look up.

use super::HUGE;
use super::exchange::{Exchange, Teller};
use super::misses::Misses;
use crate::cache::{Cache, Known, LONGEST_IDS, SHORT_IDS};
use crate::hash::{PACKED_BYTES, Packed};
use crate::huge::Pages;
use crate::mix::{Mix, MixWork};
use crate::pretokenize::BLOCK;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// Long pre-tokens of more bytes than this are not cut into pieces: the keys of a block must not grow with the text.
const MOST_TO_CUT: usize = 1 << 12;

/// Reused from call to call, with what it has learnt.
pub struct Workspace {
    pub cache: Cache,
    /// Where the pre-tokens of the block end.
    pub ends: Vec<usize>,
    /// The pre-tokens of the block, or pieces of them: bytes of the short ones, [`Packed::NO_KEY`] for others.
    keys: Vec<Packed>,
    /// The keys mixed, which tells their places in the cache; 0 where there is none.
    mixed: Vec<u32>,
    /// Where those others are, and what tells their places in the cache.
    long: Vec<(Range<usize>, u32)>,
    /// How many of `keys` and of `long` have been looked up.
    n_done: (usize, usize),
    pub misses: Misses,
    /// Ids that wait until the questions among them are answered.
    pub ids: Vec<u32>,
    /// What other threads are told of what this one finds out.
    pub teller: Teller,
    pub symbols: Vec<u32>,
    /// How many ids the result had before the text.
    pub n_before: usize,
    /// Where the result's memory comes from.
    pub pages: Pages,
    /// Bytes encoded since the caller was last asked whether to go on.
    pub since_pulse: usize,
}

impl Default for Workspace {
    fn default() -> Self {
        Self {
            cache: Cache::default(),
            ends: Vec::with_capacity(BLOCK),
            keys: Vec::with_capacity(BLOCK),
            mixed: Vec::with_capacity(BLOCK),
            long: Vec::new(),
            n_done: (0, 0),
            misses: Misses::default(),
            ids: Vec::new(),
            teller: Teller::default(),
            symbols: Vec::with_capacity(256),
            n_before: 0,
            pages: Pages::default(),
            since_pulse: 0,
        }
    }
}

impl Workspace {
    /// Packs and mixes the pre-tokens of the block, which begins at `start`, and asks for their entries in the cache.
    ///
    /// `cut` calls the function it is given with the places at which a long pre-token may be cut.
    #[inline(never)]
    pub fn hash(&mut self, text: &[u8], start: usize, cut: impl Fn(&[u8], &mut dyn FnMut(usize))) {
        self.keys.clear();
        self.mixed.clear();
        self.long.clear();
        self.n_done = (0, 0);
        self.cache.mixing().run(Hash { workspace: self, text, start, cut });
    }

    /// Appends the ids of the block's pre-tokens to those that wait, or questions where the cache knows none.
    ///
    /// Stops at a huge pre-token and gives it; the next call goes on behind it.
    #[inline(never)]
    pub fn look_up(&mut self, text: &[u8]) -> Option<Range<usize>> {
        let Self { cache, keys, mixed, long, n_done, misses, ids, .. } = self;
        let (keys, mixed) = (&keys[n_done.0..], &mixed[n_done.0..]);
        // An entry is copied whole, whatever the number of its ids.
        ids.reserve(keys.len() * SHORT_IDS + (long.len() - n_done.1) * LONGEST_IDS);
        let before = ids.len();
        let spare = ids.spare_capacity_mut();
        let mut filled = 0;
        let mut huge = None;
        let mut rest = keys.iter().zip(mixed);
        'all: loop {
            let first = cache.first();
            let (key, mixed) = loop {
                let Some((&key, &mixed)) = rest.next() else { break 'all };
                let Some((ids, n_ids)) = first.get(key, mixed) else { break (key, mixed) };
                // SAFETY: there is room for `SHORT_IDS` more for each key, and `LONGEST_IDS` for each of the long ones; none before
                // this one has taken more.
                let room = unsafe { spare.get_unchecked_mut(filled..filled + SHORT_IDS) };
                room.copy_from_slice(&ids.map(MaybeUninit::new));
                filled += n_ids;
            };
            // SAFETY: as above.
            let room = unsafe { spare.get_unchecked_mut(filled..filled + SHORT_IDS) };
            if key != Packed::NO_KEY {
                filled += other(cache, misses, key, mixed, before + filled, room);
            } else {
                let (range, hash) = &long[n_done.1];
                n_done.1 += 1;
                if range.len() > HUGE {
                    n_done.0 += keys.len() - rest.len();
                    huge = Some(range.clone());
                    break;
                }
                if let Some(ids) = cache.get_long(text, range, *hash) {
                    for (place, &id) in spare[filled..filled + ids.len()].iter_mut().zip(ids) {
                        place.write(id);
                    }
                    filled += ids.len();
                } else {
                    room[0].write(misses.add_long(range.clone(), *hash, before + filled));
                    filled += 1;
                }
            }
        }
        if huge.is_none() {
            n_done.0 += keys.len();
        }
        // SAFETY: the first `filled` places of the spare capacity have been written: for a short one all `SHORT_IDS` of its room, of
        // which at most as many are counted, and for a long one as many as are counted.
        unsafe { ids.set_len(before + filled) };
        huge
    }

    /// Forgets what waits, and the questions.
    pub fn forget(&mut self) {
        self.ids.clear();
        self.misses.forget(&mut self.cache);
    }
}

/// One workspace a thread that encodes at the same time; they stay, with what they have learnt.
#[derive(Default)]
pub struct Workspaces {
    state: Mutex<State>,
    have_grown: AtomicBool,
    pub exchange: Exchange,
}

#[derive(Default)]
struct State {
    #[expect(clippy::vec_box, reason = "a workspace changes hands twice for each text, however short")]
    idle: Vec<Box<Workspace>>,
    /// How many there are, with those at work: as many as there ever were threads at the same time.
    n_made: usize,
}

impl Workspaces {
    /// One to work with, an idle one if there is any.
    pub fn take(&self) -> Box<Workspace> {
        let Ok(mut state) = self.state.lock() else { return Box::default() };
        let idle = state.idle.pop();
        state.n_made += usize::from(idle.is_none());
        let n_made = state.n_made;
        drop(state);
        let mut workspace =
            idle.unwrap_or_else(|| Box::new(Workspace { teller: Teller::new(n_made), ..Workspace::default() }));
        workspace.teller.set_alone(n_made == 1);
        workspace
    }

    /// Whether the tables of one have the size that they stay at: no other memory is to take large pages before.
    pub fn have_grown(&self) -> bool {
        self.have_grown.load(Relaxed)
    }

    /// To be called with what [`Workspaces::take`] gave, also after an error.
    pub fn put_back(&self, mut workspace: Box<Workspace>) {
        workspace.forget();
        if workspace.cache.is_grown() {
            self.have_grown.store(true, Relaxed);
        }
        if let Ok(mut state) = self.state.lock() {
            state.idle.push(workspace);
        }
    }
}

/// Puts the ids of a short pre-token into `room` that is not the first entry in its place, or a question for them, which will
/// stand in this place among the ids that wait. Gives how many numbers that is.
///
/// A function of its own, so that the loop that calls it for three of a hundred keeps its own few numbers in registers.
#[cold]
#[inline(never)]
fn other(
    cache: &mut Cache,
    misses: &mut Misses,
    key: Packed,
    mixed: u32,
    place: usize,
    room: &mut [MaybeUninit<u32>],
) -> usize {
    let question = match cache.get_other(key, mixed) {
        Some(Known::Ids(ids, n_ids)) => {
            room.copy_from_slice(&ids.map(MaybeUninit::new));
            return n_ids;
        }
        Some(Known::Question(question)) => {
            misses.stands_at(place, question);
            question
        }
        None => {
            let hash = key.hash();
            let question = misses.add_short(key, mixed, hash, place);
            // It would drive out what is there, and, if its ids are many, stay no longer than its question.
            if !cache.may_be_of_many(hash) {
                cache.insert_question(key, mixed, question);
            }
            question
        }
    };
    room.copy_from_slice(&[MaybeUninit::new(question); SHORT_IDS]);
    1
}

/// The work of [`Workspace::hash`].
struct Hash<'w, 't, C> {
    workspace: &'w mut Workspace,
    text: &'t [u8],
    start: usize,
    cut: C,
}

impl<C: Fn(&[u8], &mut dyn FnMut(usize))> MixWork for Hash<'_, '_, C> {
    #[inline(always)]
    fn run(self, mix: impl Mix) {
        let Self { workspace: Workspace { cache, ends, keys, mixed, long, .. }, text, mut start, cut } = self;
        let short = cache.prefetcher();
        let mut ends = ends.as_slice();
        while !ends.is_empty() {
            let known = keys.len();
            keys.reserve(ends.len());
            mixed.reserve(ends.len());
            let mut n_short = 0;
            let mut from = start;
            let places = keys.spare_capacity_mut().iter_mut().zip(mixed.spare_capacity_mut());
            for ((key, mixed), &end) in places.zip(ends) {
                if end - from > PACKED_BYTES {
                    break;
                }
                short.prefetch(*mixed.write(pack(mix, text, from, end, key)));
                from = end;
                n_short += 1;
            }
            start = from;
            // SAFETY: so many places of the spare capacity have been written, of both.
            unsafe {
                keys.set_len(known + n_short);
                mixed.set_len(known + n_short);
            }
            ends = &ends[n_short..];
            if let Some((&end, others)) = ends.split_first() {
                let pretoken = &text[start..end];
                let mut add = |start: usize, end: usize| {
                    let mut key = MaybeUninit::new(Packed::NO_KEY);
                    if end - start > PACKED_BYTES {
                        let range = start..end;
                        let hash = cache.prefetch_long(text, &range);
                        long.push((range, hash));
                        mixed.push(0);
                    } else {
                        let place = pack(mix, text, start, end, &mut key);
                        short.prefetch(place);
                        mixed.push(place);
                    }
                    // SAFETY: it has been written, at first if not by `pack`.
                    keys.push(unsafe { key.assume_init() });
                };
                let mut from = start;
                if pretoken.len() <= MOST_TO_CUT {
                    cut(pretoken, &mut |at| {
                        add(from, start + at);
                        from = start + at;
                    });
                }
                add(from, end);
                start = end;
                ends = others;
            }
        }
    }
}

/// Packs `text[start..end]`, at most [`PACKED_BYTES`] of them, into `key` and mixes it.
///
/// One load of 16 bytes where the text goes on that far, which it does for all but its last pre-tokens.
#[inline(always)]
fn pack(mix: impl Mix, text: &[u8], start: usize, end: usize, key: &mut MaybeUninit<Packed>) -> u32 {
    if start < (text.len() + 1).saturating_sub(16) {
        // SAFETY: `start` + 16 is at most the length of the text.
        mix.pack(unsafe { &*text.as_ptr().add(start).cast() }, end - start, key)
    } else {
        let mut sixteen = [0; 16];
        sixteen[..end - start].copy_from_slice(&text[start..end]);
        mix.pack(&sixteen, end - start, key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_teller_knows_whether_there_are_others() {
        let workspaces = Workspaces::default();
        for _ in 0..2 {
            let alone = workspaces.take();
            assert!(!alone.teller.has_others());
            workspaces.put_back(alone);
        }
        let (first, second) = (workspaces.take(), workspaces.take());
        assert!(second.teller.has_others());
        workspaces.put_back(first);
        workspaces.put_back(second);
        // From now on, though at times only one of two is at work, as between two documents.
        assert!(workspaces.take().teller.has_others());
    }
}
