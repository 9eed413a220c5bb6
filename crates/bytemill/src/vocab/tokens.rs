//! Token bytes in one buffer, and an index by bytes.

use crate::error::{Result, invalid, show};
use hashbrown::DefaultHashBuilder;
use hashbrown::hash_table::{Entry, HashTable};
use std::hash::{BuildHasher, Hasher};

/// Tokens with their ids, in the order of a file. A token's *position* is its index in that order.
///
/// Nothing is checked here but the total size; [`super::Vocab`] checks the rest.
#[derive(Clone, Debug, Default)]
pub struct TokenList {
    bytes: Vec<u8>,
    /// Start in `bytes` and length of each token.
    spans: Vec<(u32, u32)>,
    ids: Vec<u32>,
}

impl TokenList {
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
    /// [`crate::Error::Invalid`] if the tokens have more than 4 GiB in all.
    pub fn push(&mut self, id: u32, token: &[u8]) -> Result<()> {
        self.push_with(id, |bytes| bytes.extend_from_slice(token))
    }

    /// Adds a token whose bytes `append` appends to the buffer.
    ///
    /// # Errors
    /// As [`TokenList::push`].
    #[inline]
    pub fn push_with(&mut self, id: u32, append: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let start = self.bytes.len();
        append(&mut self.bytes);
        let n_bytes = self.bytes.len();
        let (Ok(start), Ok(end)) = (u32::try_from(start), u32::try_from(n_bytes)) else {
            return invalid(format!("the tokens are {n_bytes} bytes together; at most 4 GiB are supported"));
        };
        self.spans.push((start, end - start));
        self.ids.push(id);
        Ok(())
    }

    /// Removes the last token.
    pub fn pop(&mut self) {
        if let Some((start, _)) = self.spans.pop() {
            self.bytes.truncate(start as usize);
            self.ids.pop();
        }
    }

    /// Removes the bytes of the token at a position.
    pub(crate) fn clear(&mut self, position: usize) {
        self.spans[position].1 = 0;
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The ids, by position.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The bytes of the token at a position.
    #[inline]
    pub fn token(&self, position: usize) -> &[u8] {
        let (start, n_bytes) = self.spans[position];
        &self.bytes[start as usize..][..n_bytes as usize]
    }

    /// The tokens and their ids, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u32, &[u8])> {
        (0..self.len()).map(|position| (self.ids[position], self.token(position)))
    }

    /// Sorts the tokens by id; the sort is stable.
    pub fn sort_by_id(&mut self) {
        if self.ids.is_sorted() {
            return;
        }
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.sort_by_key(|&position| self.ids[position]);
        self.spans = order.iter().map(|&position| self.spans[position]).collect();
        self.ids = order.iter().map(|&position| self.ids[position]).collect();
    }
}

/// Byte string → number. The byte strings are stored elsewhere, and the caller says where, so an entry takes five bytes instead
/// of the forty of a map that owns its keys.
///
/// The hash is seeded for each index, so no file can be crafted whose tokens all collide.
#[derive(Clone, Debug, Default)]
pub(crate) struct TokenIndex {
    numbers: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl TokenIndex {
    /// The position of each token of a list. `number` is what their file calls an id, for messages.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for the first token that is empty or repeated.
    pub(crate) fn new(tokens: &TokenList, number: &str) -> Result<Self> {
        let (mut numbers, hasher) = (HashTable::with_capacity(tokens.len()), DefaultHashBuilder::default());
        for (position, (id, token)) in tokens.iter().enumerate() {
            if token.is_empty() {
                return invalid(format!("the token with the {number} {id} is empty"));
            }
            let entry = numbers.entry(
                hash(&hasher, token),
                |&earlier: &u32| tokens.token(earlier as usize) == token,
                |&earlier| hash(&hasher, tokens.token(earlier as usize)),
            );
            match entry {
                Entry::Occupied(earlier) => {
                    let (token, earlier) = (show(token), tokens.ids()[*earlier.get() as usize]);
                    return invalid(format!("token {token} is there twice, with the {number}s {earlier} and {id}"));
                }
                Entry::Vacant(vacant) => vacant.insert(position as u32),
            };
        }
        Ok(Self { numbers, hasher })
    }

    /// The index of numbers whose byte strings `bytes_of` returns. They must be different.
    pub(crate) fn of_numbers<'t>(numbers: &[u32], bytes_of: impl Fn(u32) -> &'t [u8]) -> Self {
        let (mut table, hasher) = (HashTable::with_capacity(numbers.len()), DefaultHashBuilder::default());
        for &number in numbers {
            table.insert_unique(hash(&hasher, bytes_of(number)), number, |&other| hash(&hasher, bytes_of(other)));
        }
        Self { numbers: table, hasher }
    }

    /// An index without numbers that has room for `n`.
    pub(crate) fn with_capacity(n: usize) -> Self {
        Self { numbers: HashTable::with_capacity(n), hasher: DefaultHashBuilder::default() }
    }

    /// The number of a byte string, which becomes `number` if it has none; `bytes_of` returns the byte string of a number.
    pub(crate) fn get_or_insert<'t>(&mut self, token: &[u8], number: u32, bytes_of: impl Fn(u32) -> &'t [u8]) -> u32 {
        let hash_of = |number: &u32| hash(&self.hasher, bytes_of(*number));
        let found =
            self.numbers.entry(hash(&self.hasher, token), |&other| bytes_of(other) == token, hash_of).or_insert(number);
        *found.get()
    }

    /// All numbers, in no order.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.numbers.iter().copied()
    }

    /// The number of a byte string; `bytes_of` returns the byte string of a number.
    #[inline]
    pub(crate) fn get<'t>(&self, token: &[u8], bytes_of: impl Fn(u32) -> &'t [u8]) -> Option<u32> {
        self.numbers.find(hash(&self.hasher, token), |&number| bytes_of(number) == token).copied()
    }

    /// Replaces every number; `None` removes it.
    pub(crate) fn renumber(&mut self, new: impl Fn(u32) -> Option<u32>) {
        self.numbers.retain(|number| new(*number).map(|new| *number = new).is_some());
    }
}

#[inline]
fn hash(hasher: &DefaultHashBuilder, token: &[u8]) -> u64 {
    let mut state = hasher.build_hasher();
    state.write(token);
    state.finish()
}
