//! What stands around the ids of every document.

use crate::encode::Id;

/// Ids that every document begins and ends with. Where it does so already nothing is added; a document without ids stays
/// without.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    /// What stands in front.
    pub prefix: Vec<u32>,
    /// What stands at the end.
    pub suffix: Option<u32>,
    /// What is taken away where it stands at the end.
    pub stripped: Option<u32>,
}

impl Frame {
    /// Puts the frame around the document that `ids` holds from `start` on; false where it has no ids.
    pub fn close<T: Id + Into<u32>>(&self, ids: &mut Vec<T>, start: usize) -> bool {
        if ids.len() == start {
            return false;
        }
        self.strip(ids);
        self.begin(ids, start);
        self.end(ids, None);
        ids.len() > start
    }

    fn strip<T: Id + Into<u32>>(&self, ids: &mut Vec<T>) {
        if self.is_stripped(ids) {
            ids.pop();
        }
    }

    fn is_stripped<T: Id + Into<u32>>(&self, ids: &[T]) -> bool {
        self.stripped.is_some() && ids.last().map(|&id| id.into()) == self.stripped
    }

    /// Puts in front as much of the prefix as is missing: all but the longest end of it that stands there.
    fn begin<T: Id + Into<u32>>(&self, ids: &mut Vec<T>, start: usize) {
        let stands = |end: &[u32]| {
            ids.len() - start >= end.len() && end.iter().zip(&ids[start..]).all(|(&wanted, &id)| wanted == id.into())
        };
        let n_missing = (0..self.prefix.len()).find(|&n| stands(&self.prefix[n..])).unwrap_or(self.prefix.len());
        if n_missing > 0 {
            ids.splice(start..start, self.prefix[..n_missing].iter().map(|&id| T::narrow(id)));
        }
    }

    /// `last` is the id before `ids`, where there is one.
    fn end<T: Id + Into<u32>>(&self, ids: &mut Vec<T>, last: Option<u32>) {
        if let Some(suffix) = self.suffix
            && ids.last().map(|&id| id.into()).or(last) != Some(suffix)
        {
            ids.push(T::narrow(suffix));
        }
    }
}

/// A document whose ids come in parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assembly {
    /// Ids that have come and are not given yet: what follows decides about them.
    pub held: Vec<u32>,
    /// The last id that was given.
    pub last: Option<u32>,
}

impl Assembly {
    /// Takes the next part of a document and leaves in `ids` what is to be given of it.
    ///
    /// With the last part: true where the document has ids. Another document may follow then.
    pub fn add<T: Id + Into<u32>>(&mut self, frame: &Frame, ids: &mut Vec<T>, is_last: bool) -> bool {
        if !self.held.is_empty() {
            ids.splice(0..0, self.held.drain(..).map(T::narrow));
        }
        let has_begun = self.last.is_some();
        if !is_last {
            // More than the prefix, so that what is stripped is no part of its beginning.
            let is_short = !has_begun && ids.len() <= frame.prefix.len();
            let n_held = if is_short { ids.len() } else { usize::from(frame.is_stripped(ids)) };
            self.held.extend(ids.drain(ids.len() - n_held..).map(Into::into));
        }
        if !ids.is_empty() {
            if is_last {
                frame.strip(ids);
            }
            if !has_begun {
                frame.begin(ids, 0);
            }
        }
        if is_last && (has_begun || !ids.is_empty()) {
            frame.end(ids, self.last);
        }
        self.last = ids.last().map(|&id| id.into()).or(self.last);
        let has_ids = self.last.is_some();
        if is_last {
            *self = Self::default();
        }
        has_ids
    }
}
