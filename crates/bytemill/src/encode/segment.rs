//! Encoding a text without special tokens: look pre-tokens up, merge those that no cache holds, write the ids.

use super::encoder::Encoder;
use super::id::Id;
use super::merge_barriers::MergeBarriers;
use super::pending::Pending;
use super::workspace::{Workspace, check_every};
use crate::bpe::limits::{MAX_LOCKSTEP_BYTES, MAX_NARROW_LOCKSTEP_BYTES};
use crate::bpe::{GROUP, merge, merge_group};
use crate::error::{Error, Result};
use crate::sys::interrupt::Interrupt;

/// Buffered ids that are flushed at the latest.
const MAX_BUFFERED_IDS: usize = 1 << 15;

/// Lanes for [`MAX_NARROW_LOCKSTEP_BYTES`] and for [`MAX_LOCKSTEP_BYTES`].
const NARROW_LANES: usize = MAX_NARROW_LOCKSTEP_BYTES + 1;
const WIDE_LANES: usize = MAX_LOCKSTEP_BYTES + 1;

impl Encoder {
    /// Appends the ids of a text without special tokens.
    ///
    /// Block by block: split into pre-tokens, hash them and prefetch their cache entries, look them up. Pre-tokens that the
    /// cache does not hold are pending until there are enough of them to be resolved together.
    pub(super) fn encode_segment<T: Id>(
        &self,
        workspace: &mut Workspace,
        text: &str,
        out: &mut Vec<T>,
        interrupt: Interrupt,
    ) -> Result<()> {
        let bytes = text.as_bytes();
        let n_before = out.len();
        let mut splits = self.pattern().splits(text);
        let mut done = 0;
        while splits.fill(&mut workspace.ends)? {
            let start = splits.block_start(done);
            let end = workspace.ends.last().copied().unwrap_or(start);
            workspace.hash(bytes, start, |pretoken, cut| self.cut_at_barriers(pretoken, cut));
            while let Some(too_long) = workspace.look_up(bytes) {
                self.resolve(workspace, bytes, out, interrupt)?;
                self.encode_pretoken(&bytes[too_long], &mut workspace.symbols, out, interrupt)?;
            }
            if workspace.pending.are_many() || workspace.ids.len() > MAX_BUFFERED_IDS {
                self.resolve(workspace, bytes, out, interrupt)?;
            }
            check_every(&mut workspace.since_check, end - done, interrupt)?;
            done = end;
        }
        self.resolve(workspace, bytes, out, interrupt)?;
        if let Some(unknown) = self.vocab().fused_id().filter(|_| !self.shape.fuses_within) {
            T::fuse(out, n_before, unknown);
        }
        Ok(())
    }

    /// Calls `cut` with every offset at which a long pre-token may be cut: see [`MergeBarriers`].
    fn cut_at_barriers(&self, pretoken: &[u8], cut: &mut dyn FnMut(usize)) {
        // An unreachable token must not be found in a part of a pre-token.
        if pretoken.is_ascii() || !self.unreachable_tokens.is_empty() || !self.shape.is_plain() {
            return;
        }
        let new = || Box::new(MergeBarriers::new(self.vocab().tokens().map(|(token, _)| token)));
        self.merge_barriers.get_or_init(new).for_each(pretoken, cut);
    }

    /// Appends the ids of one pre-token without using the cache. `symbols` is scratch space.
    ///
    /// # Errors
    /// As [`Encoder::encode`].
    pub fn encode_pretoken<T: Id>(
        &self,
        pretoken: &[u8],
        symbols: &mut Vec<u32>,
        out: &mut Vec<T>,
        interrupt: Interrupt,
    ) -> Result<()> {
        if let Some(id) = self.unreachable_token(pretoken) {
            out.push(T::narrow(id));
            return Ok(());
        }
        if self.shape.is_plain() {
            return self.merge_pretoken(pretoken, symbols, out, interrupt);
        }
        let shaped = self.shaped(pretoken);
        if shaped.is_empty() {
            return Ok(());
        }
        if self.shape.suffix.is_none() {
            return self.merge_pretoken(&shaped, symbols, out, interrupt);
        }
        // The tables for long pre-tokens are made of tokens, which have the suffix and not the byte that stands for it.
        symbols.clear();
        merge(self.vocab().pairs(), &shaped, symbols, interrupt)?;
        out.try_reserve(symbols.len()).map_err(|_| Error::memory::<T>(out.len() + symbols.len()))?;
        out.extend(symbols.iter().map(|&symbol| T::narrow(self.vocab().symbol_id(symbol))));
        Ok(())
    }

    /// Appends the ids that merging alone makes of some bytes. `symbols` is scratch space.
    ///
    /// # Errors
    /// As [`Encoder::encode`].
    pub fn merge_pretoken<T: Id>(
        &self,
        pretoken: &[u8],
        symbols: &mut Vec<u32>,
        out: &mut Vec<T>,
        interrupt: Interrupt,
    ) -> Result<()> {
        let Some(leftovers) = self.vocab().leftovers() else {
            let id = |symbol: u32| T::narrow(self.vocab().symbol_id(symbol));
            return self.merger.merge_into(self.vocab(), pretoken, symbols, out, id, interrupt);
        };
        let mut ids = Vec::new();
        self.merger.merge_into(self.vocab(), pretoken, symbols, &mut ids, |s| self.vocab().symbol_id(s), interrupt)?;
        leftovers.expand(&mut ids, 0);
        if let Some(unknown) = self.vocab().fused_id().filter(|_| self.shape.fuses_within) {
            u32::fuse(&mut ids, 0, unknown);
        }
        out.try_reserve(ids.len()).map_err(|_| Error::memory::<T>(out.len() + ids.len()))?;
        out.extend(ids.into_iter().map(T::narrow));
        Ok(())
    }

    /// Finds the ids of all pending pre-tokens and appends the buffered ids to `out`.
    #[inline(never)]
    fn resolve<T: Id>(
        &self,
        workspace: &mut Workspace,
        text: &[u8],
        out: &mut Vec<T>,
        interrupt: Interrupt,
    ) -> Result<()> {
        if workspace.ids.is_empty() {
            return Ok(());
        }
        self.look_up_pending(workspace, text, interrupt)?;
        let Workspace { pending, short_cache, long_cache, ids, .. } = workspace;
        self.merge_pending::<NARROW_LANES>(pending, 0, text);
        self.merge_pending::<WIDE_LANES>(pending, 1, text);
        pending.store(text, short_cache, long_cache);
        pending.flush(ids, out)?;
        short_cache.grow();
        Ok(())
    }

    /// Resolves the pre-tokens that a table holds, and those too long for lockstep.
    fn look_up_pending(&self, workspace: &mut Workspace, text: &[u8], interrupt: Interrupt) -> Result<()> {
        let Workspace { pending, short_cache, long_cache, symbols, .. } = workspace;
        let Pending { pretokens, spans, ids, to_merge: [narrow, wide], .. } = pending;
        for (index, pretoken) in (0..).zip(pretokens) {
            let start = ids.len();
            let hash = pretoken.long_hash;
            if long_cache.may_hold(hash)
                && let Some(known) = long_cache.get(pretoken.long_key(text, &mut [0; 16]), hash)
            {
                ids.extend_from_slice(known);
                pretoken.is_cached = true;
                if pretoken.is_short() {
                    short_cache.remove_placeholder(pretoken.key, pretoken.short_hash);
                }
            } else if pretoken.is_short() {
                let bytes = &pretoken.key.bytes()[..pretoken.key.n_bytes()];
                if !self.shape.is_plain() {
                    self.encode_pretoken(bytes, symbols, ids, interrupt)?;
                } else if let Some(id) = self.unreachable_token(bytes) {
                    ids.push(id);
                } else {
                    // The line may have left the processor's cache since the lookup.
                    short_cache.lines().prefetch(pretoken.short_hash);
                    narrow.push(index);
                }
            } else {
                let bytes = &text[pretoken.range.clone()];
                if bytes.len() >= WIDE_LANES || !self.shape.is_plain() {
                    self.encode_pretoken(bytes, symbols, ids, interrupt)?;
                    long_cache.insert(bytes, hash, &ids[start..]);
                    pretoken.is_cached = true;
                } else if let Some(id) = self.unreachable_token(bytes) {
                    ids.push(id);
                } else {
                    wide.push(index);
                }
            }
            spans.push((start as u32, (ids.len() - start) as u32));
        }
        Ok(())
    }

    /// Merges the pre-tokens of one of the lists in lockstep.
    fn merge_pending<const LANES: usize>(&self, pending: &mut Pending, list: usize, text: &[u8]) {
        let Pending { pretokens, spans, ids, to_merge, .. } = pending;
        let to_merge = &to_merge[list];
        let bytes = |index: usize, lanes: &mut [u8; LANES]| {
            let pretoken = &pretokens[to_merge[index] as usize];
            if LANES == NARROW_LANES {
                lanes[..16].copy_from_slice(&pretoken.key.bytes());
                pretoken.key.n_bytes()
            } else {
                let bytes = &text[pretoken.range.clone()];
                lanes[..bytes.len()].copy_from_slice(bytes);
                bytes.len()
            }
        };
        merge_group::<LANES, GROUP>(self.vocab().pairs(), to_merge.len(), bytes, |index, symbols, n_symbols| {
            let id = |&symbol: &u32| self.vocab().symbol_id(symbol);
            spans[to_merge[index] as usize] = (ids.len() as u32, n_symbols as u32);
            // Four at a time: their number is unpredictable, and most pre-tokens have no more.
            let n_copied = n_symbols.next_multiple_of(4);
            for four in symbols[..n_copied].as_chunks::<4>().0 {
                ids.extend_from_slice(&four.each_ref().map(id));
            }
            ids.truncate(ids.len() + n_symbols - n_copied);
            if let Some(leftovers) = self.vocab().leftovers() {
                let span = &mut spans[to_merge[index] as usize];
                leftovers.expand(ids, span.0 as usize);
                span.1 = (ids.len() - span.0 as usize) as u32;
            }
        });
    }
}
