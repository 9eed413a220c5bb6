//! SentencePiece's compiled normalization rules (`precompiled_charsmap`), such as those of `nmt_nfkc`.
//!
//! The data are the size of a trie, the trie (a double array of darts-clone: 32-bit units), and the strings that replace its keys, each
//! ended by a zero byte. At every position the longest key is replaced; a character that begins no key stays. A model's user-defined
//! symbols stay too: at every position they come before the keys, the longest one first.

use crate::error::{Error, Result};

/// Longest key that is searched. Those of the known rules have up to 12 bytes; damaged ones may have no end.
const MAX_KEY_BYTES: usize = 1 << 10;

/// Rules that replace strings by strings.
#[derive(Clone, PartialEq, Eq)]
pub struct CharsMap {
    units: Vec<u32>,
    replacements: Vec<u8>,
    /// What stays as it is, the longest first.
    kept: Vec<String>,
    /// For each byte whether one of these begins with it.
    begins_kept: Box<[bool; 256]>,
    /// For each byte whether it is a character that stays before another one of ASCII.
    stays: Box<[bool; 256]>,
}

impl std::fmt::Debug for CharsMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CharsMap({} units)", self.units.len())
    }
}

impl CharsMap {
    /// Reads compiled rules.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the data are cut off, or if a replacement is not UTF-8.
    pub fn new(data: &[u8]) -> Result<Self> {
        let invalid = || Error::Invalid("the compiled rules of the normalizer are damaged".to_owned());
        let (size, rest) = data.split_first_chunk::<4>().ok_or_else(invalid)?;
        let (trie, replacements) = rest.split_at_checked(u32::from_le_bytes(*size) as usize).ok_or_else(invalid)?;
        let (units, odd) = trie.as_chunks::<4>();
        let is_text = std::str::from_utf8(replacements).is_ok();
        if units.is_empty() || !odd.is_empty() || !is_text || replacements.last().is_some_and(|&last| last != 0) {
            return Err(invalid());
        }
        let units = units.iter().map(|&unit| u32::from_le_bytes(unit)).collect();
        let [begins_kept, stays] = [(); 2].map(|()| Box::new([false; 256]));
        let mut rules = Self { units, replacements: replacements.to_vec(), kept: Vec::new(), begins_kept, stays };
        for byte in 0..0x80 {
            let is_start = |next| rules.longest_prefix(&[byte, next]) == 2;
            rules.stays[usize::from(byte)] = rules.longest_key(&[byte]).is_none() && !(0..0x80).any(is_start);
        }
        Ok(rules)
    }

    /// The same rules, which leave these strings as they are.
    #[must_use]
    pub fn keeping(mut self, mut kept: Vec<String>) -> Self {
        kept.retain(|text| !text.is_empty());
        kept.sort_by_key(|text| std::cmp::Reverse(text.len()));
        for text in &kept {
            let first = usize::from(text.as_bytes()[0]);
            (self.begins_kept[first], self.stays[first]) = (true, false);
        }
        Self { kept, ..self }
    }

    /// The strings that the rules leave as they are, the longest first.
    pub fn kept(&self) -> &[String] {
        &self.kept
    }

    /// The data that [`CharsMap::new`] reads.
    pub fn to_bytes(&self) -> Vec<u8> {
        let size = u32::try_from(4 * self.units.len()).unwrap_or(u32::MAX);
        let units = self.units.iter().flat_map(|unit| unit.to_le_bytes());
        size.to_le_bytes().into_iter().chain(units).chain(self.replacements.iter().copied()).collect()
    }

    /// The number of bytes at the start of a text, at most `limit`, that surely stay as they are.
    pub fn n_staying(&self, text: &[u8], limit: usize) -> usize {
        let next = text.iter().skip(1).chain(&[0]);
        let stays = |(byte, next): &(&u8, &u8)| self.stays[usize::from(**byte)] && next.is_ascii();
        text.iter().zip(next).take(limit).take_while(stays).count()
    }

    /// The first part of a text that is not empty: how many bytes it has, and what replaces it.
    pub fn first<'t>(&'t self, text: &'t str) -> (usize, &'t str) {
        if text.as_bytes().first().is_some_and(|&byte| self.begins_kept[usize::from(byte)])
            && let Some(kept) = self.kept.iter().find(|kept| text.starts_with(&***kept))
        {
            return (kept.len(), &text[..kept.len()]);
        }
        match self.longest_key(text.as_bytes()) {
            Some((n_bytes, replacement)) if text.is_char_boundary(n_bytes) => (n_bytes, replacement),
            _ => {
                let n_bytes = text.chars().next().map_or(0, char::len_utf8);
                (n_bytes, &text[..n_bytes])
            }
        }
    }

    /// The longest key that `text` begins with.
    fn longest_key(&self, text: &[u8]) -> Option<(usize, &str)> {
        let mut found = None;
        self.walk(text, |n_bytes, value| found = self.replacement(value).map(|with| (n_bytes, with)).or(found));
        found
    }

    /// The number of bytes that `text` and some key begin with.
    fn longest_prefix(&self, text: &[u8]) -> usize {
        self.walk(text, |_, _| {})
    }

    /// Walks down the trie, and calls `each` with the length and the value of each key on the way. Returns the number of bytes.
    fn walk(&self, text: &[u8], mut each: impl FnMut(usize, u32)) -> usize {
        let mut at = self.units.first().copied().map_or(0, offset);
        for (index, &byte) in text.iter().take(MAX_KEY_BYTES).enumerate() {
            at ^= u32::from(byte);
            let Some(&unit) = self.units.get(at as usize).filter(|unit| **unit & (1 << 31 | 0xFF) == u32::from(byte))
            else {
                return index;
            };
            at ^= offset(unit);
            if unit >> 8 & 1 == 1
                && let Some(value) = self.units.get(at as usize)
            {
                each(index + 1, value & !(1 << 31));
            }
        }
        text.len().min(MAX_KEY_BYTES)
    }

    fn replacement(&self, start: u32) -> Option<&str> {
        let rest = self.replacements.get(start as usize..)?;
        let end = rest.iter().position(|&byte| byte == 0)?;
        std::str::from_utf8(&rest[..end]).ok()
    }
}

/// Where the children of a unit are, relative to it.
fn offset(unit: u32) -> u32 {
    unit >> 10 << ((unit & 1 << 9) >> 6)
}

#[cfg(test)]
#[path = "tests/charsmap.rs"]
mod tests;
