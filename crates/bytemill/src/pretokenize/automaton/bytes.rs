//! The pre-tokens of a text are divided by an automaton that reads each byte as the character that stands for it.

use super::compose::{ACTS, Automaton, ENDED, ENDS, N_FLAGS};
use crate::pretokenize::blocks::MAX_ENDS;
use crate::text::byte_characters;

/// A pre-token that ends at a byte ends at most so many symbols before it, and each of them may be one.
const MAX_CUTS: usize = 64;

/// An automaton that reads bytes.
#[derive(Clone, Debug)]
pub struct ByteAutomaton {
    automaton: Automaton,
    /// The symbol of each byte.
    symbols: [u8; 256],
    /// A pre-token of these bytes alone is not divided.
    is_neutral: [bool; 256],
}

impl ByteAutomaton {
    /// `None` if the automaton may give up.
    pub fn new(automaton: Automaton) -> Option<Self> {
        if automaton.can_give_up() {
            return None;
        }
        let symbols = byte_characters::characters().map(|character| automaton.symbols.of(character));
        let entry = |row: usize, byte: u8| automaton.table[row + usize::from(symbols[usize::from(byte)])];
        // Letters lead to this configuration and do not leave it. All bytes of which the same is true are neutral.
        let common = entry(0, b'e');
        let row = (common >> N_FLAGS) as usize;
        let is_whole = common & (ACTS | ENDED | ENDS) == 0 && automaton.finals[row / automaton.symbols.n].is_empty();
        let is_neutral = |byte: u8| is_whole && entry(0, byte) == common && entry(row, byte) == common;
        let is_neutral = std::array::from_fn(|byte| u8::try_from(byte).is_ok_and(is_neutral));
        Some(Self { automaton, symbols, is_neutral })
    }
}

/// Divides the pre-tokens of a text one after the other.
pub struct ByteScan<'t> {
    automaton: &'t ByteAutomaton,
    text: &'t [u8],
    at: usize,
    row: usize,
    /// All bytes from `at` on before this offset are neutral.
    neutral_until: usize,
}

impl<'t> ByteScan<'t> {
    pub fn new(automaton: &'t ByteAutomaton, text: &'t [u8]) -> Self {
        Self { automaton, text, at: 0, row: 0, neutral_until: 0 }
    }

    /// Appends the ends of the parts of the next pre-token, the one from the end of the last to `end`. Returns false if there are enough
    /// ends before all of them are found.
    pub fn fill(&mut self, end: usize, ends: &mut Vec<usize>) -> bool {
        let Self { automaton: ByteAutomaton { automaton, symbols, is_neutral }, text, .. } = self;
        if self.neutral_until < self.at {
            let n_neutral = text[self.at..].iter().position(|&byte| !is_neutral[usize::from(byte)]);
            self.neutral_until = n_neutral.map_or(text.len(), |n| self.at + n);
        }
        if self.row == 0 && end <= self.neutral_until && ends.len() < MAX_ENDS {
            self.at = end;
        }
        while self.at < end {
            if ends.len() + MAX_CUTS > MAX_ENDS {
                return false;
            }
            let entry = automaton.table[self.row + usize::from(symbols[usize::from(text[self.at])])];
            let rest = (entry >> N_FLAGS) as usize;
            if entry & ACTS == 0 {
                ends.extend((entry & ENDED != 0).then(|| self.at - 1));
                ends.extend((entry & ENDS != 0).then_some(self.at));
                self.row = rest;
            } else {
                ends.extend(automaton.actions[rest].cuts.iter().map(|cut| self.at - cut));
                self.row = automaton.actions[rest].next.unwrap_or_default() as usize;
            }
            self.at += 1;
        }
        ends.extend(automaton.finals[self.row / automaton.symbols.n].iter().map(|cut| end - cut));
        ends.push(end);
        self.row = 0;
        true
    }
}
