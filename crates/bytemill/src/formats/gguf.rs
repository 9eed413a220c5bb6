//! Arrays of strings in GGUF files: tokens and merges.

use hashbrown::HashSet;

/// Longer strings are left to the reader in Python, which bounds the memory for them.
const MAX_STRING_BYTES: u64 = 1 << 20;

/// An array of strings.
#[derive(Debug, Default)]
pub struct StringArray {
    text: String,
    ends: Vec<usize>,
}

impl StringArray {
    /// The first `n` strings of a block, each with its length before it in eight bytes, and the number of bytes that they take.
    /// `None` if the block ends before, or if a string is too long or not UTF-8.
    pub fn read(block: &[u8], n: usize, is_big_endian: bool) -> Option<(Self, usize)> {
        let (mut strings, mut rest) = (Self::default(), block);
        strings.ends.try_reserve(n).ok()?;
        for _ in 0..n {
            let (length, after) = rest.split_first_chunk()?;
            let length = if is_big_endian { u64::from_be_bytes(*length) } else { u64::from_le_bytes(*length) };
            let (bytes, after) = after.split_at_checked(length.min(MAX_STRING_BYTES + 1) as usize)?;
            if bytes.len() as u64 != length {
                return None;
            }
            strings.push(std::str::from_utf8(bytes).ok()?);
            rest = after;
        }
        Some((strings, block.len() - rest.len()))
    }

    /// Adds a string.
    pub fn push(&mut self, string: &str) {
        self.text.push_str(string);
        self.ends.push(self.text.len());
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The strings, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |&end| &self.text[std::mem::replace(&mut start, end)..end])
    }

    /// Of some texts, those that merges in this array make: two parts with a space between them.
    pub fn results_among<'t>(&self, texts: impl Iterator<Item = &'t str>) -> HashSet<&'t str> {
        let texts: HashSet<&str> = texts.collect();
        let (mut found, mut joined) = (HashSet::new(), String::new());
        for merge in self.iter().filter(|_| !texts.is_empty()) {
            joined.clear();
            let (left, right) = merge.split_once(' ').unwrap_or((merge, ""));
            joined.push_str(left);
            joined.push_str(right);
            found.extend(texts.get(&*joined).copied());
        }
        found
    }
}

#[cfg(test)]
#[path = "tests/gguf.rs"]
mod tests;
