//! Documents and words that come packed.

use super::Counter;
use crate::cutter::Cutter;
use crate::error::{Error, Result};
use crate::pulse::Pulse;
use crate::tally::Table;

impl Counter {
    /// Counts documents that lie one after the other in `text` and end at `ends`.
    ///
    /// Where `is_open`, the last one goes on with the first one of the next call.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the ends do not ascend to the end of the text, or are inside characters; as
    /// [`Counter::add_text`].
    pub fn add_documents(&mut self, text: &str, ends: &[i64], is_open: bool, pulse: Pulse) -> Result<()> {
        let wrong = || Error::Invalid("the ends of the documents do not fit their text".to_owned());
        if ends.last().is_some_and(|&end| usize::try_from(end) != Ok(text.len())) || ends.is_empty() && !text.is_empty()
        {
            return Err(wrong());
        }
        let mut start = 0;
        for (index, &end) in ends.iter().enumerate() {
            let end = usize::try_from(end).map_err(|_| wrong())?;
            let document = text.get(start..end).ok_or_else(wrong)?;
            start = end;
            let goes_on = is_open && index + 1 == ends.len();
            if goes_on || index == 0 && !self.open.is_empty() {
                self.add_open(document, pulse)?;
                if !goes_on {
                    self.end_open(pulse)?;
                }
            } else {
                self.add_text(document, pulse)?;
            }
        }
        Ok(())
    }

    /// Takes a piece of a document, and counts as much of what has come of it as is sure to stay the same.
    fn add_open(&mut self, piece: &str, pulse: Pulse) -> Result<()> {
        self.open.push_str(piece);
        self.n_bytes += piece.len() as u64;
        if self.open.len() < self.enough.max(self.chunk_bytes) {
            return pulse();
        }
        let cut = {
            let shared = &*self.shared;
            Cutter { pattern: &shared.pattern, special: &shared.special }.cut_stream(&self.open)
        };
        if let Some(cut) = cut {
            let rest = self.open.split_off(cut);
            let sure = std::mem::replace(&mut self.open, rest);
            self.add_whole(&sure, pulse)?;
        }
        // Where nothing can be cut, looking again is worth while only when there is twice as much.
        self.enough = 2 * self.open.len();
        Ok(())
    }

    /// Counts what is left of a document that has come to its end.
    pub(super) fn end_open(&mut self, pulse: Pulse) -> Result<()> {
        let rest = std::mem::take(&mut self.open);
        self.enough = 0;
        self.add_whole(&rest, pulse)
    }

    /// Counts words that were counted before, each as many as its count times `weight`.
    ///
    /// `words` calls what it is given with every word and its count.
    ///
    /// # Errors
    /// [`Error::Invalid`] where a product is 2⁶⁴ or more; what `words` gives, and [`Error::Output`].
    pub fn add_words(
        &mut self,
        words: impl FnOnce(&mut dyn FnMut(&[u8], u64) -> Result<()>) -> Result<()>,
        weight: u64,
        pulse: Pulse,
    ) -> Result<()> {
        let shared = &*self.shared;
        let table = self.own.get_or_insert_with(Table::new);
        let mut n_weighted = 0u128;
        words(&mut |word, count| {
            let overflow =
                || Error::Invalid("the counts are too large: with their weights they add up to 2^64".to_owned());
            let weighted = count.checked_mul(weight).ok_or_else(overflow)?;
            n_weighted += u128::from(weighted);
            // Before the sum of all can overflow, that of one word cannot have.
            if n_weighted >= 1 << 64 {
                return Err(overflow());
            }
            table.add_bytes(word, weighted, shared.seed);
            if shared.table_bytes < usize::MAX
                && table.is_full(shared.table_bytes)
                && shared.spill.write(table, false, pulse)?
            {
                table.clear(shared.table_bytes);
            }
            Ok(())
        })?;
        if let Ok(mut all) = shared.n_weighted.lock() {
            *all += n_weighted;
            if *all >= 1 << 64 {
                return Err(Error::Invalid(
                    "the counts are too large: with their weights they add up to 2^64".to_owned(),
                ));
            }
        }
        Ok(())
    }
}
