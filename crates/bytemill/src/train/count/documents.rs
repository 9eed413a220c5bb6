//! Documents in packed batches, and pre-tokens that were counted before.

use super::counter::Counter;
use super::part::sum_too_large;
use super::pretoken_counts::PretokenCounts;
use crate::error::{Error, Result};
use crate::sys::interrupt::Interrupt;
use crate::text::utf8::append;
use crate::train::parts::lock;

impl Counter {
    /// Counts documents that are concatenated in `text` and end at `ends`.
    ///
    /// If `is_open`, the last document continues with the first document of the next call.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the ends do not ascend to the end of the text or split characters; as
    /// [`Counter::add_text`].
    pub fn add_documents(&mut self, text: &str, ends: &[i64], is_open: bool, interrupt: Interrupt) -> Result<()> {
        let wrong = || Error::Invalid("the ends of the documents do not fit their text".to_owned());
        let last_end = ends.last().map_or(Ok(0), |&end| usize::try_from(end));
        if last_end != Ok(text.len()) {
            return Err(wrong());
        }
        let mut start = 0;
        for (index, &end) in ends.iter().enumerate() {
            let end = usize::try_from(end).map_err(|_| wrong())?;
            let document = text.get(start..end).ok_or_else(wrong)?;
            start = end;
            let continues = is_open && index + 1 == ends.len();
            if continues || index == 0 && !self.open.is_empty() {
                self.add_open(document, interrupt)?;
                if !continues {
                    self.end_open(interrupt)?;
                }
            } else {
                self.add_text(document, interrupt)?;
            }
        }
        Ok(())
    }

    /// Appends to the open document, and counts the part whose pre-tokens are final.
    fn add_open(&mut self, text: &str, interrupt: Interrupt) -> Result<()> {
        append(text, &mut self.open)?;
        self.n_bytes += text.len() as u64;
        if self.open.len() < self.next_cut.max(self.chunk_bytes) {
            return interrupt();
        }
        if let Some(cut) = self.cutter().cut_stream(&self.open) {
            let rest = self.open.split_off(cut);
            let finished = std::mem::replace(&mut self.open, rest);
            self.add_whole(&finished, interrupt)?;
        }
        // Try again at twice the length, so that a text without cuts takes linear time.
        self.next_cut = 2 * self.open.len();
        Ok(())
    }

    /// Counts the rest of the open document.
    pub(super) fn end_open(&mut self, interrupt: Interrupt) -> Result<()> {
        let rest = std::mem::take(&mut self.open);
        self.next_cut = 0;
        self.add_whole(&rest, interrupt)
    }

    /// Adds pre-tokens that were counted before. Their counts are multiplied by `weight`.
    ///
    /// `visit` calls its argument with every pre-token and its count.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the weighted counts add up to 2⁶⁴ or more; [`Error::Output`]; errors of `visit`.
    pub fn add_counts(
        &mut self,
        visit: impl FnOnce(&mut dyn FnMut(&[u8], u64) -> Result<()>) -> Result<()>,
        weight: u64,
    ) -> Result<()> {
        let shared = &*self.shared;
        let table = self.own_table.get_or_insert_with(|| PretokenCounts::new(shared.seed));
        let mut n_weighted = 0u128;
        visit(&mut |pretoken, count| {
            let weighted = count.checked_mul(weight).ok_or_else(sum_too_large)?;
            n_weighted += u128::from(weighted);
            // The count of one pre-token cannot overflow before the sum does.
            if n_weighted >= 1 << 64 {
                return Err(sum_too_large());
            }
            table.add(pretoken, weighted)?;
            shared.spill_if_full(table)
        })?;
        let total = &mut lock(&shared.totals).n_weighted;
        *total += n_weighted;
        if *total < 1 << 64 { Ok(()) } else { Err(sum_too_large()) }
    }
}
