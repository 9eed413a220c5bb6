//! The byte ranges of tokens in the text.

use super::encoder::{Allowed, Encoder};
use crate::error::{Error, Result};
use crate::special::AlignedSegment;
use crate::text::normalize::aligned::{AlignedChar, plain};
use crate::vocab::{Fallback, Leftovers, META};
use std::iter::{Peekable, repeat_n};
use std::ops::Range;

impl Encoder {
    /// Calls `each` with the byte range of each of the `ids` that [`Encoder::encode`] returns for `text` with the same
    /// `allowed`.
    ///
    /// Tokens tile the text between special tokens, so their ranges follow from their lengths; a special token has the range
    /// where it was found. Tokens of normalized text have the range that their characters come from: see [`aligned`].
    ///
    /// # Errors
    /// [`Error::Invalid`] if the bytes of a token are not at its position, because the encoded text differs from `text`.
    pub fn spans<T: Copy + Into<u32>>(
        &self,
        text: &str,
        allowed: Allowed,
        ids: &[T],
        mut each: impl FnMut(Range<usize>),
    ) -> Result<()> {
        let mut ids = ids.iter().map(|&id| id.into());
        let special = self.recognized(allowed);
        if !special.normalizer().is_identity() || self.vocab().leftovers().is_some() || !self.shape.is_plain() {
            return self.aligned_spans(&special.aligned_segments(text), &mut ids, &mut each);
        }
        let mut at = 0;
        for found in special.find(text) {
            self.tile(&text.as_bytes()[..found.start], &mut at, &mut ids, &mut each)?;
            if ids.next() != Some(special.tokens()[found.index].1) {
                return changed(found.start);
            }
            each(found.start..found.end);
            at = found.end;
        }
        self.tile(text.as_bytes(), &mut at, &mut ids, &mut each)?;
        if ids.next().is_some() { changed(at) } else { Ok(()) }
    }

    /// The ranges of ordinary tokens, from `at` to the end of `bytes`.
    fn tile(
        &self,
        bytes: &[u8],
        at: &mut usize,
        ids: &mut impl Iterator<Item = u32>,
        each: &mut impl FnMut(Range<usize>),
    ) -> Result<()> {
        while *at < bytes.len() {
            let token = ids.next().and_then(|id| self.vocab().token(id));
            match token.filter(|token| bytes[*at..].starts_with(token)) {
                Some(token) => {
                    each(*at..*at + token.len());
                    *at += token.len();
                }
                None => return changed(*at),
            }
        }
        Ok(())
    }
}

impl Encoder {
    /// [`Encoder::spans`] for normalized text.
    fn aligned_spans(
        &self,
        segments: &[AlignedSegment],
        ids: &mut impl Iterator<Item = u32>,
        each: &mut impl FnMut(Range<usize>),
    ) -> Result<()> {
        let mut ids = ids.peekable();
        let mut at = 0;
        for segment in segments {
            match segment {
                AlignedSegment::Special(id, origin) => {
                    if ids.next() != Some(*id) {
                        return changed(origin.start);
                    }
                    each(origin.clone());
                    at = origin.end;
                }
                AlignedSegment::Text(text) if !self.shape.is_plain() => {
                    at = self.shaped_spans(text, &mut ids, each)?.unwrap_or(at);
                }
                AlignedSegment::Text(text) => {
                    let origins = Origins::new(text);
                    let mut done = 0;
                    while done < origins.text.len() {
                        let rest = &origins.text.as_bytes()[done..];
                        let n_bytes = ids.next().and_then(|id| self.n_bytes_of(id, ids.peek().copied(), rest));
                        let Some(n_bytes) = n_bytes else { return changed(at) };
                        let range = origins.range(text, done..done + n_bytes);
                        at = range.end;
                        each(range);
                        done += n_bytes;
                    }
                }
            }
        }
        if ids.next().is_some() { changed(at) } else { Ok(()) }
    }

    /// [`Encoder::spans`] for pre-tokens that change before they are merged. Returns the end of the last range.
    fn shaped_spans(
        &self,
        text: &[AlignedChar],
        ids: &mut Peekable<impl Iterator<Item = u32>>,
        each: &mut impl FnMut(Range<usize>),
    ) -> Result<Option<usize>> {
        let origins = Origins::new(text);
        let (mut start, mut last, mut error) = (0, None, None);
        self.pattern().for_each(&origins.text, |pretoken| {
            let (shaped, units) = (self.shaped(pretoken), self.units(pretoken, start));
            start += pretoken.len();
            let (mut done, mut n_units) = (0, 0);
            while done < shaped.len() && error.is_none() {
                let n_bytes =
                    ids.next().and_then(|id| self.n_bytes_of_shaped(id, ids.peek().copied(), &shaped[done..]));
                let Some(n_bytes) = n_bytes else {
                    error = Some(changed(last.unwrap_or_default()));
                    return;
                };
                let n_more: usize = shaped[done..done + n_bytes].iter().map(|&byte| self.n_units(byte)).sum();
                let token = &units[n_units.min(units.len())..(n_units + n_more).min(units.len())];
                if let (Some(first), Some(end)) = (token.first(), token.last()) {
                    let range = origins.range(text, first.start..end.end);
                    last = Some(range.end);
                    each(range);
                }
                done += n_bytes;
                n_units += n_more;
            }
        })?;
        error.unwrap_or(Ok(())).map(|()| last)
    }

    /// What tokens tile a pre-token with, which begins at `start` of the text: the range of each of its bytes.
    ///
    /// In Hugging Face's library, tokens tile a pre-token from its start, also behind what has vanished. Bytes have a length of
    /// one or two there, that of the character that stands for each.
    fn units(&self, pretoken: &[u8], start: usize) -> Vec<Range<usize>> {
        let mut units = Vec::with_capacity(pretoken.len() + 2);
        if self.shape.adds_space(pretoken) {
            let n_first = pretoken.utf8_chunks().next().and_then(|chunk| chunk.valid().chars().next());
            let first = start..start + n_first.map_or(1, char::len_utf8);
            units.extend(repeat_n(first, self.n_units(b' ')));
        }
        for (&byte, at) in pretoken.iter().zip(start..) {
            units.extend(repeat_n(at..at + 1, self.n_units(byte)));
        }
        units
    }

    fn n_units(&self, byte: u8) -> usize {
        let is_of_bytes = self.shape.drops_unknown && self.vocab().leftovers().is_none();
        if is_of_bytes && !byte.is_ascii_graphic() { 2 } else { 1 }
    }

    /// [`Encoder::n_bytes_of`] for a pre-token that changes.
    fn n_bytes_of_shaped(&self, id: u32, next: Option<u32>, shaped: &[u8]) -> Option<usize> {
        let stem = self.shape.suffix.as_ref().and_then(|suffix| self.vocab().token(id)?.strip_suffix(&**suffix));
        match stem {
            Some(stem) if shaped[..shaped.len() - 1] == *stem => Some(shaped.len()),
            _ => self.n_bytes_of(id, next, shaped),
        }
    }

    /// How many bytes at the start of `text` a token stands for, of which `next` is the one after it.
    fn n_bytes_of(&self, id: u32, next: Option<u32>, text: &[u8]) -> Option<usize> {
        let token = |id: u32| self.vocab().token(id);
        match self.vocab().leftovers().map(Leftovers::fallback) {
            Some(Fallback::Unknown { id: unknown, fused }) if id == unknown => {
                let text = std::str::from_utf8(text).ok()?;
                let is_unknown =
                    |character: &char| self.vocab().id(character.encode_utf8(&mut [0; 4]).as_bytes()).is_none();
                let first = text.chars().next().map_or(1, char::len_utf8);
                // A token may begin with characters that are no tokens.
                let next = next.filter(|&next| fused && next != unknown).and_then(token);
                let is_next = |at: usize| next.is_some_and(|next| text.as_bytes()[at..].starts_with(next));
                let others = text[first..].chars().take_while(is_unknown).map(char::len_utf8);
                let ends = others.scan(first, |at, n_bytes| (!is_next(*at)).then(|| (*at += n_bytes, *at).1));
                Some(if fused { ends.last().unwrap_or(first) } else { first })
            }
            // The bytes of `▁` stand for a space that is no token.
            Some(Fallback::Bytes) if text.starts_with(b" ") && token(id)?.len() == 1 && token(id)? != b" " => {
                let at = META.iter().position(|byte| token(id) == Some(&[*byte]))?;
                Some(usize::from(at == META.len() - 1))
            }
            _ => token(id).filter(|token| text.starts_with(token)).map(<[u8]>::len),
        }
    }
}

/// Normalized text, and which character each of its bytes belongs to.
struct Origins {
    text: String,
    /// For each byte, the index of its character and the offset in it.
    characters: Vec<(usize, usize)>,
}

impl Origins {
    fn new(text: &[AlignedChar]) -> Self {
        let bytes = |(index, aligned): (usize, &AlignedChar)| {
            (0..aligned.character.len_utf8()).map(move |offset| (index, offset))
        };
        Self { text: plain(text), characters: text.iter().enumerate().flat_map(bytes).collect() }
    }

    /// The range of the original text that a range of normalized bytes stands for. Part of a character that was not changed is part
    /// of it there too; part of another one is all of it.
    fn range(&self, text: &[AlignedChar], Range { start, end }: Range<usize>) -> Range<usize> {
        let at = |byte: usize, after: usize| {
            let (index, offset) = self.characters[byte];
            let AlignedChar { character, origin } = &text[index];
            let is_whole = origin.len() != character.len_utf8();
            (
                if is_whole { origin.start } else { origin.start + offset },
                if is_whole { origin.end } else { origin.start + offset + after },
            )
        };
        let (from, to) = (at(start, 0).0, if start < end { at(end - 1, 1).1 } else { 0 });
        from..to.max(from)
    }
}

fn changed(at: usize) -> Result<()> {
    Err(Error::Invalid(format!(
        "at byte {at} stands another text than the one encoded: this tokenizer leaves some of it out, so its tokens have no \
         offsets"
    )))
}

#[cfg(test)]
#[path = "tests/spans.rs"]
mod tests;
