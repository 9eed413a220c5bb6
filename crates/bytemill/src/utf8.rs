//! UTF-8 that arrives in pieces, cut anywhere.

use crate::error::{Error, Result};

/// What to do with bytes that are not UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// An error that names the place.
    Refuse,
    /// U+FFFD for each maximal malformed sequence, as `bytes.decode(errors="replace")` does in Python.
    Replace,
}

/// Checks pieces of a byte stream and appends them to a string.
#[derive(Debug)]
pub struct Utf8Stream {
    malformed: Malformed,
    /// The beginning of a character that the last piece ended in: at most 3 bytes.
    unfinished: Vec<u8>,
    /// Bytes of the stream that are done with, `unfinished` not among them.
    n_done: usize,
    n_replaced: u64,
}

impl Utf8Stream {
    /// A stream at its beginning.
    #[must_use]
    pub fn new(malformed: Malformed) -> Self {
        Self { malformed, unfinished: Vec::with_capacity(4), n_done: 0, n_replaced: 0 }
    }

    /// Malformed sequences replaced so far.
    #[must_use]
    pub fn n_replaced(&self) -> u64 {
        self.n_replaced
    }

    /// True where the stream stands inside a character.
    #[must_use]
    pub fn is_inside_character(&self) -> bool {
        !self.unfinished.is_empty()
    }

    /// Appends the characters that `bytes` completes.
    ///
    /// # Errors
    /// [`Error::Utf8`] with [`Malformed::Refuse`]; its offsets count from the beginning of the stream.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut String) -> Result<()> {
        while !self.unfinished.is_empty() {
            let Some((&first, rest)) = bytes.split_first() else { return Ok(()) };
            bytes = rest;
            let mut sequence = std::mem::take(&mut self.unfinished);
            sequence.push(first);
            self.check(&sequence, out)?;
        }
        self.check(bytes, out)
    }

    /// Ends the stream.
    ///
    /// # Errors
    /// [`Error::Utf8`] with [`Malformed::Refuse`] where it ends inside a character.
    pub fn finish(&mut self, out: &mut String) -> Result<()> {
        let sequence = std::mem::take(&mut self.unfinished);
        if !sequence.is_empty() {
            self.malformed_sequence(&sequence, out)?;
        }
        Ok(())
    }

    /// Appends `bytes`, keeping a character cut off at its end; nothing is unfinished before it.
    fn check(&mut self, mut bytes: &[u8], out: &mut String) -> Result<()> {
        loop {
            let error = match simdutf8::compat::from_utf8(bytes) {
                Ok(text) => {
                    out.push_str(text);
                    self.n_done += bytes.len();
                    return Ok(());
                }
                Err(error) => error,
            };
            let (valid, rest) = bytes.split_at(error.valid_up_to());
            out.push_str(std::str::from_utf8(valid).unwrap_or_default());
            self.n_done += valid.len();
            let Some(n_malformed) = error.error_len() else {
                self.unfinished = rest.to_vec();
                return Ok(());
            };
            let (malformed, rest) = rest.split_at(n_malformed);
            self.malformed_sequence(malformed, out)?;
            bytes = rest;
        }
    }

    fn malformed_sequence(&mut self, sequence: &[u8], out: &mut String) -> Result<()> {
        if self.malformed == Malformed::Refuse {
            let (start, end) = (self.n_done, self.n_done + sequence.len());
            return Err(Error::Utf8 { start, end, bytes: sequence.to_vec() });
        }
        out.push('\u{FFFD}');
        self.n_replaced += 1;
        self.n_done += sequence.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes with many sequences that are cut, overlong, surrogate or out of range.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            prop::sample::select(vec!["a", "é", "一", "😀", "\u{FFFD}"]).prop_map(|text| text.as_bytes().to_vec()),
            prop::sample::select(vec![0x80u8, 0xBF, 0xC0, 0xC3, 0xE0, 0xE4, 0xED, 0xA0, 0xF0, 0x9F, 0xF4, 0x90, 0xFF])
                .prop_map(|byte| vec![byte]),
        ];
        prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn pieces_give_what_the_whole_gives(bytes in bytes(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4)) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.push(bytes.len());
            cuts.sort_unstable();
            for malformed in [Malformed::Refuse, Malformed::Replace] {
                let mut stream = Utf8Stream::new(malformed);
                let mut out = String::new();
                let mut start = 0;
                let mut result = Ok(());
                for &cut in &cuts {
                    result = result.and_then(|()| stream.push(&bytes[start..cut], &mut out));
                    start = cut;
                }
                result = result.and_then(|()| stream.finish(&mut out));
                match (malformed, std::str::from_utf8(&bytes)) {
                    (Malformed::Refuse, Err(error)) => {
                        let Err(Error::Utf8 { start, .. }) = result else { panic!("{bytes:?} was taken") };
                        prop_assert_eq!(start, error.valid_up_to());
                    }
                    _ => {
                        prop_assert!(result.is_ok());
                        prop_assert_eq!(&out, &String::from_utf8_lossy(&bytes));
                    }
                }
            }
        }
    }
}
