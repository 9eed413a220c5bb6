//! What stands for symbols that are no token, in a vocabulary whose smallest tokens are characters.

use super::tokens::TokenList;
use crate::error::Result;

/// Symbols that are no token have ids from here on, which [`Leftovers::expand`] replaces.
pub(crate) const FIRST_LEFTOVER: u32 = 1 << 30;

/// What files write for a space, `▁`: what is left over of a space that is no token.
pub(crate) const META: [u8; 3] = [0xE2, 0x96, 0x81];

/// What the bytes of characters without a token become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// Each byte has a token.
    Bytes,
    /// Nothing: they vanish before merging.
    Nothing,
    /// One token stands for each unknown character, or for several in a row if they are `fused`.
    Unknown {
        /// Its id.
        id: u32,
        /// Whether it stands for several characters.
        fused: bool,
    },
}

/// What stands for symbols that are no token: parts of characters, and bytes if these have no tokens.
#[derive(Clone, Debug)]
pub struct Leftovers {
    pub(super) fallback: Fallback,
    pub(super) symbols: Vec<Leftover>,
}

/// A symbol that is no token.
#[derive(Clone, Debug)]
pub(super) struct Leftover {
    pub(super) bytes: Box<[u8]>,
    /// The ids that stand for it.
    pub(super) ids: Box<[u32]>,
}

impl Leftovers {
    /// None so far.
    pub(crate) fn new(fallback: Fallback) -> Self {
        Self { fallback, symbols: Vec::new() }
    }

    /// Adds a symbol to `tokens`, and the ids that stand for it.
    pub(crate) fn add(&mut self, tokens: &mut TokenList, bytes: &[u8], ids: Vec<u32>) -> Result<()> {
        tokens.push(FIRST_LEFTOVER + self.symbols.len() as u32, bytes)?;
        self.symbols.push(Leftover { bytes: bytes.into(), ids: ids.into() });
        Ok(())
    }

    /// What unknown characters become.
    pub fn fallback(&self) -> Fallback {
        self.fallback
    }

    /// True for a character that merges although it is no token.
    pub fn has(&self, character: &[u8]) -> bool {
        self.symbols.iter().any(|symbol| *symbol.bytes == *character)
    }

    /// The bytes of a symbol with this id.
    pub(super) fn bytes(&self, id: u32) -> &[u8] {
        id.checked_sub(FIRST_LEFTOVER).map_or(&[], |index| &self.symbols[index as usize].bytes)
    }

    /// Replaces the ids from `start` on that are no tokens.
    pub(crate) fn expand(&self, ids: &mut Vec<u32>, start: usize) {
        if ids[start..].iter().all(|&id| id < FIRST_LEFTOVER) {
            return;
        }
        for id in ids.split_off(start) {
            match id.checked_sub(FIRST_LEFTOVER) {
                None => ids.push(id),
                Some(index) => ids.extend_from_slice(&self.symbols[index as usize].ids),
            }
        }
    }
}
