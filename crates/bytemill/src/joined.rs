//! Ids of many parts, joined in their order as they are done.

use crate::huge::{Pages, unite};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Ids of texts that follow each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoded<T> {
    /// The ids of all texts.
    pub ids: Vec<T>,
    /// Where those of each text end.
    pub ends: Vec<usize>,
}

impl<T: Copy + Default> Encoded<T> {
    fn append(&mut self, behind: &Self, pages: &mut Pages, large: bool) {
        let n_before = self.ids.len();
        if self.ids.capacity() - n_before < behind.ids.len() {
            unite(&mut self.ids);
            self.ids.reserve(behind.ids.len());
        }
        pages.take(&mut self.ids, behind.ids.len(), large);
        self.ids.extend_from_slice(&behind.ids);
        self.ends.extend(behind.ends.iter().map(|end| n_before + end));
    }
}

/// Joins parts as they are done.
///
/// The thread that has the first part of those not yet joined writes it where it belongs, from when it is the first on, and then
/// copies what others have done ahead of it. Their memory is used again: memory that is touched for the first time costs a fifth of
/// what encoding into it does.
pub struct Joined<T> {
    state: Mutex<State<T>>,
}

struct State<T> {
    /// The first `n_parts` parts; `None` while a thread writes behind them.
    front: Option<Encoded<T>>,
    n_parts: usize,
    /// Parts that are done before one ahead of them.
    waiting: BTreeMap<usize, Encoded<T>>,
    /// Memory for parts to come.
    spare: Vec<Encoded<T>>,
    /// Where the memory of `front` comes from as parts are copied there; with who has it.
    pages: Pages,
}

impl<T> State<T> {
    /// Keeps the memory of a part that has been copied.
    fn keep(&mut self, mut part: Encoded<T>) {
        part.ids.clear();
        part.ends.clear();
        self.spare.push(part);
    }
}

/// Where the ids of a part are to be appended.
pub struct Room<T> {
    pub encoded: Encoded<T>,
    part: usize,
    is_front: bool,
}

impl<T: Copy + Default> Joined<T> {
    /// No parts yet; `front` is empty, with room for all.
    pub fn new(front: Encoded<T>) -> Self {
        let state = State {
            front: Some(front),
            n_parts: 0,
            waiting: BTreeMap::new(),
            spare: Vec::new(),
            pages: Pages::default(),
        };
        Self { state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Nothing panics between two changes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for a part, which goes to [`Joined::add`] when it is done.
    pub fn room(&self, part: usize) -> Room<T> {
        let mut state = self.lock();
        if part == state.n_parts
            && let Some(front) = state.front.take()
        {
            return Room { encoded: front, part, is_front: true };
        }
        let encoded = state.spare.pop().unwrap_or_else(|| Encoded { ids: Vec::new(), ends: Vec::new() });
        Room { encoded, part, is_front: false }
    }

    /// Has what is yet to come of a part written where it belongs, if all parts before it are joined by now.
    ///
    /// To be called now and then. Who takes a part seldom finds all before it joined, so that 97 to 99 % of
    /// two threads' ids were copied without it. Copies go to small pages alone, or to `large` ones too.
    pub fn come_forward(&self, room: &mut Room<T>, large: bool) {
        if room.is_front {
            return;
        }
        let mut state = self.lock();
        if room.part != state.n_parts {
            return;
        }
        let Some(mut front) = state.front.take() else { return };
        let mut pages = std::mem::take(&mut state.pages);
        drop(state);
        front.append(&room.encoded, &mut pages, large);
        let begun = std::mem::replace(&mut room.encoded, front);
        room.is_front = true;
        let mut state = self.lock();
        state.pages = pages;
        state.keep(begun);
    }

    /// Adds a part that is done. Every part from 0 on is to be added once. Copies go to small pages alone, or to `large` ones too.
    pub fn add(&self, room: Room<T>, large: bool) {
        let mut state = self.lock();
        let mut front = room.encoded;
        if room.is_front {
            state.n_parts += 1;
        } else {
            state.waiting.insert(room.part, front);
            // Whoever has the front comes across this part when it gives it back.
            let Some(taken) = state.front.take() else { return };
            front = taken;
        }
        let mut pages = std::mem::take(&mut state.pages);
        loop {
            let n_parts = state.n_parts;
            let Some(next) = state.waiting.remove(&n_parts) else { break };
            drop(state);
            front.append(&next, &mut pages, large);
            state = self.lock();
            state.n_parts += 1;
            state.keep(next);
        }
        (state.front, state.pages) = (Some(front), pages);
    }

    /// All of them, if these are the first `n_parts` and are joined; to one caller only.
    pub fn take(&self, n_parts: usize) -> Option<Encoded<T>> {
        let mut state = self.lock();
        if state.n_parts == n_parts { state.front.take() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_part_comes_forward_when_all_before_it_are_joined() {
        let joined = Joined::<u16>::new(Encoded::default());
        let (first, mut second) = (joined.room(0), joined.room(1));
        second.encoded.ids.push(7);
        joined.come_forward(&mut second, true);
        assert!(first.is_front && !second.is_front);
        joined.add(first, true);
        joined.come_forward(&mut second, true);
        assert!(second.is_front);
        assert_eq!(second.encoded.ids, [7]);
    }

    proptest! {
        #[test]
        fn parts_are_joined_in_order_however_their_work_overlaps(
            parts in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u16>(), 0..4), 0..4), 0..12),
            choices in prop::collection::vec(any::<prop::sample::Index>(), 24),
            n_at_once in 1usize..5,
        ) {
            let joined = Joined::new(Encoded::default());
            // With how many texts of the part are done.
            let mut at_work: Vec<(Room<u16>, usize)> = Vec::new();
            let mut begun = 0;
            for choice in choices.iter().cycle().take(1000) {
                if begun < parts.len() && at_work.len() < n_at_once {
                    at_work.push((joined.room(begun), 0));
                    begun += 1;
                } else if !at_work.is_empty() {
                    let index = choice.index(at_work.len());
                    let (room, n_done) = &mut at_work[index];
                    if let Some(text) = parts[room.part].get(*n_done) {
                        joined.come_forward(room, *n_done % 2 == 0);
                        room.encoded.ids.extend(text);
                        room.encoded.ends.push(room.encoded.ids.len());
                        *n_done += 1;
                    } else {
                        joined.add(at_work.swap_remove(index).0, index % 2 == 0);
                    }
                }
            }
            prop_assert_eq!(joined.take(parts.len() + 1), None);
            let all = joined.take(parts.len()).unwrap();
            let texts: Vec<Vec<u16>> = parts.into_iter().flatten().collect();
            let mut expected = Encoded::default();
            for text in &texts {
                expected.ids.extend(text);
                expected.ends.push(expected.ids.len());
            }
            prop_assert_eq!(all, expected);
            prop_assert_eq!(joined.take(0), None);
        }
    }
}
