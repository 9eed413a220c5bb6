//! What threads that encode at the same time tell each other: short pre-tokens whose ids they have found out.
//!
//! Of two threads that share a text, each meets as new most of what the other has met already; eight would find out twice as
//! much in sum as one. So each tells what it finds out, many at a time, and takes in what others have told since it last did.
//! It may miss some of that, and never waits for it. Ids do not depend on it: what is told is what the other would find out.

use crate::cache::{Cache, SHORT_IDS, Short};
use crate::hash::Packed;
use std::array;
use std::sync::{Arc, Mutex};

/// Pre-tokens told at a time; twice and half as many made no difference.
const BATCH: usize = 256;

/// Batches that are kept for others. So to take in costs a thread no more than a third of what to find out costs it, however many
/// threads there are: 8 ns for each pre-token, where to find one out is 100 to 180. Of what is taken in, 29 of a hundred spare a thread
/// that (a model with English text, two threads), with 16 threads 12.
const KEPT: usize = 4;

/// Where threads tell each other.
#[derive(Default)]
pub struct Exchange(Mutex<Board>);

#[derive(Default)]
struct Board {
    /// The batches told last: the `n`th ever in place `n % KEPT`.
    batches: [Arc<Batch>; KEPT],
    n_told: usize,
}

#[derive(Default)]
struct Batch {
    teller: usize,
    found: Vec<Short>,
}

/// A thread's side of it, kept with its cache.
#[derive(Default)]
pub struct Teller {
    /// No other has the same.
    number: usize,
    /// Whether there is anybody to be told.
    has_others: bool,
    found: Vec<Short>,
    /// How many batches had been told when it last took some in.
    n_heard: usize,
}

impl Teller {
    /// With a number that no other teller at this exchange has.
    pub fn new(number: usize) -> Self {
        Self { number, ..Self::default() }
    }

    /// Whether other threads encode too.
    pub fn set_alone(&mut self, is_alone: bool) {
        self.has_others = !is_alone;
    }

    /// What [`Teller::set_alone`] said last.
    #[cfg(test)]
    pub fn has_others(&self) -> bool {
        self.has_others
    }

    /// Has others be told that the first `n_ids` of `ids` are those of a pre-token.
    #[inline]
    pub fn note(&mut self, key: Packed, ids: &[u32; SHORT_IDS], n_ids: usize) {
        if self.has_others {
            self.found.push(Short::new(key, ids, n_ids));
        }
    }
}

impl Exchange {
    /// Tells what has been noted, if that is enough, and takes in what others have told. To be called while there are no
    /// questions in the cache.
    #[inline]
    pub fn exchange(&self, teller: &mut Teller, cache: &mut Cache) {
        if teller.found.len() >= BATCH {
            self.tell(teller, cache);
        }
    }

    fn tell(&self, teller: &mut Teller, cache: &mut Cache) {
        let Ok(mut board) = self.0.try_lock() else {
            // Another thread is at it. If it is kept from going on, there may be much more to tell by then.
            return teller.found.truncate(BATCH);
        };
        let Board { batches, n_told } = &mut *board;
        let heard_from = teller.n_heard.max(n_told.saturating_sub(KEPT));
        let others: [_; KEPT] = array::from_fn(|place| {
            let batch = (heard_from..*n_told).nth(place).map(|n| &batches[n % KEPT])?;
            (batch.teller != teller.number).then(|| Arc::clone(batch))
        });
        let batch = Batch { teller: teller.number, found: std::mem::take(&mut teller.found) };
        let oldest = std::mem::replace(&mut batches[*n_told % KEPT], Arc::new(batch));
        *n_told += 1;
        teller.n_heard = *n_told;
        drop(board);
        // Its memory is used again, if nobody is reading it any more.
        if let Ok(Batch { mut found, .. }) = Arc::try_unwrap(oldest) {
            found.clear();
            teller.found = found;
        }
        for batch in others.iter().flatten() {
            cache.take_in(&batch.found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::pack;

    /// A pre-token of its own for each number.
    fn key(number: u32) -> Packed {
        pack(&number.to_le_bytes(), 0, 4)
    }

    /// Two tellers that have each other.
    fn two() -> [(Teller, Cache); 2] {
        [1, 2].map(|number| {
            let mut teller = Teller::new(number);
            teller.set_alone(false);
            (teller, Cache::default())
        })
    }

    fn find_out(exchange: &Exchange, (teller, cache): &mut (Teller, Cache), numbers: std::ops::Range<u32>) {
        for number in numbers {
            teller.note(key(number), &[number, 7, 0, 0], 2);
        }
        exchange.exchange(teller, cache);
    }

    /// How many of the pre-tokens a cache knows.
    fn n_known(cache: &mut Cache, numbers: std::ops::Range<u32>) -> usize {
        let mut n_known = 0;
        for number in numbers {
            let mixed = cache.mixing().mix(key(number));
            if let Some((ids, n_ids)) = cache.first().get(key(number), mixed) {
                assert_eq!(ids[..n_ids], [number, 7]);
                n_known += 1;
            }
        }
        n_known
    }

    #[test]
    fn what_one_finds_out_the_other_knows() {
        let exchange = Exchange::default();
        let [mut first, mut second] = two();
        let n = BATCH as u32;
        find_out(&exchange, &mut first, 0..n - 1);
        find_out(&exchange, &mut second, 10_000..10_000 + n);
        assert_eq!(n_known(&mut second.1, 0..n), 0, "too few to tell");
        find_out(&exchange, &mut first, n - 1..n);
        find_out(&exchange, &mut second, 20_000..20_000 + n);
        // A few are behind another in their place.
        assert!(n_known(&mut second.1, 0..n) > BATCH / 2);
        assert!(n_known(&mut first.1, 10_000..10_000 + n) > BATCH / 2);
        assert_eq!(n_known(&mut first.1, 20_000..20_000 + n), 0, "told later");
        assert_eq!(n_known(&mut first.1, 0..n), 0, "nobody is told what he has told");
    }

    #[test]
    fn who_comes_late_hears_what_was_told_last() {
        let exchange = Exchange::default();
        let [mut first, mut second] = two();
        let n = BATCH as u32;
        for batch in 0..10 {
            find_out(&exchange, &mut first, batch * n..(batch + 1) * n);
        }
        find_out(&exchange, &mut second, 10_000..10_000 + n);
        let kept = KEPT as u32;
        assert_eq!(n_known(&mut second.1, 0..(10 - kept) * n), 0);
        for batch in 10 - kept..10 {
            assert!(n_known(&mut second.1, batch * n..(batch + 1) * n) > BATCH / 4, "{batch}");
        }
    }

    #[test]
    fn who_is_alone_tells_nothing() {
        let exchange = Exchange::default();
        let [mut first, mut second] = two();
        first.0.set_alone(true);
        find_out(&exchange, &mut first, 0..1_000);
        assert_eq!(first.0.found.len(), 0);
        find_out(&exchange, &mut second, 10_000..11_000);
        assert_eq!(n_known(&mut second.1, 0..1_000), 0);
    }

    #[test]
    fn nobody_waits_and_what_is_kept_back_is_bounded() {
        let exchange = Exchange::default();
        let [mut first, _] = two();
        let board = exchange.0.lock().unwrap();
        for batch in 0..10 {
            find_out(&exchange, &mut first, batch * 1_000..(batch + 1) * 1_000);
            assert_eq!(first.0.found.len(), BATCH);
        }
        drop(board);
        find_out(&exchange, &mut first, 0..1);
        assert_eq!(first.0.found.len(), 0);
    }
}
