//! BPE-dropout: encoding in which each merge is left out by chance.
//!
//! Provilkov et al., "BPE-Dropout: Simple and Effective Subword Regularization", ACL 2020: in every step of merging a pre-token, each merge
//! that is possible is left out with probability p, and the first of the others happens; merging ends when none is left. That is to go
//! through the possible merges in their order and to take the first that is not left out.

use super::encoder::{Allowed, Encoder};
use super::id::{Id, check_width};
use crate::bpe::heap::{lookup, merge_with_heap};
use crate::error::{Error, Result};
use crate::special::Segment;
use crate::sys::interrupt::Interrupt;

/// Pseudo-random numbers of SplitMix64 (Steele et al., "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, from 0 to 1, which is excluded.
    pub fn next_f64(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

impl Encoder {
    /// Appends ids of `text`, each merge being left out with the given probability. Whole pre-tokens are not looked up.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the smallest tokens are characters or pre-tokens change before they are merged; as [`Encoder::encode`].
    pub fn encode_with_dropout<T: Id>(
        &self,
        text: &str,
        allowed: Allowed,
        probability: f64,
        seed: u64,
        out: &mut Vec<T>,
        interrupt: Interrupt,
    ) -> Result<()> {
        check_width::<T>(self.vocab().n_ids())?;
        if self.vocab().leftovers().is_some() || !self.shape.is_plain() || self.vocab().is_ranked() {
            return Err(Error::Invalid("dropout needs byte-level BPE with merges".to_owned()));
        }
        if matches!(allowed, Allowed::Refused) {
            self.refuse_special(text)?;
        }
        let mut random = Random::new(seed);
        let mut symbols = Vec::new();
        self.recognized(allowed).segments(text, true, interrupt, |segment| match segment {
            Segment::Special(id) => {
                out.push(T::narrow(id));
                Ok(())
            }
            Segment::Text(text) => {
                let mut splits = self.pattern().splits(text);
                let (mut ends, mut done) = (Vec::new(), 0);
                while splits.fill(&mut ends)? {
                    let mut start = splits.block_start(done);
                    for &end in ends.iter() {
                        symbols.clear();
                        let takes = |_| random.next_f64() >= probability;
                        merge_with_heap(
                            &text.as_bytes()[start..end],
                            lookup(self.vocab().pairs()),
                            &mut symbols,
                            takes,
                            interrupt,
                        )?;
                        out.try_reserve(symbols.len()).map_err(|_| Error::memory::<T>(out.len() + symbols.len()))?;
                        out.extend(symbols.iter().map(|&symbol| T::narrow(self.vocab().symbol_id(symbol))));
                        start = end;
                    }
                    done = start;
                    interrupt()?;
                }
                Ok(())
            }
        })
    }
}

#[cfg(test)]
#[path = "tests/dropout.rs"]
mod tests;
