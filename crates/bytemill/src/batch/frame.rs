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

/// Frames a document whose ids arrive in one or more chunks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assembly {
    /// Ids that are held back, since later ones decide about them.
    pub held: Vec<u32>,
    /// The last id that was written.
    pub last: Option<u32>,
}

impl Assembly {
    /// Adds the next chunk of a document, `ids[start..]`, and leaves there what is to be written.
    ///
    /// True if the document has ids so far. After the last chunk, another document may follow.
    pub fn add<T: Id + Into<u32>>(&mut self, frame: &Frame, ids: &mut Vec<T>, start: usize, is_last: bool) -> bool {
        if !self.held.is_empty() {
            ids.splice(start..start, self.held.drain(..).map(T::narrow));
        }
        let is_started = self.last.is_some();
        let has_stripped = frame.stripped.is_some() && last(&ids[start..]) == frame.stripped;
        if !is_last {
            // Wait for more ids than the prefix has: the stripped id must not be part of it.
            let is_short = !is_started && ids.len() - start <= frame.prefix.len();
            let n_held = if is_short { ids.len() - start } else { usize::from(has_stripped) };
            self.held.extend(ids.drain(ids.len() - n_held..).map(Into::into));
        }
        let is_empty = ids.len() == start;
        if is_last && has_stripped {
            ids.pop();
        }
        if !is_empty && !is_started {
            add_prefix(&frame.prefix, ids, start);
        }
        self.last = last(&ids[start..]).or(self.last);
        if is_last
            && (is_started || !is_empty)
            && let Some(suffix) = frame.suffix.filter(|_| self.last != frame.suffix)
        {
            ids.push(T::narrow(suffix));
            self.last = Some(suffix);
        }
        let has_ids = self.last.is_some();
        if is_last {
            *self = Self::default();
        }
        has_ids
    }
}

fn last<T: Id + Into<u32>>(ids: &[T]) -> Option<u32> {
    ids.last().map(|&id| id.into())
}

/// Inserts the missing part of the prefix at `start`: all but its longest suffix that `ids[start..]` starts with.
fn add_prefix<T: Id + Into<u32>>(prefix: &[u32], ids: &mut Vec<T>, start: usize) {
    let is_present = |part: &[u32]| {
        ids.len() - start >= part.len() && part.iter().zip(&ids[start..]).all(|(&wanted, &id)| wanted == id.into())
    };
    let n_missing = (0..prefix.len()).find(|&n| is_present(&prefix[n..])).unwrap_or(prefix.len());
    if n_missing > 0 {
        ids.splice(start..start, prefix[..n_missing].iter().map(|&id| T::narrow(id)));
    }
}
