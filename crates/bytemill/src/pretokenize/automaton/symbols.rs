//! The alphabet of an automaton: sets of characters between which its expressions do not distinguish.

use regex_syntax::hir::ClassUnicode;
use std::collections::{BTreeSet, HashMap};

/// Upper bound on the number of symbols.
const MAX_SYMBOLS: usize = 128;

/// The symbol of the line feed where a line may end, which the assertion `(?m:$)` looks for.
const LINE_FEED: u8 = b'\n';

/// Code points of one entry of [`Symbols::blocks`].
const BLOCK: usize = 128;
const N_CODE_POINTS: usize = 0x11_0000;

/// Code points that are no characters.
const SURROGATES: std::ops::Range<usize> = 0xD800..0xE000;

/// The symbol of every character.
#[derive(Clone, Debug)]
pub struct Symbols {
    /// The symbols of the characters of ASCII.
    pub ascii: [u8; 128],
    /// For every block of code points, the index of its symbols in `of`, in blocks.
    blocks: Vec<u16>,
    of: Vec<u8>,
    /// The symbols that characters have.
    pub used: Vec<u8>,
    /// One more than the largest symbol.
    pub n: usize,
    /// The symbols of each class.
    members: Vec<Vec<u8>>,
}

impl Symbols {
    /// The coarsest alphabet in which each class is a set of symbols; `None` if that takes too many.
    pub fn new(classes: &[ClassUnicode]) -> Option<Self> {
        let mut borders = BTreeSet::from([0, N_CODE_POINTS]);
        for range in classes.iter().flat_map(ClassUnicode::ranges) {
            borders.extend([range.start() as usize, range.end() as usize + 1]);
        }
        let starts: Vec<usize> = borders.into_iter().collect();
        let mut within = vec![vec![false; classes.len()]; starts.len() - 1];
        for (index, class) in classes.iter().enumerate() {
            let mut ranges = class.ranges().iter().peekable();
            for (start, is_in) in starts.iter().zip(&mut within) {
                while ranges.next_if(|range| (range.end() as usize) < *start).is_some() {}
                is_in[index] = ranges.peek().is_some_and(|range| range.start() as usize <= *start);
            }
        }
        let (mut known, mut members, mut used) = (HashMap::new(), vec![Vec::new(); classes.len()], Vec::new());
        let mut all = vec![0; N_CODE_POINTS];
        for (bounds, is_in) in starts.windows(2).zip(&within) {
            let is_line_feed = bounds == [usize::from(LINE_FEED), usize::from(LINE_FEED) + 1];
            if SURROGATES.contains(&bounds[0]) && SURROGATES.contains(&(bounds[1] - 1)) {
                continue;
            }
            let symbol = *known.entry((is_line_feed, is_in)).or_insert_with(|| {
                let n = u8::try_from(used.len()).unwrap_or(u8::MAX);
                let symbol = if is_line_feed { LINE_FEED } else { n + u8::from(n >= LINE_FEED) };
                used.push(symbol);
                members.iter_mut().zip(is_in).filter(|(_, is_in)| **is_in).for_each(|(of, _)| of.push(symbol));
                symbol
            });
            if used.len() > MAX_SYMBOLS {
                return None;
            }
            all[bounds[0]..bounds[1]].fill(symbol);
        }
        let (mut blocks, mut of, mut places) = (Vec::new(), Vec::new(), HashMap::new());
        for block in all.chunks(BLOCK) {
            let place = *places.entry(block).or_insert_with(|| {
                of.extend_from_slice(block);
                of.len() / BLOCK - 1
            });
            blocks.push(u16::try_from(place).ok()?);
        }
        let n = used.iter().max().map_or(0, |&symbol| usize::from(symbol) + 1);
        Some(Self { ascii: std::array::from_fn(|byte| all[byte]), blocks, of, used, n, members })
    }

    /// The symbols of the class with this index.
    pub fn members(&self, class: usize) -> &[u8] {
        &self.members[class]
    }

    #[inline]
    pub fn of(&self, character: char) -> u8 {
        let at = character as usize;
        self.of[usize::from(self.blocks[at / BLOCK]) * BLOCK + at % BLOCK]
    }
}

#[cfg(test)]
#[path = "tests/symbols.rs"]
mod tests;
