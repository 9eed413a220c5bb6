//! A text passes through the table of an automaton.

use super::compose::{ACTS, Automaton, ENDED, ENDS, N_FLAGS};
use crate::pretokenize::blocks::MAX_ENDS;

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
            row = (entry >> N_FLAGS) as usize;
            at += 1;
        }
        (self.row, self.at) = (row, at);
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
