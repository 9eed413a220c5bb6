//! The tokens and merges of a `tokenizer.json` of BPE over characters.

use super::reader::Contents;
use crate::vocab::{Fallback, TokenIndex, TokenList, Vocab};
use hashbrown::HashSet;
use std::collections::HashMap;

/// U+2581, which stands for a space in most such files.
const META: &str = "\u{2581}";

/// The tokens and merges of a `tokenizer.json` of BPE over characters.
#[derive(Debug)]
pub struct CharacterJson {
    /// The entries of the vocabulary, as the file writes them.
    entries: TokenList,
    index: TokenIndex,
    /// The positions of the two parts of each merge, and that of its result.
    merges: Vec<[u32; 3]>,
}

impl Contents for CharacterJson {
    fn append_token(key: &str, bytes: &mut Vec<u8>) -> bool {
        bytes.extend_from_slice(key.as_bytes());
        true
    }

    fn new<'m>(
        entries: TokenList,
        _: HashMap<String, u32>,
        merges: impl ExactSizeIterator<Item = (&'m str, &'m str)> + Clone,
    ) -> Option<Self> {
        let mut ids = entries.ids().to_vec();
        ids.sort_unstable();
        if !ids.is_sorted_by(|one, next| one < next) {
            return None;
        }
        let index = TokenIndex::new(&entries, "id").ok()?;
        let position = |key: &[u8]| index.get(key, |position| entries.token(position as usize));
        let mut joined = Vec::new();
        let merges = merges.map(|(left, right)| {
            joined.clear();
            joined.extend_from_slice(left.as_bytes());
            joined.extend_from_slice(right.as_bytes());
            Some([position(left.as_bytes())?, position(right.as_bytes())?, position(&joined)?])
        });
        let merges = merges.collect::<Option<_>>()?;
        Some(Self { entries, index, merges })
    }
}

impl CharacterJson {
    /// Number of entries of the vocabulary.
    #[must_use]
    pub fn n_entries(&self) -> usize {
        self.entries.len()
    }

    /// Number of merges.
    #[must_use]
    pub fn n_merges(&self) -> usize {
        self.merges.len()
    }

    /// The id of an entry of the vocabulary, by its key in the file.
    #[must_use]
    pub fn id(&self, key: &str) -> Option<u32> {
        Some(self.entries.ids()[self.position(key)?])
    }

    fn position(&self, key: &str) -> Option<usize> {
        let position = self.index.get(key.as_bytes(), |position| self.entries.token(position as usize));
        position.map(|position| position as usize)
    }

    /// The vocabulary with these special tokens and [`Vocab::ignore_merges`]; `has_meta` says that `▁` stands for a space.
    ///
    /// A special token of several characters that the file lists is not an ordinary token, unless it is the result of a merge.
    /// Returns `None` if tokens, merges and special tokens contradict each other.
    #[must_use]
    pub fn into_vocab(
        self,
        special: Vec<(String, u32)>,
        ignore_merges: bool,
        has_meta: bool,
        fallback: Fallback,
    ) -> Option<Vocab> {
        let products: HashSet<u32> = self.merges.iter().map(|merge| merge[2]).collect();
        let mut left_out = vec![false; self.entries.len()];
        for (text, _) in &special {
            if let Some(position) = self.position(text).filter(|_| text.chars().nth(1).is_some()) {
                left_out[position] = !products.contains(&(position as u32));
            }
        }
        let mut byte_ids = Vec::new();
        match fallback {
            Fallback::Bytes => {
                for byte in 0..=255_u8 {
                    let position = self.position(&format!("<0x{byte:02X}>"))?;
                    left_out[position] = true;
                    byte_ids.push((self.entries.ids()[position], [byte]));
                }
            }
            Fallback::Unknown { id, .. } => {
                left_out[self.entries.ids().iter().position(|&other| other == id)?] = true;
            }
        }

        let mut spelled = TokenList::default();
        for (id, key) in self.entries.iter() {
            let key = std::str::from_utf8(key).ok()?;
            let replaced = if has_meta { key.replace(META, " ") } else { key.to_owned() };
            spelled.push(id, replaced.as_bytes()).ok()?;
        }
        let mut merges = Vec::with_capacity(self.merges.len());
        for &merge in &self.merges {
            let [left, right, _] = merge.map(|position| position as usize);
            if merge.iter().any(|&position| left_out[position as usize]) {
                return None;
            }
            merges.push((spelled.token(left), spelled.token(right)));
        }
        let mut tokens = TokenList::default();
        let mut has_character = [false; 256];
        for (_, (id, token)) in left_out.iter().zip(spelled.iter()).filter(|(is_left_out, _)| !**is_left_out) {
            tokens.push(id, token).ok()?;
            if let [byte] = token {
                has_character[usize::from(*byte)] = true;
            }
        }
        // A byte that is also a character has two tokens; texts are encoded with that of the character. Spaces are `▁` in the
        // text, so no text encodes to the byte.
        let mut aliases = Vec::new();
        for (id, byte) in &byte_ids {
            if has_character[usize::from(byte[0])] || has_meta && byte == b" " {
                aliases.push((*id, byte.to_vec()));
            } else {
                tokens.push(*id, byte).ok()?;
            }
        }
        let vocab = Vocab::from_characters(&tokens, aliases, &merges, special, fallback).ok()?;
        Some(vocab.with_ignore_merges(ignore_merges))
    }
}
