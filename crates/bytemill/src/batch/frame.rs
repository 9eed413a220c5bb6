//! Ids that every document starts or ends with.

use crate::encode::Id;

/// Ids that every document starts and ends with. They are added only if they are missing, and not to a document without ids.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    /// The ids at the start.
    pub prefix: Vec<u32>,
    /// The id at the end.
    pub suffix: Option<u32>,
    /// An id that is removed from the end, before the suffix is added.
    pub stripped: Option<u32>,
}

impl Frame {
    /// Frames the document `ids[start..]`. False if it has no ids.
    pub fn close<T: Id + Into<u32>>(&self, ids: &mut Vec<T>, start: usize) -> bool {
        if ids.len() == start {
            return false;
        }
        self.strip(ids);
        self.add_prefix(ids, start);
        self.add_suffix(ids, None);
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

    /// Adds the missing part of the prefix: all but its longest suffix that `ids[start..]` starts with.
    fn add_prefix<T: Id + Into<u32>>(&self, ids: &mut Vec<T>, start: usize) {
        let is_present = |part: &[u32]| {
            ids.len() - start >= part.len() && part.iter().zip(&ids[start..]).all(|(&wanted, &id)| wanted == id.into())
        };
        let n_missing = (0..self.prefix.len()).find(|&n| is_present(&self.prefix[n..])).unwrap_or(self.prefix.len());
        if n_missing > 0 {
            ids.splice(start..start, self.prefix[..n_missing].iter().map(|&id| T::narrow(id)));
        }
    }

    /// Adds the suffix if it is missing. `last` is the id before `ids`, if there is one.
    fn add_suffix<T: Id + Into<u32>>(&self, ids: &mut Vec<T>, last: Option<u32>) {
        if let Some(suffix) = self.suffix
            && ids.last().map(|&id| id.into()).or(last) != Some(suffix)
        {
            ids.push(T::narrow(suffix));
        }
    }
}

/// Frames a document whose ids arrive in chunks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assembly {
    /// Ids that are held back, since later ones decide about them.
    pub held: Vec<u32>,
    /// The last id that was written.
    pub last: Option<u32>,
}

impl Assembly {
    /// Adds the next chunk of a document and leaves in `ids` what is to be written.
    ///
    /// True if the document has ids so far. After the last chunk, another document may follow.
    pub fn add<T: Id + Into<u32>>(&mut self, frame: &Frame, ids: &mut Vec<T>, is_last: bool) -> bool {
        if !self.held.is_empty() {
            ids.splice(0..0, self.held.drain(..).map(T::narrow));
        }
        let is_started = self.last.is_some();
        if !is_last {
            // Wait for more ids than the prefix has: the stripped id must not be part of it.
            let is_short = !is_started && ids.len() <= frame.prefix.len();
            let n_held = if is_short { ids.len() } else { usize::from(frame.is_stripped(ids)) };
            self.held.extend(ids.drain(ids.len() - n_held..).map(Into::into));
        }
        if !ids.is_empty() {
            if is_last {
                frame.strip(ids);
            }
            if !is_started {
                frame.add_prefix(ids, 0);
            }
        }
        if is_last && (is_started || !ids.is_empty()) {
            frame.add_suffix(ids, self.last);
        }
        self.last = ids.last().map(|&id| id.into()).or(self.last);
        let has_ids = self.last.is_some();
        if is_last {
            *self = Self::default();
        }
        has_ids
    }
}
