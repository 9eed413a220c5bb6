//! Tokens on their way into a vocabulary: their bytes in one piece, and an index by bytes.

use crate::error::{Error, Result};
use hashbrown::DefaultHashBuilder;
use hashbrown::hash_table::{Entry, HashTable};
use std::hash::{BuildHasher, Hasher};

/// Tokens with their ids, in the order in which a file gives them. Each has a *place*, its number in that order.
///
/// Nothing is checked here: [`super::Vocab`] is what checks.
#[derive(Clone, Debug, Default)]
pub struct TokenList {
    bytes: Vec<u8>,
    /// Where each token starts in `bytes`, and its number of bytes.
    spans: Vec<(u32, u32)>,
    ids: Vec<u32>,
}

impl TokenList {
    /// A list with room for `n_tokens` tokens of `n_bytes` bytes together.
    #[must_use]
    pub fn with_capacity(n_tokens: usize, n_bytes: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(n_bytes),
            spans: Vec::with_capacity(n_tokens),
            ids: Vec::with_capacity(n_tokens),
        }
    }

    /// A list of these tokens.
    ///
    /// # Errors
    /// As [`TokenList::push`].
    pub fn collect<'t>(tokens: impl IntoIterator<Item = (u32, &'t [u8])>) -> Result<Self> {
        let mut list = Self::default();
        for (id, token) in tokens {
            list.push(id, token)?;
        }
        Ok(list)
    }

    /// Adds a token.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the tokens are more than 4 GiB together.
    pub fn push(&mut self, id: u32, token: &[u8]) -> Result<()> {
        self.push_with(id, |bytes| bytes.extend_from_slice(token))
    }

    /// Adds a token whose bytes `append` puts behind those that are there.
    ///
    /// # Errors
    /// As [`TokenList::push`].
    #[inline]
    pub fn push_with(&mut self, id: u32, append: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let start = self.bytes.len();
        append(&mut self.bytes);
        let n_bytes = self.bytes.len();
        let (Ok(start), Ok(end)) = (u32::try_from(start), u32::try_from(n_bytes)) else {
            return Err(Error::Invalid(format!(
                "the tokens are {n_bytes} bytes together; at most 4 GiB are supported"
            )));
        };
        self.spans.push((start, end - start));
        self.ids.push(id);
        Ok(())
    }

    /// Takes the last token away again.
    pub fn pop(&mut self) {
        if let Some((start, _)) = self.spans.pop() {
            self.bytes.truncate(start as usize);
            self.ids.pop();
        }
    }

    /// Leaves nothing of the token at a place but the place.
    pub(super) fn clear(&mut self, place: usize) {
        self.spans[place].1 = 0;
    }

    /// How many tokens there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// True where there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The ids, by place.
    #[must_use]
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The bytes of the token at a place.
    #[inline]
    #[must_use]
    pub fn token(&self, place: usize) -> &[u8] {
        let (start, n_bytes) = self.spans[place];
        &self.bytes[start as usize..][..n_bytes as usize]
    }

    /// The tokens and their ids, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u32, &[u8])> {
        (0..self.len()).map(|place| (self.ids[place], self.token(place)))
    }

    /// Puts the tokens into the order of their ids; those of one id stay in their order.
    pub fn sort_by_id(&mut self) {
        if self.ids.is_sorted() {
            return;
        }
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.sort_by_key(|&place| self.ids[place]);
        self.spans = order.iter().map(|&place| self.spans[place]).collect();
        self.ids = order.iter().map(|&place| self.ids[place]).collect();
    }
}

/// A token that cannot be where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The token at this place has no bytes.
    Empty(usize),
    /// The tokens at these two places are the same.
    Twice(usize, usize),
}

/// Byte string -> number. The byte strings are elsewhere, and whoever asks says where; so an entry is five bytes in place
/// of the forty of a map that owns its keys.
///
/// The hash is seeded anew for each index, so no file can be made whose tokens all fall into one place.
#[derive(Clone, Debug, Default)]
pub(super) struct TokenIndex {
    numbers: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl TokenIndex {
    /// The place of each token of a list, or the first fault in its order.
    pub(super) fn new(tokens: &TokenList) -> std::result::Result<Self, Fault> {
        let mut index = Self { numbers: HashTable::with_capacity(tokens.len()), hasher: DefaultHashBuilder::default() };
        for place in 0..tokens.len() {
            let token = tokens.token(place);
            if token.is_empty() {
                return Err(Fault::Empty(place));
            }
            let Self { numbers, hasher } = &mut index;
            let entry = numbers.entry(
                hash(hasher, token),
                |&earlier| tokens.token(earlier as usize) == token,
                |&earlier| hash(hasher, tokens.token(earlier as usize)),
            );
            match entry {
                Entry::Occupied(earlier) => return Err(Fault::Twice(*earlier.get() as usize, place)),
                Entry::Vacant(vacant) => vacant.insert(place as u32),
            };
        }
        Ok(index)
    }

    /// The number of a byte string, where `bytes_of` gives the byte string of a number.
    #[inline]
    pub(super) fn get<'t>(&self, token: &[u8], bytes_of: impl Fn(u32) -> &'t [u8]) -> Option<u32> {
        self.numbers.find(hash(&self.hasher, token), |&number| bytes_of(number) == token).copied()
    }

    /// Forgets a byte string.
    pub(super) fn remove<'t>(&mut self, token: &[u8], bytes_of: impl Fn(u32) -> &'t [u8]) {
        if let Ok(entry) = self.numbers.find_entry(hash(&self.hasher, token), |&number| bytes_of(number) == token) {
            entry.remove();
        }
    }

    /// Puts another number in place of each.
    pub(super) fn renumber(&mut self, new: impl Fn(u32) -> u32) {
        self.numbers.iter_mut().for_each(|number| *number = new(*number));
    }
}

#[inline]
fn hash(hasher: &DefaultHashBuilder, token: &[u8]) -> u64 {
    let mut state = hasher.build_hasher();
    state.write(token);
    state.finish()
}
