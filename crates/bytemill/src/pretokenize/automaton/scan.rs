//! A text passes through the table of an automaton, character by character or byte by byte.

use super::compose::{ACTS, Automaton, CUTS, ENDED, ENDS, N_FLAGS};
use crate::pretokenize::blocks::MAX_ENDS;
use crate::pretokenize::expression::THEN;
use crate::text::byte_characters;
use once_cell::race::OnceBox;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that are read without looking whether there is room for the ends in them.
const CHUNK: usize = 64;

/// An iterator over the ends of a text's pre-tokens, many at a time.
pub struct Scan<'t> {
    automaton: &'t Automaton,
    text: &'t str,
    /// Start of the next character.
    at: usize,
    /// Where the configuration begins in the table.
    row: usize,
    /// The last end of a pre-token that was found.
    pub last_end: usize,
    /// The last end of a pre-token of the first step; always 0 if there is only one.
    pub last_cut: usize,
}

/// Why a scan has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// There are enough ends.
    Full,
    /// The text has ended, and with it the last pre-token.
    End,
    /// The automaton has given up. The ends up to [`Scan::last_end`] are known, and all those up to [`Scan::last_cut`].
    Lost,
}

impl<'t> Scan<'t> {
    pub fn new(automaton: &'t Automaton, text: &'t str) -> Self {
        Self { automaton, text, at: 0, row: 0, last_end: 0, last_cut: 0 }
    }

    /// Goes on at an offset where a pre-token ends, one of the first step if there are several.
    pub fn restart(&mut self, at: usize) {
        (self.at, self.row, self.last_end, self.last_cut) = (at, 0, at, at);
    }

    /// Appends the ends of the next pre-tokens.
    pub fn fill(&mut self, ends: &mut Vec<usize>) -> Stop {
        while self.at < self.text.len() {
            if ends.len() + 3 * CHUNK > MAX_ENDS {
                return Stop::Full;
            }
            let Some(character) = self.text[self.at..].chars().next() else { break };
            if !self.read(character, ends) {
                return Stop::Lost;
            }
            if character.is_ascii() {
                self.read_ascii(ends);
            }
        }
        let cuts = &self.automaton.finals[self.row / self.automaton.symbols.n];
        ends.extend(cuts.iter().map(|&cut| self.offset(cut)));
        if self.last_end < self.text.len() || !cuts.is_empty() {
            ends.push(self.text.len());
        }
        self.restart(self.text.len());
        Stop::End
    }

    /// Reads ASCII characters after another one, up to one that needs an action, and at most a chunk.
    #[inline]
    fn read_ascii(&mut self, ends: &mut Vec<usize>) {
        let (table, of_ascii) = (&self.automaton.table[..], &self.automaton.symbols.ascii);
        let chunk = &self.text.as_bytes()[self.at..];
        let chunk = &chunk[..chunk.len().min(CHUNK)];
        // Each end is written, and counts if there is one.
        let (mut found, mut n_found, mut row, mut at) = ([0; 2 * CHUNK], 0, self.row, self.at);
        let mut last_cut = self.last_cut;
        for &byte in chunk {
            let Some(&symbol) = of_ascii.get(usize::from(byte)) else { break };
            let entry = table[row + usize::from(symbol)];
            if entry & ACTS != 0 {
                break;
            }
            found[n_found % (2 * CHUNK)] = at - 1;
            n_found += usize::from(entry & ENDED != 0);
            found[n_found % (2 * CHUNK)] = at;
            n_found += usize::from(entry & ENDS != 0);
            last_cut = if entry & CUTS != 0 { at - usize::from(entry & ENDS == 0) } else { last_cut };
            row = (entry >> N_FLAGS) as usize;
            at += 1;
        }
        (self.row, self.at, self.last_cut) = (row, at, last_cut);
        ends.extend_from_slice(&found[..n_found]);
        self.last_end = found[..n_found].last().copied().unwrap_or(self.last_end);
    }

    /// Reads a character. Returns false if the automaton gives up before it.
    #[inline]
    fn read(&mut self, character: char, ends: &mut Vec<usize>) -> bool {
        let Automaton { symbols, table, actions, .. } = self.automaton;
        let entry = table[self.row + usize::from(symbols.of(character))];
        if entry & ACTS == 0 {
            if entry & ENDED != 0 {
                self.last_end = self.offset(1);
                ends.push(self.last_end);
            }
            if entry & ENDS != 0 {
                self.last_end = self.at;
                ends.push(self.last_end);
            }
            if entry & CUTS != 0 {
                self.last_cut = self.last_end;
            }
            self.row = (entry >> N_FLAGS) as usize;
        } else {
            let action = &actions[(entry >> N_FLAGS) as usize];
            let Some(next) = action.next else { return false };
            for &cut in &action.cuts {
                self.last_end = self.offset(cut);
                ends.push(self.last_end);
            }
            if let Some(cut) = action.first_step_cut {
                self.last_cut = self.offset(cut);
            }
            self.row = next as usize;
        }
        self.at += character.len_utf8();
        true
    }

    /// The offset of the character that is this many before the next one.
    #[inline]
    fn offset(&self, n_before: usize) -> usize {
        let mut at = self.at;
        for _ in 0..n_before {
            at -= 1;
            while !self.text.is_char_boundary(at) {
                at -= 1;
            }
        }
        at
    }
}

// The pre-tokens of a text are divided by an automaton that reads each byte as the character that stands for it.

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

// An automaton that is built once there is enough text for it.

/// Bytes of text that are split without an automaton: building it takes as long as splitting some of them.
const N_BYTES_BEFORE: usize = 1 << 16;

/// The automaton of an expression, or of several with [`THEN`] in between, which clones share.
#[derive(Clone, Debug, Default)]
pub struct LazyAutomaton {
    built: Arc<OnceBox<Option<Automaton>>>,
    n_bytes: Arc<AtomicUsize>,
}

impl LazyAutomaton {
    /// The automaton, if there is one.
    pub fn get(&self, expression: &str) -> Option<&Automaton> {
        let build = || Box::new(Automaton::new(&expression.split(THEN).collect::<Vec<_>>()));
        self.built.get_or_init(build).as_ref()
    }

    /// The automaton, unless the texts so far were too short for it.
    pub fn for_text(&self, expression: &str, text: &str) -> Option<&Automaton> {
        if let Some(built) = self.built.get() {
            return built.as_ref();
        }
        let n_bytes = self.n_bytes.fetch_add(text.len(), Ordering::Relaxed) + text.len();
        if n_bytes > N_BYTES_BEFORE { self.get(expression) } else { None }
    }

    /// None, however long the texts are.
    #[cfg(test)]
    pub fn never() -> Self {
        let never = Self::default();
        never.built.set(Box::new(None)).unwrap();
        never
    }
}
